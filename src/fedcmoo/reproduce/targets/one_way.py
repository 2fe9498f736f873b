"""Appendix B: what two-way communication changes in the accuracy that FedCMOO ends with."""

from __future__ import annotations

from typing import ClassVar

from fedcmoo.report.table import CsvRow, Table
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import PROBLEMS
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import Plan, Results, Target, accuracy_records, differences, mean_percent, pair_cell

WAYS = ("one-way", "two-way")
MARGIN = 1.0
"""Points of accuracy that count as little."""


class OneWay(Target):
    name: ClassVar[str] = "one-way"
    title: ClassVar[str] = "Appendix B: FedCMOO with one-way and two-way communication"
    parts: ClassVar[tuple[str, ...]] = ("multimnist", "mnist-fmnist")

    def plan(self, study: Study, part: str) -> Plan:
        return {way: study.configs(part, "fedcmoo", {"method": {"gram": way}}) for way in WAYS}

    def make(self, study: Study, results: Results, note: str) -> Made:
        rows = [[way, *(pair_cell(runs[way]) for runs in results.values())] for way in WAYS]
        records: list[CsvRow] = []
        measured = {}
        for part, runs in results.items():
            records += [record for way in WAYS for record in accuracy_records(part, way, runs[way], None)]
            gaps = differences(runs["one-way"], runs["two-way"], mean_percent)
            measured[f"one-way-{part}"] = [MARGIN - abs(gap) for gap in gaps]
        header = ["communication", *(PROBLEMS[part] for part in results)]
        title = "Final test accuracy (%) of the first / second objective with FedCMOO"
        return Made([Table("one-way", title, header, rows, records, note)], measured=measured)
