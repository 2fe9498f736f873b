"""Rounds, seconds and bytes until given scores, on histories that are written out."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedcmoo.history import Record
from fedcmoo.report.static import draw
from fedcmoo.report.targets import Target, rounds_to, targets_chart, targets_table
from fedcmoo.run import Run
from fedcmoo.settings import SettingsError


def run(step: float) -> Run:
    """Ten rounds of 2 s and 1 MB, evaluated in every second one; left's accuracy rises by `step` a round."""
    history = []
    for t in range(1, 11):
        scores = {"left": {"loss": 1 / t, "accuracy": step * t}, "right": {"loss": 2 / t, "accuracy": step * t / 2}}
        test = scores if t % 2 == 0 else None
        record = Record(t, [0], {"left": 0.5, "right": 0.5}, up={"train": 10**6}, seconds={"train": 2.0}, test=test)
        history.append(record)
    return Run({"problem": {"name": "p"}, "method": {"name": "fedavg"}}, history)


@pytest.mark.parametrize(
    ("targets", "rounds"),
    [
        (["left=0.5"], 6),
        (["left=0.5", "right=0.4"], 8),
        (["left:accuracy>=0.2"], 2),
        (["right:loss=0.5"], 4),
        (["right:loss<=0.3"], 8),
        (["left=1.1"], None),
    ],
)
def test_the_first_evaluation_with_all_targets(targets: list[str], rounds: int | None) -> None:
    assert rounds_to([Target.parse(text) for text in targets], run(0.1)) == rounds


def test_a_table_has_rounds_seconds_and_bytes_of_the_seeds_that_get_there() -> None:
    table = targets_table("p", [Target.parse("left=0.4")], {"fast": [run(0.2), run(0.1)], "slow": [run(0.02)]})
    assert list(table.header) == ["", "fast", "slow"]
    assert {name: cells for name, *cells in table.rows} == {
        "rounds": ["3.0 ± 1.4", "–"],
        "seconds": ["6.0 ± 2.8", "–"],
        "uploaded": ["3.0 MB", "–"],
        "seeds that reach it": ["2 of 2", "0 of 1"],
    }


@pytest.mark.parametrize("text", ["left", "=0.9", "left=", "left=high", "left:=0.9"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="a target must be OBJECTIVE=VALUE"):
        Target.parse(text)


def test_a_target_must_name_what_the_problem_has() -> None:
    columns = [("left", "loss"), ("left", "accuracy")]
    with pytest.raises(SettingsError, match="objectives are left, but got 'up'"):
        Target.parse("up=0.9").check(columns)
    with pytest.raises(SettingsError, match="left has loss, accuracy"):
        Target.parse("left:mae=0.9").check(columns)
    Target.parse("left:accuracy=0.9").check(columns)


def test_a_chart_has_bars_with_the_spread_of_the_seeds_that_get_there() -> None:
    chart = targets_chart("p", [Target.parse("left=0.4")], {"fast": [run(0.2), run(0.1)], "slow": [run(0.02)]})
    bars = {panel.title: [(line.label, line.low, line.y, line.high) for line in panel.lines] for panel in chart.panels}
    assert bars == {
        "rounds": [("fast", [2], [3], [4])],
        "seconds": [("fast", [4], [6], [8])],
        "uploaded": [("fast", [2], [3], [4])],
    }
    figure = draw(chart)
    assert [len(axes.patches) for axes in figure.axes] == [1, 1, 1]


def test_a_target_that_no_run_reaches_has_a_chart_without_bars(tmp_path: Path) -> None:
    chart = targets_chart("p", [Target.parse("left=0.99")], {"slow": [run(0.02)]})
    figure = draw(chart, tmp_path / "targets.png")
    assert [len(axes.patches) for axes in figure.axes] == [0, 0, 0]
    assert (tmp_path / "targets.png").exists()
