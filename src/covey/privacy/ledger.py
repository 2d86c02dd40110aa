"""The per-user privacy ledger: every release is charged before it leaves the device."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.privacy.accounting import Adjacency, Method, epsilon, rho_for_epsilon

SCHEMA = 2
#: What a user can release: a noised gradient (Gaussian), or what tells its task (with any noise).
Kind = Literal["gradient", "identity"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_COUNTS = ("releases", "announcements", "unprotected", "measured", "refusals")


class Ledger:
    """What each of `users` users has spent, as total rho, and a budget that refuses further releases.

    rho: (U,) total zCDP cost; spent: the same by kind of release. releases, announcements: (U,)
    numbers of charged gradients and identities; unprotected: (U,) identities that were announced as
    they are, which no rho covers; measured: (U,) losses and accuracies that left a device, which no rho covers either;
    refusals: (U,). With a budget (one epsilon for all or one per
    user), a release whose charge would lift a user's total above it is refused as a whole for that
    user. The budget is kept in rho, converted by the tight zCDP formula: stopping on the sum of rho
    stays valid when noise and schedule are chosen from earlier outputs (Whitehouse et al. 2023).
    """

    def __init__(
        self,
        users: int,
        *,
        delta: float = 1e-5,
        adjacency: Adjacency = "replace_one",
        budget_epsilon: float | Sequence[float] | None = None,
    ) -> None:
        self.delta = delta
        self.adjacency: Adjacency = adjacency
        self.budget_epsilon = budget_epsilon
        self.budget_rho = _budgets(users, budget_epsilon, delta)
        self.spent: dict[Kind, NDArray[np.float64]] = {kind: np.zeros(users) for kind in KINDS}
        self.releases: NDArray[np.int64] = np.zeros(users, dtype=np.int64)
        self.announcements: NDArray[np.int64] = np.zeros(users, dtype=np.int64)
        self.unprotected: NDArray[np.int64] = np.zeros(users, dtype=np.int64)
        self.measured: NDArray[np.int64] = np.zeros(users, dtype=np.int64)
        self.refusals: NDArray[np.int64] = np.zeros(users, dtype=np.int64)

    @property
    def users(self) -> int:
        """Number of users."""
        return len(self.releases)

    @property
    def rho(self) -> NDArray[np.float64]:
        """(U,) total zCDP cost of everything charged."""
        return np.asarray(self.spent["gradient"] + self.spent["identity"])

    @property
    def left(self) -> NDArray[np.float64]:
        """(U,) rho that the budget still allows; infinite without one."""
        return np.maximum(self.budget_rho - self.rho, 0.0)

    def affordable(self, users: Sequence[int] | NDArray[np.int64], rho: ArrayLike) -> NDArray[np.bool_]:
        """Which of these users can pay `rho` (n,) within their budget, (n,) bool."""
        index = np.asarray(users, dtype=np.int64)
        cost = np.broadcast_to(np.asarray(rho, float), index.shape)
        return np.asarray(self.rho[index] + cost <= self.budget_rho[index])

    def charge(
        self, users: Sequence[int] | NDArray[np.int64], rho: ArrayLike, kind: Kind = "gradient"
    ) -> NDArray[np.bool_]:
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
        self.spent[kind][index[paid]] += cost[paid]
        (self.releases if kind == "gradient" else self.announcements)[index[paid]] += 1
        self.refuse(index[~paid])
        return paid

    def refuse(self, users: Sequence[int] | NDArray[np.int64]) -> None:
        """Count a release that was not made because the budget could not pay it."""
        self.refusals[np.asarray(users, dtype=np.int64)] += 1

    def label_unprotected(self, users: Sequence[int] | NDArray[np.int64]) -> None:
        """Count an identity that was announced as it is: nothing bounds what it tells."""
        self.unprotected[np.asarray(users, dtype=np.int64)] += 1

    def label_measured(self, users: Sequence[int] | NDArray[np.int64]) -> None:
        """Count losses or accuracies that a device told as they are: nothing bounds what they tell."""
        self.measured[np.asarray(users, dtype=np.int64)] += 1

    def add_lost(self, users: Sequence[int] | NDArray[np.int64], rho: ArrayLike, kind: Kind = "gradient") -> None:
        """Add a release that may have left before a crash; it counts whatever the budget says, for it has happened."""
        index = np.asarray(users, dtype=np.int64)
        self.spent[kind][index] += np.asarray(rho, dtype=np.float64)
        (self.releases if kind == "gradient" else self.announcements)[index] += 1

    def raise_to(self, spent: Mapping[str, NDArray[np.float64]]) -> Ledger:
        """The ledger with every user's total of each kind at least what `spent` (U,) says; NaN is passed over.

        Two books on the same releases can differ after a crash or a restored backup; the larger one is right.
        """
        full = self.copy()
        for kind in KINDS:
            if kind in spent:
                full.spent[kind] = np.fmax(self.spent[kind], spent[kind])
        return full

    def epsilon(self, method: Method = "exact", delta: float | None = None) -> NDArray[np.float64]:
        """(U,) epsilon of each user at `delta` (the ledger's own when not given).

        The exact formula holds for Gaussian releases alone: users who also announced identities get
        the tight zCDP value in its place.
        """
        at = self.delta if delta is None else delta
        methods: list[Method] = [
            "zcdp" if method == "exact" and identity > 0 else method for identity in self.spent["identity"].tolist()
        ]
        return np.array([epsilon(rho, at, how) for rho, how in zip(self.rho.tolist(), methods, strict=True)])

    def largest_epsilon(self) -> float:
        """The largest of `epsilon()`, at the cost of two conversions instead of one per user."""
        announced = self.spent["identity"] > 0
        gaussian, others = (float(self.rho[users].max(initial=0.0)) for users in (~announced, announced))
        return max(epsilon(gaussian, self.delta, "exact"), epsilon(others, self.delta, "zcdp"))

    def copy(self) -> Ledger:
        """An independent ledger with the same totals."""
        twin = copy.copy(self)
        twin.spent = {kind: values.copy() for kind, values in self.spent.items()}
        for name in _COUNTS:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready copy; `from_dict` gives back an equal ledger."""
        budget = self.budget_epsilon
        return {
            "schema": SCHEMA,
            "delta": self.delta,
            "adjacency": self.adjacency,
            "budget_epsilon": list(budget) if isinstance(budget, Sequence) else budget,
            "spent": {kind: [float(v) for v in values] for kind, values in self.spent.items()},
            **{name: getattr(self, name).tolist() for name in _COUNTS},
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Ledger:
        """The ledger that `to_dict` wrote; refuses another schema or damaged totals."""
        if saved.get("schema") != SCHEMA:
            raise ValueError(f"this ledger has schema {saved.get('schema')!r}; this version reads schema {SCHEMA}")
        users = len(saved["releases"])
        ledger = cls(users, delta=saved["delta"], adjacency=saved["adjacency"], budget_epsilon=saved["budget_epsilon"])
        ledger.spent = {kind: np.array(saved["spent"][kind], dtype=np.float64) for kind in KINDS}
        for name in _COUNTS:
            # Ledgers of earlier versions did not count measurements.
            counts = saved.get(name, [0] * users) if name == "measured" else saved[name]
            setattr(ledger, name, np.array(counts, dtype=np.int64))
        totals = [*ledger.spent.values(), *(getattr(ledger, name) for name in _COUNTS)]
        if any(values.shape != (users,) or np.any(values < 0) or np.any(np.isnan(values)) for values in totals):
            raise ValueError("this ledger holds a missing, negative or undefined total and cannot be trusted")
        return ledger


def _budgets(users: int, budget: float | Sequence[float] | None, delta: float) -> NDArray[np.float64]:
    if budget is None:
        return np.full(users, np.inf)
    limits = np.asarray(budget, dtype=np.float64)
    if limits.ndim and limits.shape != (users,):
        raise ValueError(
            f"budget_epsilon has {limits.size} numbers for {users} users; give one for each or one for all"
        )
    known = {value: rho_for_epsilon(value, delta, "zcdp") for value in np.unique(limits).tolist()}
    return np.array([known[value] for value in np.broadcast_to(limits, users).tolist()])
