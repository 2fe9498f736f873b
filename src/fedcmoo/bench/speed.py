"""Measure the speed of rounds: against a plain PyTorch loop with the same passes, by engine, and by problem size.

Every round is followed by a round of the plain loop (the baseline), so that temporary slowness of the machine affects
both.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from fedcmoo.bench.memory import peak_bytes, reset_peak
from fedcmoo.bench.speed_result import EngineSpeed, Growth, Measured, SpeedBench
from fedcmoo.bench.synthetic import synthetic
from fedcmoo.bench.timed import Clock, Timed, TimedCompressor
from fedcmoo.callbacks import Callback
from fedcmoo.client import REUSE_LIMIT
from fedcmoo.contributions import Channel, Contribution, Stage
from fedcmoo.engines import Engine, Local
from fedcmoo.history import Record
from fedcmoo.methods import FedCMOO
from fedcmoo.problem import Problem
from fedcmoo.training import fit
from fedcmoo.validation import at_least_one
from fedcmoo.worker import keep_freed_memory

GROWTH: Mapping[str, Sequence[int]] = {
    "clients": (10, 100, 1000, 10_000),
    "cohort": (5, 10, 20, 40),
    "objectives": (2, 5, 10, 20, 40),
    "width": (64, 256, 1024),
}
"""The sizes of a synthetic problem that are varied, one at a time."""


def bench_speed(
    problem: Problem,
    method: FedCMOO,
    engines: Mapping[str, Engine],
    rounds: int = 8,
    clients_per_round: int = 10,
    growth: Mapping[str, Sequence[int]] = GROWTH,
    repeats: int = 3,
    say: Callable[[str], None] = print,
) -> SpeedBench:
    """Measure rounds of a problem on each engine, and how a synthetic problem's rounds grow.

    Args:
        problem, method, rounds, clients_per_round: what is measured on each engine.
        engines: the engines by their names in the result.
        growth: the sizes to vary, as in `GROWTH`.
        repeats: how often each size is measured, in turn with the others.
        say: called with progress messages.
    """
    at_least_one(rounds=rounds, repeats=repeats)
    grown = []
    for what, values in growth.items():  # first, while this process is small and its memory is meaningful
        say(f"growth with {what}: {', '.join(map(str, values))}")
        grown.append(grow(what, values, repeats))
    speeds = []
    for name, engine in engines.items():
        say(f"{name}: {rounds} rounds of {problem.name}, and as many of the baseline")
        speeds.append(engine_speed(name, engine, problem, method, rounds, clients_per_round))
    return SpeedBench(problem.name, clients_per_round, method.local_steps, method.batch_size, speeds, grown)


def engine_speed(
    name: str, engine: Engine, problem: Problem, method: FedCMOO, rounds: int, clients_per_round: int
) -> EngineSpeed:
    """Measure rounds on one engine, each followed by one of the baseline. The first does not count, nor does the last,
    which may be followed by an evaluation."""
    reset_peak()
    clock, coding = Clock(), Clock()
    stopwatch = Stopwatch(clock, baseline(problem, method, clients_per_round))
    timed = TimedFedCMOO.like(method, clock)
    result = fit(
        problem,
        timed if method.update is None else replace(timed, update=TimedCompressor(method.update, coding)),
        rounds + 2,
        clients_per_round=clients_per_round,
        engine=engine,
        evaluate_every=10**9,
        callbacks=[stopwatch],
    )
    laps = stopwatch.laps[1:-1]
    totals = [sum(lap.seconds.values()) for lap in laps]
    return EngineSpeed(
        engine=name,
        seconds=median(totals),
        phases={phase: median(lap.seconds[phase] for lap in laps) for phase in laps[0].seconds},
        evaluation=result.history[-1].seconds.get("evaluate", 0.0),
        baseline=median(lap.baseline for lap in laps),
        ratio=median(total / lap.baseline for total, lap in zip(totals, laps, strict=True)),
        # Only clients of a local engine are timed by this process's clock.
        outside_clients=1 - sum(lap.in_clients for lap in laps) / sum(totals) if isinstance(engine, Local) else None,
        coding=coding.seconds / sum(lap.processor for lap in stopwatch.laps) if coding.seconds else None,
        clients_per_second=clients_per_round / median(totals),
        peak_bytes=peak_bytes(with_children=not isinstance(engine, Local)),
    )


def grow(what: str, values: Sequence[int], repeats: int) -> Growth:
    """Processor seconds and memory of a local round of the synthetic problem, for several values of one size."""
    method = FedCMOO(local_steps=5, batch_size=64)
    times: list[list[float]] = [[] for _ in values]
    peaks: list[int | None] = [None for _ in values]
    parameters = []
    for repeat in range(repeats):
        for n, value in enumerate(values):
            size = {"cohort": 10, "clients": 100} | {what: value}
            cohort = size.pop("cohort")
            problem = synthetic(**size)
            stopwatch = Stopwatch(Clock(), None)
            reset_peak()
            fit(problem, method, 4, clients_per_round=cohort, engine=Local(), callbacks=[stopwatch])
            times[n] += [lap.processor for lap in stopwatch.laps[1:]]
            peaks[n] = peak_bytes() if repeat == 0 else peaks[n]
            if repeat == 0:
                parameters.append(sum(p.numel() for p in problem.model.parameters()))
    return Growth(
        what, [Measured(v, d, median(t), m) for v, d, t, m in zip(values, parameters, times, peaks, strict=True)]
    )


def baseline(problem: Problem, method: FedCMOO, clients_per_round: int) -> Callable[[], None]:
    """A round's passes in a plain PyTorch loop: for each client one forward and M backward ones, then the local steps.

    All steps use one batch made beforehand: the baseline neither makes and augments batches nor does any work of a
    server. It uses the workers' allocator settings, without which it would be slower.
    """
    keep_freed_memory()
    model = copy.deepcopy(problem.model).train()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=method.client_lr)
    data = problem.client(0)
    inputs, targets = (
        problem.flat_model().move(part)
        for part in data.batch(torch.arange(min(method.batch_size or len(data), len(data))))
    )
    initial = [p.detach().clone() for p in model.parameters()]
    jacobian_bytes = problem.M * sum(p.numel() * p.element_size() for p in initial)
    # The first step reuses the gradients of the M passes, unless the Jacobian is too large to be kept.
    steps = method.local_steps - (1 if jacobian_bytes <= REUSE_LIMIT else 0)

    def losses() -> list[Tensor]:
        return problem.losses(model(inputs), targets)

    def one_client() -> None:
        with torch.no_grad():
            for p, start in zip(model.parameters(), initial, strict=True):
                p.copy_(start)
        for k, loss in enumerate(values := losses()):
            optimizer.zero_grad()
            loss.backward(retain_graph=k + 1 < len(values))  # type: ignore[no-untyped-call]
        optimizer.step()
        del values, loss
        for _ in range(steps):
            optimizer.zero_grad()
            torch.stack(losses()).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def one_round() -> None:
        for _ in range(clients_per_round):
            one_client()

    return one_round


def profile(problem: Problem, method: FedCMOO, clients_per_round: int, trace: Path) -> None:
    """Write a trace of one local round, for chrome://tracing or ui.perfetto.dev."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        fit(problem, method, 1, clients_per_round=clients_per_round, engine=Local())
    profiler.export_chrome_trace(str(trace))


