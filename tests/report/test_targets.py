"""Rounds, seconds and bytes until given scores, on histories that are written out."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.nn.functional import cross_entropy

from fedcmoo import Metric, Objective, accuracy
from fedcmoo.history import Record
from fedcmoo.report.static import draw
from fedcmoo.report.targets import Target, rounds_to, targets_chart, targets_table
from fedcmoo.run import Run
from fedcmoo.settings import SettingsError

GAP = Metric("gap", lambda output, target: output.mean(), higher_is_better=False)
OBJECTIVES = [Objective("left", cross_entropy, [accuracy]), Objective("right", cross_entropy, [accuracy, GAP])]


def targets(*texts: str) -> list[Target]:
    return [Target.parse(text, OBJECTIVES) for text in texts]


def run(step: float) -> Run:
    """Ten rounds of 2 s, 1 MB up and 2 MB down, evaluated for 9 s in every second one; left's accuracy rises by `step`
    a round."""
    history = []
    for t in range(1, 11):
        scores = {"left": {"loss": 1 / t, "accuracy": step * t}, "right": {"loss": 2 / t, "accuracy": step * t / 2}}
        scores["right"]["gap"] = 1 - step * t
        record = Record(t, [0], {"left": 0.5, "right": 0.5}, up={"train": 10**6}, down={"train": 2 * 10**6})
        record.seconds = {"train": 2.0} if t % 2 else {"train": 2.0, "evaluate": 9.0}
        record.test = None if t % 2 else scores
        history.append(record)
    return Run({"problem": {"name": "p"}, "method": {"name": "fedavg"}}, history)


@pytest.mark.parametrize(
    ("texts", "rounds"),
    [
        (["left=0.5"], 6),
        (["left=0.5", "right=0.4"], 8),
        (["left:accuracy>=0.2"], 2),
        (["right:loss=0.5"], 4),
        (["right:loss<=3e-1"], 8),
        (["right:gap=0.4"], 6),  # a score that should be small
        (["left=1.1"], None),
    ],
)
def test_the_first_evaluation_with_all_targets(texts: list[str], rounds: int | None) -> None:
    assert rounds_to(targets(*texts), run(0.1)) == rounds


def test_a_score_that_was_no_number_reaches_nothing() -> None:
    """The history leaves such scores out, and must not be searched for another metric in their place."""
    (target,) = targets("left=0.9")
    assert not target.is_reached({"left": {"loss": 0.3}})
    assert target.is_reached({"left": {"loss": 0.3, "accuracy": 0.9}})


def test_a_table_has_rounds_seconds_and_bytes_of_the_seeds_that_get_there() -> None:
    runs = {"fast": [run(0.2), run(0.1)], "slow": [run(0.02)]}
    table = targets_table("p", targets("left=0.4"), runs, diverged={"slow": 1, "wild": 3})
    assert list(table.header) == ["", "fast", "slow", "wild"]
    assert {name: cells for name, *cells in table.rows} == {
        "rounds": ["3.0 ± 1.4", "–", "–"],
        "seconds": ["6.0 ± 2.8", "–", "–"],  # without evaluations
        "uploaded": ["3.0 ± 1.4 MB", "–", "–"],
        "downloaded": ["6.0 ± 2.8 MB", "–", "–"],
        "seeds that reach it": ["2 of 2", "0 of 2", "0 of 3"],
    }


@pytest.mark.parametrize("text", ["left", "=0.9", "left=", "left=high", "left:=0.9", "left=nan"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="a target must be OBJECTIVE=VALUE"):
        targets(text)


def test_a_target_must_name_what_the_problem_has() -> None:
    with pytest.raises(SettingsError, match="objectives are left, right, but got 'up'"):
        targets("up=0.9")
    with pytest.raises(SettingsError, match="left has accuracy, loss"):
        targets("left:mae=0.9")


def test_a_chart_has_bars_with_the_spread_of_the_seeds_that_get_there() -> None:
    chart = targets_chart("p", targets("left=0.4"), {"fast": [run(0.2), run(0.1)], "slow": [run(0.02)]})
    bars = {panel.title: [(line.label, line.low, line.y, line.high) for line in panel.lines] for panel in chart.panels}
    assert bars == {
        "rounds": [("fast", [2], [3], [4])],
        "seconds": [("fast", [4], [6], [8])],
        "uploaded": [("fast", [2], [3], [4])],
        "downloaded": [("fast", [4], [6], [8])],
    }
    figure = draw(chart)
    assert [len(axes.patches) for axes in figure.axes] == [1, 1, 1, 1]


def test_a_target_that_no_run_reaches_has_a_chart_without_bars(tmp_path: Path) -> None:
    chart = targets_chart("p", targets("left=0.99"), {"slow": [run(0.02)]})
    figure = draw(chart, tmp_path / "targets.png")
    assert [len(axes.patches) for axes in figure.axes] == [0, 0, 0, 0]
    assert (tmp_path / "targets.png").exists()
