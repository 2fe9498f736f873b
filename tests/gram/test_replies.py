"""What clients send for a Gram estimate, and what the server accepts and keeps of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedcmoo import Problem
from fedcmoo.compression import TopK
from fedcmoo.contributions import Channel
from fedcmoo.engines import Local
from fedcmoo.gram import GRAMS, Gram, Sketch, SumOfGrams, TwoWay, TwoWayAsRun, Unbiased
from fedcmoo.messages import BadMessageError, Message
from fedcmoo.rounds import Ask, Sizes, drive
from fedcmoo.sums import Sums
from tests.gram.test_estimators import D, M, N, channels_of, estimates, server_of
from tests.gram.test_estimators import problem as problem


def test_which_estimators_need_only_sums() -> None:
    def summable(gram: Gram) -> bool:
        return all(contribution.summable for contribution in gram.contributions(None).values())

    assert [name for name, gram in GRAMS.items() if summable(gram())] == ["sum-of-grams", "exact"]
    assert summable(Sketch(bits=32))


def replies(gram: Gram, problem: Problem) -> list[tuple[Channel, Message, Sizes]]:
    """For each ask: its channel, a good reply, and the sizes."""
    server = server_of(problem)
    server.start_round(N)
    channels = channels_of(gram)
    found: list[tuple[Channel, Message, Sizes]] = []
    with Local().start(problem, channels, 0, server.sizes) as session:

        def answer(ask: Ask) -> Sums:
            client = session.worker.client(server.model, 0, 0)
            found.append((channels[ask.phase], channels[ask.phase].send(client, ask.messages[ask.phase]), server.sizes))
            return session.ask(ask, server)

        drive(gram.estimate(server), answer)
    return found


@pytest.mark.parametrize("gram", [Sketch(), Sketch(bits=32), TwoWay(), TwoWayAsRun(TopK()), SumOfGrams(), Unbiased()])
def test_malformed_replies_are_refused_by_client_and_field(problem: Problem, gram: Gram) -> None:
    for channel, reply, sizes in replies(gram, problem):
        channel.receive(Message.decode(reply.encode()), sizes, "client 4", {})
        for name, array in reply.items():
            bad = [array.double(), array[:-1], array.new_zeros(1).expand(10**9)]
            if array.is_floating_point():
                bad.append(array * math.nan)
            for wrong in bad:
                with pytest.raises(BadMessageError, match=f"client 4.*{name!r}"):
                    channel.receive(Message(**{**reply, name: wrong}), sizes, "client 4", {})
            without = Message(**{n: a for n, a in reply.items() if n != name})
            with pytest.raises(BadMessageError, match=f"client 4.*{name!r}"):
                channel.receive(without, sizes, "client 4", {})


def test_sums_hold_no_jacobian_of_a_sketch(problem: Problem) -> None:
    """What the server keeps of a sketching cohort is k x M and M x M numbers."""
    channel, reply, sizes = replies(Sketch(), problem)[0]
    sums = Sums()
    sums.add(channel.receive(reply, sizes, "client 0", {}), reply.nbytes)
    assert sum(array.numel() for array in sums.totals.values()) < M * D


@pytest.mark.parametrize("gram", [TwoWay(), TwoWayAsRun(TopK())])
def test_what_was_kept_of_phase_one_changes_nothing(
    problem: Problem, gram: Gram, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = estimates(gram, problem, 2)
    monkeypatch.setattr("fedcmoo.worker.KEEP_LIMIT", 0)
    np.testing.assert_array_equal(estimates(gram, problem, 2), kept)
