"""The runs of a reproduction: made once, found again by their configuration, continued if interrupted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedcmoo.callbacks import Callback
from fedcmoo.history import read_history
from fedcmoo.reproduce.study import StudyConfig
from fedcmoo.run import HISTORY, SavedRun
from fedcmoo.run_folder import holds_run
from fedcmoo.settings import SettingsError, flatten, from_table, read_toml

Labelled = Mapping[str, Sequence[SavedRun]]
"""The runs of one or several seeds, by label."""

FINISHED = "result.json"
"""The file that a run writes last."""


class NotMeasuredError(RuntimeError):
    """Raised if a run is missing and none should be made."""


class Runs:
    """A folder with one folder for every configuration that was run.

    A run of T rounds is also found as the first T rounds of a longer run, finished or not, since both compute the same
    up to round T.

    Args:
        folder: where they are.
        callbacks: a function that returns a run's callbacks, given its name.
        only_finished: whether to use existing runs only and train nothing.
    """

    def __init__(
        self,
        folder: Path,
        callbacks: Callable[[str], Sequence[Callback]] = lambda name: (),
        only_finished: bool = False,
    ) -> None:
        self.folder = folder
        self.only_finished = only_finished
        self._callbacks = callbacks
        self._failed: dict[Path, Exception] = {}

    def place(self, config: StudyConfig) -> Path:
        """The folder of a run: the one whose configuration computes the same, or else a new one.

        A new folder's name has a hash of all settings that change the results. Folders are compared by their
        configuration files, so that runs are still found after new settings with neutral defaults were added.
        """
        for folder, rounds in self._same_but_for_rounds(config):
            if rounds == config.rounds:
                return folder
        digest = hashlib.sha256(json.dumps(config.results(), sort_keys=True).encode()).hexdigest()[:10]
        return self.folder / f"{config.title}-{digest}"

    def find(self, config: StudyConfig) -> SavedRun | None:
        """The run if it exists, complete or as the beginning of a longer one that was evaluated at its last round."""
        place = self.place(config)
        if (place / FINISHED).exists():
            return SavedRun.read(place)
        for folder, rounds in self._same_but_for_rounds(config):
            if rounds > config.rounds and config.beginning_suffices:
                beginning = read_history(folder / HISTORY)[: config.rounds]
                if len(beginning) == config.rounds and beginning[-1].scores:
                    return SavedRun(config.to_table(), beginning, folder)
        return None

    def rounds_done(self, config: StudyConfig) -> int:
        """The number of finished rounds of a run."""
        return len(read_history(self.place(config) / HISTORY))

    def get(self, config: StudyConfig) -> SavedRun:
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

    def _same_but_for_rounds(self, config: StudyConfig) -> Iterator[tuple[Path, int]]:
        """The folders whose configurations are equivalent except for the number of rounds, and those numbers."""
        for file in sorted(self.folder.glob(f"{config.title}-*/config.toml")):
            try:
                other = from_table(type(config), read_toml(file))
            except SettingsError:  # made with settings that no longer exist
                continue
            if other.computes_the_same_as(replace(config, rounds=other.rounds)):
                yield file.parent, other.rounds


ROUGH = {
    "two-digits": (0.004, 2),
    "multimnist": (0.02, 2),
    "mnist-fmnist": (0.02, 2),
    "cifar10-mnist": (0.25, 2),
    "celeba": (4.0, 40),
    "celeba5": (4.0, 5),
    "qm9": (0.5, 11),
    "valleys": (0.05, 2),
}
"""By problem, seconds of one local step with a batch of 128 on one core, for estimates without any measurement, and the
number of objectives."""


def estimate(config: StudyConfig, runs: Runs, cores: int) -> float:
    """Estimate the remaining seconds of a run, from similar finished runs if any, else roughly."""
    if runs.find(config) is not None:
        return 0.0
    left = config.rounds - runs.rounds_done(config)
    return left * (_measured(config, runs) or _guessed(config, cores))


def _measured(config: StudyConfig, runs: Runs) -> float | None:
    """Seconds per round of a finished run with the same work per round."""
    wanted = _work(config.to_table())
    for file in sorted(runs.folder.glob(f"*{wanted['problem.name']}-*/{FINISHED}")):
        if _work(read_toml(file.parent / "config.toml")) == wanted:
            result = json.loads(file.read_text())
            return float(result["seconds"] / result["rounds"])
    return None


def _work(table: Any) -> dict[str, Any]:
    names = ["problem.name", "clients_per_round", "every", "budgets"]
    names += [f"method.{name}" for name in ("name", "local_steps", "batch_size", "measure_every")]
    flat = flatten(table)
    return {name: flat.get(name) for name in names}


def _guessed(config: StudyConfig, cores: int) -> float:
    """A rough estimate of a round's seconds on all cores: the clients' gradients."""
    seconds, M = ROUGH.get(config.problem.name, (0.02, 2))
    batch = (config.method.batch_size or 128) / 128
    return config.method.gradients(M) * seconds * batch * (config.clients_per_round or 10) / cores
