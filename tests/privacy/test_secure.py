"""Secure sums: exact whoever drops out, closed to whoever looks, and hard on hostile messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from fedcmoo.messages import BadMessageError, Message
from fedcmoo.privacy.secure.client import SecureClient
from fedcmoo.privacy.secure.masks import Words, pack, packed_bytes, unpack
from fedcmoo.privacy.secure.protocol import PublicKeys, SecureSumError, from_message
from fedcmoo.privacy.secure.server import SecureServer
from fedcmoo.privacy.secure.sharing import combine, multiply, split
from tests.privacy.federation import PHASES, checked, node_keys, random_codes, secure_sum, session_of

N = 7
LEAST = 5  # more than two thirds of 7
NODES = node_keys(N)
SESSION = session_of(NODES)


def plain_sum(codes: dict[int, Words], clients: list[int]) -> NDArray[np.int64]:
    total: NDArray[np.int64] = np.sum([codes[i].astype(np.int64) for i in clients], axis=0)
    return total


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("dropped", [0, 1, N - LEAST])
def test_sums_are_exact_with_drop_outs_in_any_phase(phase: str, dropped: int) -> None:
    codes = random_codes(N, count=1001, largest=4095)
    silent = set(range(1, 1 + dropped))
    outcome = secure_sum(SESSION, NODES, codes, 15, {phase: silent})  # 7 times 4095 is less than 2^15
    inside = sorted(set(range(N)) - silent) if phase != "unmask" else list(range(N))
    assert outcome.survivors == inside
    assert np.array_equal(outcome.total, plain_sum(codes, inside))


def test_drop_outs_in_all_phases_of_one_sum() -> None:
    nodes = node_keys(10)
    codes = random_codes(10, count=50, largest=1)
    silent = {"advertise": {0}, "share": {4}, "mask": {9}, "unmask": {2}}  # 9 advertise, so 7 must stay: 8, 7, ...
    with pytest.raises(SecureSumError, match="needs 7 of them in each phase, but 6 answered in 'unmask'"):
        secure_sum(session_of(nodes), nodes, codes, 4, silent)
    del silent["share"]
    outcome = secure_sum(session_of(nodes), nodes, codes, 4, silent)
    assert np.array_equal(outcome.total, plain_sum(codes, list(range(1, 9))))


@pytest.mark.parametrize("phase", PHASES[1:])
def test_one_drop_out_too_many_gives_no_sum(phase: str) -> None:
    codes = random_codes(N, count=10, largest=1)
    with pytest.raises(SecureSumError, match="needs 5 of them"):
        secure_sum(SESSION, NODES, codes, 3, {phase: set(range(N - LEAST + 1))})


def test_no_sum_of_fewer_than_three() -> None:
    with pytest.raises(SecureSumError, match="needs 3"):
        secure_sum(SESSION, NODES, random_codes(N, 10, 1), 3, {"advertise": set(range(N - 2))})


def test_what_the_server_receives_of_one_client_is_uniform() -> None:
    """Whatever the codes are: here all are zero."""
    bits = 6
    codes = {i: np.zeros(40_000, dtype=np.uint32) for i in range(N)}
    outcome = secure_sum(SESSION, NODES, codes, bits)
    for packed in outcome.received.values():
        words = unpack(packed, bits, 40_000, "it")
        assert stats.chisquare(np.bincount(words, minlength=2**bits)).pvalue > 1e-6
        assert abs(np.corrcoef(words[:-1], words[1:])[0, 1]) < 5 / 200
    assert not outcome.total.any()


def test_masks_never_repeat() -> None:
    """Not between clients, not between sessions, and not in the same session when it is run again."""
    codes = {i: np.zeros(2000, dtype=np.uint32) for i in range(N)}
    masks = [
        unpack(packed, 16, 2000, "it").astype(np.float64)
        for session in (SESSION, SESSION, session_of(NODES, b"round 2"))
        for packed in secure_sum(session, NODES, codes, 16).received.values()
    ]
    correlations = np.corrcoef(masks) - np.eye(len(masks))
    assert np.abs(correlations).max() < 6 / np.sqrt(2000)


def test_a_sum_without_unmasking_is_uniform_too() -> None:
    """The own masks hide even the sum until enough clients agree to reveal it."""
    codes = {i: np.zeros(40_000, dtype=np.uint32) for i in range(N)}
    received = secure_sum(SESSION, NODES, codes, 8).received
    total = sum(unpack(packed, 8, 40_000, "it") for packed in received.values())
    assert stats.chisquare(np.bincount(np.asarray(total) % 256, minlength=256)).pvalue > 1e-6


class Phases:
    """A sum stopped before a phase of the caller's choice."""

    def __init__(self) -> None:
        self.clients = {i: SecureClient(SESSION, i, NODES[i]) for i in range(N)}
        self.codes = {i: np.full(4, i, dtype=np.uint32) for i in range(N)}

    def advertised(self) -> Phases:
        self.keys = checked(SESSION, {i: client.advertise() for i, client in self.clients.items()})
        self.server = SecureServer(SESSION, self.keys, 4, 8)
        return self

    def shared(self) -> Phases:
        self.advertised()
        for i, client in self.clients.items():
            self.server.add_shares(i, client.share(self.keys))
        return self

    def masked(self) -> Phases:
        shares = self.shared().server.shares()
        for i, client in self.clients.items():
            self.server.add_codes(i, client.mask(self.codes[i], 8, shares[i]))
        return self


