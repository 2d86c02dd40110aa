"""Transforms: what models see instead of the samples themselves, computed from each sample alone.

A transform is a part: a callable `(x, data) -> features` of samples x (n, *shape), float32 and normalised, and of the
scenario's data section. It returns (n, *other) float32 and must map every sample by itself, with constants that do not
come from private samples. Then it changes nothing of what a run protects or costs: replacing one sample of a user still
replaces one row. It runs once, on the device, before the first round; partitions, such as turned images, come first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, Protocol

import numpy as np

from covey.data.types import Features, UserData
from covey.errors import CoveyError, DataError
from covey.faults import Named, named_faults
from covey.parts import TRANSFORMS
from covey.scenario.schema import Data

#: Samples that are transformed at once; results do not depend on it, memory does.
CHUNK: Final = 500
#: Rows by which a transform is tested for mixing samples, and how closely a sample must give the same in other company.
_PROBED, _SPREAD, _CLOSE = 3, 64, 1e-4


class Transform(Protocol):
    """The interface of a transform."""

    def __call__(self, x: Features, data: Data, /) -> Features:
        """Features (n, *other) of samples x (n, *shape); row i may depend on row i only."""
        ...


def none(x: Features, data: Data) -> Features:
    """The samples as they are."""
    return x


def transformed(data: Data, x: Features) -> Features:
    """What the models of a scenario see of the normalised samples x: (n, *other).

    Raises `DataError` when the transform does not fit these samples, mixes them as far as trials show, or returns
    something else than numbers for each.
    """
    if data.transform == "none":
        return x
    part: Transform = TRANSFORMS.get(data.transform)
    with named_faults(lambda: [Named(TRANSFORMS, data.transform, part)], "when it transformed samples"):
        # What fits itself to the first rows that it sees must not see samples.
        nothing = np.zeros((1, *x.shape[1:]), np.float32)
        shape = _checked(data, part, nothing).shape[1:]
        features = np.empty((len(x), *shape), np.float32)
        for first in range(0, len(x), CHUNK):
            rows = slice(first, first + CHUNK)
            features[rows] = _checked(data, part, x[rows], shape)
        few = x[:_PROBED]
        for company in (nothing, 10.0 * few):
            _compare(
                data, _checked(data, part, np.concatenate([few, company]), shape)[: len(few)], features[: len(few)]
            )
        for row in range(len(few)):
            _compare(data, _checked(data, part, few[row : row + 1], shape), features[row : row + 1])
        spread = np.unique(np.linspace(0, len(x) - 1, _SPREAD, dtype=np.int64))[::-1]
        _compare(data, _checked(data, part, x[spread], shape), features[spread])
    return features


def _compare(data: Data, again: Features, before: Features) -> None:
    """Refuse a transform that gives the same samples other features than before."""
    if not np.allclose(again, before, rtol=_CLOSE, atol=_CLOSE):
        raise _refused(data, "gives a sample other features in other company; row i may depend on row i only")


def transform_users(data: Data, users: UserData) -> UserData:
    """The same users, whose samples are those that models see."""
    if data.transform == "none":
        return users
    return replace(users, x=transformed(data, users.x), test_x=transformed(data, users.test_x))


def transformed_shape(data: Data, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what models see of a sample of this shape."""
    return transformed(data, np.zeros((1, *shape), np.float32)).shape[1:]


def image_shape(name: str, x: Features) -> tuple[int, int, int, int]:
    """(n, channels, height, width) of images for the transform `name`; `DataError` for other samples."""
    if x.ndim != 4:
        raise DataError(
            f"data.transform '{name}' takes images (channels, height, width), but samples have shape {x.shape[1:]}; put"
            " it back with data.transform=none"
        )
    samples, channels, height, width = x.shape
    return samples, channels, height, width


def _checked(data: Data, part: Transform, x: Features, shape: tuple[int, ...] | None = None) -> Features:
    shown = x.view()
    shown.flags.writeable = False
    found: Any = part(shown, data)
    if why := _why_wrong(found, len(x), shape):
        raise _refused(data, why)
    features: Features = found
    return features


def _why_wrong(found: Any, samples: int, shape: tuple[int, ...] | None) -> str:
    if not isinstance(found, np.ndarray):
        return f"returned {type(found).__name__}, not a numpy array"
    if found.dtype != np.float32 or found.ndim not in (2, 4) or len(found) != samples:
        return (
            f"returned {found.dtype} of shape {found.shape} for {samples} samples; return float32 of shape ({samples},"
            f" features) or ({samples}, channels, height, width)"
        )
    if 0 in found.shape:
        return f"returned shape {found.shape}, which is empty; return at least one number for each sample"
    if shape is not None and found.shape[1:] != shape:
        return f"returned shape {found.shape[1:]} for some samples and {shape} for others; return one shape for all"
    if not np.isfinite(found).all():
        return "returned NaN or infinity; return finite numbers"
    return ""


def _refused(data: Data, why: str) -> CoveyError:
    return TRANSFORMS.refused(data.transform, why)
