"""The changing side of a run: a round takes one state and returns the next."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from covey.arrays import make_read_only, read_only
from covey.identification.rule import Memory
from covey.privacy import Ledger


@dataclass(frozen=True)
class State:
    """Everything that a round changes; saving it is saving the run.

    positions_m: (U, 2). mobility_memory: (U, m), private to the mobility model. models: (K, D)
    float32 global models, which every user also holds as its last received copies. movements:
    (K, D) last movement of each model (2), zero until it first moved. active: (B, K) bool, the
    (station, task) pairs that aggregated in the last round and broadcast in this one. identities:
    (U,) announced tasks. exhausted: (U,) bool, users whose budget refused a release. memory: what the
    identification rule remembers, by name; aggregation: what the aggregation does. personal: (U, D) float32 models that
    users keep for themselves, and personal_begun: (U,) bool, those that have one; both empty where users have none.
    """

    round: int
    positions_m: NDArray[np.float64]
    mobility_memory: NDArray[np.float64]
    models: NDArray[np.float32]
    movements: NDArray[np.float32]
    active: NDArray[np.bool_]
    identities: NDArray[np.int64]
    served_rounds: NDArray[np.int64]
    exhausted: NDArray[np.bool_]
    ledger: Ledger
    memory: Memory = field(default_factory=dict)
    aggregation: Memory = field(default_factory=dict)
    personal: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))
    personal_begun: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))

    def __post_init__(self) -> None:
        # Parts see these arrays: one that writes into them would change the run behind its back.
        make_read_only(self)
        for name in ("memory", "aggregation"):
            kept = getattr(self, name).items()
            memory = {key: read_only(values) if hasattr(values, "flags") else values for key, values in kept}
            object.__setattr__(self, name, memory)
