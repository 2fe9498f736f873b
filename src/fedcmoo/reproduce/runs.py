"""The runs of a reproduction: made once, found again by their configuration, gone on with if cut off."""

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
"""By label, the runs of one or several seeds."""

FINISHED = "result.json"
"""The file that a run writes last."""


class NotMeasuredError(RuntimeError):
    """A run is not there, and none is to be made."""


class Runs:
    """A folder with one folder for every configuration that was run.

    A run of T rounds is also found as the first T rounds of a longer one, which computes the same up to there, whether
    that one is finished or still going on.

    Args:
        folder: where they are.
        callbacks: makes a run's callbacks of its name.
        only_finished: whether to take what is there and train nothing.
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

        A new folder's name has a hash of all that changes the results. Folders are compared by what is written in them,
        so that runs are found again after settings were added whose defaults change nothing.
        """
        for folder, rounds in self._same_but_for_rounds(config):
            if rounds == config.rounds:
                return folder
        digest = hashlib.sha256(json.dumps(config.results(), sort_keys=True).encode()).hexdigest()[:10]
        return self.folder / f"{config.title}-{digest}"

    def find(self, config: StudyConfig) -> SavedRun | None:
        """The run if it is there, whole, or as the beginning of a longer one that was evaluated at its last round."""
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
        """How many rounds of a run are there."""
        return len(read_history(self.place(config) / HISTORY))

    def get(self, config: StudyConfig) -> SavedRun:
        """The run of a configuration: read if it is there, else made, or gone on with.

        A run that failed is not tried again while this object lives: another target that needs it gets the same error.
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
        """The folders whose configurations compute the same but for the number of rounds, and those numbers."""
        for file in sorted(self.folder.glob(f"{config.title}-*/config.toml")):
            try:
                other = from_table(type(config), read_toml(file))
            except SettingsError:  # made with settings that there are no longer
                continue
            if other.computes_the_same_as(replace(config, rounds=other.rounds)):
                yield file.parent, other.rounds


ROUGH = {
    "two-digits": 0.004,
    "multimnist": 0.02,
    "mnist-fmnist": 0.02,
    "cifar10-mnist": 0.25,
    "celeba": 4.0,
    "celeba5": 4.0,
    "qm9": 0.5,
    "valleys": 0.05,
}
"""Seconds of one local step with a batch of 128 on one core, by problem: for estimates before anything is measured."""


def estimate(config: StudyConfig, runs: Runs, cores: int) -> float:
    """Seconds that a run still needs: from finished runs like it where there are any, else a rough guess."""
    if runs.find(config) is not None:
        return 0.0
    left = config.rounds - runs.rounds_done(config)
    return left * (_measured(config, runs) or _guessed(config, cores))


def _measured(config: StudyConfig, runs: Runs) -> float | None:
    """Seconds per round of a finished run that does the same work in a round."""
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
    """As if every method took one gradient more than its local steps, on every core."""
    batch = (config.method.batch_size or 128) / 128
    steps = config.method.local_steps + 1
    return steps * ROUGH.get(config.problem.name, 0.02) * batch * config.clients_per_round / cores
