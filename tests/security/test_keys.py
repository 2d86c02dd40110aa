from __future__ import annotations

import pytest

from covey.security import SeededEntropy, TamperedError
from covey.security.keys import NONCE_BYTES, TAG_BYTES, agree, derive, key_pair, seal, unseal


def test_key_agreement_is_that_of_rfc_7748() -> None:
    private = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    peer = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    own = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert key_pair(private).public.hex() == own
    assert agree(private, peer).hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_derivation_is_that_of_rfc_5869() -> None:
    key = derive(bytes([0x0B] * 22), b"")
    assert key.hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert derive(bytes([0x0B] * 22), b"other") != key


def test_both_sides_agree() -> None:
    entropy = SeededEntropy(1)
    one, other = key_pair(entropy.draw(32)), key_pair(entropy.draw(32))
    assert agree(one.private, other.public) == agree(other.private, one.public)


@pytest.mark.parametrize("public", [bytes(32), bytes(31), b"\x01" + bytes(31)])
def test_low_order_and_short_keys_are_refused(public: bytes) -> None:
    with pytest.raises(TamperedError, match="not a valid X25519 key"):
        agree(SeededEntropy(1).draw(32), public)


def test_private_keys_do_not_show_in_logs() -> None:
    pair = key_pair(SeededEntropy(3).draw(32))
    assert "private" not in repr(pair)
    assert "public" in repr(pair)


def test_sealed_messages_open_and_have_fresh_nonces() -> None:
    entropy, key = SeededEntropy(2), SeededEntropy(3).draw(32)
    one, two = (seal(key, b"share", b"context", entropy) for _ in range(2))
    assert unseal(key, one, b"context") == unseal(key, two, b"context") == b"share"
    assert one[:NONCE_BYTES] != two[:NONCE_BYTES]
    assert len(one) == NONCE_BYTES + len(b"share") + TAG_BYTES


def test_changed_messages_are_refused_at_every_byte() -> None:
    entropy, key = SeededEntropy(2), SeededEntropy(3).draw(32)
    sealed = seal(key, b"share", b"context", entropy)
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 0x80
        with pytest.raises(TamperedError, match="modified in transit"):
            unseal(key, bytes(changed), b"context")
    with pytest.raises(TamperedError, match="another purpose"):
        unseal(key, sealed, b"other context")
    with pytest.raises(TamperedError, match="at least 28 bytes"):
        unseal(key, sealed[:20], b"context")
