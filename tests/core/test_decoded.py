"""What is well-formed may decode to what no client can have: it is refused, and a dropped G is noted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fedcmoo import FedCMOO, FedCMOOPref, fit
from fedcmoo.client import Client
from fedcmoo.compression import Quantizer, RandomizedSVD, RandomMask
from fedcmoo.contributions import Arrays, Channel, Stage, add_reply
from fedcmoo.engines import Local
from fedcmoo.gram import Exact, OneWay, SumOfGrams, TwoWay, TwoWayAsRun
from fedcmoo.gram.base import check_own
from fedcmoo.messages import BadMessageError, Field, Message
from fedcmoo.methods.base import LocalTraining
from fedcmoo.optimizers import SGD
from fedcmoo.parameters import FlatModel
from fedcmoo.rounds import Sizes
from fedcmoo.sums import Sums
from tests.core.problems import TwoHeads, classification, quadratics


def receive(contribution: object, **payload: torch.Tensor) -> None:
    sizes = Sizes.of(FlatModel(TwoHeads(), lambda name: name.startswith("encoder")), 2)
    message = Message.join({"part": Message(**payload)})
    add_reply(Sums(), {"part": Channel(contribution)}, {"part": Message()}, message, sizes, "client 3")  # type: ignore[arg-type]


def test_a_negative_variance_is_refused() -> None:
    model = FlatModel(TwoHeads())
    assert model.variances == ((8, 16),)  # after the eight running means
    training = LocalTraining(0.1, 1, 8, SGD(), reuse_jacobian=False)
    update, counters = torch.zeros(model.d), model.counters()
    receive(training, update=update, buffers=model.buffers(), counters=counters)
    with pytest.raises(BadMessageError, match="client 3: variances in 'buffers' must not be negative"):
        receive(training, update=update, buffers=model.buffers() - 2, counters=counters)


@pytest.mark.parametrize(
    "own",
    [[[1.0, 5.0], [5.0, 1.0]], [[1.0, 0.5], [-0.5, 1.0]], [[-1.0, 0.0], [0.0, 1.0]]],
    ids=["products beyond norms", "not symmetric", "negative norm"],
)
def test_products_that_no_gradients_have_are_refused(own: list[list[float]]) -> None:
    contribution = SumOfGrams().contribution(None)
    receive(contribution, own=torch.tensor([[1.0, -0.9], [-0.9, 1.0]]))
    with pytest.raises(BadMessageError, match="client 3: 'own' must be the products of a client's gradients"):
        receive(contribution, own=torch.tensor(own))


def test_products_of_gradients_of_any_size_are_not_refused() -> None:
    draws = torch.Generator().manual_seed(0)
    for exponent in range(-18, 18):
        h = 10.0**exponent * torch.randn(5, 40, generator=draws)
        h[3] = 2 * h[1]  # parallel gradients attain the bound
        part = h[:, :20]
        check_own(h @ h.T, "client 0")
        check_own((h.double() @ h.T.double() - part.double() @ part.T.double()).float(), "client 0", part @ part.T)


@dataclass(frozen=True)
class Enlarged(Stage):
    """Finite arrays whose sum, or whose product, is not."""

    size: float

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        return {name: torch.full_like(array, self.size) if name == "h" else array for name, array in arrays.items()}


@dataclass(frozen=True)
class InflatedCorrection(Stage):
    """Client 1 sends a correction that does not fit the gradients that it sent before."""

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        factor = 1e20 if "mixed" in arrays and client.i == 1 else 1
        return {name: factor * (1 + array) for name, array in arrays.items()} if factor > 1 else arrays


@pytest.mark.parametrize("gram", [TwoWay(RandomizedSVD()), TwoWay(Quantizer()), TwoWayAsRun(RandomMask())], ids=repr)
def test_corrections_are_limited_to_what_clients_could_have(gram: TwoWay) -> None:
    problem = quadratics(d=40, clients=4)
    method = FedCMOO(gram=gram, local_steps=1, client_lr=1e-3)
    for seed in range(5):
        (honest,) = fit(problem, method, 1, seed=seed, engine=Local()).history
        (exact,) = fit(problem, FedCMOO(gram=SumOfGrams()), 1, seed=seed, engine=Local()).history
        (attacked,) = fit(problem, method, 1, seed=seed, engine=Local(), stages=[InflatedCorrection()]).history
        assert not [name for name in honest.notes if name.endswith("limited")]
        assert attacked.notes["mixed_limited"] == 1.0
        # The bound is (24 n + 12) Σ_i ‖h_i‖² / n² if the compressor at most doubles norms.
        assert np.abs(attacked.gram).max() < 100 * problem.N * np.trace(exact.gram)  # type: ignore[arg-type]


@pytest.mark.parametrize("gram", [TwoWay(Quantizer()), TwoWay(RandomizedSVD(), budget=2), OneWay(Quantizer())])
@pytest.mark.parametrize("size", [1e19, 3e38])
def test_huge_replies_do_not_crash_the_server(gram: TwoWay | OneWay, size: float) -> None:
    problem = classification()
    method = FedCMOO(gram=gram, local_steps=1)
    result = fit(problem, method, 2, clients_per_round=8, engine=Local(), stages=[Enlarged(size)], on_failure="skip")
    for record in result.history:
        dropped = record.notes.get("gram_dropped") == 1.0 and record.gram is None
        assert dropped or record.undone or record.failures


@dataclass(frozen=True)
class EnlargedLater(Enlarged):
    """From the second round on."""

    def on_client(self, arrays: Arrays, fields: Mapping[str, Field], client: Client) -> Arrays:
        return super().on_client(arrays, fields, client) if client.round else arrays


@pytest.mark.parametrize("method", [FedCMOO(gram=Exact()), FedCMOOPref(gram=Exact(), preference=(1, 9))])
def test_weights_stay_if_gradients_are_dropped(method: FedCMOO | FedCMOOPref) -> None:
    method = replace(method, local_steps=1)
    first, second = fit(classification(), method, 2, engine=Local(), stages=[EnlargedLater(1e19)]).history
    assert second.notes["gram_dropped"] == 1.0
    assert second.weights == first.weights
    assert len(set(first.weights.values())) > 1


def test_no_note_where_nothing_is_dropped() -> None:
    result = fit(quadratics(), FedCMOO(), 2, engine=Local())
    assert all("gram_dropped" not in record.notes and record.gram is not None for record in result.history)
    assert np.isfinite(result.history[-1].gram).all()  # type: ignore[arg-type]
