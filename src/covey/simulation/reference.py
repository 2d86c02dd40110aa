"""The two lines that accuracy is read against: guessing the most frequent class, and a central model without noise.

The first is cheap and in every record. The second is computed by whoever asks for it (`covey.evaluation.central`), and
filled into the records here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.data import UserData
from covey.errors import ScenarioError
from covey.simulation.record import RoundRecord

#: (U,) test accuracy of each user's reference model, on data of all users.
Reference = Callable[[UserData], NDArray[np.float64]]


def with_central(record: RoundRecord, central: NDArray[np.float64], test_samples: NDArray[np.int64]) -> RoundRecord:
    """The record with these accuracies (U,) of the central model, and their means by `test_samples` (U,)."""
    columns = reference_columns("central", central, record.users.group, test_samples, len(record.group_central))
    return replace(record, **columns, users=replace(record.users, central=np.asarray(central, dtype=np.float64)))


def checked_reference(found: Any, users: int) -> NDArray[np.float64]:
    """(U,) accuracies that a reference gave."""
    try:
        values = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):
        what = type(found).__name__
        raise ScenarioError(f"reference gave {what}; give one accuracy from 0 to 1 for each of {users} users") from None
    if values.shape != (users,) or not ((values >= 0) & (values <= 1)).all():
        raise ScenarioError(
            f"reference gave values of shape {values.shape} from {values.min(initial=0):.3g} to"
            f" {values.max(initial=0):.3g}; give one accuracy from 0 to 1 for each of {users} users"
        )
    return values


def reference_columns(
    name: str,
    values: NDArray[np.float64],
    groups: NDArray[np.int64],
    test_samples: NDArray[np.int64],
    group_count: int,
) -> dict[str, Any]:
    """`name` and `group_name` of a record: means over users and over those of each group, weighted by test samples."""
    return {
        name: _weighted(values, test_samples),
        f"group_{name}": [
            _weighted(values[groups == group], test_samples[groups == group]) for group in range(group_count)
        ],
    }


def _weighted(values: NDArray[np.float64], weights: NDArray[np.int64]) -> float:
    known = np.isfinite(values)
    return float(np.average(values[known], weights=weights[known])) if known.any() else np.nan