def test_a_client_that_the_server_invents_is_refused() -> None:
    sum = Phases().advertised()
    stranger = SecureClient(SESSION, 99, node_keys(1)[0]).advertise()
    with pytest.raises(BadMessageError, match="known node"):
        sum.clients[0].share({**sum.keys, 99: stranger})
    forged = SecureClient(SESSION, 3, node_keys(1)[0]).advertise()  # the server's key in place of client 3's node's
    with pytest.raises(BadMessageError, match="known node"):
        sum.clients[1].share({**sum.keys, 3: forged})
    with pytest.raises(BadMessageError, match="signed"):
        sum.clients[2].share({**sum.keys, 3: replace(forged, node=sum.keys[3].node)})


def test_keys_of_another_session_or_client_are_refused() -> None:
    earlier = SecureClient(session_of(NODES, b"round 0"), 2, NODES[2]).advertise()
    with pytest.raises(BadMessageError, match="signed"):
        earlier.check(SESSION, 2)
    unknown_nodes = replace(SESSION, nodes=())
    with pytest.raises(BadMessageError, match="signed"):
        SecureClient(unknown_nodes, 2, NODES[2]).advertise().check(unknown_nodes, 3)


def test_a_client_whose_own_keys_were_exchanged_stops() -> None:
    sum = Phases().advertised()
    again = SecureClient(SESSION, 0, NODES[0]).advertise()
    with pytest.raises(BadMessageError, match="as it sent them"):
        sum.clients[0].share({**sum.keys, 0: again})


def test_a_point_of_small_order_is_refused() -> None:
    sum = Phases().advertised()
    zero = PublicKeys.sign(SESSION, 3, (bytes(32), bytes(32), bytes(32)), NODES[3])
    with pytest.raises(BadMessageError, match="X25519"):
        sum.clients[0].share({**sum.keys, 3: zero})


def test_altered_or_exchanged_shares_are_refused() -> None:
    shares = Phases().shared().server.shares()[0]
    for wrong in (
        {**shares, 1: shares[2]},
        {**shares, 1: shares[1][:-1] + bytes([shares[1][-1] ^ 1])},
        {**shares, 1: b""},
    ):
        sum = Phases().shared()
        with pytest.raises(BadMessageError, match="authentic"):
            sum.clients[0].mask(sum.codes[0], 8, wrong)


def test_a_client_reveals_one_seed_of_each_client_once() -> None:
    sum = Phases().masked()
    first = sum.clients[0].unmask([0, 1, 2, 3, 4])
    with pytest.raises(BadMessageError, match="next"):
        sum.clients[0].unmask(range(N))
    second = sum.clients[1].unmask(range(N))
    assert set(first) == set(second) == set(range(N))
    assert all(len(share) == 16 for share in first.values())
    with pytest.raises(SecureSumError, match="needs 5"):
        sum.clients[2].unmask([2, 3, 4, 5])
    with pytest.raises(BadMessageError, match="survivors"):
        sum.clients[3].unmask([0, 1, 2, 4, 5, 6])


def test_a_wrong_share_is_noticed() -> None:
    sum = Phases().masked()
    for i, client in sum.clients.items():
        revealed = client.unmask(sum.server.survivors())
        if i == 4:
            revealed[2] = bytes(16)
        sum.server.add_revealed(i, revealed)
    with pytest.raises(SecureSumError, match="client 2 do not fit"):
        sum.server.total()


