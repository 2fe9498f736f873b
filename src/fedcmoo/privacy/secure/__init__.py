"""Secure sums: the server learns the sum of a cohort's codes, and nothing else about any of them.

The protocol of Bonawitz et al. `SecureClient` and `SecureServer` turn messages into messages, in four phases, each of
which is a trip from the server to the clients and back:

    advertise   client -> server   public keys, signed by the client's node
    share       client -> server   shares of its two seeds, encrypted for each other client
    mask        client -> server   codes + own mask + masks in common with each other client, modulo 2^b
    unmask      client -> server   shares: of the own mask's seed of those whose codes arrived, of the other seed of
                                   those who dropped out after `share`

Common masks cancel in the sum. More than two thirds of the clients must answer in each phase. A server that follows the
protocol learns only the sum, even together with any third of the clients. Keys that a known node did not sign are
refused, so the server cannot take part as a fake client. The protocol does not stop clients from sending
wrong codes, or a server from ending rounds.

`Secure` is the stage that asks for it, `Party` is the clients' side in a worker or node, and
`fedcmoo.engines.secure.SecureSession` is the server's side.

Needs the extra `privacy`.

References:
    Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal and Seth. Practical secure aggregation for
    privacy-preserving machine learning. CCS 2017.
"""

from fedcmoo.privacy.secure.stage import SECURE, Secure, secure_of

__all__ = ["SECURE", "Secure", "secure_of"]
