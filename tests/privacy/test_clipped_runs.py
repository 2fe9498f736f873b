"""Runs with bounds on what one client contributes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from campaign.loopback import Loopback
from fedcmoo import FedAvg, FedCMOO, Problem, fit
from fedcmoo.compression import Identity
from fedcmoo.contributions import add_reply, reply
from fedcmoo.engines import Local
from fedcmoo.engines.remote import Remote
from fedcmoo.gram import Exact, OneWay, Sketch, SumOfGrams, TwoWay
from fedcmoo.messages import Message
from fedcmoo.privacy.clipping import Clip
from fedcmoo.privacy.differential import DifferentialPrivacy
from fedcmoo.sums import Sums
from fedcmoo.worker import Worker
from tests.core.problems import classification, quadratics

SKETCH = Sketch(correction=False)
LOCAL: dict[str, Any] = {"client_lr": 0.1, "local_steps": 2, "batch_size": None}
BOUND, GRADIENTS = 0.2, 0.5


def far_away(clients: int = 6) -> Problem:
    """Clients whose gradients are a thousand times larger than the bounds."""
    problem = quadratics(clients=clients)
    return replace(problem, clients=[(x, 1000 * y) for x, y in problem.clients])


@pytest.mark.parametrize("gram", [SKETCH, Exact(), OneWay(budget=2.0), Sketch(), SumOfGrams()])
@pytest.mark.parametrize("problem", [far_away(), quadratics()])
def test_every_reply_as_it_is_added_is_within_its_bound(gram: Any, problem: Problem) -> None:
    method = FedCMOO(**LOCAL, gram=gram)
    channels = method.channels([Clip(BOUND, GRADIENTS)])
    worker = Worker(problem, channels, seed=0)
    messages = {"jacobian": message_of(gram), "train": Message(w=torch.tensor([0.5, 0.5], dtype=torch.float64))}
    for i in range(problem.N):
        client = worker.client(worker.model.state, 0, i)
        payload = reply(channels, client, messages)
        hostile = Message(**{n: a * 1e6 if a.is_floating_point() else a for n, a in payload.items()})
        for sent in (payload, hostile):
            sums = Sums()
            add_reply(sums, channels, messages, sent, worker.sizes, "client")
            for name, total in sums.totals.items():
                bound = BOUND if name.startswith("train/") else GRADIENTS
                degree = 2 if name.endswith("/own") else 1
                assert total.double().norm().item() <= bound**degree


def message_of(gram: Any) -> Message:
    return Message(seed=torch.tensor([5])) if isinstance(gram, Sketch) else Message()


def test_a_round_with_clipping_moves_the_model_by_at_most_the_bound() -> None:
    result = fit(far_away(), FedAvg(**LOCAL), 1, engine=Local(), stages=[Clip(BOUND)])
    moved = torch.linalg.vector_norm(result.model.x).item()
    assert 0 < moved <= BOUND
    free = fit(far_away(), FedAvg(**LOCAL), 1, engine=Local()).model
    assert torch.linalg.vector_norm(free.x) > 100 * BOUND


def test_a_bound_that_nobody_reaches_changes_nothing() -> None:
    method = FedCMOO(**LOCAL)
    runs = [fit(quadratics(), method, 3, engine=Local(), stages=stages) for stages in ((), [Clip(1e6)])]
    assert [r.without_time() for r in runs[0].history] == [r.without_time() for r in runs[1].history]


def test_what_cannot_be_clipped_is_refused() -> None:
    with pytest.raises(ValueError, match="buffers"):
        fit(classification(), FedAvg(**LOCAL), 1, engine=Local(), stages=[Clip(1.0)])
    with pytest.raises(ValueError, match="alone to be clipped"):
        fit(quadratics(), FedCMOO(**LOCAL, gram=TwoWay(Identity(), budget=2)), 1, engine=Local(), stages=[Clip(1.0)])
    with pytest.raises(ValueError, match="last to change"):
        fit(quadratics(), FedAvg(**LOCAL), 1, stages=[Clip(1.0)], privacy=DifferentialPrivacy(epsilon=1.0))
    for bound in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="positive"):
            Clip(bound)
    with pytest.raises(ValueError, match="enough for one round"):
        fit(quadratics(), FedAvg(**LOCAL), 1, privacy=DifferentialPrivacy(epsilon=0.1, noise=0.1))


def test_nodes_that_do_not_clip_are_bounded_by_the_server(tmp_path: Path) -> None:
    problem, method = far_away(), FedAvg(**LOCAL)
    nodes = Remote(Loopback(tmp_path, problem, method, nodes=2))  # without any stage
    result = fit(problem, method, 1, engine=nodes, stages=[Clip(BOUND)])
    assert 0 < torch.linalg.vector_norm(result.model.x) <= BOUND
