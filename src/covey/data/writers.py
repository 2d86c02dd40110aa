"""Partition by writer: every user gets whole writers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from covey.data.sources.base import Stream
from covey.data.types import Dataset, Labels
from covey.errors import DataError
from covey.scenario.schema import Data
from covey.seeding import generator


def deal_writers(
    dataset: Dataset, sizes: Labels, data: Data, seed: int, *, lower: Callable[[Callable[[Labels], bool]], str]
) -> tuple[Labels, Labels, Labels, Labels]:
    """Training rows and offsets, test rows and offsets of users that hold whole writers.

    A user gets writers until they have its X_i training samples; surplus samples of the last one are
    left out. No two users share a writer. Test samples are those of the user's own writers, at most
    `data.test_samples`. Writers without a training or a test sample are left out. `lower` gives
    advice, from a predicate that says whether sizes fit.
    """
    assert dataset.writer is not None
    number, train_count, test_count = _counts(dataset)
    dealt = (train_count > 0) & (test_count > 0)
    rng = generator(seed, "partition", round=Stream.DEAL)
    order = rng.permutation(number[dealt])
    available = train_count[np.searchsorted(number, order)]
    ends = _ends(available, sizes)
    if ends is None:
        advice = lower(lambda smaller: _ends(available, smaller) is not None)
        raise DataError(
            f"'{dataset.name}' has {len(order)} writers with {available.sum():,} training samples, too few for"
            f" {len(sizes)} users who hold whole writers and {sizes.sum():,} samples; {advice}"
        )
    by_writer = {half: _rows_by_writer(dataset, half) for half in (False, True)}
    rows, test_rows = [], []
    for start, end, size in zip([0, *ends[:-1]], ends, sizes, strict=True):
        own = np.concatenate([rng.permutation(by_writer[False][w]) for w in order[start:end]])
        rows.append(rng.permutation(own[:size]))
        held = rng.permutation(np.concatenate([by_writer[True][w] for w in order[start:end]]))
        test_rows.append(held[: data.test_samples])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    test_offsets = np.concatenate([[0], np.cumsum([len(r) for r in test_rows])]).astype(np.int64)
    return np.concatenate(rows), offsets, np.concatenate(test_rows), test_offsets


def _counts(dataset: Dataset) -> tuple[Labels, Labels, Labels]:
    assert dataset.writer is not None
    number, index = np.unique(dataset.writer, return_inverse=True)
    total = np.bincount(index, minlength=len(number))
    test = np.bincount(index[dataset.test], minlength=len(number))
    return number, total - test, test


def _ends(available: Labels, sizes: Labels) -> list[int] | None:
    """The end of each user's range of writers, in dealing order; None when there are too few writers."""
    total = np.concatenate([[0], np.cumsum(available)])
    ends: list[int] = []
    start = 0
    for size in sizes:
        end = int(np.searchsorted(total, total[start] + size))
        if end > len(available):
            return None
        ends.append(end)
        start = end
    return ends


def _rows_by_writer(dataset: Dataset, half: bool) -> dict[int, Labels]:
    assert dataset.writer is not None
    rows = np.flatnonzero(dataset.test == half)
    rows = rows[np.argsort(dataset.writer[rows], kind="stable")]
    number, first = np.unique(dataset.writer[rows], return_index=True)
    return dict(zip(number.tolist(), np.split(rows, first[1:]), strict=True))
