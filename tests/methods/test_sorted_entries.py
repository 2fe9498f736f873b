"""Sorted updates: smaller errors where entries differ in size, no bias, the same bits on engines and after a resume."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fedcmoo import FSMGDA, FedAvg, FedCMOO, fit
from fedcmoo.client import Client
from fedcmoo.compression import Rotated
from fedcmoo.contributions import Arrays, Channel, Stage
from fedcmoo.engines import Local, Pool
from fedcmoo.experiments.two_digits import TwoDigits
from fedcmoo.messages import BadMessageError, Field
from fedcmoo.methods import Method
from fedcmoo.methods.sorted_entries import CLASSES, ENERGY, LearnSizes, SortedEntries, classes
from fedcmoo.parameters import FlatModel
from fedcmoo.privacy import DifferentialPrivacy
from fedcmoo.rounds import Server, Sizes
from fedcmoo.sums import Sums
from fedcmoo.worker import Worker
from tests.core.problems import classification

STAGE = SortedEntries("update")
D = 16_384


def server(**memory: Tensor) -> Server:
    empty = torch.zeros(0)
    return Server(
        Sizes(D, D, 2), 0, 4, torch.zeros(D), empty, empty.long(), torch.full((2,), 0.5).numpy(), memory=memory
    )


def sizes_of_entries() -> Tensor:
    """The standard deviations of entries of which every second, at random places, is a thousandth of the others."""
    return torch.where(torch.randperm(D, generator=torch.Generator().manual_seed(0)) % 2 == 0, 1.0, 1e-3)


def update() -> Tensor:
    """A vector with entries of these sizes."""
    return sizes_of_entries() * torch.randn(D, generator=torch.Generator().manual_seed(1))


def decoded(x: Tensor, told: Mapping[str, Tensor], budget: int, seed: int) -> Tensor:
    """What the server decodes of an update x [D] within a budget."""
    worker = Worker(classification(), {}, 0)
    client = worker.client(worker.model.public, 0, 0)
    client.told = told
    (sent,) = STAGE.on_client({"update": x}, {}, client).values()
    code = Rotated().encode(sent[None], budget, torch.Generator().manual_seed(seed))
    return STAGE.on_reply({"update": Rotated().decode(code, (1, D), budget, "client")[0]}, {}, told)["update"]


def test_small_entries_cost_next_to_nothing() -> None:
    """Half of the entries are tiny, so the error is that of a vector of the other half in the same bytes."""
    x, told = update(), STAGE.message(server(**{ENERGY: sizes_of_entries().square()}))
    budget = D // 16  # half a bit an entry
    dense = x[sizes_of_entries() == 1]
    errors = torch.tensor(
        [
            [
                relative_error(decoded(x, told, budget, seed), x),
                relative_error(decoded(x, {}, budget, seed), x),
                relative_error(alone(dense, budget, seed), dense),
            ]
            for seed in range(4)
        ]
    )
    in_order, unsorted, half = errors.mean(dim=0).tolist()
    assert in_order == pytest.approx(half, rel=0.05)
    assert in_order < 0.6 * unsorted


def relative_error(found: Tensor, x: Tensor) -> float:
    return float((found - x).square().sum() / x.square().sum())


def alone(x: Tensor, budget: int, seed: int) -> Tensor:
    code = Rotated().encode(x[None], budget, torch.Generator().manual_seed(seed))
    return Rotated().decode(code, (1, len(x)), budget, "client")[0]


def test_it_stays_unbiased() -> None:
    """The mean of n decoded vectors has a squared error of 1/n of a single one's."""
    x, told = update(), STAGE.message(server(**{ENERGY: sizes_of_entries().square()}))
    draws = torch.stack([decoded(x, told, D // 16, seed) for seed in range(100)])
    single = (draws - x).square().sum(dim=1).mean()
    assert (draws.mean(dim=0) - x).square().sum() == pytest.approx(single.item() / 100, rel=0.15)


def test_the_server_averages_the_squares_of_mean_updates() -> None:
    """v <- β v + (1 - β) u², by hand for two rounds; M updates count with their mean square."""
    own = server()
    for totals in (torch.full((D,), 6.0), torch.full((2, D), 12.0)):
        sums = Sums()
        for _ in range(3):
            sums.add({"update": totals / 3}, 0)
        LearnSizes("update").on_server(sums, {}, own)
    assert own.memory[ENERGY].tolist() == pytest.approx([0.9 * 4.0 + 0.1 * 16.0] * D)


def test_classes_are_powers_of_two_below_the_largest() -> None:
    v = torch.tensor([0.0, 2.0**-40, 2.0**-15, 0.26, 0.9, 1.0, 1e-3])
    expected = [15, 15, 15, 1, 0, 0, math.floor(math.log2(1e3))]
    packed = classes(v).tolist()
    assert [nibble for byte in packed for nibble in (byte & 15, byte >> 4)][: len(v)] == expected
    assert classes(torch.zeros(4)).tolist() == [255, 255]  # no update yet: all entries are alike


def test_a_round_with_infinite_squares_is_left_out() -> None:
    own = server(**{ENERGY: torch.ones(D)})
    sums = Sums()
    sums.add({"update": torch.full((D,), 1e30)}, 0)
    LearnSizes("update").on_server(sums, {}, own)
    assert torch.equal(own.memory[ENERGY], torch.ones(D))


def test_large_entries_come_first() -> None:
    v = torch.tensor([0.1, 4.0, 0.0, 2.0, 1.1])
    worker = Worker(classification(), {}, 0)
    client = worker.client(worker.model.public, 0, 0)
    client.told = {CLASSES: classes(v)}
    sent = STAGE.on_client({"update": v}, {}, client)
    assert sent["update"].tolist() == pytest.approx([4.0, 2.0, 1.1, 0.1, 0.0])
    assert torch.equal(STAGE.on_reply(sent, {}, client.told)["update"], v)


def test_classes_of_another_length_are_refused() -> None:
    with pytest.raises(BadMessageError, match="the server"):
        STAGE.on_reply({"update": torch.zeros(D)}, {}, {CLASSES: torch.zeros(D, dtype=torch.uint8)})


class Freeze(Stage):
    """A stage that depends on positions: the first twenty entries of the model do not change."""

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        update = arrays["update"].clone()
        update[:20] = 0
        return {**arrays, "update": update}

    def on_reply(self, arrays: Arrays, fields: Mapping[str, Field], told: Arrays) -> Arrays:
        assert arrays["update"][:20].abs().max() < 0.1 * arrays["update"].abs().max()
        return arrays


def test_other_stages_see_the_entries_in_the_order_of_the_model() -> None:
    problem = classification()
    start = problem.flat_model().x.clone()
    method = FedAvg(client_lr=0.1, batch_size=8, update=Rotated(), update_budget=1.0)
    trained = fit(problem, method, 4, clients_per_round=4, engine=Local(), stages=[Freeze()])
    moved = (FlatModel(trained.model, problem.is_shared).x - start).abs()
    assert moved[:20].max() < 0.1 * moved[20:].max()


def test_nothing_is_sorted_for_codes_that_do_not_adapt() -> None:
    for update, sorts in ((Rotated(), True), (Rotated(adaptive=False), False), (None, False)):
        channel: Channel = FedAvg(update=update, update_budget=1.0).channels()["train"]
        assert any(isinstance(stage, SortedEntries) for stage in channel.stages) == sorts


@pytest.mark.parametrize("kind", [FedCMOO, FSMGDA])
def test_bits_are_the_same_on_all_engines_and_after_a_resume(kind: type[Method], tmp_path: Path) -> None:
    method = kind(client_lr=0.1, batch_size=8, update=Rotated(), update_budget=0.6)
    problem = classification()
    results = [fit(problem, method, 4, clients_per_round=4, engine=engine) for engine in (Local(), Pool(workers=2))]
    fit(problem, method, 2, clients_per_round=4, engine=Local(), folder=tmp_path, checkpoint_every=1)
    results.append(fit(problem, method, 4, clients_per_round=4, engine=Local(), folder=tmp_path, resume=True))
    first, *others = (torch.cat([p.reshape(-1) for p in r.model.parameters()]) for r in results)
    assert all(torch.equal(first, other) for other in others)
    down = [record.down["train"] for record in results[0].history]
    classes = -(-Sizes.of(problem.flat_model(), 2).d // 2)  # four bits an entry
    assert 0 < down[1] - down[0] - 4 * classes < 4 * 40  # and their name, type and shape in the header


def test_it_learns_only_from_sums_with_privacy_noise() -> None:
    """With noise far above the updates, the entries' energies are those of the noise: all about z² C² / n²."""
    found: list[Tensor] = []

    class Watched(FedAvg):
        def finish(self, server: Server, sums: Sums) -> None:
            found.append(server.memory[ENERGY])
            super().finish(server, sums)

    privacy = DifferentialPrivacy(noise=50.0, clip=0.01, epsilon=1e6, sampling="fixed-size")
    method = Watched(client_lr=0.1, batch_size=8, update=Rotated(), update_budget=0.9)
    problem = TwoDigits(clients=4, train_pairs=80, validation_pairs=10, test_pairs=10).build(seed=0)
    fit(problem, method, 1, clients_per_round=4, engine=Local(), stages=[privacy])
    assert found[0].mean().item() == pytest.approx((50.0 * 0.01 / 4) ** 2, rel=0.5)
