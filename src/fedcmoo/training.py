"""`fit`: the loop over rounds, with callbacks, checkpoints and resume."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedcmoo.acceptance import Acceptance, undone_in_a_row
from fedcmoo.callbacks.base import Callback, Run
from fedcmoo.client import DivergedError
from fedcmoo.contributions import Channels, Stage, check_stages, finish
from fedcmoo.engines import Engine, Session, choose_engine
from fedcmoo.evaluation import not_finite
from fedcmoo.history import Record
from fedcmoo.identity import identity
from fedcmoo.interrupts import Interrupts
from fedcmoo.messages import Message
from fedcmoo.methods import METHODS
from fedcmoo.methods.base import Method
from fedcmoo.metrics.gradients import of_round
from fedcmoo.metrics.starvation import LOW_WEIGHT, REMEDY, starved
from fedcmoo.parameters import FlatModel
from fedcmoo.privacy.differential import DifferentialPrivacy, PrivateRun
from fedcmoo.problem import Problem
from fedcmoo.result import Result
from fedcmoo.rounds import Ask, Server, Sizes, Sums, drive
from fedcmoo.run_folder import RunFolder
from fedcmoo.settings import SettingsError, Table, to_table
from fedcmoo.validation import at_least_one

log = logging.getLogger(__name__)


def fit(
    problem: Problem,
    method: Method,
    rounds: int = 100,
    *,
    clients_per_round: int | None = None,
    seed: int = 0,
    engine: Engine | None = None,
    evaluate_every: int = 5,
    callbacks: Sequence[Callback] = (),
    folder: str | Path | None = None,
    checkpoint_every: int = 10,
    resume: bool = False,
    stages: Sequence[Stage] = (),
    acceptance: Acceptance | None = None,
    privacy: DifferentialPrivacy | None = None,
) -> Result:
    """Train a model for several objectives over many clients.

    Args:
        problem: model, objectives and data.
        method: FedCMOO, FSMGDA, …
        rounds: T.
        clients_per_round: the cohort's size; by default 10, or all where there are fewer.
        seed: everything random derives from it.
        engine: where clients run; by default worker processes where there are cores for them and it is worth it.
        evaluate_every: rounds between evaluations on test and validation data; the last round always has one.
        callbacks: progress, early stop, your own.
        folder: where history, checkpoints and the final model go; None to write nothing.
        checkpoint_every: rounds between checkpoints. One is also written at the end, on Ctrl-C and on SIGTERM.
        resume: go on from the checkpoint in `folder`, bit for bit as if never interrupted.
        stages: what is done to every contribution between clients and server, such as `Clip(1.0)`.
        acceptance: when the model of a round replaces the one before it; by default, when it is finite and its norm is
            at most 1e8.
        privacy: differential privacy, with its budget. Cohorts and noise then do not come from the seed.

    Returns:
        The result, with the history of every round and the trained model.
    """
    at_least_one(rounds=rounds, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every)
    n = cohort_size(clients_per_round, problem)
    if resume and folder is None:
        raise ValueError("resume needs the folder of the run to go on with")
    problem.check()
    model = FlatModel(copy.deepcopy(problem.model), problem.is_shared)
    server = _new_server(problem, method, model, seed)
    private = None if privacy is None else PrivateRun(privacy, method.releases, problem, n, rounds, stages)
    channels = method.channels([*stages, *(private.stages if private else ())])
    for channel in channels.values():
        channel.contribution.check(server.sizes)
    check_stages(channels, server.sizes)
    chosen = choose_engine(
        engine,
        problem,
        channels,
        server.sizes,
        clients_per_round=n,
        steps=method.local_steps * n * rounds,
        batch_size=method.batch_size,
    )
    with ExitStack() as stack:
        for callback in callbacks:
            stack.callback(callback.close)
        run_folder = None
        history: list[Record] = []
        if folder is not None:
            run = identity(problem, method, chosen, n, seed, {"stages": list(stages), "privacy": privacy})
            run_folder = RunFolder(Path(folder), run)
            stack.callback(run_folder.close)
            history = run_folder.begin(server, resume)
        if private is not None:
            private.start(server, None if folder is None else Path(folder), resume)
        for callback in callbacks:
            callback.on_start(Run(problem, method, rounds, history))
        session = stack.enter_context(chosen.start(problem, channels, seed, server.sizes))
        accept = acceptance or Acceptance()
        loop = _Loop(problem, method, channels, session, server, run_folder, callbacks, history, accept, private)
        loop.run(rounds, n, evaluate_every, checkpoint_every)
        model.load(server.model)
        config = {"problem": {"name": problem.name}, "method": _described(method), "seed": seed}
        result = Result(config, history, model.module, server.x.nbytes)
        if run_folder is not None:
            run_folder.save_model(model.module)
        for callback in callbacks:
            callback.on_end(result)
    return result


def _described(method: Method) -> Table:
    """The method's settings as a table; its name alone where a configuration cannot mention it."""
    try:
        return to_table(method, METHODS)
    except SettingsError:
        return {"name": method.label()}


