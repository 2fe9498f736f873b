"""Secure sums over an engine: every ask takes four trips, and the server learns only the sum."""

import secrets
import time
from collections.abc import Callable, Collection, Mapping

import torch

from fedcmoo.contributions import Channels
from fedcmoo.engines.base import Session, Trip, TripSession
from fedcmoo.evaluation import Scores
from fedcmoo.failures import summary
from fedcmoo.messages import Field, Message, check
from fedcmoo.ownership import Share
from fedcmoo.privacy.secure import protocol
from fedcmoo.privacy.secure.codes import SumCode
from fedcmoo.privacy.secure.protocol import (
    KEYS,
    SHARES,
    PublicKeys,
    SecureSumError,
    from_bytes,
    from_message,
    to_message,
)
from fedcmoo.privacy.secure.server import SecureServer
from fedcmoo.privacy.secure.sharing import SHARE
from fedcmoo.privacy.secure.stage import Secure
from fedcmoo.rounds import Ask, Server, Sizes
from fedcmoo.sums import Sums
from fedcmoo.worker import round_seed

Handle = Callable[[int, Message], None]
"""A function that handles the reply of a client."""


class SecureSession(Session):
    """A session whose replies are masked; `inner` carries out the trips."""

    def __init__(self, inner: TripSession, secure: Secure, channels: Channels, sizes: Sizes) -> None:
        self.inner, self.secure, self.channels, self.sizes = inner, secure, channels, sizes

    def ask(self, ask: Ask, server: Server) -> Sums:
        secure = SecureAsk(self, ask, server)
        try:
            return secure.run(server.cohort if ask.clients is None else ask.clients)
        except SecureSumError as error:
            failures = secure.sums.failures
            raise SecureSumError(f"{error} ({summary(failures)})" if failures else str(error)) from None

    def evaluate(self, server: Server, split: str) -> Scores:
        return self.inner.evaluate(server, split)

    def close(self) -> None:
        self.inner.close()


class SecureAsk:
    """One ask: advertise, share, mask, unmask.

    A client that does not answer on a trip, or whose answer is refused, has failed and does not take part in the next
    trip. If too few are left, `SecureSumError` is raised and the round is undone.
    """

    def __init__(self, secured: SecureSession, ask: Ask, server: Server) -> None:
        self.secured, self.ask, self.server = secured, ask, server
        nodes = tuple(bytes.fromhex(key) for key in secured.secure.nodes)
        self.session = protocol.SumSession(secrets.token_bytes(protocol.ID), secured.secure.smallest, nodes)
        self.sums = Sums()

    def run(self, clients: tuple[int, ...]) -> Sums:
        """The sums over the clients whose codes arrived."""
        sums, masking, start = self.sums, self.sums.masking, time.perf_counter()
        secure, names = self.secured.secure, list(self.ask.messages)
        keys = self._keys(clients)
        seed = round_seed(self.server.seed, self.server.round)
        code = SumCode(secure, self.secured.channels, names, self.secured.sizes, len(keys), seed)
        aggregate = SecureServer(self.session, keys, code.count, secure.bits)
        table = to_message({i: its.to_bytes() for i, its in keys.items()})
        self._trip(Trip("share", dict.fromkeys(keys, table)), _rows(aggregate.add_shares, SHARES))
        shares = {i: to_message(rows) for i, rows in aggregate.shares().items()}
        masking.seconds = time.perf_counter() - start

        self._trip(Trip("mask", shares, computes=True), lambda i, m: self._add_codes(aggregate, i, m))

        start = time.perf_counter()
        survivors = aggregate.survivors()
        weights = self._shares(survivors)
        message = Message(survivors=torch.tensor(survivors))
        self._trip(Trip("unmask", dict.fromkeys(survivors, message)), _rows(aggregate.add_revealed, SHARE))
        sums.totals = code.decode(aggregate.total())
        masking.seconds += time.perf_counter() - start
        for i in survivors:
            sums.add({}, 0, share=weights.get(i))
        sums.client_states = {i: state for i, state in sums.client_states.items() if i in survivors}
        return sums

    def _shares(self, clients: Collection[int]) -> Mapping[int, Share]:
        """The clients' weights and objectives. An objective's sum over few owners would reveal as much as a sum over a
        cohort of that size, so it is not unmasked."""
        shares = self.secured.inner.shares(clients)
        owners = torch.tensor([share.owned for share in shares.values()]).sum(dim=0).tolist() if shares else []
        few = [k for k, count in enumerate(owners) if 0 < count < self.session.smallest]
        if few:
            raise SecureSumError(
                f"a secure sum needs {self.session.smallest} owners of each objective, or none, but objective {few[0]} "
                f"has {owners[few[0]]}; larger cohorts have more"
            )
        return shares

    def _keys(self, clients: tuple[int, ...]) -> dict[int, PublicKeys]:
        found: dict[int, PublicKeys] = {}

        def add(i: int, message: Message) -> None:
            check(message, {"keys": Field((KEYS,), torch.uint8)}, f"client {i}")
            keys = PublicKeys.from_bytes(message["keys"].numpy().tobytes())
            keys.check(self.session, i)
            found[i] = keys

        self._trip(Trip("advertise", dict.fromkeys(clients, Message())), add)
        self.session.check_count(len(found), len(found), "advertise")
        shortage = self.secured.secure.shortage(len(found))
        if shortage is not None:  # Poisson cohorts may be larger than expected
            raise SecureSumError(f"{shortage}; smaller cohorts need fewer")
        return found

    def _add_codes(self, aggregate: SecureServer, i: int, message: Message) -> None:
        check(message, {"codes": Field((None,), torch.uint8)}, f"client {i}")
        aggregate.add_codes(i, message["codes"].numpy().tobytes())
        self.sums.uploaded += message.size

    def _trip(self, trip: Trip, handle: Handle) -> None:
        """Send the messages and handle all replies; count bytes and failures."""
        session, masking = from_bytes(self.session.id), self.sums.masking
        sent = {i: Message(**message, session=session) for i, message in trip.messages.items()}
        masking.down += sum(message.size for message in sent.values())
        whole = Trip(trip.name, sent, trip.computes)
        for i, reply, memory in self.secured.inner.trip(whole, self.ask, self.server):
            if isinstance(reply, TimeoutError):
                self.sums.stalled.add(i)
            with self.server.on_failure.of_client(self.sums.failures, i):
                if isinstance(reply, Exception):
                    raise reply
                handle(i, reply)
                if not trip.computes:
                    masking.up += reply.size
                if memory is not None:
                    self.sums.client_states[i] = memory


def _rows(add: Callable[[int, Mapping[int, bytes]], None], length: int) -> Handle:
    """A function that calls `add` with the rows of this length in a client's reply."""
    return lambda i, message: add(i, from_message(message, length, f"client {i}"))
