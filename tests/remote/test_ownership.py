"""Nodes say what their clients own: the server goes by it, refuses what cannot be, and notices changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaign.loopback import Loopback
from fedcmoo import FedCMOO, Problem, fit
from fedcmoo.callbacks import Callback
from fedcmoo.data.remote import RemoteClients
from fedcmoo.engines import Local
from fedcmoo.engines.remote import Remote
from fedcmoo.engines.remote.protocol import read_share
from fedcmoo.failures import Skip, TooFewRepliesError
from fedcmoo.history import Record
from fedcmoo.messages import BadMessageError
from tests.core.problems import classification
from tests.core.runs import assert_same

METHOD = FedCMOO(local_steps=2, batch_size=8)
SITES = [(True, False), (False, True), (True, True)]


def hospitals(sites: list[tuple[bool, bool]], **settings: Any) -> Problem:
    """Three clients with three label sets."""
    full = classification(clients=len(sites))
    clients = [
        (x, tuple(t if keep else None for t, keep in zip(targets, site, strict=True)))
        for (x, targets), site in zip(full.clients, sites, strict=True)
    ]
    return replace(full, clients=clients, **settings)


def at_server(**settings: Any) -> Problem:
    """The problem as a server has it, without any client's data."""
    return replace(hospitals(SITES), clients=RemoteClients(len(SITES)), **settings)


def test_a_server_without_data_goes_by_what_nodes_say(tmp_path: Path) -> None:
    engine = Remote(Loopback(tmp_path, hospitals(SITES, weights="samples"), METHOD, nodes=3), start_deadline=0.01)
    result = fit(at_server(weights="samples"), METHOD, 3, engine=engine)
    here = fit(hospitals(SITES, weights="samples"), METHOD, 3, engine=Local())
    assert_same(result, here)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"owns": [["first", "second"]] * 3}, r"client 0 must own \['first', 'second'\], as at the server"),
        ({"weights": [1.0, 2.0, 1.0]}, r"client 1 must have weight 2\.0, as at the server, but says 1\.0"),
    ],
)
def test_a_wrong_claim_is_refused(settings: Any, error: str, tmp_path: Path) -> None:
    engine = Remote(Loopback(tmp_path, hospitals(SITES), METHOD, nodes=3), start_deadline=0.01)
    with pytest.raises(TooFewRepliesError, match=error):
        fit(at_server(**settings), METHOD, 5, engine=engine, on_failure=Skip(min_replies=3))


@pytest.mark.parametrize("text", ["", "0x1p+0 1", "0x1p+0 12", "nan 10", "-0x1p+0 10", "inf 11", "x 11"])
def test_a_claim_that_is_none(text: str) -> None:
    with pytest.raises(BadMessageError):
        read_share(text, 2)


class Relabel(Callback):
    """After the first round, client 0 has other labels; its node may join again, under another id."""

    def __init__(self, transport: Loopback, joins_again: bool) -> None:
        self.transport, self.joins_again = transport, joins_again

    def after_round(self, record: Record) -> None:
        if record.round == 1:
            self.transport.problem = hospitals([(False, True), *SITES[1:]])
            if self.joins_again:
                (self.transport.folder / "node-0").rename(self.transport.folder / "node-10")  # with its key
                del self.transport.partition[0]
                self.transport.partition[10] = 0


@pytest.mark.parametrize("joins_again", [True, False])
def test_labels_that_change_between_rounds(joins_again: bool, tmp_path: Path) -> None:
    nodes = Loopback(tmp_path, hospitals(SITES), METHOD, nodes=3)
    relabel = Relabel(nodes, joins_again)
    engine = Remote(nodes, start_deadline=0.01)
    result = fit(at_server(), METHOD, 2, engine=engine, callbacks=[relabel], on_failure="skip")
    failures = result.history[1].failures
    if joins_again:
        assert not failures
        assert [packet.values.get("shares") for node, packet in nodes.sent if node == 10][-1] == [
            "0x1.0000000000000p+0 01"
        ]
    else:
        assert "must have labels for objective 'first', which it owned when its node joined" in failures["0"]
