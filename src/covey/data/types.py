"""Data sets before and after they are split over users."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.arrays import make_read_only
from covey.errors import DataError

Features = NDArray[np.float32]
Labels = NDArray[np.int64]
#: Draws features `(n, *shape)` of the given classes `(n,)`; for generated data, which never run out.
Draw = Callable[[Labels, np.random.Generator], Features]


@dataclass(frozen=True)
class Dataset:
    """A whole data set, before it is split over users.

    x: (N, C, H, W) images or (N, F) features, uint8 or float32; y: (N,) class numbers from 0;
    test: (N,) True where a sample belongs to the test split; writer: (N,) author of each sample.
    `scale`, `mean` and `std` (one number, or one per channel) are public constants: a model sees
    `(x / scale - mean) / std`. They must not be computed from users' private samples.
    """

    name: str
    x: NDArray[Any]
    y: Labels
    test: NDArray[np.bool_]
    classes: tuple[str, ...]
    writer: NDArray[np.int64] | None = None
    source: str = ""
    scale: float = 1.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    draw: Draw | None = None

    def __post_init__(self) -> None:
        where = f"data set '{self.name}'"
        if self.x.ndim not in (2, 4):
            raise DataError(
                f"{where}: x has shape {self.x.shape}; it must be (samples, channels, height, width) or"
                " (samples, features)"
            )
        if self.x.dtype not in (np.uint8, np.float32):
            raise DataError(f"{where}: x has dtype {self.x.dtype}; save it as uint8 (0 to 255) or float32")
        if 0 in self.x.shape:
            raise DataError(f"{where}: x has shape {self.x.shape}, so it is empty; give at least one sample")
        for name, array, kind in (
            ("y", self.y, np.int64),
            ("test", self.test, np.bool_),
            ("writer", self.writer, np.int64),
        ):
            if array is None:
                continue
            if array.shape != (len(self.x),):
                raise DataError(
                    f"{where}: {name} has shape {array.shape}, but x has {len(self.x)} samples;"
                    f" {name} must have shape ({len(self.x)},)"
                )
            if array.dtype != kind:
                raise DataError(f"{where}: {name} has dtype {array.dtype}; it must be {np.dtype(kind)}")
        _check_labels(self.y, len(self.classes), where)
        _check_finite(self.x, where)
        if self.test.all() or not self.test.any():
            half = "training" if self.test.all() else "test"
            raise DataError(f"{where}: there are no {half} samples; 'test' must be True for some, not for all")
        channels = self.x.shape[1]
        for name, constants in (("mean", self.mean), ("std", self.std)):
            if len(constants) not in (1, channels):
                raise DataError(f"{where}: {name} has {len(constants)} values; give 1 or one for each of {channels}")
        if not (self.scale > 0 and min(self.std) > 0):
            raise DataError(f"{where}: scale and std must be above 0")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x.shape[1:]

    def normalise(self, x: NDArray[Any]) -> Features:
        """Model inputs of raw samples x: (n, *shape) float32, `(x / scale - mean) / std`."""
        axes = (-1,) + (1,) * (x.ndim - 2)
        std = np.asarray(self.std, np.float64).reshape(axes)
        mean = np.asarray(self.mean, np.float64).reshape(axes)
        values = x.astype(np.float32)
        # In place: a large scenario holds gigabytes of images.
        values *= (1.0 / (self.scale * std)).astype(np.float32)
        values -= (mean / std).astype(np.float32)
        return values

    def restore(self, x: Features) -> Features:
        """The inverse of `normalise`, divided by `scale`: images in 0..1, for pictures."""
        axes = (-1,) + (1,) * (x.ndim - 2)
        std = np.asarray(self.std, np.float32).reshape(axes)
        return x * std + np.asarray(self.mean, np.float32).reshape(axes)


@dataclass(frozen=True)
class UserData:
    """The data of all users, as consecutive ranges of rows.

    x: (N, *shape) float32, normalised training samples of user 0, then of user 1, ...; y: (N,) classes;
    offsets: (U+1,), user i holds the rows offsets[i]:offsets[i+1]. `test_*` are the same for held-out samples.
    groups: (U,) the true group of each user, known to the simulator only.
    """

    x: Features
    y: Labels
    offsets: Labels
    test_x: Features
    test_y: Labels
    test_offsets: Labels
    groups: Labels
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        users = len(self.groups)
        if self.groups.shape != (users,) or users == 0 or self.groups.min() < 0:
            raise DataError("groups must be one group number from 0 for each user, and there must be at least one user")
        if self.test_x.shape[1:] != self.x.shape[1:]:
            raise DataError(
                f"test samples have the shape {self.test_x.shape[1:]}, training samples {self.x.shape[1:]};"
                " both must be equal"
            )
        for half, x, y, offsets in (
            ("training", self.x, self.y, self.offsets),
            ("test", self.test_x, self.test_y, self.test_offsets),
        ):
            where = f"{half} samples"
            if x.dtype != np.float32:
                raise DataError(f"{where} have dtype {x.dtype}; they must be float32")
            if y.dtype != np.int64 or y.shape != (len(x),):
                raise DataError(
                    f"{where}: {len(x)} samples have labels of shape {y.shape} and dtype {y.dtype};"
                    f" they must be ({len(x)},) and int64"
                )
            if offsets.dtype != np.int64 or offsets.shape != (users + 1,):
                raise DataError(
                    f"{where}: offsets has shape {offsets.shape} and dtype {offsets.dtype}; for {users} users it must"
                    f" be ({users + 1},) and int64"
                )
            if offsets[0] != 0 or offsets[-1] != len(x):
                raise DataError(f"{where}: offsets run from {offsets[0]} to {offsets[-1]}, not from 0 to {len(x)}")
            empty = np.flatnonzero(np.diff(offsets) < 1)
            if empty.size:
                raise DataError(f"user {empty[0]} has no {where}; every user needs at least one")
            _check_labels(y, len(self.classes), where)
            _check_finite(x, where)

    @property
    def users(self) -> int:
        """Number of users, U."""
        return len(self.groups)

    @property
    def samples(self) -> Labels:
        """Number of training samples of each user, X_i: (U,)."""
        return np.diff(self.offsets)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.x.shape[1:]

    def read_only(self) -> Self:
        """The same data in arrays that cannot be written, not checked again."""
        shown = copy.copy(self)
        make_read_only(shown)
        return shown

    def class_counts(self) -> Labels:
        """Training samples of every user and class: (U, classes)."""
        user = np.repeat(np.arange(self.users), self.samples)
        flat = np.bincount(user * len(self.classes) + self.y, minlength=self.users * len(self.classes))
        return flat.reshape(self.users, len(self.classes)).astype(np.int64)

    @classmethod
    def from_users(
        cls,
        train: Sequence[tuple[ArrayLike, ArrayLike]],
        *,
        test: Sequence[tuple[ArrayLike, ArrayLike]],
        groups: ArrayLike | None = None,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """The data of users whose samples you have already: one `(x, y)` pair per user.

        x: (X_i, *shape) is used as given (as float32), so normalise it first; y: (X_i,) integers from 0.
        `groups` defaults to one group, `classes` to the numbers up to the largest label.
        """
        if len(train) != len(test):
            raise DataError(f"there are training samples of {len(train)} users, but test samples of {len(test)}")
        if not train:
            raise DataError("there are no users; give at least one (x, y) pair")
        x, y, offsets = _joined(train, "training")
        test_x, test_y, test_offsets = _joined(test, "test")
        members = np.zeros(len(train), np.int64) if groups is None else np.asarray(groups)
        if members.shape != (len(train),) or members.dtype.kind not in "iu":
            raise DataError(
                f"groups has shape {members.shape} and dtype {members.dtype}; give one integer for each of the"
                f" {len(train)} users"
            )
        largest = max(int(y.max(initial=0)), int(test_y.max(initial=0)))
        names = tuple(classes) if classes is not None else tuple(str(c) for c in range(largest + 1))
        return cls(x, y, offsets, test_x, test_y, test_offsets, members.astype(np.int64), names)


def _joined(pairs: Sequence[tuple[ArrayLike, ArrayLike]], half: str) -> tuple[Features, Labels, Labels]:
    xs = [np.asarray(x, np.float32) for x, _ in pairs]
    ys = [np.asarray(y) for _, y in pairs]
    for user, (x, y) in enumerate(zip(xs, ys, strict=True)):
        if x.ndim not in (2, 4) or x.shape[1:] != xs[0].shape[1:]:
            raise DataError(
                f"the {half} samples of user {user} have shape {x.shape}; all users need (samples, features) or"
                f" (samples, channels, height, width) with one shape per sample"
            )
        if y.shape != (len(x),) or y.dtype.kind not in "iu":
            raise DataError(
                f"the {half} labels of user {user} have shape {y.shape} and dtype {y.dtype}; give {len(x)} integers"
            )
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in xs])]).astype(np.int64)
    return np.concatenate(xs), np.concatenate(ys).astype(np.int64), offsets


def _check_labels(y: Labels, classes: int, where: str) -> None:
    if y.size and (y.min() < 0 or y.max() >= classes):
        wrong = int(y.min()) if y.min() < 0 else int(y.max())
        raise DataError(f"{where}: there is the label {wrong}, but {classes} classes are numbered 0 to {classes - 1}")


def _check_finite(x: NDArray[Any], where: str) -> None:
    # min and max propagate NaN and need no temporary array of the size of x.
    if x.dtype.kind == "f" and x.size and not (np.isfinite(x.min()) and np.isfinite(x.max())):
        row = next(i for i in range(len(x)) if not np.isfinite(x[i]).all())
        raise DataError(f"{where}: sample {row} holds NaN or infinity; remove or repair it")
