"""The policy type, and validation of a policy's answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from covey.arrays import BoolArray
from covey.errors import PolicyError
from covey.network import Observation

#: A policy maps an observation and a random generator to the users that each station selects, (B, U).
Policy = Callable[[Observation, np.random.Generator], BoolArray]


def validated_selection(answer: object, users: int, stations: int) -> BoolArray:
    """A policy's answer as a (B, U) bool array, or a PolicyError that says what is wrong with it."""
    try:
        selected = np.asarray(answer)
    except (TypeError, ValueError) as error:
        raise PolicyError(f"the policy's answer is not an array: {error}") from error
    if selected.shape != (stations, users):
        raise PolicyError(
            f"the policy answered with the shape {selected.shape}; it must be ({stations}, {users}):"
            " one row per station, one column per user"
        )
    if selected.dtype == np.bool_:
        return selected.copy()
    if not (np.issubdtype(selected.dtype, np.number) and np.all((selected == 0) | (selected == 1))):
        raise PolicyError("the policy's answer may hold only True and False (or 1 and 0): selected or not")
    return np.asarray(selected == 1)
