"""The client's side of a secure sum."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import torch

from fedcmoo.messages import BadMessageError, Message
from fedcmoo.privacy.secure.keys import SEED, NodeKey, agree, decrypt, encrypt, new_seed, public_key
from fedcmoo.privacy.secure.masks import Words, own_mask, pack, pair_mask
from fedcmoo.privacy.secure.protocol import KEYS, PublicKeys, SumSession, from_message, to_message
from fedcmoo.privacy.secure.sharing import SHARE, split

PHASES = ("advertise", "share", "mask", "unmask", "do nothing")


class SecureClient:
    """Client i of a node in one session: advertise, share, mask, unmask, each of them once and in this order."""

    def __init__(self, session: SumSession, i: int, node: NodeKey) -> None:
        self.session, self.i, self._node = session, i, node
        self._encryption, self._pair, self._own = new_seed(), new_seed(), new_seed()
        self._keys: dict[int, PublicKeys] = {}
        self._shares: dict[int, bytes] = {}
        self._next = "advertise"

    @property
    def n(self) -> int:
        """The number of clients that advertised keys, including this one; known from `share` on."""
        return len(self._keys)

    def save(self) -> Message:
        """The client's state, for nodes that keep nothing in memory between phases.

        It holds the client's seeds: it must stay at the node, and be deleted when the sum is done.
        """
        return Message.join(
            {
                "seeds": to_message(dict(enumerate((self._encryption, self._pair, self._own)))),
                "keys": to_message({j: its.to_bytes() for j, its in self._keys.items()}),
                "shares": to_message(self._shares),
                "next": Message(phase=torch.tensor([PHASES.index(self._next)])),
            }
        )

    @classmethod
    def load(cls, session: SumSession, i: int, node: NodeKey, saved: Message) -> SecureClient:
        """Restore the client from the state that `save` returned."""
        client = cls(session, i, node)
        seeds = from_message(saved.part("seeds"), SEED, "the saved state")
        client._encryption, client._pair, client._own = (seeds[n] for n in range(3))
        keys = from_message(saved.part("keys"), KEYS, "the saved state")
        client._keys = {j: PublicKeys.from_bytes(row) for j, row in keys.items()}
        client._shares = from_message(saved.part("shares"), 2 * SHARE, "the saved state")
        client._next = PHASES[int(saved["next/phase"])]
        return client

    def advertise(self) -> PublicKeys:
        """Phase 1: this client's public keys, signed by its node."""
        self._enter("advertise")
        public = tuple(public_key(seed, self.session.id) for seed in (self._encryption, self._pair, self._own))
        encryption, pair, own = public
        keys = PublicKeys.sign(self.session, self.i, (encryption, pair, own), self._node)
        self._keys[self.i] = keys
        return keys

    def share(self, keys: Mapping[int, PublicKeys]) -> dict[int, bytes]:
        """Phase 2: from the public keys of all clients, shares of this one's two seeds, encrypted for each other."""
        self._enter("share")
        if keys.get(self.i) != self._keys[self.i]:
            raise BadMessageError(f"the public keys of client {self.i} must be as it sent them, but are not")
        self.session.check_count(len(keys), len(keys), "advertise")
        for j, its in keys.items():
            its.check(self.session, j)
        self._keys = dict(keys)
        threshold = self.session.threshold(len(keys))
        pair = split(self._pair, list(keys), threshold)
        own = split(self._own, list(keys), threshold)
        self._shares[self.i] = pair[self.i] + own[self.i]
        return {j: encrypt(self._share_key(j), pair[j] + own[j], self.i, j) for j in keys if j != self.i}

    def mask(self, codes: Words, bits: int, shares: Mapping[int, bytes]) -> bytes:
        """Phase 3: the codes plus all masks, modulo 2^bits, packed; from the shares that the remaining other clients
        encrypted for this one."""
        self._enter("mask")
        strangers = set(shares) - (set(self._keys) - {self.i})
        if strangers:
            raise BadMessageError(f"shares must come from other clients of the sum, but {min(strangers)} is not one")
        self.session.check_count(len(shares) + 1, len(self._keys), "share")
        for j, encrypted in shares.items():
            self._shares[j] = decrypt(self._share_key(j), encrypted, j, self.i)
        masked = codes.astype(np.uint32) + own_mask(self._own, self.session.id, len(codes))
        for j in shares:
            common = pair_mask(self._pair, self._keys[j].pair, self.session.id, len(codes))
            masked = masked + common if self.i < j else masked - common
        return pack(masked, bits)

    def unmask(self, survivors: Collection[int]) -> dict[int, bytes]:
        """Phase 4: for each client, one share: of its own mask's seed if its codes arrived, else of its pair masks'.

        Both shares of one client are never revealed: with both seeds, its codes can be read.
        """
        self._enter("unmask")
        if self.i not in survivors or not set(survivors) <= set(self._shares):
            raise BadMessageError(f"survivors must be clients of the sum, {self.i} among them, but are {survivors}")
        self.session.check_count(len(set(survivors)), len(self._keys), "mask")
        return {j: both[SHARE:] if j in survivors else both[:SHARE] for j, both in self._shares.items()}

    def _enter(self, phase: str) -> None:
        if phase != self._next:
            raise BadMessageError(f"client {self.i} must be asked to {self._next} next, but was asked to {phase}")
        self._next = PHASES[PHASES.index(phase) + 1]

    def _share_key(self, j: int) -> bytes:
        return agree(self._encryption, self._keys[j].encryption, self.session.id, "shares")
