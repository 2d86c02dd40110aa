"""The optimal policy, for small networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from covey.allocation.exact import exact_association
from covey.allocation.groups import TooLargeError
from covey.arrays import BoolArray
from covey.association.filling import selected_samples, settled
from covey.errors import PolicyError
from covey.network import Observation
from covey.uplink.ofdma import Ofdma


@dataclass(frozen=True)
class ExactRecord:
    """One round of the exact policy.

    objective: samples served by the best plan found; bound: upper bound on it; status: `optimal`, or
    `limit` on timeout; selected: samples of the selection, fewer than the objective where block matching does not
    find the plan's blocks.
    """

    round: int
    status: Literal["optimal", "limit"]
    objective: float
    bound: float
    selected: float


@dataclass
class ExactPolicy:
    """Serves the largest possible number of samples, by integer programming; `record` holds the bound of every round.

    time_limit_s: seconds per round, after which the best plan so far is used and recorded as `limit`.
    """

    #: Users up to which a round takes about a second.
    quick_up_to: ClassVar[int] = 16

    time_limit_s: float = 60.0
    record: list[ExactRecord] = field(default_factory=list)

    def __call__(self, observation: Observation, rng: np.random.Generator) -> BoolArray:
        """The optimal selection (B, U)."""
        if not isinstance(observation.uplink, Ofdma):
            kind = type(observation.uplink).__name__
            raise PolicyError(f"the policy 'exact' supports only the uplink 'ofdma', not {kind}; use 'local_search'")
        samples = np.asarray(observation.samples, dtype=np.float64)
        try:
            best = exact_association(
                observation.gains,
                observation.identities,
                observation.capable,
                samples,
                observation.limits.radio,
                available=observation.available,
                time_limit_s=self.time_limit_s,
            )
        except TooLargeError as error:
            stations, users = observation.eligible.shape
            raise PolicyError(
                f"the policy 'exact' cannot solve {stations} stations and {users} users, because too many groups of"
                " links can share a block; use 'local_search', or a smaller network (about 6 stations and 30 users)"
            ) from error
        planned = best.station == np.arange(len(observation.capable))[:, None]
        selected = settled(observation, planned)
        reached = selected_samples(observation, selected)
        self.record.append(ExactRecord(observation.round, best.status, best.objective, best.bound, reached))
        return selected
