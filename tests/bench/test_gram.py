"""The comparison of Gram estimators, on a small problem."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from fedcmoo import Callback, FedCMOO, fit
from fedcmoo.bench.gram import bench_gram, entries
from fedcmoo.bench.memory import peak_bytes, reset_peak
from fedcmoo.gram import Exact
from fedcmoo.history import Record
from fedcmoo.methods import FedCMOOPref
from tests.core.problems import classification, quadratics


def test_every_estimator_is_compared_and_training_is_that_of_the_exact_one(tmp_path: Path) -> None:
    problem = quadratics(M=2, d=6000, clients=4, samples=4)
    method = FedCMOO(client_lr=0.1, local_steps=2, batch_size=2)
    bench = bench_gram(problem, method, rounds=3, every=2, budgets=[1.0, 0.1], clients_per_round=3)
    assert {row.estimator for row in bench.rows} == {entry.name for entry in entries([1.0])}
    rows = {(row.estimator, row.budget): row for row in bench.rows}
    for row in bench.rows:
        assert len(row.nrmse) == len(row.normalized) == 2
        assert np.isfinite(row.nrmse).all()
        # A budget is for what has the size of the model; two-way's M x M matrices and the header come on top.
        small = 3 * 4 * 4 if "two-way" in row.estimator else 0
        header = 90 if "two-way" in row.estimator else 40
        assert row.upload <= max(row.budget * 6000 * 4 + small, 4 * 4) + header
        assert (row.download > 8 + header) == ("two-way" in row.estimator)
        assert row.encode_seconds > 0
    # Too small for 2 bits an entry: left out.
    assert ("one-way quantizer", 1.0) in rows
    assert ("one-way quantizer", 0.1) not in rows
    assert np.mean(rows["sketch", 1.0].nrmse) < np.mean(rows["sketch, 32 bits", 0.1].nrmse)
    terminal = Console(width=80, record=True, file=io.StringIO())
    terminal.print(*bench.tables())
    assert all(row.estimator in terminal.export_text(clear=False) for row in bench.rows)  # nothing cut off
    bench.plot(tmp_path / "gram.png")
    assert (tmp_path / "gram.png").stat().st_size > 1000
    assert json.loads(json.dumps(asdict(bench)))["M"] == 2


@pytest.mark.parametrize("method", [FedCMOO(gram=Exact(), batch_size=8), FedCMOOPref(gram=Exact(), batch_size=8)])
def test_riding_along_changes_nothing(method: FedCMOO | FedCMOOPref) -> None:
    problem = classification()
    plain, alongside = Records(), Records()
    fit(problem, method, rounds=2, clients_per_round=3, callbacks=[plain])
    bench = bench_gram(problem, method, rounds=2, budgets=[1.0], clients_per_round=3, callbacks=[alongside])
    assert [record.gram for record in plain.records] == [record.gram for record in alongside.records]
    assert [record.weights for record in plain.records] == [record.weights for record in alongside.records]
    assert [len(row.nrmse) for row in bench.rows] == [2] * len(bench.rows)


def test_an_interrupted_comparison_goes_on(tmp_path: Path) -> None:
    problem, method = classification(), FedCMOO(batch_size=8)

    def run(rounds: int, folder: Path, resume: bool = False) -> list[tuple[list[float], list[float], float]]:
        bench = bench_gram(
            problem, method, rounds, budgets=[1.0], clients_per_round=3, folder=tmp_path / folder, resume=resume
        )
        return [(list(row.nrmse), list(row.normalized), row.upload) for row in bench.rows]

    run(2, Path("cut"))
    assert run(5, Path("cut"), resume=True) == run(5, Path("whole"))


class Records(Callback):
    """Keeps the records of a run."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def after_round(self, record: Record) -> bool:
        self.records.append(record)
        return False


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="every must be a whole number of at least 1, but got 0"):
        bench_gram(classification(), FedCMOO(), every=0)
    with pytest.raises(ValueError, match="none contains 'sketsch'"):
        bench_gram(classification(), FedCMOO(), only=["sketsch"])
    with pytest.raises(ValueError, match=r"budgets must be enough for one of the estimators chosen, but got \[1e-05\]"):
        bench_gram(classification(), FedCMOO(), budgets=[1e-5], only=["randomized"])


@pytest.mark.parametrize("method", [FedCMOO(), FedCMOOPref()])
def test_g_is_estimated_in_every_round_whatever_the_method_does(method: FedCMOO | FedCMOOPref) -> None:
    plain = replace(method, batch_size=8)
    cheap = replace(plain, gram_every=2, gram_batch_size=4, trips=1)
    plain_bench, cheap_bench = (
        bench_gram(classification(), chosen, 3, only=["sum"], clients_per_round=2) for chosen in (plain, cheap)
    )
    assert [row.nrmse for row in cheap_bench.rows] == [row.nrmse for row in plain_bench.rows]
    assert [len(row.nrmse) for row in cheap_bench.rows] == [3]


def test_peak_memory_sees_what_was_there_for_a_moment() -> None:
    before = reset_peak()
    block = np.ones(10_000_000)
    del block
    peak = peak_bytes()
    assert before is None or peak is None or 60e6 < peak - before < 120e6
