"""Gram estimators against the Gram matrix that the clients' data has in closed form."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from fedcmoo import FedCMOO, Problem, fit
from fedcmoo.compression import Compressor, Identity, Quantizer, RandomizedSVD, RandomMask, TopK
from fedcmoo.contributions import Channel, Channels
from fedcmoo.engines import Local
from fedcmoo.gram import GRAMS, Exact, Gram, OneWay, Sketch, SumOfGrams, TwoWay, TwoWayAsRun, Unbiased
from fedcmoo.gram.base import gram_matrix, inner
from fedcmoo.gram.sketch import SketchedJacobian
from fedcmoo.methods import FedCMOOT
from fedcmoo.parameters import FlatModel
from fedcmoo.randomness import generator
from fedcmoo.rounds import Server, Sizes, drive
from fedcmoo.settings import from_registry, to_table
from fedcmoo.types import Matrix
from fedcmoo.worker import Worker
from tests.core.problems import classification, quadratics

N, M, D = 4, 3, 800


def server_of(problem: Problem, seed: int = 0) -> Server:
    model = FlatModel(problem.model, problem.is_shared)
    sizes = Sizes(model.d, model.d_shared, problem.M, dtype=model.x.dtype)
    empty = torch.empty(0)
    return Server(sizes, seed, problem.N, model.x.clone(), empty, empty.long(), np.full(problem.M, 1 / problem.M))


def estimate(gram: Gram, problem: Problem, seed: int = 0) -> Matrix:
    """One estimate from all clients."""
    G: Matrix = estimates(gram, problem, 1, seed=seed)[0]
    return G


def estimates(
    gram: Gram, problem: Problem, rounds: int, n: int | None = None, batch_size: int | None = None, seed: int = 0
) -> Matrix:
    """Estimates at the same x in several rounds, [rounds, M, M], with real clients in a real session."""
    server = server_of(problem, seed)
    results = []
    with Local().start(problem, channels_of(gram, batch_size), seed, server.sizes) as session:
        for server.round in range(rounds):
            server.start_round(n or problem.N)
            G, _ = drive(gram.estimate(server), lambda ask: session.ask(ask, server))
            results.append(G)
    return np.stack(results)


def channels_of(gram: Gram, batch_size: int | None = None) -> Channels:
    return {name: Channel(contribution) for name, contribution in gram.contributions(batch_size).items()}


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Client i's Jacobian at x = 0 is minus the mean of its own points: rows [M, D]."""
    return quadratics(M=M, d=D, clients=N, samples=2)


def jacobians(problem: Problem) -> Tensor:
    return torch.stack([-targets.mean(dim=0) for _, targets in problem.clients])


def truth(problem: Problem) -> Matrix:
    return gram_matrix(jacobians(problem).mean(dim=0))


