"""Secure sums: the server learns what a cohort's codes add up to, and nothing else about any of them.

The protocol of Bonawitz et al. without a transport: `SecureClient` and `SecureServer` turn messages into messages, in
four phases.

    advertise   client -> server   public keys, signed by the client's node
    share       client -> server   shares of its two seeds, encrypted for each other client
    mask        client -> server   codes + own mask + masks in common with each other client, modulo 2^b
    unmask      client -> server   shares: of the own mask's seed of those whose codes arrived, of the other seed of
                                   those who dropped out after `share`

Masks in common cancel in the sum. More than two thirds of the clients must answer in each phase. A server that follows
the protocol learns the sum alone, even together with any third of the clients. Keys that a known node did not sign are
refused, so the server cannot take part as a client of its own making. The protocol does not stop clients from sending
wrong codes, or a server from ending rounds.

Needs the extra `privacy`.

References:
    Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal and Seth. Practical secure aggregation for
    privacy-preserving machine learning. CCS 2017.
"""

from fedcmoo.optional import require

require("cryptography.hazmat.primitives.kdf.hkdf", "privacy")
require("Crypto.Protocol.SecretSharing", "privacy")

from fedcmoo.privacy.secure.client import SecureClient  # noqa: E402 - what is missing is reported above
from fedcmoo.privacy.secure.masks import sum_bits  # noqa: E402
from fedcmoo.privacy.secure.protocol import PublicKeys, SecureSumError, Session  # noqa: E402
from fedcmoo.privacy.secure.server import SecureServer  # noqa: E402

__all__ = ["PublicKeys", "SecureClient", "SecureServer", "SecureSumError", "Session", "sum_bits"]
