"""The policy type, and validation of a policy's answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from covey.arrays import BoolArray
from covey.errors import PolicyError
from covey.network import Observation

#: A policy maps an observation and a random generator to the users that each station selects, (B, U).
Policy = Callable[[Observation, np.random.Generator], BoolArray]


@runtime_checkable
class Remembering(Protocol):
    """A policy that keeps state from round to round, and offers it so that a resumed run goes on exactly.

    `memory` gives everything that the policy keeps, as arrays of numbers by name; it is saved after every round.
    """

    @property
    def memory(self) -> Mapping[str, npt.NDArray[Any]]:
        """What is kept."""
        ...

    def restore(self, memory: Mapping[str, npt.NDArray[Any]]) -> None:
        """Go on with what `memory` gave."""
        ...


def memory_of(policy: Policy) -> dict[str, npt.NDArray[Any]]:
    """What a policy offers to be saved, checked; empty where it offers nothing."""
    if not isinstance(policy, Remembering):
        return {}
    memory = {name: np.array(values, order="C") for name, values in policy.memory.items()}
    for name, values in memory.items():
        if values.dtype.kind not in "biuf":
            raise PolicyError(
                f"the memory of the policy {type(policy).__name__} holds '{name}' of type {values.dtype}, which cannot"
                " be saved with the run; keep arrays of numbers"
            )
    return memory


def forgets(policy: Policy) -> bool:
    """Whether a policy of others is an object with attributes, which a resumed run starts with anew."""
    covered = isinstance(policy, Remembering) or type(policy).__module__.startswith("covey.")
    return not covered and not inspect.isroutine(policy) and bool(getattr(policy, "__dict__", None))


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
