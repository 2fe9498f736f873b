"""Appendix E.3: Δ_M, and the single-objective accuracies that it needs."""

from typing import ClassVar

from fedcmoo.metrics import delta_m
from fedcmoo.report.table import CsvRow, Table, mean_and_spread
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import DELTA_M, PROBLEMS, SINGLE, TABLE1
from fedcmoo.reproduce.study import Study, StudyConfig
from fedcmoo.reproduce.targets.base import PaperTarget, Plan, Results, TableEntry, beside_paper, pair_text, percent
from fedcmoo.reproduce.targets.tables import LABELS, MULTI_OBJECTIVE
from fedcmoo.run import SavedRuns

SMALLEST = {"FedCMOO": "delta-m-smallest", "FedCMOO-Pref": "delta-m-pref-smallest"}
"""The claim that a method has the smallest Δ_M of the paper's three."""


def alone(study: Study, problem: str) -> dict[str, list[StudyConfig]]:
    """Each of two objectives trained alone: FedAvg with all weight on it, at half the learning rate.

    Its local steps are then as long as in the average of both losses, which has half of each. The paper gives no rates
    for single objectives; with the whole rate, the article of MNIST+FMNIST collapses to chance.
    """
    rate = study.configs(problem, "fedavg")[0].method.client_lr / 2
    one_hot = ([1.0, 0.0], [0.0, 1.0])
    return {
        f"alone {k}": study.configs(problem, "fedavg", {"method": {"weights": w, "client_lr": rate}})
        for k, w in enumerate(one_hot)
    }


class DeltaM(PaperTarget):
    name: ClassVar[str] = "delta-m"
    title: ClassVar[str] = "Appendix E.3: what training together costs, Δ_M"
    parts: ClassVar[tuple[str, ...]] = tuple(TABLE1)

    def plan(self, study: Study, part: str) -> Plan:
        return {**study.methods(part, MULTI_OBJECTIVE), **alone(study, part)}

    def make(self, study: Study, results: Results, note: str) -> Made:
        values = {part: {label: _delta(runs, label) for label in DELTA_M[part]} for part, runs in results.items()}
        measured = {}
        for part, by in values.items():
            measured[f"delta-m-pref-{part}"] = [f - p for f, p in zip(by["FSMGDA"], by["FedCMOO-Pref"], strict=True)]
            best = min(DELTA_M[part], key=DELTA_M[part].__getitem__)
            others = zip(*(by[label] for label in DELTA_M[part] if label != best), strict=True)
            name = SMALLEST[best]
            measured[f"{name}-{part}"] = [min(two) - own for two, own in zip(others, by[best], strict=True)]
        return Made([_delta_table(values, note), _single_table(results, note)], measured=measured)


def _single(runs: SavedRuns, seed: int) -> list[float]:
    """Each objective's accuracy in percent when it is trained alone."""
    return [percent(runs[f"alone {k}"][seed])[k] for k in range(2)]


def _delta(runs: SavedRuns, label: str) -> list[float]:
    return [delta_m(percent(run), _single(runs, n), [True, True]) for n, run in enumerate(runs[label])]


def _delta_table(values: dict[str, dict[str, list[float]]], note: str) -> Table:
    def entry(part: str, label: str) -> TableEntry:
        ours, paper = values[part][label], DELTA_M[part][label]
        row = {"experiment": part, "method": label}
        records: list[CsvRow] = [{**row, "run": n, "delta_m": value, "paper": paper} for n, value in enumerate(ours)]
        return mean_and_spread(ours, 2), f"{paper:.2f}", records

    title = "Δ_M in percent of the final test accuracies (smaller is better)"
    return beside_paper("delta-m", title, "method", LABELS[: len(MULTI_OBJECTIVE)], values, entry, note)


def _single_table(results: Results, note: str) -> Table:
    rows = []
    for part, runs in results.items():
        seeds = range(len(runs["alone 0"]))
        ours = " / ".join(mean_and_spread([_single(runs, n)[k] for n in seeds]) for k in range(2))
        rows.append([PROBLEMS[part], ours, pair_text(SINGLE[part])])
    title = "Test accuracy (%) of each objective trained alone"
    return Table("single-objective", title, ["experiment", "first / second objective", "paper"], rows, (), note)
