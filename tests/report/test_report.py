"""`fedcmoo report` on what the other commands leave behind, and charts and tables as files."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from fedcmoo.cli.run import report as command
from fedcmoo.client_scores import distribution
from fedcmoo.config import RunConfig
from fedcmoo.history import Record
from fedcmoo.overview import by_problem, find_runs, report
from fedcmoo.pareto import Front, Point
from fedcmoo.report.chart import Chart, Line, Panel, thinned
from fedcmoo.report.static import draw
from fedcmoo.report.table import Table
from fedcmoo.settings import write_toml
from tests.reproduce.fabricate import bench


def save_run(folder: Path, level: float, **settings: Any) -> None:
    """A run of five rounds whose accuracy rises to `level`."""
    folder.mkdir(parents=True)
    records = []
    for t in range(1, 6):
        scores = {
            "left": {"loss": 1 / t, "accuracy": level * t / 5},
            "right": {"loss": 2 / t, "accuracy": level * t / 5},
        }
        records.append(Record(t, [0, 1], {"left": 0.25, "right": 0.75}, up={"train": 10**6}, test=scores))
    (folder / "history.jsonl").write_text("".join(record.to_json() + "\n" for record in records))
    if settings:
        (folder / "config.toml").write_text(write_toml(RunConfig.from_table(settings).to_table()))


def charts_in(page: Path) -> dict[str, dict[str, Any]]:
    """The data of a page's charts by name."""
    pattern = r'<figure class="chart" id="([^"]+)".*?<script type="application/json">(.*?)</script>'
    return {unescape(name): json.loads(data) for name, data in re.findall(pattern, page.read_text(), flags=re.DOTALL)}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for seed, level in ((0, 0.8), (1, 0.6)):
        save_run(tmp_path / f"compare/fedcmoo-seed{seed}", level, seed=seed, method="fedcmoo")
    save_run(tmp_path / "single", 0.5, method={"name": "fsmgda", "local_steps": 20})
    return tmp_path


def test_the_distribution_over_clients_is_drawn(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random(40)
    scores = {"digit": {"accuracy": distribution(values, True), "loss": distribution(values, False)}}
    record = Record(1, [0], {"digit": 1.0}, client_test=scores)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "history.jsonl").write_text(record.to_json() + "\n")
    report([tmp_path], tmp_path / "report.html")
    (chart,) = (chart for name, chart in charts_in(tmp_path / "report.html").items() if name.startswith("clients-"))
    assert [panel["title"] for panel in chart["panels"]] == ["digit: accuracy", "digit: loss"]
    line = chart["panels"][0]["lines"][0]
    assert line["y"] == pytest.approx(np.quantile(values, np.linspace(0, 1, 11)))
    text = (tmp_path / "report.html").read_text()
    assert f"{np.sort(values)[:4].mean():.4f}" in text  # the worst tenth of forty clients
    assert f"{np.sort(values)[-4:].mean():.4f}" in text


def test_seeds_are_grouped_and_differences_named(runs: Path) -> None:
    save_run(runs / "more", 0.4, method={"name": "fsmgda", "local_steps": 5})
    labelled = by_problem(find_runs([runs]))["two-digits"]
    assert {label: len(same) for label, same in labelled.items()} == {
        "FSMGDA (local_steps 5)": 1,
        "FSMGDA (local_steps 20)": 1,
        "FedCMOO": 2,
    }


def test_page_of_a_comparison_and_a_run(runs: Path) -> None:
    page = runs / "report.html"
    report([runs / "compare", runs / "single"], page)
    charts = charts_in(page)
    assert list(charts) == ["curves-two-digits", "weights-two-digits"]
    (line,) = (line for line in charts["curves-two-digits"]["panels"][0]["lines"] if line["label"] == "FedCMOO")
    assert line["y"][-1] == pytest.approx(0.7)
    assert (line["low"][-1], line["high"][-1]) == pytest.approx((0.6, 0.8))
    assert line["x"]["uploaded megabytes, all clients"] == [1, 2, 3, 4, 5]
    assert charts["weights-two-digits"]["panels"][0]["lines"][1]["y"] == [0.75] * 5
    assert "0.7000 ± 0.1414" in page.read_text()


