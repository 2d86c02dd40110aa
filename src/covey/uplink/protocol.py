"""The interface of an uplink: which users can be served together, at which rates, and how long uploads take.

An uplink is a part: `radio.uplink` names it, `covey.parts.UPLINKS` finds it, and it is built as `factory(scenario)`. A
subclass of `Uplink` that defines `grant` and `rates` works with the simulator, the reference policies, the trained ones
and the environments. The other methods build on these two and can be overridden: `project` for other constraints on
selections, `air_time` for another order of uploads, `survivors`, `fill` and `admission` for speed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from covey.allocation.projection import Grant, project
from covey.arrays import BoolArray, FloatArray, IntArray
from covey.errors import CoveyError
from covey.network import NetworkLimits, Observation, Plan
from covey.parts import UPLINKS
from covey.radio import uplink_times
from covey.scenario import Scenario
from covey.uplink.admission import Admission, TrialAdmission


@dataclass(frozen=True)
class AirTime:
    """Air time of uploads. upload_s: (U,) seconds of every user, 0 for none; total_s: from first start to last end.

    A user transmits at full power while it uploads, so that its energy is its time times `power_w`.
    """

    upload_s: FloatArray
    total_s: float


class Uplink(ABC):
    """Base class of uplinks, built for a scenario; keeps its section `radio`.

    Arrays of an observation, a selection or a plan may have leading axes, one network per entry.
    """

    #: Requirements beyond the standard inputs, of `covey.parts.NEEDS`.
    needs: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, scenario: Scenario) -> None:
        self.radio = scenario.radio

    def __eq__(self, other: object) -> bool:
        """Whether the other is of the same class, for the same radio."""
        return type(other) is type(self) and isinstance(other, Uplink) and other.radio == self.radio

    def __hash__(self) -> int:
        return hash((type(self), self.radio))

    @abstractmethod
    def grant(self, observation: Observation, station: IntArray) -> IntArray:
        """The block, slot or other resource (..., U) granted to users with these stations (..., U), -1 for none.

        Each station has at most R users, whose tasks it can run; users without a grant are not served. Grants must be
        monotone: an additional user may cost others their grant, but never gains them one. Policies rely on it when
        they drop users until all are served.
        """

    @abstractmethod
    def rates(self, gains: FloatArray, plan: Plan, limits: NetworkLimits) -> FloatArray:
        """Uplink rate of every user of one network in bit/s, (U,), 0 for users that are not served; gains: (U, B)."""

    def project(self, observation: Observation, selected: BoolArray) -> Plan:
        """The valid plan that remains of a selection (..., B, U), and violations; see `covey.allocation.project`."""
        return project_observed(observation, selected, grant=lambda station: self._granted(observation, station))

    def projected(self, observation: Observation, selected: BoolArray) -> Plan:
        """`project`, checked: it gave a plan."""
        plan: Any = self.project(observation, selected)
        if not isinstance(plan, Plan):
            raise self._refused(f"gave {_described(plan)} in `project`; return a covey.network.Plan")
        return plan

    def rates_of(self, gains: FloatArray, plan: Plan, limits: NetworkLimits, *, floor: bool = True) -> FloatArray:
        """`rates`, checked: finite and, with a `floor`, above 0 where a user is served."""
        rates: Any = self.rates(gains, plan, limits)
        why = ""
        if not (isinstance(rates, np.ndarray) and rates.dtype.kind in "iuf" and rates.shape == plan.station.shape):
            why = f"are {_described(rates)}; they must be numbers of shape {plan.station.shape}"
        elif not (np.isfinite(rates).all() and (rates >= 0).all()):
            why = "are negative, infinite or not a number"
        elif floor and not (rates[plan.served] > 0).all():
            why = "are 0 for users that are served; do not grant them anything"
        if why:
            raise self._refused(f"gave rates that {why}")
        return np.asarray(rates, dtype=np.float64)

    def _granted(self, observation: Observation, station: IntArray) -> IntArray:
        """`grant`, checked: whole numbers from -1, and -1 for users without a station."""
        blocks: Any = self.grant(observation, station)
        why = ""
        if not (isinstance(blocks, np.ndarray) and blocks.dtype.kind in "iu" and blocks.shape == station.shape):
            why = f"are {_described(blocks)}; they must be whole numbers of shape {station.shape}"
        elif (blocks < -1).any():
            why = f"go down to {blocks.min()}; -1 stands for none"
        elif (blocks[station < 0] >= 0).any():
            why = "serve users that no station selected; give them -1"
        if why:
            raise self._refused(f"gave grants that {why}")
        return np.asarray(blocks)

    def _refused(self, why: str) -> CoveyError:
        name = getattr(getattr(self, "radio", None), "uplink", "ofdma")
        return UPLINKS.refused(type(self).__name__ if name in UPLINKS.builtin else name, why)

    def survivors(self, observation: Observation, selected: BoolArray) -> BoolArray:
        """The selection (..., B, U) without users that would not be served, whichever station goes first."""
        kept = np.array(selected, dtype=bool)
        while True:
            served = kept & (self.projected(observation, kept).station[..., None, :] >= 0)
            if np.array_equal(served, kept):
                return kept
            kept = served

    def admission(self, observation: Observation, selected: BoolArray | None = None) -> Admission:
        """A plan of one network that grows user by user; it starts with `selected` (B, U), all of whom can be served,
        by default empty."""
        nobody = np.zeros(observation.eligible.shape, dtype=bool)
        return TrialAdmission(observation, nobody if selected is None else selected)

    def fill(
        self,
        observation: Observation,
        scores: FloatArray,
        *,
        minimum: float = -np.inf,
        first: FloatArray | None = None,
    ) -> BoolArray:
        """The users (..., B, U) that empty plans admit, the highest of `scores` (..., B, U) first.

        minimum: pairs that score no more than this are never admitted; first: (..., B, U) scores by which one user of
        every task is admitted before all others, where given.
        """
        batch, selected = observation.as_batch(), np.zeros(observation.eligible.shape, dtype=bool)
        found = selected.reshape(-1, *selected.shape[-2:])
        scores = np.where(scores > minimum, scores, -np.inf).reshape(found.shape)
        firsts = None if first is None else np.where(first > minimum, first, -np.inf).reshape(found.shape)
        for n in range(len(found)):
            plan = self.admission(batch[n])
            if firsts is not None:
                _cover(plan, batch.identities[n], firsts[n])
            plan.fill(scores[n])
            found[n] = plan.selected
        return selected

    def air_time(self, rates: FloatArray, plan: Plan, bits: float | FloatArray) -> AirTime:
        """How long uploads of `bits`, one number or (U,), take at these rates (U,); they run in parallel, so the
        slowest determines the total."""
        upload_s = uplink_times(rates, bits)
        return AirTime(upload_s, float(upload_s.max(initial=0.0)))

    def unscheduled(self, gains: FloatArray, users: IntArray, bits: float, limits: NetworkLimits) -> AirTime:
        """How long it takes if `users` send `bits` each to their strongest station, without a plan: there is no
        interference, and a station receives its users one after the other."""
        upload_s, strongest = np.zeros(len(gains)), gains[users].argmax(axis=1)
        alone_bps = self.alone_bps(gains[users], limits)
        upload_s[users] = bits / alone_bps[np.arange(len(users)), strongest]
        queues = np.bincount(strongest, weights=upload_s[users], minlength=gains.shape[1])
        return AirTime(upload_s, float(queues.max(initial=0.0)))

    def alone_bps(self, gains: FloatArray, limits: NetworkLimits) -> FloatArray:
        """(U, B) rate of every user at every station without interference; gains: (U, B)."""
        users, stations = gains.shape
        rates = np.zeros(gains.shape)
        for user, station in np.ndindex(users, stations):
            alone = one_user(users, limits, user, station)
            rates[user, station] = self.rates_of(gains, alone, limits, floor=False)[user]
        return rates


def project_observed(observation: Observation, selected: BoolArray, *, grant: Grant | None = None) -> Plan:
    """The valid plan left of a selection (..., B, U) of what is observed; `grant` as in `covey.allocation.project`."""
    return project(
        selected,
        observation.identities,
        observation.capable,
        observation.gains,
        observation.samples,
        observation.limits.radio,
        first_station=observation.first_station,
        grant=grant,
    )


def _described(values: object) -> str:
    return f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__


def one_user(users: int, limits: NetworkLimits, user: int, station: int) -> Plan:
    """The plan that serves one user only, on block 0."""
    at, block, nobody = np.full(users, -1), np.full(users, -1), np.zeros(users, dtype=bool)
    at[user], block[user] = station, 0
    return Plan(at, block, np.zeros_like(limits.capable), nobody, {}, np.zeros(limits.stations))


def _cover(plan: Admission, identities: IntArray, score: FloatArray) -> None:
    """Admit one user of every task, the highest `score` (B, U) first."""
    score = score.copy()
    while score.max(initial=-np.inf) > -np.inf:
        station, user = map(int, np.unravel_index(score.argmax(), score.shape))
        try:
            plan.admit(station, user)
        except ValueError:
            score[station, user] = -np.inf
        else:
            score[:, identities == identities[user]] = -np.inf
