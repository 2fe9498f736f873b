"""A store of runs: each is made once, found again by its configuration, and continued if it was interrupted."""

import contextlib
import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedcmoo.callbacks import Callback
from fedcmoo.config import RunConfig
from fedcmoo.failures import DivergedError
from fedcmoo.files import DamagedError, write_atomically
from fedcmoo.history import read_history
from fedcmoo.run import CONFIG, HISTORY, RESULT, SavedRun
from fedcmoo.run_folder import NEWEST, holds_run
from fedcmoo.settings import SettingsError, from_table, read_toml, write_toml

DIVERGED = "diverged.txt"
"""The file with the error of a run that has diverged."""


class NotMeasuredError(RuntimeError):
    """Raised if a run is missing and none should be made."""


class Runs:
    """A folder with one folder for every configuration that was run.

    A run of T rounds is also taken from the first T rounds of a longer one, finished or not, if that was evaluated in
    round T; and a longer run continues a finished one of T rounds. Runs with differential privacy are excluded, since
    their noise depends on the number of rounds.

    Args:
        folder: the folder in which new runs are stored.
        callbacks: a function that returns a run's callbacks, given its name.
        only_finished: whether to use existing runs only and train nothing.
        published: a folder that `publish` wrote, whose finished runs are found too.
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
        self._used: dict[Path, None] = {}

    def place(self, config: RunConfig) -> Path:
        """The folder of a run: an existing one with an equivalent configuration, or else a new one.

        A new folder's name has a hash of all settings that change the results. Folders are compared by their
        configuration files, so that runs are still found after new settings with neutral defaults were added.
        """
        for folder, rounds in _same_but_for_rounds(config, self.folder):
            if rounds == config.rounds:
                return folder
        digest = hashlib.sha256(json.dumps(config.results(), sort_keys=True).encode()).hexdigest()[:10]
        return self.folder / f"{config.title}-{digest}"

    def find(self, config: RunConfig) -> SavedRun | None:
        """The run if it exists, complete or as the beginning of a longer one that was evaluated at its last round."""
        if not config.found_by_settings:
            return None
        longer = []
        for store in self._stores:
            for folder, rounds in _same_but_for_rounds(config, store):
                if rounds == config.rounds and (folder / RESULT).exists():
                    return self._read(config, folder)
                if rounds > config.rounds and config.beginning_suffices:
                    longer.append(folder)
        for folder in longer:
            with contextlib.suppress(DamagedError):  # it is only a shortcut
                beginning = read_history(folder / HISTORY)[: config.rounds]
                if len(beginning) == config.rounds and beginning[-1].scores:
                    self._used[folder] = None
                    return SavedRun(config.to_table(), beginning, folder)
        return None

    def rounds_done(self, config: RunConfig) -> int:
        """The number of finished rounds of a run, or of the shorter run that it would continue."""
        place = self.place(config)
        shorter = None if holds_run(place) else self._shorter(config)
        return len(read_history((shorter or place) / HISTORY))

    def get(self, config: RunConfig, name: str | None = None) -> SavedRun:
        """The run of a configuration: read if it exists, else made or continued.

        A later request for a failed run raises the same error. A run that diverged is never repeated.

        Args:
            config: the configuration.
            name: the run's name for callbacks; by default that of its folder.
        """
        found = self.find(config)
        if found is not None:
            return found
        place = self.place(config)
        if place in self._failed:
            raise self._failed[place]
        if (place / DIVERGED).exists():
            raise DivergedError((place / DIVERGED).read_text())
        if self.only_finished:
            done = self.rounds_done(config)
            raise NotMeasuredError(f"{config.title} is not finished: {done} of {config.rounds} rounds are done")
        try:
            if not holds_run(place) and (shorter := self._shorter(config)):
                _copy_rounds(shorter, place)
            config.execute(place, self._callbacks(name or place.name), resume=holds_run(place))
        except Exception as error:
            self._failed[place] = error
            if isinstance(error, DivergedError):
                write_atomically(place / DIVERGED, str(error).encode())
            raise
        return self._read(config, place)

    def missing(self, configs: Mapping[str, RunConfig]) -> dict[str, RunConfig]:
        """Those of several runs that are neither finished nor known to diverge, each once, by name."""
        names: dict[Path, str] = {}
        for name, config in configs.items():
            place = self.place(config)
            if place not in names and self.find(config) is None and not (place / DIVERGED).exists():
                names[place] = name
        return {name: configs[name] for name in names.values()}

    def note_failure(self, config: RunConfig, error: Exception) -> None:
        """Note that a run has failed: later requests for it raise this error."""
        self._failed[self.place(config)] = error

    def files(self, pattern: str) -> list[Path]:
        """The files of all runs that match a pattern, those of published runs last."""
        return [file for store in self._stores for file in sorted(store.glob(pattern))]

    def publish(self, to: Path) -> None:
        """Copy what tables and figures need of the finished runs that were used: their settings without the path of
        the data, their compressed histories and results, but no models and checkpoints."""
        for run in self._used:
            if run.parent.resolve() == to.resolve() or not (run / RESULT).exists():
                continue
            copy = to / run.name
            copy.mkdir(parents=True, exist_ok=True)
            compressed = run / f"{HISTORY}.gz"
            history = (
                (run / HISTORY).read_bytes() if not compressed.exists() else gzip.decompress(compressed.read_bytes())
            )
            write_atomically(copy / compressed.name, gzip.compress(history, mtime=0))
            for file in run.glob("*.json"):
                write_atomically(copy / file.name, file.read_bytes())
            settings = {key: value for key, value in read_toml(run / CONFIG).items() if key != "data"}
            write_atomically(copy / CONFIG, write_toml(settings).encode())

    @property
    def _stores(self) -> list[Path]:
        return list(dict.fromkeys(store for store in (self.folder, self.published) if store is not None))

    def _shorter(self, config: RunConfig) -> Path | None:
        """The folder of the longest finished run that this one can continue; published runs have no checkpoints.

        Its last round, which is always evaluated, must be one in which this run is evaluated, too.
        """
        if not (config.found_by_settings and config.beginning_suffices):
            return None
        found = [
            (rounds, folder)
            for folder, rounds in _same_but_for_rounds(config, self.folder)
            if rounds < config.rounds and rounds % config.evaluate_every == 0
            if (folder / RESULT).exists() and (folder / NEWEST).exists()
        ]
        return max(found)[1] if found else None

    def _read(self, config: RunConfig, folder: Path) -> SavedRun:
        run = SavedRun.read(folder)
        if len(run.history) != config.rounds:
            raise DamagedError(
                f"{folder / HISTORY} must have {config.rounds} rounds, as the settings beside it say, "
                f"but has {len(run.history)}: delete the folder to make the run again"
            )
        self._used[folder] = None
        return run


def _copy_rounds(run: Path, place: Path) -> None:
    """Copy the rounds of a finished run, so that they can be resumed at another place."""
    place.mkdir(parents=True, exist_ok=True)
    for name in (NEWEST, HISTORY):  # the history last: with it, the folder holds a run
        write_atomically(place / name, (run / name).read_bytes())


def _same_but_for_rounds(config: RunConfig, store: Path) -> Iterator[tuple[Path, int]]:
    """The folders whose configurations are equivalent except for the number of rounds, and those numbers."""
    for file in sorted(store.glob(f"{config.title}-*/{CONFIG}")):
        try:
            other = from_table(type(config), read_toml(file))
        except SettingsError:  # made with settings that no longer exist
            continue
        if other.computes_the_same_as(replace(config, rounds=other.rounds)):
            yield file.parent, other.rounds
