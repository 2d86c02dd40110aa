"""Key agreement, key derivation and sealed envelopes; all primitives are those of `cryptography`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from covey.security.errors import TamperedError

if TYPE_CHECKING:
    from covey.security.entropy import Entropy

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16


@dataclass(frozen=True)
class KeyPair:
    """An X25519 key pair, 32 bytes each; it lives for one round."""

    private: bytes = field(repr=False)
    public: bytes


def key_pair(private: bytes) -> KeyPair:
    """The key pair of these 32 private bytes."""
    return KeyPair(private, X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw())


def agree(private: bytes, public: bytes) -> bytes:
    """The 32-byte X25519 secret of one's own private and a peer's public key.

    It is not a key: `derive` makes keys from it.
    """
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # wrong length, or a point of low order, which gives a public secret
        raise TamperedError(f"the public key {public.hex()[:16]}... is not a valid X25519 key") from error


def derive(secret: bytes, context: bytes) -> bytes:
    """A 256-bit key by HKDF-SHA256; another secret or another context gives an unrelated key."""
    return HKDF(SHA256(), KEY_BYTES, None, context).derive(secret)


def seal(key: bytes, plaintext: bytes, associated: bytes, entropy: Entropy) -> bytes:
    """`plaintext` under ChaCha20-Poly1305, prefixed by a fresh nonce; `associated` is authenticated, not sent."""
    nonce = entropy.draw(NONCE_BYTES)
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plaintext, associated)


def unseal(key: bytes, sealed: bytes, associated: bytes) -> bytes:
    """The plaintext of `seal`; rejects a message that was modified, redirected or made for another context."""
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise TamperedError(f"a sealed message has at least {NONCE_BYTES + TAG_BYTES} bytes, got {len(sealed)}")
    try:
        return ChaCha20Poly1305(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except InvalidTag as error:
        raise TamperedError("a sealed message was modified in transit, or was made for another purpose") from error
