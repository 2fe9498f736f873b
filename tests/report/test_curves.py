"""The static curves of a run."""

from __future__ import annotations

import numpy as np

from fedcmoo.history import Record
from fedcmoo.report.curves import plot_curves


def history(M: int) -> list[Record]:
    names = [f"objective {k}" for k in range(M)]
    return [
        Record(
            t,
            [0],
            {name: -0.5 if k == 0 else 1.5 / (M - 1) for k, name in enumerate(names)},
            validation={name: {"loss": 1 / t + k} for k, name in enumerate(names)},
        )
        for t in (1, 2, 3)
    ]


def test_every_objective_is_drawn_from_validation_data_where_there_are_no_test_data() -> None:
    losses, weights = plot_curves({"run": [history(11)]}).axes
    assert losses.get_title() == "validation loss"
    drawn = np.array([np.asarray(line.get_ydata()) for line in losses.get_lines()])
    assert np.allclose(drawn, [[1 / t + k for t in (1, 2, 3)] for k in range(11)])
    legend = losses.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == 11
    assert len(weights.get_lines()) == 11
    low, high = weights.get_ylim()
    assert low <= -0.5
    assert high >= 1


def test_forty_objectives_have_lines_and_no_legend() -> None:
    losses, _ = plot_curves({"run": [history(40)]}).axes
    assert len(losses.get_lines()) == 40
    assert losses.get_legend() is None


def test_objectives_with_different_metrics() -> None:
    scores = {"click": {"loss": 1.0}, "dwell": {"loss": 3.0, "accuracy": 0.5}}
    run = [Record(1, [0], {"click": 0.5, "dwell": 0.5}, test=scores)]
    accuracy, loss, _ = plot_curves({"run": [run]}).axes
    assert [line.get_label() for line in accuracy.get_lines()] == ["dwell"]
    assert len(loss.get_lines()) == 2
    accuracy, loss = plot_curves({"a": [run], "b": [run]}).axes
    assert [float(np.asarray(line.get_ydata())[0]) for line in (accuracy.get_lines()[0], loss.get_lines()[0])] == [
        0.5,
        2,
    ]
