"""The per-user privacy ledger: every release is charged before it leaves the device."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.privacy.accounting import Adjacency, Method, epsilon, rho_for_epsilon

SCHEMA = 1


class Ledger:
    """What each of `users` users has spent, as total rho, and a budget that refuses further releases.

    rho: (U,) total zCDP cost; releases: (U,) number of charged releases. With a budget, a release
    whose charge would lift a user's total above it is refused as a whole for that user. The budget
    is kept in rho, converted by the tight zCDP formula: stopping on the sum of rho stays valid when
    noise and schedule are chosen from earlier outputs (Whitehouse et al. 2023).
    """

    def __init__(
        self,
        users: int,
        *,
        delta: float = 1e-5,
        adjacency: Adjacency = "replace_one",
        budget_epsilon: float | None = None,
    ) -> None:
        self.delta = delta
        self.adjacency: Adjacency = adjacency
        self.budget_epsilon = budget_epsilon
        self.budget_rho = np.inf if budget_epsilon is None else rho_for_epsilon(budget_epsilon, delta, "zcdp")
        self.rho: NDArray[np.float64] = np.zeros(users)
        self.releases: NDArray[np.int64] = np.zeros(users, dtype=np.int64)
        self.refusals: NDArray[np.int64] = np.zeros(users, dtype=np.int64)

    @property
    def users(self) -> int:
        """Number of users."""
        return len(self.rho)

    def affordable(self, users: Sequence[int] | NDArray[np.int64], rho: ArrayLike) -> NDArray[np.bool_]:
        """Which of these users can pay `rho` (n,) within their budget, (n,) bool."""
        index = np.asarray(users, dtype=np.int64)
        return np.asarray(self.rho[index] + np.broadcast_to(np.asarray(rho, float), index.shape) <= self.budget_rho)

    def charge(self, users: Sequence[int] | NDArray[np.int64], rho: ArrayLike) -> NDArray[np.bool_]:
        """Charge one release of cost `rho` (n,) to each of these users; (n,) bool, False where refused.

        A refused user's total is unchanged and its release must not be sent.
        """
        index = np.asarray(users, dtype=np.int64)
        if len(np.unique(index)) != len(index):
            raise ValueError("a user was charged twice in one call; charge each release on its own")
        cost = np.broadcast_to(np.asarray(rho, dtype=np.float64), index.shape)
        if np.any(cost < 0) or np.any(np.isnan(cost)):
            raise ValueError(f"the cost of a release must be 0 or more, got {cost.min()}")
        paid = self.affordable(index, cost)
        self.rho[index[paid]] += cost[paid]
        self.releases[index[paid]] += 1
        self.refusals[index[~paid]] += 1
        return paid

    def epsilon(self, method: Method = "exact", delta: float | None = None) -> NDArray[np.float64]:
        """(U,) epsilon of each user at `delta` (the ledger's own when not given)."""
        at = self.delta if delta is None else delta
        return np.array([epsilon(value, at, method) for value in self.rho.tolist()])

    def copy(self) -> Ledger:
        """An independent ledger with the same totals."""
        twin = copy.copy(self)
        twin.rho, twin.releases, twin.refusals = self.rho.copy(), self.releases.copy(), self.refusals.copy()
        return twin

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready copy; `from_dict` gives back an equal ledger."""
        return {
            "schema": SCHEMA,
            "delta": self.delta,
            "adjacency": self.adjacency,
            "budget_epsilon": self.budget_epsilon,
            "rho": [float(v) for v in self.rho],
            "releases": self.releases.tolist(),
            "refusals": self.refusals.tolist(),
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Ledger:
        """The ledger that `to_dict` wrote; refuses another schema or damaged totals."""
        if saved.get("schema") != SCHEMA:
            raise ValueError(f"this ledger has schema {saved.get('schema')!r}; this version reads schema {SCHEMA}")
        ledger = cls(
            len(saved["rho"]),
            delta=saved["delta"],
            adjacency=saved["adjacency"],
            budget_epsilon=saved["budget_epsilon"],
        )
        ledger.rho = np.array(saved["rho"], dtype=np.float64)
        ledger.releases = np.array(saved["releases"], dtype=np.int64)
        ledger.refusals = np.array(saved["refusals"], dtype=np.int64)
        if np.any(ledger.rho < 0) or np.any(np.isnan(ledger.rho)):
            raise ValueError("this ledger holds a negative or undefined total and cannot be trusted")
        return ledger
