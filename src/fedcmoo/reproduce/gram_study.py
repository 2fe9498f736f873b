"""A comparison of Gram estimators as a run of the reproduction: made once, then found by its configuration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from fedcmoo.bench.gram import BUDGETS, bench_gram
from fedcmoo.bench.gram_result import FILE
from fedcmoo.callbacks import Callback
from fedcmoo.files import write_atomically
from fedcmoo.methods import FedCMOO, FedCMOOPref
from fedcmoo.reproduce.study import StudyConfig
from fedcmoo.run import SavedRun


@dataclass(frozen=True, kw_only=True)
class GramStudy(StudyConfig):
    """Train, and compare every estimator at equal budgets with the exact Gram matrix.

    Args:
        every: rounds from one comparison to the next.
        budgets: uploads in multiples of d numbers.
    """

    beginning_suffices: ClassVar[bool] = False  # its file has means over all rounds

    every: int = 1
    budgets: Sequence[float] = BUDGETS

    @classmethod
    def of(cls, config: StudyConfig, every: int) -> GramStudy:
        """The comparison while a given configuration trains."""
        return cls(**{f.name: getattr(config, f.name) for f in fields(config)}, every=every)

    @property
    def title(self) -> str:
        return f"gram-{super().title}"

    def execute(self, folder: Path, callbacks: Sequence[Callback], resume: bool) -> None:
        """Start or continue the measurement."""
        if not isinstance(self.method, (FedCMOO, FedCMOOPref)):
            raise ValueError(f"method must be one that estimates a Gram matrix, but got {type(self.method).__name__}")
        bench = bench_gram(
            self.build(),
            self.method,
            self.rounds,
            every=self.every,
            budgets=self.budgets,
            clients_per_round=self.clients_per_round,
            seed=self.seed,
            callbacks=callbacks,
            folder=folder,
            resume=resume,
            config=self.to_table(),
        )
        write_atomically(folder / FILE, json.dumps(bench.summary(), indent=1).encode())
        about = {"rounds": self.rounds, "seconds": SavedRun.read(folder).seconds}
        write_atomically(folder / "result.json", json.dumps(about).encode())