def test_page_of_objectives_with_different_metrics_and_negative_weights(tmp_path: Path) -> None:
    scores = {"click": {"loss": 1.0}, "dwell": {"loss": 3.0, "accuracy": 0.5}}
    record = Record(1, [0], {"click": -0.5, "dwell": 1.5}, up={"train": 1}, test=scores)
    (tmp_path / "history.jsonl").write_text(record.to_json() + "\n")
    report([tmp_path], tmp_path / "report.html")
    (chart,) = charts_in(tmp_path / "report.html").values()
    lines = {panel["title"]: {line["label"]: line["y"] for line in panel["lines"]} for panel in chart["panels"]}
    assert lines == {
        "test accuracy": {"dwell": [0.5]},
        "test loss": {"click": [1.0], "dwell": [3.0]},
        "weights": {"click": [-0.5], "dwell": [1.5]},
    }


def test_page_of_a_sweep_and_a_gram_bench(tmp_path: Path) -> None:
    points = []
    for name, preference in (("1_2", (1.0, 2.0)), ("2_1", (2.0, 1.0))):
        save_run(tmp_path / f"sweep/points/{name}", 0.5)
        scores = {"left": {"loss": 1 / preference[0]}, "right": {"loss": 1 / preference[1]}}
        points.append(Point(name, scores, preference, tmp_path / f"sweep/points/{name}"))
    (tmp_path / "sweep/sweep.toml").write_text(write_toml(RunConfig().to_table()))
    average = Point("FedAvg", {"left": {"loss": 0.4}, "right": {"loss": 0.9}}, (), tmp_path / "sweep/baselines/fedavg")
    Front("two-digits", ("left", "right"), tuple(points), (2.3, 2.3), fedavg=average).save(tmp_path / "sweep")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/gram.json").write_text(json.dumps(asdict(bench("multimnist"))))
    report([tmp_path / "sweep", tmp_path / "bench"], tmp_path / "page.html")
    charts = charts_in(tmp_path / "page.html")
    assert list(charts) == ["curves-two-digits", "weights-two-digits", "front-1", "gram-errors"]
    assert list(charts["curves-two-digits"]["colours"]) == ["1:2", "2:1"]
    assert list(charts["front-1"]["colours"]) == ["1:2", "2:1", "FedAvg"]
    hollow = [line["label"] for line in charts["front-1"]["panels"][0]["lines"] if line["style"] == "hollow"]
    assert hollow == ["2:1"]  # FedAvg has 0.4 and 0.9, this point 0.5 and 1
    page = (tmp_path / "page.html").read_text()
    assert "by FedAvg" in page
    assert "with the baselines" in page
    gram = charts["gram-errors"]["panels"][0]
    (svd,) = (line for line in gram["lines"] if line["label"] == "one-way randomized SVD")
    assert svd["y"][-1] == pytest.approx(1.96)  # as fabricated: the paper's


def test_command(runs: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, [str(runs / "single"), "--out", str(runs / "r.html")])
    assert result.exit_code == 0
    assert (runs / "r.html").exists()
    (runs / "empty").mkdir()
    result = CliRunner().invoke(app, [str(runs / "empty")])
    assert result.exit_code == 1
    assert "must be the folder of a run, or of several" in result.stderr


def test_chart_survives_json_and_is_drawn_alike_every_time(tmp_path: Path) -> None:
    lines = [
        Line("FedCMOO", {"round": [1, 2]}, [1.0, 2.0], [0.5, 1.5], [1.5, 2.5]),
        Line("other", {"round": [1, 2]}, [3, 4]),
    ]
    panels = [Panel("a", "y", lines), Panel("b", "r", [Line("other", {}, [1.0, 2.0, 3.0])], spokes=("x", "y", "z"))]
    chart = Chart("c", "Title", "See.", panels, "small scale: 2 rounds")
    again = Chart.from_json(json.loads(json.dumps(asdict(chart))))
    assert asdict(again) == json.loads(json.dumps(asdict(chart)))
    first: list[bytes] = []
    second: list[bytes] = []
    for suffix in (".svg", ".png"):
        for drawn, found in ((chart, first), (again, second)):
            draw(drawn, tmp_path / f"new/chart{suffix}")  # the folder is made
            found.append((tmp_path / f"new/chart{suffix}").read_bytes())
    assert first == second
    assert b"<svg" in first[0]
    assert first[1].startswith(b"\x89PNG")


def test_thinned_keeps_the_ends() -> None:
    values = [float(n) for n in range(1001)]
    kept = thinned(values, 100)
    assert len(kept) <= 102
    assert (kept[0], kept[-1]) == (0.0, 1000.0)
    assert thinned([], 3) == []


def test_table_as_csv() -> None:
    table = Table("t", "T", ["a"], [["1.0 ± 0.1"]], [{"a": 1.0, "b": None}, {"a": 2.0, "b": "x, y"}], "small scale")
    assert table.csv() == 'a,b,note\n1.0,,small scale\n2.0,"x, y",small scale\n'
