"""The per-user privacy ledger: every release is charged before it leaves the device."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.privacy.accounting import Adjacency, Method, Unit, best_order, epsilon, rho_for_epsilon
from covey.privacy.composition import (
    ORDERS,
    budget_of_divergence,
    composed_epsilon,
    epsilon_of_divergences,
    known_divergences,
    sampled_divergences,
)
from covey.privacy.events import GaussianReleases
from covey.privacy.sampled import SampledSums, multiplier_levels, rate_levels, values_of

SCHEMA = 3
#: Schemas that can be read: 2 knew neither units nor sampled sums.
READABLE = (2, SCHEMA)
#: What a user can release: a noised gradient (Gaussian), or what tells its task (with any noise).
Kind = Literal["gradient", "identity"]
KINDS: tuple[Kind, ...] = get_args(Kind)
#: So many different histories with sampled sums are composed exactly, those that cost most.
MOST_EXACT = 64
#: The cost of n releases: rho (n,) in zCDP, or the releases themselves.
Cost = ArrayLike | GaussianReleases
_COUNTS = ("releases", "announcements", "unprotected", "measured", "refusals")
_TOTALS = (*(f"spent['{kind}']" for kind in KINDS), *_COUNTS)


class Ledger:
    """What each of `users` users has released, its total cost, and a budget beyond which releases are refused.

    Releases whose noise covers all samples add up in `spent`, (U,) rho by kind of release; noised sums on Poisson
    samples are kept as counts by multiplier and rate, in `sampled`. unit: what a neighbour differs in, one sample or
    all data of a user. releases, announcements: (U,) numbers of charged gradients and identities; unprotected: (U,)
    identities announced without noise, which no cost covers; measured: (U,) losses and accuracies that left a device,
    which no cost covers either; refusals: (U,).

    With a budget (one epsilon for all or one per user), a release whose charge would lift a user's total above it is
    refused as a whole for that user. Each user's budget is kept as a Renyi divergence of one order, fixed before it
    releases anything: stopping on the sum of divergences of one order stays valid when noise and schedule adapt to
    earlier outputs (Feldman and Zrnic 2021). The order is the one at which the tight conversion of zCDP is attained, so
    that for releases on all samples the filter is the one on the sum of rho (Whitehouse et al. 2023); `plan` chooses a
    better one for sampled releases.
    """

    def __init__(
        self,
        users: int,
        *,
        delta: float = 1e-5,
        adjacency: Adjacency = "replace_one",
        unit: Unit = "sample",
        budget_epsilon: float | Sequence[float] | None = None,
    ) -> None:
        self.delta = delta
        self.adjacency: Adjacency = adjacency
        self.unit: Unit = unit
        self.budget_epsilon = budget_epsilon
        #: (U,) rho that the budget allows, and the order of the divergence in which it is kept.
        self.budget_rho, self.order = _budgets(users, budget_epsilon, delta)
        self.spent: dict[Kind, NDArray[np.float64]] = {kind: np.zeros(users) for kind in KINDS}
        self.sampled = SampledSums()
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
        """(U,) total zCDP cost of everything charged: exact without sampled sums, whose gain from sampling it lacks."""
        total = np.asarray(self.spent["gradient"] + self.spent["identity"])
        rows = self.sampled.rows
        if len(rows):
            np.add.at(total, rows[:, 0], rows[:, 3] / (2.0 * values_of(rows[:, 1]) ** 2))
        return total

    @property
    def charged(self) -> NDArray[np.float64]:
        """(U,) what counts against the budget: divergence at the user's order, divided by the order."""
        total = np.asarray(self.spent["gradient"] + self.spent["identity"])
        rows = self.sampled.rows
        if len(rows) and self.budget_epsilon is not None:
            np.add.at(total, rows[:, 0], rows[:, 3] * self._sum_cost(rows[:, 0], rows[:, 1], rows[:, 2]))
        return total

    @property
    def left(self) -> NDArray[np.float64]:
        """(U,) what the budget still allows, in rho; infinite without one."""
        return np.maximum(self.budget_rho - self.charged, 0.0)

    def plan(self, releases: GaussianReleases) -> None:
        """Choose each user's order for a budget that is spent on many of its `releases` (U,), before any is made.

        For sampled sums another order than that of zCDP allows more of them. The choice must not depend on anything
        that a user has released, so that it is refused afterwards.
        """
        if self.rho.any():
            raise ValueError("orders cannot be chosen after a release was charged; plan first")
        for user in np.flatnonzero(releases.sampled & np.isfinite(self.budget_rho)).tolist():
            budget = float(np.broadcast_to(np.asarray(self.budget_epsilon, np.float64), self.users)[user])
            each = sampled_divergences(releases.multiplier[[user]], releases.rate[[user]])[0]
            allowed = budget_of_divergence(budget, self.delta)
            best = int(np.argmax(allowed / each))
            known = self.budget_rho[user] / _cost_at(releases.of(np.array([user])), self.order[[user]])[0]
            if allowed[best] / each[best] > known:
                self.order[user], self.budget_rho[user] = ORDERS[best], allowed[best] / ORDERS[best]

    def affordable(self, users: Sequence[int] | NDArray[np.int64], cost: Cost) -> NDArray[np.bool_]:
        """Which of these users can afford `cost` (n,), rho or releases, within their budget, (n,) bool."""
        index = np.asarray(users, dtype=np.int64)
        if isinstance(cost, GaussianReleases):
            self._check(cost, index)
            price = cost.rho
            if self.budget_epsilon is not None and cost.sampled.any():
                some = cost.sampled
                price = price.copy()
                price[some] = cost.steps[some] * self._sum_cost(
                    index[some], multiplier_levels(cost.multiplier[some]), rate_levels(cost.rate[some])
                )
        else:
            price = np.broadcast_to(np.asarray(cost, float), index.shape)
        return np.asarray(self.charged[index] + price <= self.budget_rho[index])

    def charge(self, users: Sequence[int] | NDArray[np.int64], rho: Cost, kind: Kind = "gradient") -> NDArray[np.bool_]:
        """Charge one release of cost `rho` (n,), rho or releases, to each of these users; (n,) bool, False if refused.

        A refused user's total is unchanged and its release must not be sent.
        """
        index = np.asarray(users, dtype=np.int64)
        if len(np.unique(index)) != len(index):
            raise ValueError("a user was charged twice in one call; charge each release on its own")
        cost: GaussianReleases | NDArray[np.float64]
        if isinstance(rho, GaussianReleases):
            cost = rho
        else:
            cost = np.broadcast_to(np.asarray(rho, dtype=np.float64), index.shape)
            if np.any(cost < 0) or np.any(np.isnan(cost)):
                raise ValueError(f"the cost of a release must be 0 or more, got {cost.min()}")
        paid = self.affordable(index, cost)
        self._add(index[paid], cost.of(paid) if isinstance(cost, GaussianReleases) else cost[paid], kind)
        self.refuse(index[~paid])
        return paid

    def _add(self, index: NDArray[np.int64], cost: Cost, kind: Kind) -> None:
        """Add a release of each of these users to their totals."""
        if isinstance(cost, GaussianReleases):
            self._check(cost, index)
            some = cost.sampled
            self.spent[kind][index] += np.where(some, 0.0, cost.rho)
            if some.any():
                these = cost.of(some)
                self.sampled = self.sampled.added(index[some], these.multiplier, these.rate, these.steps)
        else:
            self.spent[kind][index] += np.asarray(cost, dtype=np.float64)
        (self.releases if kind == "gradient" else self.announcements)[index] += 1

    def _check(self, cost: GaussianReleases, index: NDArray[np.int64]) -> None:
        if cost.noise_std.shape != index.shape:
            raise ValueError(f"{len(cost.noise_std)} releases are charged to {len(index)} users; give one for each")
        if self.adjacency != "add_remove" and cost.sampled.any():
            raise ValueError(
                "a gain from Poisson sampling is accounted for adding or removing a sample only; set privacy.adjacency"
                " = 'add_remove', or charge these sums at rate 1"
            )

    def _sum_cost(
        self, users: NDArray[np.int64], multiplier: NDArray[np.int64], rate: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """(n,) cost of one sum with multipliers and rates at these grid points (n,), at the order of each user."""
        order = self.order[users]
        column = np.searchsorted(ORDERS, order)
        within = column < len(ORDERS)
        # Divergence rises with the order: that of the next larger one in the table is an upper bound.
        found = known_divergences(multiplier, rate)[np.arange(len(users)), np.minimum(column, len(ORDERS) - 1)]
        unsampled = 1.0 / (2.0 * values_of(multiplier) ** 2)
        return np.asarray(np.where(within, np.minimum(found / order, unsampled), unsampled))

    def refuse(self, users: Sequence[int] | NDArray[np.int64]) -> None:
        """Count a release that was withheld because it exceeds the budget."""
        self.refusals[np.asarray(users, dtype=np.int64)] += 1

    def label_unprotected(self, users: Sequence[int] | NDArray[np.int64]) -> None:
        """Count an identity announced without noise: its leakage is unbounded."""
        self.unprotected[np.asarray(users, dtype=np.int64)] += 1

    def label_measured(self, users: Sequence[int] | NDArray[np.int64]) -> None:
        """Count losses or accuracies reported without noise: their leakage is unbounded."""
        self.measured[np.asarray(users, dtype=np.int64)] += 1

    def add_lost(self, users: Sequence[int] | NDArray[np.int64], rho: Cost, kind: Kind = "gradient") -> None:
        """Add a release that may have left before a crash; it counts regardless of the budget."""
        self._add(np.asarray(users, dtype=np.int64), rho, kind)

    def take_back(self, users: NDArray[np.int64], before: Ledger) -> None:
        """Put the gradients of these users back to those of the ledger `before`: nothing has left them since."""
        self.spent["gradient"][users] = before.spent["gradient"][users]
        self.releases[users] = before.releases[users]
        if self.sampled:
            self.sampled = self.sampled.with_users_of(users, before.sampled)

    def raise_to(self, spent: Mapping[str, NDArray[Any]]) -> Ledger:
        """The ledger with every user's total of each kind raised to at least `spent` (U,); NaN is ignored.

        `spent["sampled"]`, where given, holds rows (n, 4) of `SampledSums`. Two ledgers of the same releases can differ
        after a crash or a restored backup; the larger one is right.
        """
        full = self.copy()
        for kind in KINDS:
            if kind in spent:
                full.spent[kind] = np.fmax(self.spent[kind], spent[kind])
        if len(spent.get("sampled", ())):
            full.sampled = self.sampled.raised_to(SampledSums(np.asarray(spent["sampled"], dtype=np.int64)))
        return full

    def epsilon(self, method: Method = "exact", delta: float | None = None) -> NDArray[np.float64]:
        """(U,) epsilon of each user at `delta` (the ledger's own when not given).

        The exact formula holds for Gaussian releases alone: users who also announced identities get
        the tight value for any noise in its place. Of users with sampled sums, the `MOST_EXACT` different histories
        that cost most are composed by privacy loss distributions, and all others by Renyi divergences, which are an
        upper bound. Every way is an upper bound, so that the least of them counts: `exact` is never above `zcdp`, nor
        `zcdp` above what the same sums would cost without sampling.
        """
        at = self.delta if delta is None else delta
        methods: list[Method] = [
            "zcdp" if method == "exact" and identity > 0 else method for identity in self.spent["identity"].tolist()
        ]
        rho = np.asarray(self.spent["gradient"] + self.spent["identity"])
        found = np.array([epsilon(rho, at, how) for rho, how in zip(rho.tolist(), methods, strict=True)])
        if self.sampled:
            users = np.unique(self.sampled.rows[:, 0])
            found[users] = self._sampled_epsilon(users, method, at)
        return found

    def _sampled_epsilon(self, users: NDArray[np.int64], method: Method, delta: float) -> NDArray[np.float64]:
        """(n,) epsilon of these users, who have sampled sums."""
        if method == "simple":
            return np.array([epsilon(rho, delta, method) for rho in self.rho[users].tolist()])
        unsampled = [epsilon(rho, delta, "zcdp") for rho in self.rho[users].tolist()]
        bounds = np.minimum(self._bounds(users, delta), unsampled)
        if method == "exact":
            rows, known = self.sampled.rows, dict[tuple[float, float, bytes], float]()
            ends = np.searchsorted(np.ascontiguousarray(rows[:, 0]), users, side="right").tolist()
            starts, found = [0, *ends[:-1]], np.empty(len(users))
            for place in np.argsort(-bounds, kind="stable").tolist():
                user = int(users[place])
                gaussian, other = (float(self.spent[kind][user]) for kind in KINDS)
                history = (gaussian, other, rows[starts[place] : ends[place], 1:].tobytes())
                if history not in known and len(known) < MOST_EXACT:
                    known[history] = self._least_epsilon(user, delta, bounds[place])
                found[place] = known.get(history, bounds[place])
            return found
        return bounds

    def _least_epsilon(self, user: int, delta: float, bound: float) -> float:
        """Epsilon of a user with sampled sums: the least of loss distributions, `bound` and no gain from sampling.

        Loss distributions are made of few kinds of sums, for which multipliers and rates may be rounded coarsely.
        """
        gaussian, other = (float(self.spent[kind][user]) for kind in KINDS)
        unsampled = epsilon(float(self.rho[user]), delta, "zcdp" if other > 0 else "exact")
        return min(float(bound), unsampled, composed_epsilon(gaussian, other, self.sampled.of(user), delta))

    def _bounds(self, users: NDArray[np.int64], delta: float) -> NDArray[np.float64]:
        """(n,) epsilon of these users, all of whom have sampled sums, by Renyi divergences."""
        rows = self.sampled.rows
        points, which = np.unique(rows[:, 1:3], axis=0, return_inverse=True)
        table = known_divergences(points[:, 0], points[:, 1])
        starts = np.searchsorted(rows[:, 0], users)
        best = np.full(len(users), np.inf)
        for column, order in enumerate(ORDERS.tolist()):
            each = np.add.reduceat(rows[:, 3] * table[which, column], starts)
            each += order * (self.spent["gradient"][users] + self.spent["identity"][users])
            best = np.minimum(best, epsilon_of_divergences(each[:, None], delta, ORDERS[[column]]))
        return best

    def largest_epsilon(self) -> float:
        """The largest of `epsilon()`, at the cost of two conversions instead of one per user.

        With sampled sums it is an upper bound: theirs is converted by Renyi divergences, not by loss distributions.
        """
        announced = self.spent["identity"] > 0
        rho = np.asarray(self.spent["gradient"] + self.spent["identity"])
        gaussian, others = (float(rho[users].max(initial=0.0)) for users in (~announced, announced))
        largest = max(epsilon(gaussian, self.delta, "exact"), epsilon(others, self.delta, "zcdp"))
        if self.sampled:
            users = np.unique(self.sampled.rows[:, 0])
            unsampled = epsilon(float(self.rho[users].max()), self.delta, "zcdp")
            largest = max(largest, min(unsampled, float(self._bounds(users, self.delta).max())))
        return largest

    def copy(self) -> Ledger:
        """An independent ledger with the same totals."""
        twin = copy.copy(self)
        twin.spent = {kind: values.copy() for kind, values in self.spent.items()}
        twin.order, twin.budget_rho = self.order.copy(), self.budget_rho.copy()
        for name in _COUNTS:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def read_only(self) -> Ledger:
        """A copy whose arrays cannot be written: charges go to a `copy` of it."""
        twin = self.copy()
        for values in (*twin._totals(), twin.order, twin.budget_rho):
            values.flags.writeable = False
        return twin

    def why_not_after(self, before: Ledger) -> str:
        """Why this ledger cannot follow on `before` by charges alone, as the end of a sentence; empty where it can."""
        for name in ("delta", "adjacency", "unit", "budget_epsilon"):
            if getattr(self, name) != getattr(before, name):
                return f"has another {name} than the run; charge a copy of at.ledger"
        for name, now, then in zip(_TOTALS, self._totals(), before._totals(), strict=True):
            if not isinstance(now, np.ndarray) or now.shape != then.shape or now.dtype != then.dtype:
                return f"has `{name}` that are no {then.dtype} array of shape {then.shape}; charge a copy of at.ledger"
            if not (now >= then).all():
                user = int(np.argmin(now >= then))
                return (
                    f"lowers `{name}` of user {user} from {then[user]:g} to {now[user]:g}; what was released stays"
                    " charged: charge a copy of at.ledger"
                )
        if not (np.array_equal(self.order, before.order) and np.array_equal(self.budget_rho, before.budget_rho)):
            return "has other budgets than the run; charge a copy of at.ledger"
        if self.sampled is not before.sampled and not self.sampled.covers(before.sampled):
            return "lacks sampled sums that were charged; charge a copy of at.ledger"
        return ""

    def _totals(self) -> list[NDArray[Any]]:
        """What `_TOTALS` names, (U,) each."""
        return [*(self.spent[kind] for kind in KINDS), *(getattr(self, name) for name in _COUNTS)]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready copy; `from_dict` gives back an equal ledger."""
        budget = self.budget_epsilon
        return {
            "schema": SCHEMA,
            "delta": self.delta,
            "adjacency": self.adjacency,
            "unit": self.unit,
            "budget_epsilon": list(budget) if isinstance(budget, Sequence) else budget,
            "spent": {kind: [float(v) for v in values] for kind, values in self.spent.items()},
            "order": self.order.tolist(),
            "sampled": self.sampled.to_list(),
            **{name: getattr(self, name).tolist() for name in _COUNTS},
        }

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> Ledger:
        """The ledger that `to_dict` wrote; refuses another schema or damaged totals."""
        schema = saved.get("schema")
        if schema not in READABLE:
            raise ValueError(f"this ledger has schema {schema!r}; this version reads schema {SCHEMA}")
        users, knows = len(saved["releases"]), schema == SCHEMA
        ledger = cls(
            users,
            delta=saved["delta"],
            adjacency=saved["adjacency"],
            unit=saved["unit"] if knows else "sample",
            budget_epsilon=saved["budget_epsilon"],
        )
        if knows:
            ledger._set_orders(np.array(saved["order"], dtype=np.float64))
            ledger.sampled = SampledSums.from_list(saved["sampled"], users)
        ledger.spent = {kind: np.array(saved["spent"][kind], dtype=np.float64) for kind in KINDS}
        for name in _COUNTS:
            # Ledgers of earlier versions did not count measurements.
            counts = saved.get(name, [0] * users) if name == "measured" else saved[name]
            setattr(ledger, name, np.array(counts, dtype=np.int64))
        totals = [*ledger.spent.values(), *(getattr(ledger, name) for name in _COUNTS)]
        if any(values.shape != (users,) or np.any(values < 0) or np.any(np.isnan(values)) for values in totals):
            raise ValueError("this ledger holds a missing, negative or undefined total and cannot be trusted")
        return ledger

    def _set_orders(self, order: NDArray[np.float64]) -> None:
        """Orders (U,) that an equal ledger had, and the budgets that follow from them."""
        if order.shape != self.order.shape or not np.all(order > 1):
            raise ValueError("this ledger holds orders that are not numbers above 1 for each user")
        changed = order != self.order
        if changed.any():
            budgets = np.broadcast_to(np.asarray(self.budget_epsilon, dtype=np.float64), self.users)
            for user in np.flatnonzero(changed).tolist():
                allowed = budget_of_divergence(float(budgets[user]), self.delta, order[[user]])[0]
                self.order[user], self.budget_rho[user] = order[user], allowed / order[user]


def _cost_at(releases: GaussianReleases, order: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) cost of one sum of each release at these orders (n,), in rho."""
    column = np.searchsorted(ORDERS, order)
    found = sampled_divergences(releases.multiplier, releases.rate)[
        np.arange(len(order)), np.minimum(column, len(ORDERS) - 1)
    ]
    return np.asarray(np.where(column < len(ORDERS), found / order, 1.0 / (2.0 * releases.multiplier**2)))


def _budgets(
    users: int, budget: float | Sequence[float] | None, delta: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(U,) rho that each user's budget allows, and the order at which its conversion is attained."""
    if budget is None:
        return np.full(users, np.inf), np.full(users, 2.0)
    limits = np.asarray(budget, dtype=np.float64)
    if limits.ndim and limits.shape != (users,):
        raise ValueError(
            f"budget_epsilon has {limits.size} numbers for {users} users; give one for each or one for all"
        )
    rho = {value: rho_for_epsilon(value, delta, "zcdp") for value in np.unique(limits).tolist()}
    whole = np.broadcast_to(limits, users).tolist()
    order = {value: best_order(limit, delta) for value, limit in rho.items()}
    return np.array([rho[value] for value in whole]), np.array([order[value] for value in whole])
