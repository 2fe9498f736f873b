"""Tables of two variants of one method: one-way and two-way communication (appendix B), and FedCMOO-Pref with and
without a minimum weight (appendix C)."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fedcmoo.methods import METHODS
from fedcmoo.report.table import Table
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import PROBLEMS
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import (
    PaperTarget,
    Plan,
    Results,
    accuracy_records,
    differences,
    mean_percent,
    pair_cell,
)
from fedcmoo.reproduce.targets.curves import lead
from fedcmoo.reproduce.targets.preferences import NO_MINIMUM
from fedcmoo.run import SavedRun

MARGIN = 1.0
"""Points of accuracy that count as little."""


class VariantsTable(PaperTarget):
    """A table of two variants of one method, on both problems with digits."""

    parts: ClassVar[tuple[str, ...]] = ("multimnist", "mnist-fmnist")
    heading: ClassVar[str]
    method: ClassVar[str]
    variants: ClassVar[Mapping[str, Mapping[str, Any]]]
    """By label, the settings in which a variant differs from the paper's main experiments."""

    @abstractmethod
    def measure(self, first: Sequence[SavedRun], second: Sequence[SavedRun]) -> list[float]:
        """The claim's quantity for each seed, from the runs of both variants."""

    def plan(self, study: Study, part: str) -> Plan:
        return {label: study.configs(part, self.method, {"method": over}) for label, over in self.variants.items()}

    def make(self, study: Study, results: Results, note: str) -> Made:
        rows = [[label, *(pair_cell(runs[label]) for runs in results.values())] for label in self.variants]
        records = [
            record
            for part, runs in results.items()
            for label in self.variants
            for record in accuracy_records(part, label, runs[label], None)
        ]
        first, second = self.variants
        measured = {f"{self.name}-{part}": self.measure(runs[first], runs[second]) for part, runs in results.items()}
        header = [self.heading, *(PROBLEMS[part] for part in results)]
        title = f"Final test accuracy (%) of the first / second objective with {METHODS[self.method].label()}"
        return Made([Table(self.name, title, header, rows, records, note)], measured=measured)


class OneWayTable(VariantsTable):
    name: ClassVar[str] = "one-way"
    title: ClassVar[str] = "Appendix B: FedCMOO with one-way and two-way communication"
    heading: ClassVar[str] = "communication"
    method: ClassVar[str] = "fedcmoo"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {way: {"gram": way} for way in ("one-way", "two-way")}

    def measure(self, first: Sequence[SavedRun], second: Sequence[SavedRun]) -> list[float]:
        return [MARGIN - abs(gap) for gap in differences(first, second, mean_percent)]


class MinimumWeightTable(VariantsTable):
    name: ClassVar[str] = "minimum-weight"
    title: ClassVar[str] = "Appendix C: FedCMOO-Pref with and without a minimum weight"
    heading: ClassVar[str] = "minimum weight"
    method: ClassVar[str] = "fedcmoo-pref"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "1/(5M)": {"weights": {**NO_MINIMUM, "even_share": 0.2}},
        "none": {"weights": NO_MINIMUM, "preference": [1.0, 1.0]},  # the default, as the figure of preferences has it
    }

    def measure(self, first: Sequence[SavedRun], second: Sequence[SavedRun]) -> list[float]:
        return lead(first, second)
