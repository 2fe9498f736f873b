"""Appendix B: errors of the Gram estimators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import ClassVar

from fedcmoo.bench.gram import BUDGETS, bench_gram
from fedcmoo.bench.gram_result import FILE, PAPER, GramBench, gram_chart
from fedcmoo.callbacks import Callback
from fedcmoo.files import write_json
from fedcmoo.report.table import CsvRow, Table, mean_and_spread
from fedcmoo.reproduce.claims import all_claims
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import PROBLEMS
from fedcmoo.reproduce.study import Study, StudyConfig
from fedcmoo.reproduce.targets.base import PaperTarget, Plan, Results, TableEntry, beside_paper
from fedcmoo.run import RESULT, SavedRun

SMALL_ROUNDS = 20
EVERY = 4
"""Rounds from one comparison to the next, which takes longer than a round of training."""
OURS = ("sketch", "one-way quantizer")
"""Estimators that are not in the paper."""
GAPS = {
    "gram-mask-one-way": ("one-way random mask", "one-way randomized SVD"),
    "gram-mask-two-way": ("two-way random mask, as run", "two-way randomized SVD, as run"),
    "gram-sum": ("sum of client Grams", "two-way randomized SVD, as run"),
    "gram-top-k": ("one-way top-k, as counted", "one-way randomized SVD"),
    "gram-top-k-two-way": ("two-way top-k, as run and counted", "two-way randomized SVD, as run"),
    "gram-sketch": ("one-way randomized SVD", "sketch"),
}
"""By claim, the estimator that should be worse and the one that should be better."""


class GramTable(PaperTarget):
    name: ClassVar[str] = "gram"
    title: ClassVar[str] = "Appendix B: errors of Gram estimators"
    parts: ClassVar[tuple[str, ...]] = ("multimnist", "mnist-fmnist", "cifar10-mnist", "celeba")

    def plan(self, study: Study, part: str) -> Plan:
        configs = study.configs(part, "fedcmoo-pref", {} if study.full else {"rounds": SMALL_ROUNDS})
        return {"FedCMOO-Pref": [GramStudy.of(config, EVERY) for config in configs]}

    def make(self, study: Study, results: Results, note: str) -> Made:
        benches = {part: [GramBench.load(run.folder) for run in runs["FedCMOO-Pref"]] for part, runs in results.items()}
        chart = gram_chart("gram", list(benches.values()), [PROBLEMS[part] for part in benches], note)
        measured: dict[str, list[float]] = {}
        for part, same in benches.items():
            measured |= _measure(part, same)
        return Made([_table(benches, note)], [chart], measured)


def at_d(bench: GramBench, estimator: str) -> float | None:
    """The mean error in percent at an upload of d, or of nearly nothing for the sum of Gram matrices; None if d is too
    little for the estimator, as for the quantizer and 40 objectives."""
    by_budget = bench.errors(estimator)
    return by_budget[max(by_budget)] if by_budget else None


def _measure(part: str, benches: Sequence[GramBench]) -> dict[str, list[float]]:
    """By how much the worse estimator's error is larger, for the claims that are about this part."""
    claimed = {claim.id for claim in all_claims()}
    measured = {}
    for name, (worse, better) in GAPS.items():
        pairs = [(at_d(bench, worse), at_d(bench, better)) for bench in benches]
        measured[f"{name}-{part}"] = [a - b for a, b in pairs if a is not None and b is not None]
    return {claim: values for claim, values in measured.items() if claim in claimed}


def _table(benches: dict[str, list[GramBench]], note: str) -> Table:
    def entry(part: str, estimator: str) -> TableEntry:
        paper = PAPER.get(estimator, {}).get(part)
        ours = [error for bench in benches[part] if (error := at_d(bench, estimator)) is not None]
        records: list[CsvRow] = [
            {"experiment": part, "estimator": estimator, "run": n, "budget": budget, "nrmse": error, "paper": paper}
            for n, bench in enumerate(benches[part])
            for budget, error in bench.errors(estimator).items()
        ]
        return mean_and_spread(ours, 2), "" if paper is None else f"{paper:.2f}", records

    title, what = "Average nRMSE (%) of the Gram matrix at unit scale", "estimator, at an upload of d"
    return beside_paper("gram", title, what, (*PAPER, *OURS), benches, entry, note)


@dataclass(frozen=True, kw_only=True)
class GramStudy(StudyConfig):
    """A comparison of Gram estimators as a run of the reproduction: made once, then found by its configuration.

    Args:
        every: rounds from one comparison to the next.
        budgets: uploads in multiples of d numbers.
    """

    every: int = 1
    budgets: Sequence[float] = BUDGETS

    @classmethod
    def of(cls, config: StudyConfig, every: int) -> GramStudy:
        """The comparison while a given configuration trains."""
        return cls(**{f.name: getattr(config, f.name) for f in fields(config)}, every=every)

    @property
    def beginning_suffices(self) -> bool:
        return False  # its file has means over all rounds

    @property
    def title(self) -> str:
        return f"gram-{super().title}"

    def execute(self, folder: Path, callbacks: Sequence[Callback], resume: bool) -> None:
        """Start or continue the measurement."""
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
        write_json(folder / FILE, asdict(bench))
        write_json(folder / RESULT, {"rounds": self.rounds, "seconds": SavedRun.read(folder).seconds})
