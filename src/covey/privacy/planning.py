"""Budget planning: solve for the one of rounds, noise, epsilon and delta that is not given.

In every round a user uploads its clipped gradient sum with Gaussian noise, and perhaps announces its
task. Costs in rho add up over the run, and three formulas turn the sum into epsilon at delta. All
answers are conservative: noise is rounded up and rounds are rounded down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covey.errors import ScenarioError
from covey.privacy import accounting
from covey.privacy.accounting import METHODS, Adjacency, Method, Unit, release_rho, rho_for_epsilon, sensitivity
from covey.privacy.composition import composed_epsilon

Quantity = Literal["rounds", "noise_std", "epsilon", "delta"]

MOST_ROUNDS = 10**12
SMALLEST_DELTA = 1e-300
#: A larger total protects nothing and is outside the numerical range of the formulas.
MOST_RHO = 1e9


@dataclass(frozen=True)
class Releases:
    """The releases of one user in a run, apart from the noise level.

    clip: norm of a sample's gradient after clipping, C, or of a device's whole update. uploads: uploads in a round.
    steps: noised sums in an upload; rate: probability with which a sample is in the batch of a sum (Poisson sampling,
    for add_remove only), 1 for all samples.
    identity_rho: cost of one announcement of the user's task with noise (epsilon^2 / 8 for a noisy maximum),
    0 when announcements are free or not counted; the user announces in round `first_announcement`,
    counted from 1, then every `announce_every` rounds, at most `announcements` times.
    """

    clip: float = 1.0
    adjacency: Adjacency = "replace_one"
    uploads: int = 1
    identity_rho: float = 0.0
    first_announcement: int = 1
    announce_every: int = 1
    announcements: int | None = None
    unit: Unit = "sample"
    steps: int = 1
    rate: float = 1.0

    def __post_init__(self) -> None:
        _within("the clipping norm", self.clip, 1e-30, 1e30)
        if self.identity_rho != 0.0:
            _within("the cost of an announcement (rho)", self.identity_rho, 1e-12, MOST_RHO)
        if not 1 <= self.steps <= MOST_ROUNDS:
            raise ScenarioError(f"the number of local steps is {self.steps}; it must lie between 1 and {MOST_ROUNDS:,}")
        if not 0 < self.rate <= 1:
            raise ScenarioError(f"the sampling rate is {self.rate:g}; it must be above 0 and at most 1")
        if self.rate < 1 and self.adjacency != "add_remove":
            raise ScenarioError(
                "a gain from Poisson sampling is accounted for adding or removing a sample only; use --adjacency"
                " add_remove, or leave the sampling rate out"
            )
        if self.unit == "device" and (self.steps > 1 or self.rate < 1):
            raise ScenarioError(
                "in the unit device a round is one release of the whole update, whatever its local steps and batches;"
                " leave steps and sampling rate out"
            )
        if self.unit == "device" and self.identity_rho != 0.0:
            raise ScenarioError(
                "an announcement with noise protects one sample, which says nothing about a whole device; leave its"
                " cost out (announcements that are computed from uploads, privacy.identity = 'from_release', cost"
                " nothing more), or ask for the unit sample"
            )
        if self.announcements is not None and self.announcements < 0:
            raise ScenarioError(f"the number of announcements is {self.announcements}; it must be 0 or more")

    @property
    def gaussian(self) -> bool:
        """Whether all charged releases are Gaussian, so that the exact formula holds."""
        return self.identity_rho == 0.0 or self.announcements == 0

    @property
    def sensitivity(self) -> float:
        """Largest change of the clipped gradient sum between neighbouring data sets."""
        return float(sensitivity(self.clip, self.adjacency))

    def holds(self, method: Method) -> bool:
        """Whether the formula is valid for these releases."""
        return self.gaussian or method != "exact"

    def announced(self, rounds: int) -> int:
        """Charged announcements in the first `rounds` rounds."""
        if self.identity_rho == 0.0:
            return 0
        regular = max(0, -(-(rounds - self.first_announcement + 1) // self.announce_every))
        return regular if self.announcements is None else min(regular, self.announcements)

    def upload_rho(self, noise_std: float) -> float:
        """Cost of one round's uploads with noise of this standard deviation on the sum; no gain from sampling."""
        return self.uploads * self.steps * float(release_rho(self.clip, noise_std, self.adjacency))

    def rho(self, rounds: int, noise_std: float) -> float:
        """Total cost of `rounds` rounds, uploads and announcements."""
        return rounds * self.upload_rho(noise_std) + self.announced(rounds) * self.identity_rho

    def epsilon(self, rounds: int, noise_std: float, delta: float, method: Method) -> float:
        """Epsilon of `rounds` rounds at `delta`."""
        total = self.rho(rounds, noise_std)
        if self.rate == 1.0:
            return accounting.epsilon(total, delta, method)
        if rounds == 0:
            return 0.0
        sums = ((noise_std / self.sensitivity, self.rate, rounds * self.uploads * self.steps),)
        return composed_epsilon(0.0, self.announced(rounds) * self.identity_rho, sums, delta, method)


