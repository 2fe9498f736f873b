"""The charts and tables that runs give, and how they are drawn and printed."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from fedcmoo.history import Record
from fedcmoo.report.chart import COLOURS, Chart, Line, Panel
from fedcmoo.report.run_charts import curves_chart, results_table, run_chart, x_axis
from fedcmoo.report.static import draw
from fedcmoo.report.table import Table
from fedcmoo.run import Run

CONFIG = {"problem": {"name": "p"}, "method": {"name": "fedcmoo"}}


def run(M: int) -> Run:
    names = [f"objective {k}" for k in range(M)]
    return Run(
        CONFIG,
        [
            Record(
                t,
                [0],
                {name: -0.5 if k == 0 else 1.5 / (M - 1) for k, name in enumerate(names)},
                up={"train": 2 * 10**6},
                validation={name: {"loss": 1 / t + k} for k, name in enumerate(names)},
            )
            for t in (1, 2, 3)
        ],
    )


def test_every_objective_is_drawn_from_validation_data_where_there_are_no_test_data() -> None:
    figure = draw(run_chart(run(11)), axis=x_axis("upload"))
    losses, weights = figure.axes
    assert losses.get_title() == "validation loss"
    drawn = np.array([np.asarray(line.get_ydata()) for line in losses.get_lines()])
    assert np.allclose(drawn, [[1 / t + k for t in (1, 2, 3)] for k in range(11)])
    assert np.asarray(losses.get_lines()[0].get_xdata()).tolist() == [2, 4, 6]
    assert len(weights.get_lines()) == 11
    low, high = weights.get_ylim()
    assert low <= -0.5
    assert high < 1  # no weight is larger than 0.15
    assert [line.get_color() for line in weights.get_lines()] == [line.get_color() for line in losses.get_lines()]
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 11


def test_forty_objectives_have_lines_of_forty_colours_and_no_legend() -> None:
    figure = draw(run_chart(run(40)))
    assert len({line.get_color() for line in figure.axes[0].get_lines()}) == 40
    assert figure.legends == []


def test_losses_are_not_averaged_and_metrics_only_where_several_objectives_have_them() -> None:
    scores = {"click": {"loss": 1.0}, "dwell": {"loss": 3.0, "accuracy": 0.5}, "buy": {"loss": 2.0, "accuracy": 0.7}}
    weights = dict.fromkeys(scores, 1 / 3)
    runs = {name: [Run(CONFIG, [Record(1, [0], weights, up={"train": 10}, test=scores)])] for name in "ab"}
    titles = [panel.title for panel in curves_chart("p", runs).panels]
    objectives = ["dwell: accuracy", "buy: accuracy", "click: loss", "dwell: loss", "buy: loss"]
    assert titles == ["mean accuracy", *objectives]
    table = {name: cells for name, *cells in results_table("p", runs).rows}
    assert table["mean accuracy"] == ["0.6000", "0.6000"]
    assert table["click loss"] == ["1.0000", "1.0000"]
    assert "mean loss" not in table


def test_a_label_never_has_the_colour_of_another() -> None:
    labels = ["FedCMOO (local_steps 5)", "FedCMOO", "FSMGDA", "FedAvg", *(f"rule {n}" for n in range(40))]
    chart = Chart("c", "t", "s", [Panel("p", "y", [Line(label, {"x": [1]}, [1]) for label in labels])])
    assert len(set(chart.colours.values())) == len(labels)
    assert chart.colours["FedCMOO"] == COLOURS["FedCMOO"]
    assert chart.colours["FSMGDA"] == COLOURS["FSMGDA"]


def test_bars_are_stacked() -> None:
    x = {"engine": [0.0, 1.0]}
    lines = [Line("a", x, [1.0, 2.0], style="bar"), Line("b", x, [3.0, 4.0], style="bar")]
    (ax,) = draw(Chart("c", "t", "s", [Panel("p", "y", lines, ticks=["one", "two"])])).axes
    tops = [bar.get_extents().transformed(ax.transData.inverted()).y1 for bar in ax.patches]
    assert tops == pytest.approx([1, 2, 4, 6])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["one", "two"]


@pytest.mark.parametrize("width", [100, 40])
def test_tables_fit_the_terminal(width: int) -> None:
    cells = ["0.9012 ± 0.0021", "0.8012 ± 0.0121"]
    table = Table("t", "Title", ["", "FedCMOO", "FSMGDA"], [["left [accuracy]", *cells]], note="up 3.1 MB")
    text = io.StringIO()
    Console(file=text, width=width).print(table)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert all(any(word in line for line in lines) for word in (*cells, "left [accuracy]", "FSMGDA", "up 3.1 MB"))


def test_the_first_tenth_of_the_rounds_does_not_set_the_limits_of_curves() -> None:
    rounds = {"round": list(range(1, 101)), "upload": list(range(100))}
    falling = Line("loss", rounds, [100 / t for t in range(1, 101)])
    rising = Line("loss", rounds, [float(t) for t in range(1, 101)])
    (axes,) = draw(Chart("c", "c", "", [Panel("", "loss", [falling])])).axes
    low, high = axes.get_ylim()
    assert low < 1
    assert 10 < high < 12  # 10 is the value of round 10; that of round 1 is 100
    (axes,) = draw(Chart("c", "c", "", [Panel("", "loss", [falling, rising])])).axes
    assert axes.get_ylim()[1] > 100  # reached late
    short = Line("loss", {"round": [1, 2]}, [9.0, 1.0])
    (axes,) = draw(Chart("c", "c", "", [Panel("", "loss", [short])])).axes
    assert axes.get_ylim()[1] > 9
    front = Line("loss", {"other loss": [1, 2, 100]}, [9.0, 1.0, 0.5])
    (axes,) = draw(Chart("c", "c", "", [Panel("", "loss", [front])])).axes
    assert axes.get_ylim()[1] > 9
