"""The RNGs of many runs at once, seeded in one compiled loop.

They equal those of `covey.seeding.generator`; creating one there costs more than all draws of a network in a round.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISeedSequence

from covey.compiled import compiled
from covey.seeding import number_of

Words = npt.NDArray[np.uint64]

#: A seed is hashed in 32-bit words, held in 64 bits so that products and differences can be truncated to 32.
_WORD = np.uint64(0xFFFFFFFF)
_HALF, _FULL = np.uint64(16), np.uint64(32)
#: The constants of NumPy's SeedSequence.
_POOL = 4
_START_A, _FACTOR_A = np.uint64(0x43B0D7E5), np.uint64(0x931E8875)
_START_B, _FACTOR_B = np.uint64(0x8B51F9DD), np.uint64(0x58F38DED)
_MIX_LEFT, _MIX_RIGHT = np.uint64(0xCA01F9DD), np.uint64(0x4973F715)


class Streams:
    """The generators of N runs, one for each of the `seeds`."""

    def __init__(self, seeds: Sequence[int]) -> None:
        words = [_words(int(seed)) for seed in seeds]
        self._counts = np.array([len(found) for found in words], dtype=np.int64)
        self._words = np.zeros((len(words), max(map(len, words), default=1)), dtype=np.uint64)
        for row, found in zip(self._words, words, strict=True):
            row[: len(found)] = found

    def generators(self, purpose: str, *, user: int = 0, round: int = 0) -> list[np.random.Generator]:
        """`generator(seed, purpose, user=user, round=round)` for every run; for drawing only, they cannot spawn."""
        if not (0 <= user <= int(_WORD) and 0 <= round <= int(_WORD)):
            raise ValueError(f"user is {user} and round {round}; both must be from 0 to {int(_WORD)}")
        states = _states(self._words, self._counts, number_of(purpose), user, round)
        return [np.random.Generator(np.random.PCG64DXSM(_Hashed(state))) for state in states]  # type: ignore[arg-type]


class _Hashed(ISeedSequence):
    """A seed sequence that returns the precomputed initial state of a PCG64 generator."""

    def __init__(self, state: Words) -> None:
        self._state = state

    def generate_state(self, n_words: int, dtype: npt.DTypeLike = np.uint32) -> Words:
        """The four words; any other request is an error."""
        if n_words != len(self._state) or dtype is not np.uint64:
            raise ValueError(f"{n_words} words of {dtype} were asked for; there are {len(self._state)} of 64 bits")
        return self._state


def _words(seed: int) -> list[int]:
    """The seed in words of 32 bits, the lowest first."""
    if seed < 0:
        raise ValueError(f"the seed is {seed}; it must not be negative")
    words = [seed & int(_WORD)]
    while seed := seed >> int(_FULL):
        words.append(seed & int(_WORD))
    return words


@compiled
def _states(seeds: Words, counts: npt.NDArray[np.int64], purpose: int, user: int, round: int) -> Words:
    """The states of SeedSequence for N seeds with purpose, user and round, (N, 4).

    seeds: (N, W) words, of which the first `counts` (N,) of a row are the seed.
    """
    runs, width = seeds.shape
    states = np.empty((runs, _POOL), dtype=np.uint64)
    pool = np.empty(_POOL, dtype=np.uint64)
    words = np.empty(width + 3, dtype=np.uint64)
    for run in range(runs):
        count = counts[run]
        for i in range(count):
            words[i] = seeds[run, i]
        words[count], words[count + 1], words[count + 2] = purpose, user, round
        factor = _START_A
        for i in range(_POOL):
            pool[i], factor = _hashed(words[i], factor, _FACTOR_A)
        for source in range(_POOL):
            for i in range(_POOL):
                if i != source:
                    value, factor = _hashed(pool[source], factor, _FACTOR_A)
                    pool[i] = _mixed(pool[i], value)
        for source in range(_POOL, count + 3):
            for i in range(_POOL):
                value, factor = _hashed(words[source], factor, _FACTOR_A)
                pool[i] = _mixed(pool[i], value)
        factor = _START_B
        for i in range(_POOL):
            low, factor = _hashed(pool[2 * i % _POOL], factor, _FACTOR_B)
            high, factor = _hashed(pool[(2 * i + 1) % _POOL], factor, _FACTOR_B)
            states[run, i] = low | (high << _FULL)
    return states


@compiled
def _hashed(value: np.uint64, factor: np.uint64, growth: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Hash one word; also returns the factor for the next."""
    following = factor * growth & _WORD
    product = (value ^ factor) * following & _WORD
    return product ^ product >> _HALF, following


@compiled
def _mixed(one: np.uint64, other: np.uint64) -> np.uint64:
    """Mix two words into one."""
    difference = _MIX_LEFT * one - _MIX_RIGHT * other & _WORD
    return difference ^ difference >> _HALF