@dataclass(frozen=True)
class Plan:
    """A consistent choice of rounds, noise, epsilon and delta, and which of the four was solved for.

    noise_std: standard deviation of the noise on the clipped gradient sum. by_method: the asked
    quantity by each formula, None where the formula does not hold or has no solution. epsilon: the
    asked limit, or the answer of `method`.
    """

    releases: Releases
    asked: Quantity
    method: Method
    rounds: int
    noise_std: float
    epsilon: float
    delta: float
    by_method: dict[Method, float | None]

    @property
    def rho(self) -> float:
        """Total cost of the plan."""
        return self.releases.rho(self.rounds, self.noise_std)

    def epsilon_by(self, method: Method, rounds: int | None = None) -> float | None:
        """Epsilon of the plan, or of its first `rounds` rounds, by this formula; None where it does not hold."""
        if not self.releases.holds(method):
            return None
        return self.releases.epsilon(self.rounds if rounds is None else rounds, self.noise_std, self.delta, method)

    def curve(self, method: Method, rounds: ArrayLike) -> NDArray[np.float64]:
        """Epsilon after each of `rounds` (n,) by this formula, (n,); the formula must hold."""
        return np.array([self.epsilon_by(method, count) for count in np.asarray(rounds).tolist()], dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        """The question and its answer, ready for JSON."""
        releases = self.releases
        return {
            "asked": self.asked,
            "answer": getattr(self, self.asked),
            "method": self.method,
            "answer_by_method": dict(self.by_method),
            "rounds": self.rounds,
            "noise_std_on_sum": self.noise_std,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "epsilon_by_method": {method: self.epsilon_by(method) for method in METHODS},
            "clip": releases.clip,
            "adjacency": releases.adjacency,
            "unit": releases.unit,
            "steps": releases.steps,
            "sampling_rate": releases.rate,
            "sensitivity": releases.sensitivity,
            "uploads_per_round": releases.uploads,
            "rho_per_round": releases.upload_rho(self.noise_std),
            "identity_rho": releases.identity_rho,
            "announcements": releases.announced(self.rounds),
            "rho": self.rho,
        }


def solve(
    releases: Releases,
    *,
    rounds: int | None = None,
    noise_std: float | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    method: Method | None = None,
) -> Plan:
    """The plan with the one quantity that is None solved for, given the three others.

    `method` is the formula that answers: by default `exact` where all releases are Gaussian, `zcdp`
    otherwise. Raises `ScenarioError` when not exactly one quantity is missing, a value is not allowed,
    or no answer exists.
    """
    chosen = _method(releases, method)
    given: dict[Quantity, float | None] = {
        "rounds": rounds, "noise_std": noise_std, "epsilon": epsilon, "delta": delta,
    }  # fmt: skip
    missing = [name for name, value in given.items() if value is None]
    if len(missing) != 1:
        raise ScenarioError(f"give three of rounds, noise, epsilon and delta, got {4 - len(missing)}")
    _check(rounds, noise_std, epsilon, delta)
    asked = missing[0]
    found: dict[Method, float | None] = {}
    for each in METHODS:
        if not releases.holds(each):
            found[each] = None
        elif asked == "rounds":
            found[each] = rounds_within(releases, _sure(noise_std), _sure(epsilon), _sure(delta), each)
        elif asked == "noise_std":
            found[each] = noise_for(releases, int(_sure(rounds)), _sure(epsilon), _sure(delta), each)
        elif asked == "epsilon":
            _checked_rho(releases, int(_sure(rounds)), _sure(noise_std))
            found[each] = releases.epsilon(int(_sure(rounds)), _sure(noise_std), _sure(delta), each)
        else:
            total = _checked_rho(releases, int(_sure(rounds)), _sure(noise_std))
            if releases.rate < 1:
                raise ScenarioError("with sampled batches delta cannot be asked; give it, and ask for another quantity")
            found[each] = delta_for(total, _sure(epsilon), each)
    answer = found[chosen]
    if answer is None or (asked == "rounds" and answer == 0):
        raise _no_answer(releases, asked, given, chosen)
    given[asked] = answer
    return Plan(
        releases, asked, chosen, int(_sure(given["rounds"])), _sure(given["noise_std"]), _sure(given["epsilon"]),
        _sure(given["delta"]), found,
    )  # fmt: skip


def rounds_within(releases: Releases, noise_std: float, epsilon: float, delta: float, method: Method) -> int:
    """The largest number of rounds whose epsilon at `delta` is at most `epsilon`, capped at `MOST_ROUNDS`."""
    if releases.rate < 1:
        return _sampled_rounds_within(releases, noise_std, epsilon, delta, method)
    budget = rho_for_epsilon(epsilon, delta, method)

    def fits(rounds: int) -> bool:
        total = releases.rho(rounds, noise_std)
        return total <= 2.0 * budget and accounting.epsilon(total, delta, method) <= epsilon

    if fits(MOST_ROUNDS):
        return MOST_ROUNDS
    # Announcements can only lower what uploads alone allow, so the answer lies below this.
    low, high = 0, min(MOST_ROUNDS, int(budget / releases.upload_rho(noise_std) * (1.0 + 1e-9)) + 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def noise_for(releases: Releases, rounds: int, epsilon: float, delta: float, method: Method) -> float | None:
    """The smallest noise on the sum with which `rounds` rounds stay within `epsilon` at `delta`.

    None when the announcements alone exceed it.
    """
    if releases.rate < 1:
        return _sampled_noise_for(releases, rounds, epsilon, delta, method)
    left = rho_for_epsilon(epsilon, delta, method) - releases.announced(rounds) * releases.identity_rho
    if left <= 0:
        return None
    noise_std = releases.sensitivity * math.sqrt(releases.uploads * releases.steps * rounds / (2.0 * left))
    while accounting.epsilon(releases.rho(rounds, noise_std), delta, method) > epsilon:  # by rounding alone
        noise_std *= 1.0 + 1e-12
    return noise_std


def _sampled_rounds_within(releases: Releases, noise_std: float, epsilon: float, delta: float, method: Method) -> int:
    """`rounds_within` of sampled sums: first by Renyi divergences, which are quick, then by the asked method."""
    low, high = 0, 1
    while high < MOST_ROUNDS and releases.epsilon(high, noise_std, delta, "zcdp") <= epsilon:
        low, high = high, 2 * high
    if high >= MOST_ROUNDS:
        return MOST_ROUNDS
    while high < MOST_ROUNDS and releases.epsilon(high, noise_std, delta, method) <= epsilon:
        low, high = high, 2 * high
    while high - low > max(1, low >> 10):  # to 0.1 %, on the safe side
        middle = (low + high) // 2
        low, high = (middle, high) if releases.epsilon(middle, noise_std, delta, method) <= epsilon else (low, middle)
    return low


def _sampled_noise_for(releases: Releases, rounds: int, epsilon: float, delta: float, method: Method) -> float | None:
    """`noise_for` of sampled sums, up to 0.1 % above the smallest noise."""
    if accounting.epsilon(releases.announced(rounds) * releases.identity_rho, delta, "zcdp") >= epsilon:
        return None
    high = releases.sensitivity
    while releases.epsilon(rounds, high, delta, method) > epsilon:
        high *= 2.0
    low = high / 2.0
    while releases.epsilon(rounds, low, delta, method) <= epsilon:
        low, high = low / 2.0, low
    while high > low * 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if releases.epsilon(rounds, middle, delta, method) > epsilon else (low, middle)
    return high


def delta_for(rho: float, epsilon: float, method: Method) -> float | None:
    """The smallest delta at which releases of total cost `rho` have this epsilon; None when there is none below 1.

    Clamped to at least `SMALLEST_DELTA`.
    """
    if rho == 0:
        return SMALLEST_DELTA
    delta = {"exact": _delta_exact, "zcdp": _delta_zcdp, "simple": _delta_simple}[method](rho, epsilon)
    return None if delta >= 1.0 else max(delta, SMALLEST_DELTA)


def worst_user(samples: ArrayLike, clip: float, v_max: float, n_min: float) -> tuple[int, float, float]:
    """The user whose uploads can cost most under covey's noise rule: its number, clipping norm and least noise.

    samples: (U,) X_i; clip: norm C of a user of mean size; v_max, n_min: cap (11e) and floor (11f). The
    cost of an upload falls with X_i std_i, which is never below max(n_min, sqrt(v_max) min X): that is
    the value of the smallest user when it is alone in its task, and further users only increase it. No other user can
    pay more for an upload, whichever users are served.
    """
    sizes = np.asarray(samples, dtype=np.float64)
    user = int(sizes.argmin())
    least = float(sizes[user])
    return user, clip * float(sizes.mean()) / least, max(n_min / least, math.sqrt(v_max))


def _delta_exact(rho: float, epsilon: float) -> float:
    """Phi(m/2 - e/m) - exp(e) Phi(-m/2 - e/m) with m^2 = 2 rho, in a form without cancellation for small values."""
    from scipy.special import erfcx, ndtr

    distance = math.sqrt(2.0 * rho)
    near, far = epsilon / distance - distance / 2.0, epsilon / distance + distance / 2.0
    scale = 0.5 * math.exp(-0.5 * near**2)
    tail = scale * float(erfcx(far / math.sqrt(2.0)))
    if near < 0:
        return float(ndtr(-near)) - tail
    return scale * float(erfcx(near / math.sqrt(2.0))) - tail


def _delta_zcdp(rho: float, epsilon: float) -> float:
    """min over a > 1 of exp((a - 1)(rho a - e)) (1 - 1/a)^(a - 1) / a, the inverse of the tight conversion."""
    from scipy.optimize import brentq

    def slope(log_excess: float) -> float:  # of the logarithm, by a - 1; it only rises, so its root is the minimum
        excess = math.exp(log_excess)
        return rho * (2.0 * excess + 1.0) - epsilon - math.log1p(1.0 / excess)

    lowest = -700.0
    if slope(lowest) >= 0:
        return 1.0
    excess = math.exp(float(brentq(slope, lowest, math.log((epsilon + 1.0) / (2.0 * rho) + 1.0), xtol=1e-13)))
    power = excess * (rho * (1.0 + excess) - epsilon - math.log1p(1.0 / excess)) - math.log1p(excess)
    return math.exp(min(0.0, power))


def _delta_simple(rho: float, epsilon: float) -> float:
    return 1.0 if epsilon <= rho else math.exp(-((epsilon - rho) ** 2) / (4.0 * rho))


def _method(releases: Releases, method: Method | None) -> Method:
    if method is None:
        return "exact" if releases.gaussian else "zcdp"
    if not releases.holds(method):
        raise ScenarioError(
            "the exact formula holds for Gaussian releases alone, but announcements of identities are counted here;"
            " choose the method zcdp or simple, or leave it out"
        )
    return method


def _check(rounds: int | None, noise_std: float | None, epsilon: float | None, delta: float | None) -> None:
    if rounds is not None and not 1 <= rounds <= MOST_ROUNDS:
        raise ScenarioError(f"the number of rounds is {rounds}; it must lie between 1 and {MOST_ROUNDS:,}")
    if noise_std is not None:
        _within("the noise", noise_std, 1e-30, 1e30)
    if epsilon is not None:
        _within("epsilon", epsilon, 1e-6, 1e6)
    if delta is not None and not SMALLEST_DELTA <= delta < 1:
        raise ScenarioError(f"delta is {delta:g}; it must lie between {SMALLEST_DELTA:g} and 1, for example 1e-5")


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise ScenarioError(f"{name} is {value:g}; it must lie between {low:g} and {high:g}")


def _sure(value: float | None) -> float:
    assert value is not None
    return value


def _checked_rho(releases: Releases, rounds: int, noise_std: float) -> float:
    total = releases.rho(rounds, noise_std)
    if total > MOST_RHO:
        raise ScenarioError(
            f"{rounds} rounds with noise {noise_std:g} on the sum cost rho {total:.3g}, which protects nothing;"
            f" raise the noise or lower the clipping norm, which is {releases.clip:g}"
        )
    return total


def _no_answer(
    releases: Releases, asked: Quantity, given: dict[Quantity, float | None], method: Method
) -> ScenarioError:
    epsilon, delta, noise_std = given["epsilon"], given["delta"], given["noise_std"]
    if asked == "rounds":
        need = noise_for(releases, 1, _sure(epsilon), _sure(delta), method)
        first = releases.rho(1, _sure(noise_std))
        cost = f"{accounting.epsilon(first, _sure(delta), method):.4g}" if first <= MOST_RHO else "more than a billion"
        fix = f"raise the noise on the sum to at least {need * 1.00005:.5g}, or " if need else ""
        return ScenarioError(
            f"not even one round fits into epsilon {epsilon:g}: with noise {noise_std:g} on the sum the first alone"
            f" costs epsilon {cost}; {fix}raise epsilon"
        )
    rounds = int(_sure(given["rounds"]))
    if asked == "noise_std":
        alone = releases.announced(rounds) * releases.identity_rho
        return ScenarioError(
            f"no noise reaches epsilon {epsilon:g}: {releases.announced(rounds)} announcements of identities alone cost"
            f" {accounting.epsilon(alone, _sure(delta), method):.4g}; announce less often, spend less on each, or raise"
            " epsilon"
        )
    return ScenarioError(
        f"epsilon {epsilon:g} holds at no delta below 1 after {rounds} rounds with noise {noise_std:g} on the sum;"
        " raise epsilon or the noise, or play fewer rounds"
    )
