"""An independent check of any allocation against every constraint of (11).

It shares no code with the allocation methods: each constraint is written out from its formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray

#: Tolerance for rounding, relative to the scale of a constraint.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Problem:
    """The instance that an allocation is checked against.

    gains: (U, B) linear power gains; identities: (U,) task of each user; capable: (B, K) tasks of each
    station; samples: (U,); power_w, noise_w: transmit power of a user and noise in a block;
    bandwidth_hz: width of a block; min_rate_bps: uplink floor; v_max, n_min: noise cap and floor;
    model_bits, downlink_rate_bps, downlink_limit_s: size, rate and time limit of the broadcasts.
    """

    gains: FloatArray
    identities: IntArray
    capable: BoolArray
    samples: FloatArray
    power_w: float
    noise_w: float
    bandwidth_hz: float
    min_rate_bps: float
    v_max: float
    n_min: float
    model_bits: float
    downlink_rate_bps: float
    downlink_limit_s: float


@dataclass(frozen=True)
class Allocation:
    """An allocation in the variables of (11).

    association: (B, U), 1 where a station serves a user; grants: (B, U, R), 1 where it gives it a block;
    noise_std: (U,) standard deviation of each user's noise.
    """

    association: FloatArray
    grants: FloatArray
    noise_std: FloatArray

    @classmethod
    def from_indices(
        cls, station: IntArray, block: IntArray, noise_std: FloatArray, *, stations: int, blocks: int
    ) -> Allocation:
        """The allocation of a plan given as station and block of each user, (U,), -1 for none."""
        users = np.flatnonzero(station >= 0)
        association = np.zeros((stations, len(station)))
        association[station[users], users] = 1.0
        grants = np.zeros((stations, len(station), blocks))
        granted = users[block[users] >= 0]
        grants[station[granted], granted, block[granted]] = 1.0
        return cls(association, grants, np.asarray(noise_std, dtype=np.float64))


@dataclass(frozen=True)
class Constraint:
    """One constraint, with its slack for every index it holds for.

    slack is negative where it is violated and infinite where it does not apply; violated: indices beyond the
    tolerance; axes: meaning of the indices, e.g. ("station", "user").
    """

    name: str
    equation: str
    axes: tuple[str, ...]
    slack: FloatArray
    violated: tuple[tuple[int, ...], ...]

    @property
    def ok(self) -> bool:
        """Whether it holds everywhere."""
        return not self.violated

    @property
    def worst(self) -> float:
        """The smallest slack, infinite when it applies nowhere."""
        return float(np.min(self.slack, initial=np.inf))


@dataclass(frozen=True)
class CheckReport:
    """Every constraint with its slack; `ok` if all hold."""

    constraints: tuple[Constraint, ...]

    @property
    def ok(self) -> bool:
        """Whether the allocation breaks no constraint."""
        return all(c.ok for c in self.constraints)

    @property
    def violations(self) -> tuple[Constraint, ...]:
        """The constraints that are violated somewhere."""
        return tuple(c for c in self.constraints if not c.ok)

    def __getitem__(self, name: str) -> Constraint:
        """The constraint of this name."""
        return next(c for c in self.constraints if c.name == name)

    def __str__(self) -> str:
        lines = [f"{'constraint':<24} {'from':<9} {'holds':<6} {'smallest slack':>15}  violated at"]
        for c in self.constraints:
            where = ", ".join("(" + ", ".join(map(str, index)) + ")" for index in c.violated[:5])
            more = f" and {len(c.violated) - 5} more" if len(c.violated) > 5 else ""
            axes = f"({', '.join(c.axes)}): " if c.violated else ""
            worst = "-" if math.isinf(c.worst) and c.worst > 0 else f"{c.worst:.4g}"
            lines.append(
                f"{c.name:<24} {c.equation:<9} {'yes' if c.ok else 'NO':<6} {worst:>15}  {axes}{where}{more}".rstrip()
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON; an infinite slack is None."""
        return {
            "ok": self.ok,
            "constraints": [
                {
                    "name": c.name,
                    "equation": c.equation,
                    "ok": c.ok,
                    "axes": list(c.axes),
                    "smallest_slack": c.worst if math.isfinite(c.worst) else None,
                    "violated": [list(index) for index in c.violated],
                }
                for c in self.constraints
            ],
        }


