"""A store of runs: each is made once, found again by its configuration, and continued if it was interrupted."""

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fedcmoo.callbacks import Callback
from fedcmoo.config import RunConfig
from fedcmoo.files import write_atomically
from fedcmoo.history import read_history
from fedcmoo.run import CONFIG, HISTORY, RESULT, SavedRun
from fedcmoo.run_folder import holds_run
from fedcmoo.settings import SettingsError, from_table, read_toml, write_toml


class NotMeasuredError(RuntimeError):
    """Raised if a run is missing and none should be made."""


class Runs:
    """A folder with one folder for every configuration that was run.

    A run of T rounds is also found as the first T rounds of a longer run, finished or not, since both compute the same
    up to round T.

    Args:
        folder: where they are made.
        callbacks: a function that returns a run's callbacks, given its name.
        only_finished: whether to use existing runs only and train nothing.
        published: a folder that `publish` wrote, whose runs are found too.
    """

    def __init__(
        self,
        folder: Path,
        callbacks: Callable[[str], Sequence[Callback]] = lambda name: (),
        only_finished: bool = False,
        published: Path | None = None,
    ) -> None:
        self.folder = folder
        self.only_finished = only_finished
        self.published = published
        self._callbacks = callbacks
        self._failed: dict[Path, Exception] = {}

    def place(self, config: RunConfig) -> Path:
        """The folder of a run: the one whose configuration computes the same, or else a new one.

        A new folder's name has a hash of all settings that change the results. Folders are compared by their
        configuration files, so that runs are still found after new settings with neutral defaults were added.
        """
        for folder, rounds in self._same_but_for_rounds(config):
            if rounds == config.rounds:
                return folder
        digest = hashlib.sha256(json.dumps(config.results(), sort_keys=True).encode()).hexdigest()[:10]
        return self.folder / f"{config.title}-{digest}"

    def find(self, config: RunConfig) -> SavedRun | None:
        """The run if it exists, complete or as the beginning of a longer one that was evaluated at its last round."""
        place = self.place(config)
        if (place / RESULT).exists():
            return SavedRun.read(place)
        for folder, rounds in self._same_but_for_rounds(config):
            if rounds > config.rounds and config.beginning_suffices:
                beginning = read_history(folder / HISTORY)[: config.rounds]
                if len(beginning) == config.rounds and beginning[-1].scores:
                    return SavedRun(config.to_table(), beginning, folder)
        return None

    def rounds_done(self, config: RunConfig) -> int:
        """The number of finished rounds of a run."""
        return len(read_history(self.place(config) / HISTORY))

    def get(self, config: RunConfig) -> SavedRun:
        """The run of a configuration: read if it exists, else made or continued.

        A failed run is not retried by this object: another target that needs it gets the same error.
        """
        found = self.find(config)
        if found is not None:
            return found
        place = self.place(config)
        if place in self._failed:
            raise self._failed[place]
        if self.only_finished:
            done = self.rounds_done(config)
            raise NotMeasuredError(f"{config.title} is not finished: {done} of {config.rounds} rounds are done")
        try:
            config.execute(place, self._callbacks(place.name), resume=holds_run(place))
        except Exception as error:
            self._failed[place] = error
            raise
        return SavedRun.read(place)

    def files(self, pattern: str) -> list[Path]:
        """The files of all runs that match a pattern, those of published runs last."""
        folders = dict.fromkeys(folder for folder in (self.folder, self.published) if folder is not None)
        return [file for folder in folders for file in sorted(folder.glob(pattern))]

    def publish(self, to: Path) -> None:
        """Copy what tables and figures need of every finished run: all but models, checkpoints and the data's place."""
        for finished in sorted(self.folder.glob(f"*/{RESULT}")):
            run, copy = finished.parent, to / finished.parent.name
            copy.mkdir(parents=True, exist_ok=True)
            settings = {key: value for key, value in read_toml(run / CONFIG).items() if key != "data"}
            history = gzip.compress((run / HISTORY).read_bytes(), mtime=0)
            write_atomically(copy / CONFIG, write_toml(settings).encode())
            write_atomically(copy / f"{HISTORY}.gz", history)
            for file in run.glob("*.json"):
                write_atomically(copy / file.name, file.read_bytes())

    def _same_but_for_rounds(self, config: RunConfig) -> Iterator[tuple[Path, int]]:
        """The folders whose configurations are equivalent except for the number of rounds, and those numbers."""
        for file in self.files(f"{config.title}-*/{CONFIG}"):
            try:
                other = from_table(type(config), read_toml(file))
            except SettingsError:  # made with settings that no longer exist
                continue
            if other.computes_the_same_as(replace(config, rounds=other.rounds)):
                yield file.parent, other.rounds
