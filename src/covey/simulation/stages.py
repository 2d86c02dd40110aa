"""What the steps of a round hand to each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from covey.allocation import Plan
from covey.privacy import Ledger


@dataclass(frozen=True)
class Identification:
    """Announced tasks (U,), and what announcing cost where the rule uploads models (`kmeans`)."""

    identities: NDArray[np.int64]
    ledger: Ledger
    uploaders: NDArray[np.int64]
    refused: NDArray[np.int64]


@dataclass(frozen=True)
class Decision:
    """Who uploads to whom, on which block and with how much noise; `noise_std` is (U,), 0 if not served."""

    plan: Plan
    noise_std: NDArray[np.float64]
    infeasible_tasks: int
    ledger: Ledger
    refused: NDArray[np.int64]


@dataclass(frozen=True)
class Uploads:
    """Local models of the served users: users (n,), weights (n, D), and clipping statistics (n,)."""

    users: NDArray[np.int64]
    weights: NDArray[np.float32]
    accepted: NDArray[np.bool_]
    mean_norm: NDArray[np.float64]
    clipped_fraction: NDArray[np.float64]