def test_replies_of_the_wrong_kind_are_refused_and_cost_only_themselves() -> None:
    sum = Phases()
    good = sum.clients[0].advertise()
    with pytest.raises(BadMessageError, match="32, 32, 32"):
        replace(good, own=b"short").check(SESSION, 0)
    with pytest.raises(BadMessageError, match="64 bytes"):
        replace(good, signature=b"").check(SESSION, 0)
    with pytest.raises(BadMessageError, match="signed"):
        replace(good, signature=bytes(64)).check(SESSION, 0)
    sum = Phases().shared()
    with pytest.raises(BadMessageError, match="every other"):
        sum.server.add_shares(0, {1: b"only one"})
    shares = sum.server.shares()
    with pytest.raises(BadMessageError, match="4 bytes"):
        sum.server.add_codes(0, b"too many bytes")
    with pytest.raises(BadMessageError, match="before this one"):
        sum.server.add_codes(99, bytes(4))
    for i, client in sum.clients.items():
        packed = client.mask(sum.codes[i], 8, shares[i])
        sum.server.add_codes(i, packed)
        with pytest.raises(BadMessageError, match="once"):
            sum.server.add_codes(i, packed)
    survivors = sum.server.survivors()
    with pytest.raises(BadMessageError, match="16 bytes"):
        sum.server.add_revealed(0, dict.fromkeys(range(N), b""))
    for i, client in sum.clients.items():
        sum.server.add_revealed(i, client.unmask(survivors))
    assert sum.server.total().tolist() == [21] * 4


@pytest.mark.parametrize("bits", [1, 3, 8, 12, 16, 19, 32])
@pytest.mark.parametrize("count", [0, 1, 7, 65_536, 70_001])
def test_words_survive_packing(bits: int, count: int) -> None:
    words = np.random.default_rng(bits).integers(0, 2**32, count, dtype=np.uint32)
    packed = pack(words, bits)
    assert len(packed) == packed_bytes(bits, count) == -(-bits * count // 8)
    assert np.array_equal(unpack(packed, bits, count, "it"), words & np.uint32(2**bits - 1))


@pytest.mark.parametrize(
    "message",
    [
        Message(clients=torch.tensor([1, 1]), rows=torch.zeros(2, 3, dtype=torch.uint8)),
        Message(clients=torch.tensor([-1, 1]), rows=torch.zeros(2, 3, dtype=torch.uint8)),
        Message(clients=torch.tensor([0, 1]), rows=torch.zeros(2, 4, dtype=torch.uint8)),
        Message(clients=torch.tensor([0, 1]), rows=torch.zeros(3, 3, dtype=torch.uint8)),
        Message(clients=torch.tensor([0, 1]), rows=torch.zeros(2, 3)),
        Message(rows=torch.zeros(2, 3, dtype=torch.uint8)),
    ],
)
def test_malformed_tables_are_refused(message: Message) -> None:
    with pytest.raises(BadMessageError, match="client 5"):
        from_message(message, 3, "client 5")


def test_fewer_shares_than_the_threshold_say_nothing_of_a_seed() -> None:
    """Any first bytes of the seed are as likely as any others, by shares that are one short."""
    seeds = [bytes(16), bytes([255]) * 16]
    last = [[split(seed, range(5), 3)[4][0] for _ in range(2000)] for seed in seeds]
    for draws in last:
        assert stats.chisquare(np.bincount(draws, minlength=256)).pvalue > 1e-6
    shares = split(seeds[1], range(5), 3)
    assert combine({i: {9: shares[i]} for i in (4, 0, 2)}, range(5), 3) == {9: seeds[1]}
    assert combine({i: {9: shares[i]} for i in (4, 0)}, range(5), 3) != {9: seeds[1]}


@pytest.mark.parametrize("n", [1, 3, 100])
def test_seeds_come_back_from_any_threshold_of_shares(n: int) -> None:
    clients, threshold = list(range(5, 5 + 3 * n, 3)), 2 * n // 3 + 1
    random = np.random.default_rng(n)
    seeds = {i: random.bytes(16) for i in clients}
    shares = {i: split(seed, clients, threshold) for i, seed in seeds.items()}
    for _ in range(3):
        holders = random.permutation(clients)[:threshold].tolist()
        held = {j: {i: shares[i][j] for i in clients} for j in holders}
        assert combine(held, clients, threshold) == seeds


def test_products_in_the_field_are_those_of_polynomials() -> None:
    """Long multiplication and division by x^16 + x^12 + x^3 + x + 1, bit by bit."""
    a, b = np.random.default_rng(0).integers(0, 2**16, (2, 200), dtype=np.uint16)
    a[:2] = 0
    expected = []
    for left, right in zip(a.tolist(), b.tolist(), strict=True):
        product = 0
        for k in range(16):
            product ^= (left << k) * (right >> k & 1)
        for k in range(31, 15, -1):
            product ^= (0x1100B << (k - 16)) * (product >> k & 1)
        expected.append(product)
    assert multiply(a, b).tolist() == expected