def check(allocation: Allocation, problem: Problem) -> CheckReport:
    """Every constraint of (11), and the implicit ones (errata E8, E22, E23), with its slack."""
    _check_shapes(allocation, problem)
    a, r, std = allocation.association, allocation.grants, allocation.noise_std
    blocks = r.shape[2]
    tasks = problem.capable.shape[1]
    served = np.nan_to_num(a).sum(axis=0) > 0
    x = problem.samples
    in_task = problem.identities[:, None] == np.arange(tasks)
    able = np.einsum("uk,bk->bu", in_task, problem.capable) > 0
    sent = np.einsum("bu,uk->bk", np.nan_to_num(a), in_task) > 0
    downlink_s = sent.sum() * problem.model_bits / problem.downlink_rate_bps
    counted = [np.flatnonzero(served & in_task[:, k]) for k in range(tasks)]
    noise = np.array([np.sum(x[users] * std[users] ** 2) for users in counted])
    cap = np.array([problem.v_max * np.sum(x[users]) for users in counted])
    asked_rate = problem.min_rate_bps * a

    return CheckReport(
        (
            _constraint("binary_association", "(11a)", ("station", "user"), -np.minimum(np.abs(a), np.abs(a - 1)), 1),
            _constraint(
                "binary_blocks", "(11a)", ("station", "user", "block"), -np.minimum(np.abs(r), np.abs(r - 1)), 1
            ),
            _constraint("association_has_block", "(11b)", ("station", "user"), -np.abs(a - r.sum(axis=2)), 1),
            _constraint("users_per_station", "(11b)", ("station",), blocks - a.sum(axis=1), blocks),
            _constraint("one_station_per_user", "E8", ("user",), 1 - a.sum(axis=0), 1),
            _constraint("one_user_per_block", "E23", ("station", "block"), 1 - r.sum(axis=1), 1),
            _constraint("one_block_per_user", "E23", ("user",), 1 - r.sum(axis=(0, 2)), 1),
            _constraint("capability", "E23", ("station", "user"), np.where(a > 0, able - a, np.inf), 1),
            _constraint(
                "downlink_time",
                "(11c)",
                ("network",),
                np.array([problem.downlink_limit_s - downlink_s]),
                problem.downlink_limit_s,
            ),
            _constraint(
                "uplink_rate",
                "(11d)",
                ("station", "user"),
                np.where(a > 0, _rates(r, problem) - asked_rate, np.inf),
                problem.min_rate_bps,
            ),
            _constraint("noise_cap", "(11e)", ("task",), np.where(cap > 0, cap - noise, np.inf), cap),
            _constraint(
                "noise_floor", "(11f)", ("user",), np.where(served, x * std - problem.n_min, np.inf), problem.n_min
            ),
            _constraint("finite_noise", "-", ("user",), np.where(np.isfinite(std), std, -np.inf), 1),
        )
    )


def _rates(r: FloatArray, problem: Problem) -> FloatArray:
    """Uplink rate of every (station, user) in bit/s, (B, U); Eq. (9) with the gain to the receiver (errata E20)."""
    stations, users, _ = r.shape
    rates = np.zeros((stations, users))
    for b in range(stations):
        elsewhere = np.delete(r, b, axis=0).sum(axis=0)  # (U, R): grants of other stations
        power_w = problem.power_w * problem.gains[:, b]
        for i in np.flatnonzero(r[b].any(axis=1)):
            others_w = np.where(np.arange(users) == i, 0.0, power_w)
            interference_w = others_w @ elsewhere
            spectral = np.log2(1.0 + power_w[i] / (interference_w + problem.noise_w))
            rates[b, i] = problem.bandwidth_hz * np.sum(r[b, i] * spectral)
    return rates


def _constraint(
    name: str, equation: str, axes: tuple[str, ...], slack: FloatArray, scale: float | FloatArray
) -> Constraint:
    # Written so that NaN is a violation.
    broken = ~(slack >= -TOLERANCE * scale)
    violated = tuple(tuple(int(n) for n in index) for index in np.argwhere(broken))
    return Constraint(name, equation, axes, np.where(np.isnan(slack), -np.inf, slack), violated)


def _check_shapes(allocation: Allocation, problem: Problem) -> None:
    users, stations = problem.gains.shape
    tasks = problem.capable.shape[-1]
    blocks = allocation.grants.shape[-1]
    expected = {
        "association": (stations, users),
        "grants": (stations, users, blocks),
        "noise_std": (users,),
        "identities": (users,),
        "capable": (stations, tasks),
        "samples": (users,),
    }
    values = {f.name: getattr(part, f.name) for part in (allocation, problem) for f in fields(part)}
    for name, shape in expected.items():
        if values[name].shape != shape:
            raise ValueError(f"{name} has the shape {values[name].shape}; it must be {shape} for these gains")
