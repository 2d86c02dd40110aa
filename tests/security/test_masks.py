from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from tests.security.rounds import parameters

from covey.security import PublicKeys, SeededEntropy, Session
from covey.security.keys import derive
from covey.security.masks import CHUNK, apply_mask, pair_key, pair_sign, self_key

SESSION = Session(parameters(), "run", 3)
USERS = [PublicKeys(user, bytes([user]) * 32, bytes([user + 100]) * 32) for user in range(4)]


def mask(key: bytes, count: int = 64) -> NDArray[np.uint64]:
    words = np.zeros(count, dtype=np.uint64)
    apply_mask(words, key, 1)
    return words


def folded(secret: bytes) -> int:
    """A 256-bit secret folded to 32 bits by XOR."""
    return int(np.bitwise_xor.reduce(np.frombuffer(secret, dtype=np.uint32)))


@pytest.mark.parametrize("count", [1, 2, 3, 651, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
def test_the_mask_is_aes_in_counter_mode_at_every_length(count: int) -> None:
    key = SeededEntropy(1).draw(32)
    counters = b"".join(block.to_bytes(16, "big") for block in range((count + 1) // 2))
    blocks = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(counters)
    np.testing.assert_array_equal(mask(key, count), np.frombuffer(blocks, dtype="<u8")[:count])


def test_adding_and_subtracting_cancel_modulo_the_word() -> None:
    words = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    changed = words.copy()
    apply_mask(changed, bytes(32), 1)
    assert not np.any(changed == words)
    apply_mask(changed, bytes(32), -1)
    np.testing.assert_array_equal(changed, words)
    assert {pair_sign(2, 5), pair_sign(5, 2)} == {1, -1}


@settings(max_examples=50)
@given(st.binary(min_size=32, max_size=32), st.integers(0, 7), st.integers(0, 7), st.integers(1, 2**32 - 1))
def test_secrets_that_fold_to_the_same_32_bits_have_different_masks(
    secret: bytes, first: int, second: int, change: int
) -> None:
    words = np.frombuffer(secret, dtype=np.uint32).copy()
    if first == second:
        second = (first + 1) % 8
    words[[first, second]] ^= np.uint32(change)
    twin = words.tobytes()
    assert twin != secret
    assert folded(twin) == folded(secret)
    keys = [pair_key(given_secret, SESSION, USERS[0], USERS[1], 0) for given_secret in (secret, twin)]
    assert not np.any(mask(keys[0]) == mask(keys[1]))


def test_every_bit_of_the_secret_matters() -> None:
    secret = SeededEntropy(2).draw(32)
    number = int.from_bytes(secret, "big")
    near = [secret] + [(number ^ (1 << bit)).to_bytes(32, "big") for bit in range(256)]
    masks = np.stack([mask(pair_key(one, SESSION, USERS[0], USERS[1], 0), 8) for one in near])
    assert len(np.unique(masks)) == masks.size


def test_every_bit_of_the_key_matters() -> None:
    masks = np.stack([mask((1 << bit).to_bytes(32, "big"), 8) for bit in range(256)])
    assert len(np.unique(masks)) == masks.size


def test_rounds_runs_slots_pairs_and_purposes_have_their_own_masks() -> None:
    secret = SeededEntropy(3).draw(32)
    sessions = [Session(parameters(), run, number) for run in ("run", "other") for number in range(3)]
    keys = [
        pair_key(secret, session, one, other, slot)
        for session in sessions
        for one, other in combinations(USERS, 2)
        for slot in range(3)
    ]
    keys += [self_key(secret, session, user, slot) for session in sessions for user in range(4) for slot in range(3)]
    keys += [derive(secret, session.context("shares", 0, 1)) for session in sessions]
    masks = np.stack([mask(key, 8) for key in keys])
    assert len(np.unique(masks)) == masks.size


def test_both_users_of_a_pair_derive_the_same_key() -> None:
    secret = SeededEntropy(3).draw(32)
    assert pair_key(secret, SESSION, USERS[0], USERS[2], 1) == pair_key(secret, SESSION, USERS[2], USERS[0], 1)


def test_masks_are_uniform() -> None:
    made = mask(SeededEntropy(5).draw(32), 20_000)
    assert stats.kstest(made / 2.0**64, "uniform").pvalue > 1e-3
    assert stats.chisquare(np.bincount(made.view(np.uint8), minlength=256)).pvalue > 1e-3
