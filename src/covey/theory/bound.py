"""A bound as the sum of the remaining gap and the contribution of each cause."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

#: Causes that contribute to a bound, in display order.
CAUSES: dict[str, str] = {
    "missing": "missing users",
    "wrong": "wrong identities",
    "clipping": "clipping",
    "overshoot": "steps beyond 1/L",
    "noise": "noise",
}


def _nothing() -> Array:
    return np.zeros(())


@dataclass(frozen=True)
class Bound:
    """An upper bound on a gap or a loss after a step, or on a squared gradient; arrays of one shape.

    kept: what the step leaves of the previous value. missing, wrong, clipping, overshoot, noise: contributions of
    absent users of the group, of participating users of other groups, of clipping, of steps beyond 1 / L and of
    privacy noise. slack: contribution of a loss that satisfies the Polyak-Lojasiewicz inequality only up to a
    constant.
    """

    kept: Array
    missing: Array = field(default_factory=_nothing)
    wrong: Array = field(default_factory=_nothing)
    clipping: Array = field(default_factory=_nothing)
    overshoot: Array = field(default_factory=_nothing)
    noise: Array = field(default_factory=_nothing)
    slack: Array = field(default_factory=_nothing)

    @classmethod
    def of(cls, **parts: ArrayLike) -> Self:
        """A bound from numbers or arrays that are broadcast to one shape."""
        shaped = np.broadcast_arrays(*(np.asarray(part, dtype=np.float64) for part in parts.values()))
        missing = {name: np.zeros_like(shaped[0]) for name in cls.__dataclass_fields__ if name not in parts}
        return cls(**dict(zip(parts, shaped, strict=True)), **missing)

    @property
    def total(self) -> Array:
        """The bound itself."""
        return self.kept + self.added + self.slack

    @property
    def added(self) -> Array:
        """Total contribution of all `CAUSES`."""
        return np.asarray(sum(self.causes.values()), dtype=np.float64)

    @property
    def causes(self) -> dict[str, Array]:
        """Contribution of each of `CAUSES`, by name."""
        return {name: getattr(self, name) for name in CAUSES}

    @property
    def dominant(self) -> NDArray[np.str_]:
        """The cause of largest contribution, by name, in the bound's shape; "none" where all are 0."""
        stacked = np.stack([np.asarray(value) for value in self.causes.values()])
        names = np.array([*CAUSES, "none"])
        return np.asarray(names[np.where(stacked.max(axis=0) > 0, stacked.argmax(axis=0), len(CAUSES))])

    def summed(self, weights: ArrayLike = 1.0) -> Self:
        """All parts summed over the bound's elements, each times its weight."""
        factor = np.asarray(weights, dtype=np.float64)
        return replace(self, **{name: np.sum(factor * getattr(self, name)) for name in self.__dataclass_fields__})
