"""The server's side of a secure sum."""

from collections.abc import Iterable, Mapping

import numpy as np

from fedcmoo.messages import BadMessageError
from fedcmoo.privacy.secure.keys import public_key
from fedcmoo.privacy.secure.masks import Words, own_mask, pair_mask, unpack
from fedcmoo.privacy.secure.protocol import PublicKeys, SecureSumError, SumSession
from fedcmoo.privacy.secure.sharing import SHARE, combine


class SecureServer:
    """Adds up masked codes, and removes the masks from the sum.

    In each phase, the replies are added first, in any order; then the method named after the clients' next input closes
    the phase. A client without a reply is excluded. An invalid reply raises `BadMessageError` and counts as missing.
    `keys` are the checked keys of all clients that advertised; a client has `count` codes, words of `bits` bits.
    """

    def __init__(self, session: SumSession, keys: Mapping[int, PublicKeys], count: int, bits: int) -> None:
        self.session, self.count, self.bits = session, count, bits
        self._keys = dict(keys)
        self._check_count(self._keys, "advertise")
        self._encrypted: dict[int, Mapping[int, bytes]] = {}
        self._total: Words = np.zeros(count, dtype=np.uint32)
        self._survivors: set[int] = set()
        self._revealed: dict[int, Mapping[int, bytes]] = {}

    def add_shares(self, i: int, shares: Mapping[int, bytes]) -> None:
        """Phase 2: add the shares that client i encrypted for the others."""
        self._check_sender(i, self._keys)
        if set(shares) != set(self._keys) - {i}:
            raise BadMessageError(f"client {i} must send shares for every other client of the sum, but did not")
        self._encrypted[i] = dict(shares)

    def shares(self) -> dict[int, dict[int, bytes]]:
        """The clients' input for phase 3: by receiver, the encrypted shares by sender."""
        self._check_count(self._encrypted, "share")
        return {i: {j: shares[i] for j, shares in self._encrypted.items() if j != i} for i in self._encrypted}

    def add_codes(self, i: int, packed: bytes) -> None:
        """Phase 3: add the masked codes of client i to the sum."""
        self._check_sender(i, self._encrypted)
        if i in self._survivors:
            raise BadMessageError(f"client {i} must send its codes once, but sent them again")
        self._total += unpack(packed, self.bits, self.count, f"client {i}")
        self._survivors.add(i)

    def survivors(self) -> list[int]:
        """The clients' input for phase 4: the clients whose codes arrived."""
        self._check_count(self._survivors, "mask")
        return sorted(self._survivors)

    def add_revealed(self, i: int, shares: Mapping[int, bytes]) -> None:
        """Phase 4: add client i's share of one seed of each client."""
        self._check_sender(i, self._survivors)
        if set(shares) != set(self._encrypted) or any(len(share) != SHARE for share in shares.values()):
            raise BadMessageError(f"client {i} must reveal {SHARE} bytes for each client of the sum, but did not")
        self._revealed[i] = dict(shares)

    def total(self) -> Words:
        """The sum of the survivors' codes modulo 2^bits."""
        self._check_count(self._revealed, "unmask")
        session, total = self.session.id, self._total.copy()
        for i, seed in combine(self._revealed, list(self._keys), self.session.threshold(len(self._keys))).items():
            keys, survived = self._keys[i], i in self._survivors
            if public_key(seed, session) != (keys.own if survived else keys.pair):
                raise SecureSumError(f"the shares of a seed of client {i} do not fit together: one of them is wrong")
            if survived:
                total -= own_mask(seed, session, self.count)
                continue
            for j in self._survivors:
                common = pair_mask(seed, self._keys[j].pair, session, self.count)
                total = total - common if j < i else total + common
        return total & np.uint32(2**self.bits - 1)

    def _check_sender(self, i: int, allowed: Iterable[int]) -> None:
        if i not in allowed:
            raise BadMessageError(f"client {i} must have answered all phases before this one, but did not")

    def _check_count(self, answered: Iterable[int], phase: str) -> None:
        self.session.check_count(len(set(answered)), len(self._keys), phase)
