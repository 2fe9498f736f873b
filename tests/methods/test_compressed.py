"""Compressed updates: for every method and engine, within the budget, and refused if they are not well-formed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedcmoo import FSMGDA, MGDA, FedAvg, FedCMOO, FedCMOOPref, fit
from fedcmoo.compression import Identity, Quantizer, Rotated
from fedcmoo.engines import Engine, Local, Pool
from fedcmoo.gram import Exact, Sketch
from fedcmoo.messages import BadMessageError, Message
from fedcmoo.methods import FedCMOOT, Method
from fedcmoo.parameters import FlatModel
from fedcmoo.result import Result
from fedcmoo.rounds import Sizes
from fedcmoo.worker import Worker
from tests.core.problems import classification

METHODS: list[Method] = [
    FedCMOO(client_lr=0.1, batch_size=8),
    FedCMOOPref(client_lr=0.1, batch_size=8),
    FedCMOOT(client_lr=0.1, batch_size=8, gram=FedCMOOT().gram),
    FSMGDA(client_lr=0.1, batch_size=8),
    FedAvg(client_lr=0.1, batch_size=8),
    MGDA(batch_size=8),
]


def run(method: Method, rounds: int = 3, engine: Engine | None = None) -> Result:
    return fit(classification(), method, rounds, clients_per_round=4, engine=engine or Local())


def difference(one: Result, other: Result) -> float:
    """Of the trainable parameters, relative to how far training moved them."""
    models = (one.model, other.model, classification().model)
    first, second, start = (torch.cat([p.detach().reshape(-1) for p in model.parameters()]) for model in models)
    return float((first - second).norm() / (first - start).norm())


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_a_compressor_that_changes_nothing_changes_no_parameter(method: Method) -> None:
    assert difference(run(method, 1), run(replace(method, update=Identity()), 1)) == 0


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_many_bits_come_close_and_few_keep_the_budget(method: Method) -> None:
    plain, result = run(method, 1), run(replace(method, update=Rotated(), update_budget=3.0), 1)
    assert 0 < difference(plain, result) < 0.05
    few = run(replace(method, update=Rotated(), update_budget=0.6), 1)
    sizes = Sizes.of(FlatModel(few.model), M=2)
    phase = list(few.history[0].up)[-1]
    saved = (plain.history[0].up[phase] - few.history[0].up[phase]) / len(few.history[0].cohort)
    rows = sizes.M if isinstance(method, (FSMGDA, MGDA)) else 1
    assert saved >= 4 * sizes.d * (rows - 0.6)  # buffers take as much as before


@pytest.mark.parametrize("compressor", [Rotated(), Quantizer()], ids=repr)
def test_all_engines_have_the_same_bits(compressor: Rotated | Quantizer) -> None:
    method = FedCMOO(client_lr=0.1, batch_size=8, update=compressor, update_budget=0.6)
    local, pool = run(method), run(method, engine=Pool(workers=2))
    for a, b in zip(local.model.state_dict().values(), pool.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_variances_of_batch_norm_stay_positive() -> None:
    result = run(FedAvg(client_lr=0.3, batch_size=8, update=Rotated(), update_budget=0.3), 10)
    variances = [b for name, b in result.model.named_buffers() if "var" in name]
    assert variances
    assert all((v > 0).all() for v in variances)


def test_buffers_of_very_different_sizes_arrive_unchanged() -> None:
    problem = classification()
    sizes = Sizes.of(FlatModel(problem.model), problem.M)
    worker = Worker(problem, {}, 0)
    client = worker.client(worker.model.public, 0, 0)
    channel = FedAvg(update=Rotated(), update_budget=1.0).channels()["train"]
    buffers = torch.logspace(-2, 9, sizes.buffers)
    arrays = {"update": torch.randn(sizes.d), "buffers": buffers, "counters": torch.zeros(sizes.counters).long()}
    sent = channel.contribution.encode(arrays, client)
    assert torch.equal(channel.receive(sent, sizes, "client 0", {})["buffers"], buffers)


def test_replies_that_are_not_well_formed_are_refused() -> None:
    problem = classification()
    sizes = Sizes.of(FlatModel(problem.model), problem.M)
    channel = FedAvg(update=Rotated(), update_budget=1.0).channels()["train"]
    code = Rotated().encode(torch.randn(1, sizes.d), 4 * sizes.d, torch.Generator())["code"]
    buffers = Identity().encode(torch.rand(1, sizes.buffers), 0, torch.Generator())
    good = {
        "update/code": code,
        **{f"buffers/{key}": array for key, array in buffers.items()},
        "counters": torch.zeros(sizes.counters, dtype=torch.int64),
    }
    assert channel.receive(Message(**good), sizes, "client 7", {})["update"].shape == (sizes.d,)
    infinite = {"buffers/h": torch.full_like(buffers["h"], torch.inf)}
    for bad in (
        {**good, "update/code": code[:, :-1]},
        {**good, "update/more": code},
        {**good, "update": code},
        {**good, "more": code},
        {**good, "counters": good["counters"].int()},
        {**good, **infinite},
        {key: array for key, array in good.items() if key != "update/code"},
    ):
        with pytest.raises(BadMessageError, match="client 7"):
            channel.receive(Message(**bad), sizes, "client 7", {})


def test_a_budget_that_is_too_small_is_an_error_before_work_starts() -> None:
    with pytest.raises(ValueError, match=r"budget must be at least .* for Rotated"):
        run(FedAvg(update=Rotated(), update_budget=0.01))
    with pytest.raises(ValueError, match="update_budget must be positive"):
        FedAvg(update_budget=0.0)


def test_the_whole_upload_is_divided() -> None:
    method = FedCMOO(gram=Sketch(bits=2)).within(0.02)
    assert isinstance(method.gram, Sketch)
    assert method.gram.bits == 2
    assert method.gram.budget is not None
    assert method.gram.budget + method.update_budget == pytest.approx(0.02)
    assert FSMGDA().within(0.02).update_budget == 0.02
    with pytest.raises(ValueError, match="the whole upload can be set with gram = 'sketch', but gram is Exact"):
        FedCMOOPref(gram=Exact()).within(0.02)
