"""The speed benchmark measures what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from torch import Tensor
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

from fedcmoo import FedCMOO, Objective, fit
from fedcmoo.bench.speed import baseline, bench_speed, profile
from fedcmoo.bench.synthetic import synthetic
from fedcmoo.cli.bench import speed
from fedcmoo.compression import Rotated
from fedcmoo.engines import Local

METHOD = FedCMOO(local_steps=3, batch_size=8)


class CountedLoss:
    """A loss that counts the gradients taken of it."""

    def __init__(self) -> None:
        self.forward = self.backward = 0

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        loss = cross_entropy(output, target)
        if loss.requires_grad:
            self.forward += 1
            loss.register_hook(self._count)  # type: ignore[no-untyped-call]
        return loss

    def _count(self, grad: Tensor) -> None:
        self.backward += 1


def test_the_baseline_has_the_passes_of_a_round() -> None:
    losses = [CountedLoss(), CountedLoss()]
    problem = synthetic(clients=4)
    problem.objectives = [Objective(f"f{k}", loss) for k, loss in enumerate(losses)]

    def passes(work: Callable[[], object]) -> list[tuple[int, int]]:
        before = [(loss.forward, loss.backward) for loss in losses]
        work()
        return [(loss.forward - f, loss.backward - b) for loss, (f, b) in zip(losses, before, strict=True)]

    of_check = passes(problem.check)
    of_baseline = passes(baseline(problem, METHOD, 3))
    of_fit = passes(lambda: fit(problem, METHOD, 1, clients_per_round=3, engine=Local()))
    of_round = [(f - cf, b - cb) for (f, b), (cf, cb) in zip(of_fit, of_check, strict=True)]
    assert of_round == of_baseline
    assert of_baseline == [(3 * 3, 3 * 3)] * 2  # clients, local steps: the first step's gradients are phase one's


def test_everything_is_measured(tmp_path: Path) -> None:
    bench = bench_speed(
        synthetic(clients=5),
        METHOD,
        {"here": Local()},
        rounds=2,
        clients_per_round=3,
        growth={"clients": (10, 20), "width": (8, 16)},
        repeats=1,
        say=lambda text: None,
    )
    (here,) = bench.engines
    assert set(here.phases) == {"jacobian", "train", "server"}
    assert 0 < here.phases["train"] < here.seconds
    assert here.outside_clients is not None
    assert 0 < here.outside_clients < 1
    assert here.coding is None
    assert here.clients_per_second == pytest.approx(3 / here.seconds)
    assert [[point.value for point in growth.points] for growth in bench.growth] == [[10, 20], [8, 16]]
    assert json.loads(json.dumps(bench.summary()))["engines"][0]["engine"] == "here"
    bench.plot(tmp_path / "speed.png")
    assert (tmp_path / "speed.png").stat().st_size > 1000


def test_a_trace_is_written(tmp_path: Path) -> None:
    profile(synthetic(clients=2, width=8), FedCMOO(local_steps=1, batch_size=8), 1, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any("AddmmBackward" in event.get("name", "") for event in events)


def test_command(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(speed)
    sizes = ["train_pairs=200", "validation_pairs=20", "test_pairs=20", "clients=4"]
    sets = [text for size in sizes for text in ("--set", f"problem.{size}")]
    few = ["--set", "clients_per_round=2", "--set", "method.local_steps=2", "--set", "method.batch_size=8"]
    options = ["two-digits", "--rounds", "1", "--no-growth", "--workers", "1", *sets, *few, "--out", str(tmp_path)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    assert "pool of 1" in result.output
    assert json.loads((tmp_path / "speed.json").read_text())["clients_per_round"] == 2


def test_compression_of_updates_is_timed() -> None:
    method = replace(METHOD, update=Rotated(), update_budget=0.2)
    bench = bench_speed(synthetic(clients=5), method, {"here": Local()}, rounds=2, clients_per_round=3, growth={})
    coding = bench.engines[0].coding
    assert coding is not None
    assert 0 < coding < 0.9
