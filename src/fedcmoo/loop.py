"""The loop over rounds: asks, evaluations, callbacks and checkpoints."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fedcmoo.acceptance import Acceptance, undone_in_a_row
from fedcmoo.callbacks.base import Callback
from fedcmoo.client_scores import client_scores
from fedcmoo.client_test import NAME as CLIENT_TEST
from fedcmoo.contributions import Channels, finish
from fedcmoo.engines import Session
from fedcmoo.evaluation import check_finite, mean_score, not_finite
from fedcmoo.failures import DivergedError, TooFewRepliesError, summary
from fedcmoo.history import EVALUATE, MASKING, Record
from fedcmoo.interrupts import Interrupts
from fedcmoo.messages import Message
from fedcmoo.methods.base import Method
from fedcmoo.metrics import REMEDY, low_weight, of_round, starved
from fedcmoo.privacy.differential import PrivateRun
from fedcmoo.problem import Problem
from fedcmoo.rounds import Ask, Server, drive
from fedcmoo.run_folder import RunFolder
from fedcmoo.sums import Sums

log = logging.getLogger(__name__)


@dataclass
class Loop:
    """The loop over the rounds of a run."""

    problem: Problem
    method: Method
    channels: Channels
    session: Session
    server: Server
    folder: RunFolder | None
    callbacks: Sequence[Callback]
    history: list[Record]
    acceptance: Acceptance
    private: PrivateRun | None

    def __post_init__(self) -> None:
        self.interrupts = Interrupts()
        self.warned_of: set[str] = set()
        self.asked_again: dict[int, int] = {}  # when, by client that did not reply in time
        self.too_few_replies = False
        self.latest = self.proven = _snapshot(self.server)

    def run(self, rounds: int, clients_per_round: int, evaluate_every: int, checkpoint_every: int) -> None:
        """Run rounds until there are `rounds`, the privacy budget is used up, or a callback stops the run.

        However the loop ends, finished rounds are saved.
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
        """Run a round, which shows whether clients can train on the previous model.

        If they cannot, that model gets no checkpoint, and the run ends with the checkpoint before it.
        """
        try:
            record = self._round(clients_per_round)
        except DivergedError:
            self.latest = self.proven
            raise
        if not self.too_few_replies:
            self.proven = self.latest
        return record

    def _accept_or_undo(self, record: Record) -> None:
        """Keep the server's state after this round, or restore the state before it."""
        server = self.server
        record.undone = record.undone or self.acceptance.objection(server, self._validation_loss)
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
            server.memory["epsilon"] = torch.tensor([self.private.epsilon], dtype=torch.float64)  # for checkpoints

    def _note(self, record: Record) -> None:
        """Finish the round: add it to the history, and take a snapshot of the server's state for checkpoints."""
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
                *(name, low_weight(len(self.server.w)), REMEDY),
            )

    def _save(self) -> None:
        if self.folder is not None:
            with self.interrupts.held():
                self.folder.save(self.latest)
            self.server.saved_client_states = (*self.server.saved_client_states[-1:], self.latest.client_states)

    def _check_patience(self) -> None:
        undone = undone_in_a_row(self.history)
        if undone <= self.acceptance.patience:
            return
        why = f"the last {undone} rounds were undone, the last one because {self.history[-1].undone}"
        if self.too_few_replies:  # perhaps because no client can train on this model
            self.latest = self.proven
            raise TooFewRepliesError(f"{why}; the model is that of round {self.proven.round}")
        raise DivergedError(f"{why}; the model is that of round {len(self.history) - undone}")

    def _round(self, clients_per_round: int) -> Record:
        server = self.server
        server.start_round(clients_per_round)
        if self.private is not None:
            self.private.start_round(server)
        record = Record(server.round + 1, [], {})
        has_model: dict[int, str] = {}
        client_states: dict[int, Message] = {}

        def answer(ask: Ask) -> Sums:
            record.cohort = record.cohort or list(server.cohort)  # a method may ask clients other than those drawn
            sums = self._ask(ask, record, has_model)
            client_states.update(sums.client_states)
            if sums.P_k is not None:
                server.notes["left_out"] = float(server.w[(sums.P_k == 0).numpy()].sum())
            return sums

        start = time.perf_counter()
        self.too_few_replies = False
        try:
            drive(self.method.round(server), answer)
        except TooFewRepliesError as error:
            self.too_few_replies, record.undone = True, str(error)
        record.seconds["server"] = time.perf_counter() - start - sum(record.seconds.values())
        server.client_states = server.client_states | client_states  # the server has used the replies
        server.round += 1
        return record

    def _ask(self, ask: Ask, record: Record, has_model: dict[int, str]) -> Sums:
        """Pass one ask to the engine; count bytes, seconds and failures."""
        server = self.server
        if self.private is not None:
            self.private.check(ask, server)
        clients = server.cohort if ask.clients is None else ask.clients
        asked = tuple(i for i in clients if self.asked_again.get(i, 0) <= server.round) or clients
        told = {name: self.channels[name].tell(message, server) for name, message in ask.messages.items()}
        ask = replace(ask, messages=told)
        start = time.perf_counter()
        sums = self.session.ask(replace(ask, clients=asked) if asked != clients else ask, server) if asked else Sums()
        seconds = time.perf_counter() - start
        sent = server.sent
        version = sent.state.version
        need_model = [i for i in asked if has_model.get(i) != version]
        down = len(asked) * ask.size + len(need_model) * sent.message.size
        has_model |= dict.fromkeys(asked, version)
        record.count(ask.phase, sums.uploaded, down, seconds - sums.masking.seconds)
        if sums.masking.up:
            record.count(f"{ask.phase} {MASKING}", **vars(sums.masking))
        self._note_failures(sums, clients, asked, ask.phase, record)
        if clients or self.private is None:  # with an empty cohort, a private round has only the noise
            server.on_failure.check(sums.count, len(clients), sums.failures)
        finish(sums, self.channels, ask.messages, server)
        # A client that failed in one phase does not take part in the next.
        server.cohort = tuple(i for i in server.cohort if i not in sums.failures)
        return sums

    def _validation_loss(self) -> float:
        return mean_score(self.session.evaluate(self.server, "validation"), "loss")

    def _note_failures(
        self, sums: Sums, clients: tuple[int, ...], asked: tuple[int, ...], phase: str, record: Record
    ) -> None:
        """Record the clients that did not reply and why; those that were late are not asked for some rounds."""
        again = self.server.round + 1 + self.server.on_failure.pause
        self.asked_again |= dict.fromkeys(sums.stalled, again)
        for i in set(clients) - set(asked):
            sums.failures[i] = f"left out until round {self.asked_again[i] + 1}, since it did not reply in time"
        record.failures |= {str(i): why for i, why in sums.failures.items()}
        if sums.failures:
            who = (record.round, phase, len(sums.failures), len(clients))
            log.warning("round %d, phase %s: %d of %d clients failed: %s", *who, summary(sums.failures))

    def _evaluate(self, record: Record) -> None:
        start = time.perf_counter()
        if self.problem.test is not None:
            record.test = self.session.evaluate(self.server, "test")
        if self.problem.validation is not None:
            record.validation = self.session.evaluate(self.server, "validation")
        if self.problem.client_test is not None:
            self._test_clients(record)
        record.seconds[EVALUATE] = time.perf_counter() - start
        for split, scores in (("test", record.test or {}), ("validation", record.validation or {})):
            for objective, metric, value in not_finite(scores):
                if metric == "loss":
                    check_finite(self.problem, getattr(self.problem, split), f"the {split} data")
                    raise DivergedError(
                        f"objective {objective!r} became NaN or infinite in round {record.round}: "
                        f"its {split} loss is {value}"
                    )
                log.warning("%s of %r is %s on %s data: it is left out", metric, objective, value, split)
                del scores[objective][metric]

    def _test_clients(self, record: Record) -> None:
        """Evaluate the model at the clients; if some objective is not evaluated, the round has no evaluation."""
        server = self.server
        asked = tuple(i for i in server.everyone if self.asked_again.get(i, 0) <= server.round)
        sums = self.session.ask(Ask({CLIENT_TEST: Message()}, asked), server) if asked else Sums()
        self._note_failures(sums, server.everyone, asked, CLIENT_TEST, record)
        scores = client_scores(self.problem, sums.part(CLIENT_TEST)) if sums.count else {}
        unknown = [o.name for o in self.problem.objectives if "loss" not in scores.get(o.name, {})]
        if not unknown:
            record.client_test = scores
        elif sums.failures:
            log.warning("round %d: no client that replied has test data for %r", record.round, unknown[0])
        else:
            raise ValueError(
                f"client_test must have labels for every objective, but no client has any for {unknown[0]!r}"
            )


def _snapshot(server: Server) -> Server:
    """The state between two rounds, unaffected by changes in the next round."""
    copied = replace(server, x=server.x.clone(), w=np.array(server.w), memory=dict(server.memory))
    copied.client_states = dict(server.client_states)
    return copied