class Lap(NamedTuple):
    """Times of one round: seconds by phase, processor seconds here and inside clients, and the baseline's seconds."""

    seconds: Mapping[str, float]
    processor: float
    in_clients: float
    baseline: float


class Stopwatch(Callback):
    """Times rounds, and runs the baseline's round after each."""

    def __init__(self, clock: Clock, baseline: Callable[[], None] | None) -> None:
        self.clock, self.baseline = clock, baseline
        self.laps: list[Lap] = []
        self._processor = time.process_time()

    def after_round(self, record: Record) -> None:
        processor, in_clients = time.process_time() - self._processor, self.clock.seconds
        start = time.perf_counter()
        if self.baseline is not None:
            self.baseline()
        seconds = {phase: s for phase, s in record.seconds.items() if phase != "evaluate"}
        self.laps.append(Lap(seconds, processor, in_clients, time.perf_counter() - start))
        self.clock.seconds = 0.0
        self._processor = time.process_time()


@dataclass(frozen=True, kw_only=True)
class TimedFedCMOO(FedCMOO):
    """FedCMOO with a clock that runs while a client of this process computes."""

    clock: Clock = field(default_factory=Clock)

    @classmethod
    def like(cls, method: FedCMOO, clock: Clock) -> TimedFedCMOO:
        """A copy of a method with the same settings."""
        return cls(**{f.name: getattr(method, f.name) for f in fields(method)}, clock=clock)

    def _channel(self, plain: Contribution, stages: Sequence[Stage]) -> Channel:
        channel = super()._channel(plain, stages)
        return replace(channel, contribution=Timed(channel.contribution, self.clock))