def cohort_size(clients_per_round: int | None, problem: Problem) -> int:
    """How many clients take part in a round: by default 10, or all where there are fewer."""
    n = min(10, problem.N) if clients_per_round is None else clients_per_round
    if not 1 <= n <= problem.N:
        raise SettingsError(f"clients_per_round must be from 1 to the number of clients ({problem.N}), but got {n}")
    return n


def _new_server(problem: Problem, method: Method, model: FlatModel, seed: int) -> Server:
    return Server(
        sizes=Sizes.of(model, problem.M),
        seed=seed,
        N=problem.N,
        x=model.x.detach().clone(),
        buffers=model.buffers(),
        counters=model.counters(),
        w=method.initial_weights(problem.M),
    )


class _Loop:
    """Rounds, one after the other."""

    def __init__(
        self,
        problem: Problem,
        method: Method,
        channels: Channels,
        session: Session,
        server: Server,
        folder: RunFolder | None,
        callbacks: Sequence[Callback],
        history: list[Record],
        acceptance: Acceptance,
        private: PrivateRun | None,
    ) -> None:
        self.problem, self.method, self.channels = problem, method, channels
        self.session, self.server = session, server
        self.folder, self.callbacks, self.history, self.acceptance = folder, callbacks, history, acceptance
        self.private = private
        self.interrupts = Interrupts()
        self.warned_of: set[str] = set()
        self.latest = self.proven = _snapshot(server)

    def run(self, rounds: int, clients_per_round: int, evaluate_every: int, checkpoint_every: int) -> None:
        """Rounds until there are `rounds`, the privacy budget is used up, or a callback says stop.

        Whatever ends the loop, what is done is saved.
        """
        with self.interrupts:
            try:
                while self._goes_on(rounds):
                    record = self._proven_round(clients_per_round)
                    self._accept_or_undo(record)
                    if record.round % evaluate_every == 0 or not self._goes_on(rounds):
                        self._evaluate(record)
                    self._note(record)
                    self._warn_of_starved()
                    stop = any([callback.after_round(record) for callback in self.callbacks])  # noqa: C419 - ask all
                    if record.round % checkpoint_every == 0:
                        self._save()
                    self._check_patience()
                    if stop:
                        break
            finally:
                self._save()
                self.interrupts.saved()

    def _goes_on(self, rounds: int) -> bool:
        t = self.server.round
        return t < rounds and (self.private is None or self.private.allows(t))

    def _proven_round(self, clients_per_round: int) -> Record:
        """A round, after which the model before it is known to be one that clients can train on.

        If they cannot, that model is not worth a checkpoint: the one before it is what the run leaves behind.
        """
        try:
            record = self._round(clients_per_round)
        except DivergedError:
            self.latest = self.proven
            raise
        self.proven = self.latest
        return record

    def _accept_or_undo(self, record: Record) -> None:
        """Keep what this round made of the server, or go back to the state before it."""
        server = self.server
        record.undone = self.acceptance.objection(server)
        if record.undone is not None:
            log.warning("round %d is undone: %s", record.round, record.undone)
            before = _snapshot(self.latest)
            server.x, server.buffers, server.counters = before.x, before.buffers, before.counters
            server.w, server.memory, server.G, server.notes = before.w, before.memory, None, {}
            server.client_states = before.client_states
        names = [objective.name for objective in self.problem.objectives]
        record.weights = dict(zip(names, server.w.tolist(), strict=True))
        record.notes |= server.notes
        if server.G is not None:
            record.gram = server.G.tolist()
            record.grad_norm_sq = float(server.w @ server.G @ server.w)
            record.notes |= of_round(server.G)
        if self.private is not None:
            record.notes["epsilon"] = self.private.epsilon

    def _note(self, record: Record) -> None:
        """The round is done: it is part of the history, and the server's state is worth saving."""
        with self.interrupts.held():
            self.history.append(record)
            if self.folder is not None:
                self.folder.append(record)
            self.latest = _snapshot(self.server)

    def _warn_of_starved(self) -> None:
        if self.history[-1].scores is None:
            return
        for name in set(starved(self.history)) - self.warned_of:
            self.warned_of.add(name)
            log.warning(
                "objective %r is starved: its weight has stayed below %g while its loss stood still or rose. %s",
                *(name, LOW_WEIGHT, REMEDY),
            )

    def _save(self) -> None:
        if self.folder is not None:
            with self.interrupts.held():
                self.folder.save(self.latest)
            self.server.saved_client_states = (*self.server.saved_client_states[-1:], self.latest.client_states)

    def _check_patience(self) -> None:
        undone = undone_in_a_row(self.history)
        if undone > self.acceptance.patience:
            raise DivergedError(
                f"the last {undone} rounds were undone, the last one because {self.history[-1].undone}; "
                f"the model is that of round {len(self.history) - undone}"
            )

    def _round(self, clients_per_round: int) -> Record:
        server = self.server
        server.start_round(clients_per_round)
        if self.private is not None:
            self.private.start_round(server)
        record = Record(server.round + 1, [], {})
        has_model: dict[int, str] = {}
        client_states: dict[int, Message] = {}

        def answer(ask: Ask) -> Sums:
            record.cohort = record.cohort or list(server.cohort)  # a method may ask others than those drawn
            sums = self._ask(ask, record, has_model)
            client_states.update(sums.client_states)
            if sums.P_k is not None:
                server.notes["left_out"] = float(server.w[(sums.P_k == 0).numpy()].sum())
            return sums

        start = time.perf_counter()
        drive(self.method.round(server), answer)
        record.seconds["server"] = time.perf_counter() - start - sum(record.seconds.values())
        server.client_states = server.client_states | client_states  # the server has used the replies
        server.round += 1
        return record

    def _ask(self, ask: Ask, record: Record, has_model: dict[int, str]) -> Sums:
        """Put one ask to the engine; count bytes, seconds and failures."""
        server = self.server
        if self.private is not None:
            self.private.check(ask, server)
        clients = server.cohort if ask.clients is None else ask.clients
        start = time.perf_counter()
        sums = self.session.ask(ask, server) if clients else Sums()
        seconds = time.perf_counter() - start
        version = server.model.version
        need_model = [i for i in clients if has_model.get(i) != version]
        down = len(clients) * ask.nbytes + len(need_model) * server.sizes.model_bytes
        has_model |= dict.fromkeys(clients, version)
        for ledger, amount in ((record.up, sums.uploaded), (record.down, down)):
            ledger[ask.phase] = ledger.get(ask.phase, 0) + amount
        record.seconds[ask.phase] = record.seconds.get(ask.phase, 0.0) + seconds
        record.failures |= {str(i): why for i, why in sums.failures.items()}
        if sums.count == 0 and (clients or self.private is None):  # of nobody, a private round has the noise alone
            raise RuntimeError(f"no client answered in phase {ask.phase!r} of round {record.round}: {sums.failures}")
        finish(sums, self.channels, ask.messages, server)
        # A client that failed in one phase takes no part in the next.
        server.cohort = tuple(i for i in server.cohort if i not in sums.failures)
        return sums

    def _evaluate(self, record: Record) -> None:
        start = time.perf_counter()
        if self.problem.test is not None:
            record.test = self.session.evaluate(self.server, "test")
        if self.problem.validation is not None:
            record.validation = self.session.evaluate(self.server, "validation")
        record.seconds["evaluate"] = time.perf_counter() - start
        for split, scores in (("test", record.test or {}), ("validation", record.validation or {})):
            for objective, metric, value in not_finite(scores):
                raise DivergedError(
                    f"objective {objective!r} became NaN or infinite in round {record.round}: "
                    f"its {split} {metric} is {value}"
                )


def _snapshot(server: Server) -> Server:
    """The state between two rounds, safe from what the next round changes."""
    copied = replace(server, x=server.x.clone(), w=np.array(server.w), memory=dict(server.memory))
    copied.client_states = dict(server.client_states)
    return copied