def nrmse(G: Matrix, exact: Matrix) -> float:
    return float(np.linalg.norm(G - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize(
    ("gram", "tolerance"),
    [
        (Exact(), 1e-12),
        (OneWay(Identity()), 1e-5),
        (TwoWay(Identity()), 1e-5),
        (TwoWayAsRun(Identity()), 1e-5),
        (Sketch(budget=4, bits=32), 1e-5),
        (Sketch(budget=4), 2e-3),
        (OneWay(TopK(), budget=5), 1e-5),
        (OneWay(RandomizedSVD(), budget=7), 1e-4),
        (TwoWay(RandomizedSVD(), budget=7), 1e-4),
    ],
    ids=repr,
)
def test_estimators_that_lose_nothing_give_the_exact_gram(problem: Problem, gram: Gram, tolerance: float) -> None:
    assert nrmse(estimate(gram, problem), truth(problem)) < tolerance


def test_the_sum_of_grams_is_that(problem: Problem) -> None:
    expected = sum(gram_matrix(h) for h in jacobians(problem)) / N**2
    np.testing.assert_allclose(estimate(SumOfGrams(), problem), expected, rtol=1e-6)


@pytest.mark.parametrize("compressor", [TopK(), RandomizedSVD(), RandomMask()], ids=repr)
def test_two_way_is_the_expansion_of_appendix_b(problem: Problem, compressor: Compressor) -> None:
    """Term by term, with the double sums written out, from the ĥ_i that clients send."""
    seed, budget = 3, 4 * D
    h = jacobians(problem)
    clients = [Worker(problem, {}, seed).client(server_of(problem).model, 0, i) for i in range(N)]
    Q = [
        compressor.decode(compressor.encode(h[i], budget, clients[i].random("compress")), (M, D), budget, "").double()
        for i in range(N)
    ]
    R = [h[i] - Q[i] for i in range(N)]
    others = [(i, j) for i in range(N) for j in range(N) if i != j]
    own = sum(a @ a.T for a in h)
    compressed = sum(Q[i] @ Q[j].T for i, j in others)
    dropped = sum(R[i] @ R[j].T for i, j in others)
    mixed = sum(R[i] @ Q[j].T + Q[j] @ R[i].T for i, j in others)
    np.testing.assert_allclose((own + compressed + mixed + dropped) / N**2, truth(problem), rtol=1e-6)

    sent = compressed_sum(compressor, torch.stack(Q).sum(dim=0).float(), seed, budget)
    mixed_as_sent = torch.stack([R[i] @ (sent - Q[i]).T for i in range(N)]).sum(dim=0)
    expected = (own + compressed + mixed_as_sent + mixed_as_sent.T) / N**2
    np.testing.assert_allclose(estimate(TwoWay(compressor), problem, seed), expected, rtol=2e-4)


def compressed_sum(compressor: Compressor, total: Tensor, seed: int, budget: int) -> Tensor:
    payload = compressor.encode(total, budget, generator(seed, 0, "gram", "compress"))
    return compressor.decode(payload, (M, D), budget, "").double()


@pytest.mark.parametrize("sketch", [Sketch(budget=0.3, bits=32), Sketch(budget=0.1), Sketch(budget=0.1, bits=2)])
def test_the_sketch_is_unbiased_and_own_terms_are_exact(problem: Problem, sketch: Sketch) -> None:
    draws = estimates(sketch, problem, 100)
    spread = draws.std(axis=0) / math.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - truth(problem)) < 4 * spread).all()
    alone = quadratics(M=M, d=D, clients=1, samples=2)
    np.testing.assert_allclose(estimate(sketch, alone), truth(alone), rtol=1e-5)


@pytest.mark.parametrize("bits", [4, 32])
def test_the_error_of_the_sketch_falls_as_one_over_root_k(bits: int) -> None:
    problem = quadratics(M=2, d=30_000, clients=3, samples=1)
    budgets = [0.02, 0.08, 0.32] if bits == 32 else [0.005, 0.02, 0.08]
    errors = [np.mean([nrmse(G, truth(problem)) for G in estimates(Sketch(b, bits), problem, 12)]) for b in budgets]
    slope = np.polyfit(np.log(budgets), np.log(errors), 1)[0]
    assert -0.7 < slope < -0.35


def test_more_upload_is_more_exact_and_bytes_are_those_of_the_budget() -> None:
    problem = quadratics(M=2, d=20_000, clients=3, samples=1)
    errors = []
    for budget in (0.02, 0.2, 1.0):
        sketch = Sketch(budget=budget)
        uploaded = fit(problem, FedCMOO(gram=sketch), rounds=1, clients_per_round=3).history[0].up["jacobian"]
        allowed = 3 * (budget * 20_000 * 4 + 40)  # and a header
        # Where the whole Jacobian fits, the next wider bits need not.
        assert (0.98 if budget < 1 else 0.5) * allowed < uploaded <= allowed
        errors.append(np.mean([nrmse(G, truth(problem)) for G in estimates(sketch, problem, 5)]))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


@pytest.mark.parametrize(
    ("d", "M", "bits", "k"),
    [
        (1_000_000, 2, 4, 38_656),  # d/100: 40,000 bytes in groups of 128 + 4 bytes for 256 entries
        (1_000_000, 2, 32, 4_998),
        (20_000, 2, 4, 1024),  # d/100 would be 512 entries
        (100_000, 40, 4, 1024),
        (20_000, 2, 32, 998),  # no more than d/10
        (2_410, 4, 4, 256),  # d/10 again
    ],
)
def test_the_default_budget_is_a_hundredth_of_the_model_or_a_thousand_entries(
    d: int, M: int, bits: int, k: int
) -> None:
    contribution = Sketch(bits=bits).contribution(None)
    assert isinstance(contribution, SketchedJacobian)
    found, _ = contribution.size((M, d))
    assert found == k


