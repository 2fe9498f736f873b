"""The data of a run for tables and figures: its settings and the record of every round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

from fedcmoo.evaluation import Scores, mean_score
from fedcmoo.history import Record, read_history
from fedcmoo.methods import METHODS
from fedcmoo.metrics import starved
from fedcmoo.settings import read_toml

CONFIG, HISTORY, RESULT = "config.toml", "history.jsonl", "result.json"
"""The files of a run's folder from which tables and figures are made."""

NOT_RESULTS = ("engine", "data", "checkpoint_every")
"""Settings of a run that do not change what it computes, except for the engine's numerics."""


@dataclass(frozen=True)
class Run:
    """The settings and the history of a run.

    Attributes:
        config: the table of its settings, as far as they are known.
        history: one record per round.
    """

    config: Mapping[str, Any]
    history: Sequence[Record]

    @property
    def problem(self) -> str:
        """The problem's name; for a user's problem, its origin."""
        problem = self.config["problem"]
        return str(problem.get("source", problem["name"]))

    @property
    def method(self) -> str:
        """The method's name in tables and figures."""
        name = str(self.config["method"]["name"])
        return METHODS[name].label() if name in METHODS else name

    @property
    def seed(self) -> int:
        """The seed from which everything random derives."""
        return int(self.config.get("seed", 0))

    @property
    def evaluated(self) -> list[tuple[Record, Scores]]:
        """The rounds with an evaluation, on test data or else validation data."""
        return [(record, record.scores) for record in self.history if record.scores]

    @property
    def scores(self) -> Scores:
        """Losses and metrics by objective of the last evaluation; empty without any."""
        return next((record.scores for record in reversed(self.history) if record.scores), {})

    @property
    def weights(self) -> dict[str, float]:
        """The last round's weights by objective."""
        return self.history[-1].weights

    @property
    def epsilon(self) -> float | None:
        """The privacy spent, ε; None for a run without differential privacy."""
        return self.history[-1].notes.get("epsilon")

    @property
    def epsilons(self) -> list[float]:
        """The privacy spent after each round of a run with differential privacy."""
        return [record.notes["epsilon"] for record in self.history]

    @property
    def uploaded(self) -> int:
        """Bytes that all clients together sent to the server."""
        return sum(sum(record.up.values()) for record in self.history)

    @property
    def uploaded_by_round(self) -> list[int]:
        """Bytes that all clients together have sent after each round."""
        return list(accumulate(sum(record.up.values()) for record in self.history))

    @property
    def downloaded(self) -> int:
        """Bytes that the server sent to all clients together."""
        return sum(sum(record.down.values()) for record in self.history)

    @property
    def seconds(self) -> float:
        """The time of all rounds."""
        return sum(sum(record.seconds.values()) for record in self.history)

    @property
    def starved(self) -> list[str]:
        """The objectives that the weighting rule left untrained (see `fedcmoo.metrics.starved`)."""
        return starved(self.history)

    def summary(self) -> dict[str, Any]:
        """The results as plain data, for JSON."""
        return {
            "problem": self.problem,
            "method": self.method,
            "seed": self.seed,
            "rounds": len(self.history),
            "scores": self.scores,
            "weights": self.weights,
            "starved": self.starved,
            "uploaded_bytes": self.uploaded,
            "downloaded_bytes": self.downloaded,
            "seconds": self.seconds,
            **({} if self.epsilon is None else {"epsilon": self.epsilon}),
        }

    def values(self, metric: str) -> list[float]:
        """One score of the last evaluation, for each objective that has it."""
        return [scores[metric] for scores in self.scores.values() if metric in scores]

    def mean(self, metric: str) -> float:
        """The mean over objectives of one score of the last evaluation."""
        return mean_score(self.scores, metric)

    def curve(self, metric: str) -> list[float]:
        """The mean over objectives at every evaluation."""
        return [mean_score(scores, metric) for _, scores in self.evaluated]


LabelledRuns = Mapping[str, Sequence[Run]]
"""The runs of one or several seeds, by label."""


@dataclass(frozen=True)
class SavedRun(Run):
    """A run that was read from its folder."""

    folder: Path

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the run in a folder. A run of a sweep gets its settings from the sweep, and its name from its folder."""
        config: dict[str, Any] = {"problem": {"name": folder.parent.name}, "method": {"name": folder.name}}
        own, sweep = folder / CONFIG, folder.parent.parent / "sweep.toml"
        if own.exists():
            config |= read_toml(own)
        elif sweep.exists():
            name = folder.name.replace("_", ":") if folder.parent.name == "points" else folder.name
            config = {**read_toml(sweep), "method": {"name": name}}
        return cls(config, read_history(folder / HISTORY), folder)


SavedRuns = Mapping[str, Sequence[SavedRun]]
"""The saved runs of one or several seeds, by label."""
