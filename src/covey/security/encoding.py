"""Weighted values as fixed-point words modulo 2^64, and back."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.security.errors import EncodingError
from covey.security.parameters import Parameters

Words = NDArray[np.uint64]


def encode(values: ArrayLike, samples: int, parameters: Parameters) -> Words:
    """(D + 1,) words of a user's own slot: round(samples * value * scale) for each value, then samples.

    Negative numbers are in two's complement, so that sums of words are sums of numbers as long as no
    partial sum leaves the signed range; the check against `value_limit` makes sure of it.
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (parameters.length,):
        raise EncodingError(f"an upload holds a vector of {parameters.length} values, got shape {vector.shape}")
    if not 1 <= samples <= parameters.word_limit:
        raise EncodingError(f"a user's samples must be from 1 to {parameters.word_limit}, got {samples}")
    if not np.all(np.isfinite(vector)):
        raise EncodingError(
            f"{np.count_nonzero(~np.isfinite(vector))} of {parameters.length} values are NaN or infinite; "
            "only finite values can be summed under masks, so leave this update out"
        )
    largest = float(np.abs(vector).max())
    if largest * samples > parameters.value_limit * (1 - 1e-12):  # below the limit even after rounding
        raise EncodingError(
            f"a value of size {largest:.6g} with {samples} samples overflows: |samples * value| must be at most "
            f"{parameters.value_limit:.6g} for {parameters.users} users at scale {parameters.scale:.6g}; "
            "clip the update or lower the scale"
        )
    words = np.empty(parameters.length + 1, dtype=np.int64)
    words[:-1] = np.rint(vector * (samples * parameters.scale))
    words[-1] = samples
    return words.view(np.uint64)


def decode(words: Words, parameters: Parameters) -> tuple[NDArray[np.float64], int]:
    """The sum of samples * value, (D,), and the sum of samples behind the summed `words` (D + 1,)."""
    signed = words.view(np.int64)
    return signed[:-1] / parameters.scale, int(signed[-1])
