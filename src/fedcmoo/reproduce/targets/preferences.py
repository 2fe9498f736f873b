"""Figure 4: final losses for a range of preferences."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from scipy.stats import spearmanr

from fedcmoo.evaluation import Scores
from fedcmoo.metrics import angle
from fedcmoo.pareto import Front, Point, parse_ratio
from fedcmoo.pareto.front import front_chart
from fedcmoo.report.table import CsvRow, Table, mean_and_spread
from fedcmoo.reproduce.outcome import Made
from fedcmoo.reproduce.paper import HARD, PROBLEMS
from fedcmoo.reproduce.study import Study
from fedcmoo.reproduce.targets.base import PaperTarget, Plan, Results
from fedcmoo.reproduce.targets.delta_m import alone
from fedcmoo.run import SavedRun, SavedRuns

SMALL = ("1:4", "1:2", "1:1", "2:1", "4:1")
FULL = ("1:8", *SMALL, "8:1")
NO_MINIMUM = {"name": "find-weights-pref", "even_share": 0.0}
"""FedCMOO-Pref's rule without a minimum weight, which its runs in all other tables and figures have."""


class Preferences(PaperTarget):
    name: ClassVar[str] = "preferences"
    title: ClassVar[str] = "Figure 4: losses for a range of preferences"
    parts: ClassVar[tuple[str, ...]] = ("multimnist", "mnist-fmnist")

    def plan(self, study: Study, part: str) -> Plan:
        configs = {
            text: study.configs(
                part, "fedcmoo-pref", {"method": {"preference": list(parse_ratio(text)), "weights": NO_MINIMUM}}
            )
            for text in (FULL if study.full else SMALL)
        }
        return {**configs, **alone(study, part)}

    def make(self, study: Study, results: Results, note: str) -> Made:
        ratios = FULL if study.full else SMALL
        fronts = [_front(PROBLEMS[part], runs, ratios) for part, runs in results.items()]
        chart = front_chart("preferences", "Final test losses of FedCMOO-Pref", fronts, note)
        measured: dict[str, list[float]] = {}
        for part, runs in results.items():
            seeds = range(len(runs["1:1"]))
            measured[f"preferences-followed-{part}"] = [_follows(runs, ratios, n) - 0.8 for n in seeds]
            if part in HARD:
                easy, hard = ([run.values("loss")[k] for run in runs["1:1"]] for k in (1 - HARD[part], HARD[part]))
                measured[f"preferences-easy-{part}"] = [b - a for a, b in zip(easy, hard, strict=True)]
            else:
                measured[f"preferences-met-{part}"] = [_met(runs, ratios, n) for n in seeds]
                measured[f"preferences-extreme-{part}"] = [
                    -_middle_minus_outermost(angles(runs, ratios, n)) for n in seeds
                ]
                measured[f"preferences-limit-{part}"] = [
                    _middle_minus_outermost(_distances(runs, ratios, n)) for n in seeds
                ]
        return Made([_table(results, ratios, note)], [chart], measured)


def _front(problem: str, runs: SavedRuns, ratios: Sequence[str]) -> Front:
    points = [Point(text, _mean(runs[text]), parse_ratio(text), runs[text][0].folder) for text in ratios]
    single = [Point(f"alone {k}", _mean(runs[f"alone {k}"]), (), runs[f"alone {k}"][0].folder) for k in range(2)]
    guess = (math.log(10), math.log(10))  # the loss of a guess among ten classes
    return Front(problem, tuple(points[0].scores), tuple(points), guess, tuple(single))


def _mean(runs: Sequence[SavedRun]) -> Scores:
    """The final scores, means over seeds."""
    first = runs[0].scores
    return {
        name: {metric: float(np.mean([run.scores[name][metric] for run in runs])) for metric in values}
        for name, values in first.items()
    }


def _follows(runs: SavedRuns, ratios: Sequence[str], seed: int) -> float:
    """Rank correlation of the ratios F_2 / F_1 with those asked for, r_1 / r_2."""
    asked = [first / second for first, second in map(parse_ratio, ratios)]
    losses = [runs[text][seed].values("loss") for text in ratios]
    return float(spearmanr(asked, [second / first for first, second in losses]).statistic)


def angles(runs: SavedRuns, ratios: Sequence[str], seed: int) -> list[float]:
    """Between losses and the rays asked for, in degrees."""
    return [angle(runs[text][seed].values("loss"), parse_ratio(text)) for text in ratios]


def _met(runs: SavedRuns, ratios: Sequence[str], seed: int) -> float:
    """Half the mean angle between neighbouring rays, minus the mean angle to the losses' own rays."""
    rays = [math.degrees(math.atan2(first, second)) for first, second in map(parse_ratio, ratios)]
    return (max(rays) - min(rays)) / (len(rays) - 1) / 2 - float(np.mean(angles(runs, ratios, seed)))


def _distances(runs: SavedRuns, ratios: Sequence[str], seed: int) -> list[float]:
    """How far above single-objective training the nearer of the two losses is."""
    limits = [runs[f"alone {k}"][seed].values("loss")[k] for k in range(2)]
    return [min(np.subtract(runs[text][seed].values("loss"), limits)) for text in ratios]


def _middle_minus_outermost(values: Sequence[float]) -> float:
    return float(values[len(values) // 2] - (values[0] + values[-1]) / 2)


def _table(results: Results, ratios: Sequence[str], note: str) -> Table:
    rows: list[list[str]] = []
    records: list[CsvRow] = []
    for part, runs in results.items():
        for text in (*ratios, "alone 0", "alone 1"):
            losses = [run.values("loss") for run in runs[text]]
            off = [] if text.startswith("alone") else [angle(pair, parse_ratio(text)) for pair in losses]
            cells = [mean_and_spread([pair[k] for pair in losses], 3) for k in range(2)]
            name = {"alone 0": "first alone", "alone 1": "second alone"}.get(text, text)
            rows.append([PROBLEMS[part], name, *cells, f"{np.mean(off):.1f}°" if off else ""])
            records += [
                {"experiment": part, "preference": text, "seed": run.seed, "first_loss": a, "second_loss": b}
                for run, (a, b) in zip(runs[text], losses, strict=True)
            ]
    header = ["experiment", "preference", "first loss", "second loss", "angle to the ray"]
    return Table("preferences", "Final test losses of FedCMOO-Pref", header, rows, records, note)
