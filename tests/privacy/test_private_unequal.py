"""Differential privacy with clients of unequal weights that own some of the objectives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedcmoo import FSMGDA, FedAvg, FedCMOO, Problem, fit
from fedcmoo.engines import Local
from fedcmoo.gram import Exact
from fedcmoo.messages import Message
from fedcmoo.methods import Method
from fedcmoo.privacy.differential import DifferentialPrivacy, PrivateRun
from fedcmoo.rounds import Ask, Server, Sizes
from tests.core.problems import missing_labels, quadratics
from tests.privacy.test_clipped_runs import BOUND, GRADIENTS, LOCAL, SKETCH, far_away, message_of

PRIVATE = [FedCMOO(**LOCAL, gram=SKETCH), FedCMOO(**LOCAL, gram=Exact()), FedAvg(**LOCAL), FSMGDA(**LOCAL)]
OWNS = [["f0"], ["f1"], ["f0", "f1"], [], ["f0"], ["f1"]]
WEIGHTS = [0.5, 100.0, 3.0, 1.0, 1.0, 1e-3]


def unequal(problem: Problem) -> Problem:
    """The problem with weights that differ a lot, and clients that own some of the objectives."""
    return replace(problem, owns=OWNS, weights=WEIGHTS)


@pytest.mark.parametrize("method", PRIVATE, ids=["sketch", "exact", "fedavg", "fsmgda"])
@pytest.mark.parametrize("problem", [unequal(far_away()), unequal(quadratics())], ids=["far", "near"])
def test_one_unequal_client_changes_no_sum_by_more_than_the_bound(method: Method, problem: Problem) -> None:
    """For every client, with and without it in the cohort: it moves only its own, clipped and weighted contribution."""
    privacy = DifferentialPrivacy(epsilon=8.0, clip=BOUND, clip_gradients=GRADIENTS, noise=10.0)
    run = PrivateRun(privacy, method.releases, problem, 3, 1)
    channels = method.channels([privacy.clipping()])
    model = problem.flat_model()
    w = Message(w=torch.tensor([0.25, 0.75], dtype=torch.float64))
    messages = {name: w if name == "train" and not isinstance(method, FSMGDA) else Message() for name in channels}
    if "jacobian" in channels:
        messages = {"jacobian": message_of(method.gram), "train": w}  # type: ignore[attr-defined]
    sizes = Sizes.of(model, problem.M)
    server = Server(sizes, 0, problem.N, model.x.detach().clone(), model.buffers(), model.counters(), np.ones(2) / 2)
    run.start(server, None, resume=False)
    everyone = tuple(range(problem.N))
    with Local().start(problem, channels, 0, sizes) as session:
        whole = session.ask(Ask(messages, everyone), server)
        for i in everyone:
            rest = session.ask(Ask(messages, tuple(j for j in everyone if j != i)), server)
            for name, total in whole.totals.items():
                bound = BOUND if name.startswith("train/") else GRADIENTS
                changed = torch.linalg.vector_norm(total.double() - rest.totals[name].double()).item()
                assert changed <= bound * (1 + 1e-6)  # sums are rounded, too


@pytest.mark.parametrize("secure", [False, True])
def test_a_private_step_of_unequal_clients_is_that_on_the_central_objectives(secure: bool) -> None:
    """With all clients and noise of 1e-6, x moves by the gradient of Σ_k w_k F_k; G is that of the F_k."""
    problem = unequal(quadratics())
    p = torch.tensor(WEIGHTS, dtype=torch.float64)
    owned = torch.tensor([[f"f{k}" in names for k in range(2)] for names in OWNS], dtype=torch.float64)
    points = torch.stack([targets.mean(dim=0) for _, targets in problem.clients])  # [N, M, d]
    J = -torch.einsum("i,ik,ikd->kd", p, owned, points) / (p @ owned)[:, None]  # of ½ ||x - c||² at x = 0
    privacy = DifferentialPrivacy(epsilon=1e20, delta=1e-3, noise=1e-9, sampling="fixed-size", clip=1000.0)
    method = FedCMOO(**{**LOCAL, "local_steps": 1}, gram=Exact())
    result = fit(problem, method, 1, clients_per_round=6, engine=Local(), privacy=privacy, secure=secure)
    w = torch.tensor(list(result.history[0].weights.values()), dtype=torch.float64)
    tolerance = {"rtol": 0, "atol": 1e-4}  # that of codes of 32 bits with a bound of 1000
    torch.testing.assert_close(result.model.x.detach(), -0.1 * w @ J, **tolerance)  # type: ignore[arg-type, operator]
    assert np.allclose(result.history[0].gram or (), J @ J.T, atol=1e-2)


def test_the_divisors_do_not_depend_on_who_was_drawn() -> None:
    """Sums are divided by the expected weights, so x and G scatter around the same values whatever the cohort."""
    problem = unequal(quadratics(d=50))
    problem = replace(problem, clients=[(x, 0 * y) for x, y in problem.clients])
    privacy = DifferentialPrivacy(epsilon=1e6, delta=1e-3, noise=1.0, clip=1e-3)
    runs = [
        fit(problem, FedCMOO(**LOCAL, gram=Exact()), 1, clients_per_round=3, engine=Local(), privacy=privacy)
        for _ in range(60)
    ]
    diagonals = np.array([np.diag(run.history[0].gram or ()) for run in runs])  # no bias of either objective's
    assert (np.abs(diagonals.mean(axis=0)) < 5 * diagonals.std(axis=0) / np.sqrt(len(runs))).all()
    P_k = [sum(p for p, names in zip(WEIGHTS, OWNS, strict=True) if f"f{k}" in names) / 2 for k in range(2)]
    expected = np.sqrt(2 * 50) * (1e-3 / np.array(P_k)) ** 2  # the standard deviation of ||noise||²
    assert diagonals.std(axis=0) == pytest.approx(expected, rel=0.4)


@pytest.mark.parametrize("settings", [{"weights": WEIGHTS}, {"owns": OWNS, "weights": "samples"}])
def test_weights_and_objectives_of_a_private_run_are_public(settings: Any) -> None:
    with pytest.raises(ValueError, match="here they come from the data"):
        fit(replace(quadratics(), **settings), FedAvg(**LOCAL), 1, privacy=DifferentialPrivacy(epsilon=1.0))


def test_missing_labels_are_refused_before_any_budget_is_spent(tmp_path: Path) -> None:
    privacy = DifferentialPrivacy(epsilon=1.0)
    with pytest.raises(ValueError, match="here they come from the data"):
        fit(missing_labels(), FedAvg(**LOCAL), 1, engine=Local(), privacy=privacy, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
