"""What one round leaves behind: numbers of the round and of each user.

Every field is explained in docs/metrics.md, which a test compares with this file.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class UserRecord:
    """One round of every user; all arrays are (U,)."""

    group: NDArray[np.int64]
    x_m: NDArray[np.float64]
    y_m: NDArray[np.float64]
    identity: NDArray[np.int64]
    selected: NDArray[np.int64]
    station: NDArray[np.int64]
    block: NDArray[np.int64]
    violation: NDArray[np.int64]
    rejection: NDArray[np.int64]
    joined: NDArray[np.int64]
    rate_bps: NDArray[np.float64]
    noise_std: NDArray[np.float64]
    rho: NDArray[np.float64]
    rho_identity: NDArray[np.float64]
    loss: NDArray[np.float64]
    test_loss: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    majority: NDArray[np.float64]
    central: NDArray[np.float64]
    personal_test_loss: NDArray[np.float64]
    personal_accuracy: NDArray[np.float64]
    uplink_s: NDArray[np.float64]
    energy_j: NDArray[np.float64]


@dataclass(frozen=True)
class RoundRecord:
    """One round of the run; K- and G-sized lists are by task and by true group."""

    round: int
    loss: float
    test_loss: float
    accuracy: float
    majority: float
    central: float
    personal_test_loss: float
    personal_accuracy: float
    clustering_accuracy: float
    adjusted_rand_index: float
    starting: int
    groups_estimate: int
    groups_confirmed: int
    offered_task: int
    offered_source: int
    offered_users: int
    offered_reason: int
    selected: int
    served: int
    violators: int
    unable: int
    beyond_blocks: int
    selected_twice: int
    no_block: int
    no_broadcast: int
    broadcasts: int
    downlink_s: float
    uplink_s: float
    compute_s: float
    delay_s: float
    transmit_energy_j: float
    compute_energy_j: float
    station_energy_j: float
    noise_infeasible_tasks: int
    refused_releases: int
    rejected_uploads: int
    unexpected_uploads: int
    lost_uploads: int
    closed_tasks: int
    protocol_bytes: int
    mean_gradient_norm: float
    clipped_fraction: float
    leakage: float
    rho_mean: float
    rho_max: float
    epsilon_max: float
    objective: float
    reward: float
    reward_without_penalty: float
    task_users: list[int]
    task_served: list[int]
    task_loss: list[float]
    task_accuracy: list[float]
    group_loss: list[float]
    group_accuracy: list[float]
    group_majority: list[float]
    group_central: list[float]
    group_personal_accuracy: list[float]
    users: UserRecord

    def scalars(self) -> dict[str, Any]:
        """All fields but `users`, ready for JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "users"}

    def row(self) -> dict[str, Any]:
        """One flat row: lists become `name_0`, `name_1`, ..."""
        flat: dict[str, Any] = {}
        for name, value in self.scalars().items():
            if isinstance(value, list):
                flat.update({f"{name}_{index}": item for index, item in enumerate(value)})
            else:
                flat[name] = value
        return flat


#: Names of the per-user columns, in order.
USER_FIELDS: tuple[str, ...] = tuple(f.name for f in fields(UserRecord))
