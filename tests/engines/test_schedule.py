"""Who does what next."""

from __future__ import annotations

from fedcmoo.engines.schedule import Schedule, Times
from fedcmoo.messages import Message
from fedcmoo.worker import AskClients, Evaluate


def jobs(phase: str, clients: int, round: int = 0) -> list[AskClients]:
    return [AskClients(round, phase, Message(), (i,)) for i in range(clients)]


def test_in_order_while_nothing_is_known() -> None:
    schedule = Schedule(jobs("train", 3), Times())
    assert [schedule.next("a", ["b"]) for _ in range(4)] == [0, 1, 2, None]


def test_parts_of_an_evaluation_in_order() -> None:
    schedule = Schedule([Evaluate("test", 0), Evaluate("test", 1000)], Times())
    assert [schedule.next("a", []) for _ in range(3)] == [0, 1, None]


def test_expensive_clients_first_and_equal_ones_in_order() -> None:
    times = Times()
    for job, seconds in zip(jobs("train", 4), [1.0, 1.1, 9.0, 1.05], strict=True):
        times.note(job, "a", seconds)
    schedule = Schedule(jobs("train", 4, round=1), times)
    assert [schedule.next("a", []) for _ in range(4)] == [2, 0, 1, 3]


def two_phases(jacobian: float, train: float) -> Times:
    """Of four clients, "a" did phase one of the first three and "b" that of the last; training is known from before."""
    times = Times()
    for job in jobs("train", 4):
        times.note(job, "a", train)
    for job in jobs("jacobian", 4, round=1):
        times.note(job, "b" if job.clients == (3,) else "a", jacobian)
    return times


def test_phase_two_goes_where_phase_one_was() -> None:
    schedule = Schedule(jobs("train", 4, round=1), two_phases(jacobian=1.0, train=5.0))
    assert schedule.next("b", ["a"]) == 3
    assert schedule.next("a", ["b"]) == 0


def test_a_free_worker_helps_where_that_saves_time() -> None:
    """ "a" has ten seconds of work waiting: doing one of its clients again from the start takes six."""
    schedule = Schedule(jobs("train", 4, round=1), two_phases(jacobian=1.0, train=5.0))
    schedule.next("a", ["b"])
    schedule.next("b", ["a"])
    schedule.ended("b")
    assert schedule.next("b", ["a"]) == 2


def test_a_free_worker_does_not_help_where_that_costs_more() -> None:
    """With forty objectives phase one is the expensive one, so its gradients are not left behind."""
    schedule = Schedule(jobs("train", 4, round=1), two_phases(jacobian=50.0, train=5.0))
    schedule.next("a", ["b"])
    schedule.next("b", ["a"])
    schedule.ended("b")
    assert schedule.next("b", ["a"]) is None


def test_clients_of_a_lost_worker_are_anybodys() -> None:
    schedule = Schedule(jobs("train", 4, round=1), two_phases(jacobian=50.0, train=5.0))
    assert [schedule.next("b", []) for _ in range(5)] == [3, 0, 1, 2, None]


def test_gradients_of_an_earlier_round_bind_nobody() -> None:
    schedule = Schedule(jobs("train", 4, round=2), two_phases(jacobian=50.0, train=5.0))
    assert schedule.next("b", ["a"]) == 0