def test_the_unbiased_estimator_is_right_about_all_clients() -> None:
    """Two clients of six a cohort and one sample of four a batch: others would be too large by the variance."""
    problem = quadratics(M=2, d=4, clients=6, samples=4)
    exact = truth(problem)
    for compressor in (Identity(), Quantizer()):
        draws = estimates(Unbiased(compressor, budget=20), problem, 200, n=2, batch_size=1)
        spread = draws.std(axis=0) / math.sqrt(len(draws))
        assert (np.abs(draws.mean(axis=0) - exact) < 4 * spread).all()
    biased = estimates(Exact(), problem, 80, n=2, batch_size=1)
    assert (np.diag(biased.mean(axis=0)) > 1.5 * np.diag(exact)).all()


def test_the_unbiased_estimator_may_ask_more_clients_than_train(problem: Problem) -> None:
    everyone = Unbiased(Identity(), budget=20, clients=N)
    np.testing.assert_allclose(estimates(everyone, problem, 1, n=1)[0], truth(problem), rtol=1e-5)
    for clients, rule in ((0, "at least 1, but got 0"), (N + 1, rf"at most the number of clients \({N}\)")):
        with pytest.raises(ValueError, match=rule):
            estimates(Unbiased(clients=clients), problem, 1)


def test_jacobians_are_left_as_they_are() -> None:
    problem = classification()
    plain = fit(problem, FedCMOO(gram=Exact()), rounds=1, clients_per_round=4)
    first = plain.history[0]
    for gram in (Sketch(), OneWay(TopK()), TwoWay(RandomMask()), SumOfGrams()):
        other = fit(problem, FedCMOO(gram=gram, weights=Fixed(first.weights)), rounds=1, clients_per_round=4)
        for name, value in plain.model.state_dict().items():
            assert torch.equal(value, other.model.state_dict()[name]), gram


class Fixed:
    """Weights that do not depend on G."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = np.array(list(weights.values()))

    def __call__(self, w: Matrix, G: Matrix) -> Matrix:
        return self.weights


def test_weights_stay_between_estimates() -> None:
    result = fit(classification(), FedCMOO(gram_every=3), rounds=7, clients_per_round=3)
    for record in result.history:
        estimated = (record.round - 1) % 3 == 0
        assert (record.gram is not None) == estimated
        assert set(record.up) == ({"jacobian", "train"} if estimated else {"train-alone"})
    weights = [record.weights for record in result.history]
    assert weights[0] == weights[1] == weights[2] != weights[3] == weights[4] == weights[5]
    with pytest.raises(ValueError, match="gram_every must be a whole number of at least 1, but got 0"):
        FedCMOO(gram_every=0)


def test_fedcmoo_t_takes_one_step_with_two_cohorts() -> None:
    problem = quadratics(M=2, d=40, clients=8, samples=4)
    result = fit(problem, FedCMOOT(client_lr=0.1, batch_size=2, local_steps=2), rounds=2, clients_per_round=4)
    record = result.history[0]
    assert set(record.up) == {"jacobian-1", "jacobian-2", "train"}
    G = np.array(record.gram)
    step = np.full(2, 0.5) - 0.05 * G @ np.full(2, 0.5)
    expected = step - (step.sum() - 1) / 2  # the projection, inside the simplex
    np.testing.assert_allclose(list(record.weights.values()), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="compressor must be unbiased, but TopK is not"):
        Unbiased(TopK())


@pytest.mark.parametrize("name", list(GRAMS))
def test_every_estimator_trains_and_has_settings(name: str) -> None:
    gram = GRAMS[name]()
    assert from_registry(GRAMS, to_table(gram, GRAMS), "gram") == gram
    problem = quadratics(M=2, d=64, clients=4, samples=4)
    method = FedCMOO(gram=gram, client_lr=0.1, batch_size=2)
    one, two = (fit(problem, method, rounds=2, clients_per_round=2, seed=5) for _ in range(2))
    assert [r.without_time() for r in one.history] == [r.without_time() for r in two.history]


def test_settings_are_checked() -> None:
    for make in (OneWay, TwoWay, Sketch, Unbiased):
        with pytest.raises(ValueError, match=r"budget must be positive and finite .* but got -1"):
            make(budget=-1)
    with pytest.raises(ValueError, match="bits must be 2, 4, 8, 16 or 32, but got 3"):
        Sketch(bits=3)


def test_products_by_blocks_are_products() -> None:
    g = torch.Generator().manual_seed(0)
    a, b = torch.randn(3, 40_000, generator=g), torch.randn(2, 40_000, generator=g)
    torch.testing.assert_close(inner(a, b), a.double() @ b.double().T, rtol=1e-6, atol=1e-3)
