from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from covey.security import BelowThresholdError, SeededEntropy, TamperedError
from covey.security.sharing import ELEMENT_BYTES, PRIME, combine, pack, split, unpack

secret = st.integers(0, 2**256 - 1)


def probably_prime(number: int) -> bool:
    """Miller-Rabin with 40 bases."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        power = pow(base, odd, number)
        if power not in (1, number - 1) and all(pow(power, 2**step, number) != number - 1 for step in range(1, twos)):
            return False
    return True


def test_the_field_is_a_field_and_holds_every_256_bit_secret() -> None:
    assert probably_prime(PRIME)
    assert PRIME > 2**256
    assert PRIME < 2 ** (8 * ELEMENT_BYTES)


@settings(max_examples=40)
@given(st.data())
def test_any_threshold_of_shares_gives_the_secrets_back(data: st.DataObject) -> None:
    users = data.draw(st.integers(1, 9))
    threshold = data.draw(st.integers(1, users))
    secrets = data.draw(st.lists(secret, min_size=1, max_size=4))
    shares = split(secrets, users, threshold, SeededEntropy(data.draw(st.integers(0, 999))))
    holders = data.draw(st.permutations(range(users)))[: data.draw(st.integers(threshold, users))]
    assert combine(holders, shares[list(holders)], threshold) == secrets


def test_shares_of_a_sum_are_sums_of_shares() -> None:
    rows = [split([secret, 1], 7, 4, SeededEntropy(secret)) for secret in (3, 4, 5)]
    total = sum(rows[1:], rows[0]) % PRIME
    assert combine([6, 0, 3, 2], total[[6, 0, 3, 2]], 4) == [12, 3]


def test_fewer_shares_fit_every_secret() -> None:
    # To threshold - 1 shares there is, for any other secret, one further share that opens to it.
    threshold, known = 4, [0, 2, 5]
    shares = split([1234], 6, threshold, SeededEntropy(0))
    for other in (0, 99, 2**256 - 1):
        # Evaluate at the point of user 1 the polynomial through (0, other) and the three known shares.
        points = [0] + [holder + 1 for holder in known]
        heights = [other] + [int(shares[holder][0]) for holder in known]
        forged = 0
        for x, height in zip(points, heights, strict=True):
            for node in points:
                if node != x:
                    height = height * (2 - node) * pow(x - node, -1, PRIME) % PRIME
            forged = (forged + height) % PRIME
        rows = np.concatenate([shares[known], np.array([[forged]], dtype=object)])
        assert combine([*known, 1], rows, threshold) == [other]


def test_single_shares_are_uniform_whatever_the_secret() -> None:
    source = SeededEntropy(4)
    for value in (0, 1, 2**255):
        shares = split([value] * 400, 5, 3, source)
        for row in shares:
            assert stats.kstest([int(share) / PRIME for share in row], "uniform").pvalue > 1e-3


def test_wrong_shares_are_noticed_when_there_are_more_than_needed() -> None:
    shares = split([5, 6], 5, 3, SeededEntropy(0))
    shares[1][1] = (shares[1][1] + 1) % PRIME
    with pytest.raises(TamperedError, match="do not fit together"):
        combine(range(5), shares, 3)


def test_too_few_shares_and_repeated_holders_are_refused() -> None:
    shares = split([5], 5, 3, SeededEntropy(0))
    with pytest.raises(BelowThresholdError, match="2 users answered and 3 are needed"):
        combine([0, 1], shares[:2], 3)
    with pytest.raises(ValueError, match="once"):
        combine([0, 0, 1], shares[[0, 0, 1]], 3)
    with pytest.raises(ValueError, match="a secret to share"):
        split([PRIME], 5, 3, SeededEntropy(0))


def test_shares_as_bytes() -> None:
    elements = [0, 1, PRIME - 1]
    assert unpack(pack(elements), 3) == elements
    with pytest.raises(TamperedError, match="3 shares take 99 bytes, got 66"):
        unpack(pack(elements[:2]), 3)
    with pytest.raises(TamperedError, match="outside the field"):
        unpack(b"\xff" * ELEMENT_BYTES, 1)
