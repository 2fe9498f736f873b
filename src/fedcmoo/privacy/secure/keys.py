"""The keys of a secure sum: key agreement, encryption of shares, and signatures of the nodes.

Every secret of the protocol is a seed of 16 bytes, so that it can be shared. Keys are derived from seeds and agreed
secrets by HKDF with the session and the purpose, so no key is used for two purposes.
"""

import secrets
import struct

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedcmoo.messages import BadMessageError

SEED = 16
PUBLIC = 32
SIGNATURE = 64
TAG = 16
"""The number of bytes that encryption adds."""

NodeKey = Ed25519PrivateKey
"""The key with which a node signs: that of its identity."""


def new_seed() -> bytes:
    """A seed from the operating system's randomness."""
    return secrets.token_bytes(SEED)


def derive(secret: bytes, session: bytes, purpose: str) -> bytes:
    """A key of 32 bytes for one purpose in one session."""
    info = b"fedcmoo secure sum\0" + purpose.encode()
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=session, info=info).derive(secret)


def public_key(seed: bytes, session: bytes) -> bytes:
    """The X25519 public key that belongs to a seed."""
    return _private_key(seed, session).public_key().public_bytes_raw()


def agree(seed: bytes, peer: bytes, session: bytes, purpose: str) -> bytes:
    """The key shared by the owners of a seed and of the public key `peer`, for one purpose."""
    try:
        secret = _private_key(seed, session).exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError as error:
        raise BadMessageError(f"a public key must be a point of X25519 of large order, but is not: {error}") from None
    return derive(secret, session, purpose)


def encrypt(key: bytes, data: bytes, sender: int, receiver: int) -> bytes:
    """Encrypt data for one receiver. Two clients share a key, and each uses it for one message, with its own nonce."""
    return ChaCha20Poly1305(key).encrypt(_nonce(sender), data, _addresses(sender, receiver))


def decrypt(key: bytes, data: bytes, sender: int, receiver: int) -> bytes:
    """Decrypt the output of `encrypt`; an error if it was changed, or was meant for another receiver."""
    try:
        return ChaCha20Poly1305(key).decrypt(_nonce(sender), data, _addresses(sender, receiver))
    except InvalidTag:
        raise BadMessageError(f"the shares that client {sender} sent client {receiver} are not authentic") from None


def is_signed(public: bytes, data: bytes, signature: bytes) -> bool:
    """Whether the owner of an Ed25519 public key signed the data."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (ValueError, InvalidSignature):
        return False
    return True


def _private_key(seed: bytes, session: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(derive(seed, session, "private key"))


def _nonce(sender: int) -> bytes:
    return struct.pack(">4xQ", sender)


def _addresses(sender: int, receiver: int) -> bytes:
    return struct.pack(">QQ", sender, receiver)
