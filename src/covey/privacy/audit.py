"""Audits that try to catch a mechanism leaking more than it declares.

A mechanism is a callable `(data, noise) -> {name: array}`: everything that leaves the device, by
name, as a function of private data and of a noise source as in `covey.privacy.noise_source`. Because noise
is injected, a mechanism can be audited as a white box (with noise off, or the same noise on
neighbouring data) and as a black box (many releases with its own noise).

Statistical checks can fail by chance: each takes `alpha`, its false positive rate on a correct
mechanism. The default suits tests with secure noise, which is not reproducible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]
Request = tuple[int, int, str, int]
Data = TypeVar("Data")

#: False positive rate of a statistical check on a correct mechanism.
ALPHA = 1e-6
#: Relative tolerance for rounding above the declared sensitivity.
TOLERANCE = 1e-4


class Source(Protocol):
    """Draws `size` independent standard normal values for one user, round and purpose."""

    def __call__(self, user: int, round: int, purpose: str, size: int) -> Floats:
        """The values, (size,)."""
        ...


Mechanism = Callable[[Data, Source], Mapping[str, ArrayLike]]


@dataclass(frozen=True)
class Declared:
    """The declared L2 sensitivity and noise of one released array.

    Both are in the units of the array, and 0 for public values that no sample changes.
    """

    sensitivity: float
    noise_std: float

    @property
    def mu(self) -> float:
        """Distance of two neighbours in standard deviations of the noise; infinite without noise."""
        if self.sensitivity == 0:
            return 0.0
        return self.sensitivity / self.noise_std if self.noise_std > 0 else math.inf


def claimed_mu(declared: Iterable[Declared]) -> float:
    """Distance of two neighbours in all released arrays together: Gaussian releases add up in mu^2."""
    return math.hypot(*(one.mu for one in declared))


class RecordedNoise:
    """A memoising source: the same request gets the same values; all `requests` are logged in order.

    Without a `source` all noise is zero. A mechanism that runs on two data sets with one instance
    gets the same noise on both, so that its releases differ by the effect of the data alone.
    """

    def __init__(self, source: Source | None = None) -> None:
        self.requests: list[Request] = []
        self.values: dict[Request, Floats] = {}
        self._source = source

    def __call__(self, user: int, round: int, purpose: str, size: int) -> Floats:
        """(size,) values of this user, round and purpose."""
        key = (user, round, purpose, size)
        self.requests.append(key)
        if key not in self.values:
            self.values[key] = np.zeros(size) if self._source is None else self._source(user, round, purpose, size)
        return self.values[key].copy()

    @property
    def repeated(self) -> list[Request]:
        """Requests made more than once: noise that is reused in two releases cancels in their difference."""
        return sorted({key for key in self.requests if self.requests.count(key) > 1})


# Noise.


@dataclass(frozen=True)
class NoiseLaw:
    """Kolmogorov-Smirnov p-values of a sample against normal distributions of the declared scale, 2/3 and 3/2 of it."""

    p_value: float
    p_two_thirds: float
    p_three_halves: float
    alpha: float

    @property
    def holds(self) -> bool:
        """Whether the declared scale is accepted and both others are rejected, so that the sample was large enough."""
        return self.p_value >= self.alpha > max(self.p_two_thirds, self.p_three_halves)


def noise_law(samples: ArrayLike, std: float, *, alpha: float = ALPHA) -> NoiseLaw:
    """Whether `samples` (any shape, a thousand values or more) are normal with mean 0 and `std`."""
    if not std > 0:
        raise ValueError(f"std is {std}; the declared standard deviation of noise must be above 0")
    values = np.asarray(samples, dtype=np.float64).ravel()
    if not np.isfinite(values).all():
        return NoiseLaw(0.0, 0.0, 0.0, alpha)
    right, small, large = (float(stats.kstest(values / (std * by), "norm").pvalue) for by in (1.0, 2 / 3, 3 / 2))
    return NoiseLaw(right, small, large, alpha)


def single_precision_share(samples: ArrayLike, std: float = 1.0) -> float:
    """Share of values that carry at most the 24 bits of a float32, before or after they were scaled by `std`.

    About 1e-8 for float64 noise, 1 for float32 noise in a float64 array. The low bits of a sum of
    coarse noise and data reveal the data (Mironov 2012; Jin et al. 2022).
    """
    values = np.asarray(samples, dtype=np.float64).ravel()
    coarse = np.zeros(len(values), dtype=bool)
    for unit in (values, values / std):
        # Scaling and dividing again moves a value by two roundings at most.
        coarse |= np.abs(unit - unit.astype(np.float32)) <= 4 * np.spacing(np.abs(unit))
    return float(coarse.mean())


@dataclass(frozen=True)
class Correlation:
    """The largest correlation between two rows of noise (or a row and itself, shifted), and its Bonferroni p-value."""

    largest: float
    rows: tuple[int, int]
    shift: int
    p_value: float
    alpha: float

    @property
    def holds(self) -> bool:
        """Whether the rows look independent."""
        return self.p_value >= self.alpha


def noise_correlation(noises: ArrayLike, *, alpha: float = ALPHA) -> Correlation:
    """Whether the rows of `noises` (n, size), of users or rounds, are uncorrelated at every (circular) shift.

    Finds shared seeds, also where streams are scaled differently or one begins inside another, and
    a row that repeats itself.
    """
    rows = np.asarray(noises, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] < 3:
        raise ValueError(f"noises have shape {rows.shape}; give rows of noise, one for each user and round")
    centred = rows - rows.mean(axis=1, keepdims=True)
    spectra = np.fft.rfft(centred / np.linalg.norm(centred, axis=1, keepdims=True), axis=1)
    size, best, where, shift = rows.shape[1], 0.0, (0, 0), 0
    for first in range(len(rows)):
        found = np.fft.irfft(spectra[first] * spectra[first:].conj(), size, axis=1)
        found[0, 0] = 0.0  # every row equals itself
        if size % 2 == 0:
            found[0, size // 2] /= math.sqrt(2.0)  # a shift by half the size counts every product twice
        other, at = np.unravel_index(int(np.abs(found).argmax()), found.shape)
        if abs(found[other, at]) > abs(best):
            best, where, shift = float(found[other, at]), (first, first + int(other)), int(at)
    tests = size * len(rows) * (len(rows) + 1) / 2
    p_value = min(1.0, tests * 2.0 * float(stats.norm.sf(abs(best) * math.sqrt(size))))
    return Correlation(best, where, shift, p_value, alpha)


# White-box checks on neighbouring data sets.


@dataclass(frozen=True)
class Change:
    """Change of a released array between two neighbours: its L2 norm, the pair, and the difference itself."""

    norm: float
    pair: int
    difference: Floats


def sensitivity_found(
    mechanism: Mechanism[Data], pairs: Iterable[tuple[Data, Data]], source: Source | None = None
) -> dict[str, Change]:
    """The largest change of every released name over `pairs` of neighbouring data sets.

    Noise is off, or the same on both when a `source` is given. The change is infinite for a name that only one
    neighbour releases, another shape, or NaN. So it is for `"requests"`, which is present when a mechanism's
    noise requests differ between neighbours.
    """
    worst: dict[str, Change] = {}
    for number, (one, other) in enumerate(pairs):
        noise = RecordedNoise(source)
        first = dict(mechanism(one, noise))
        asked = noise.requests.copy()
        second = dict(mechanism(other, noise))
        changes = {name: _difference(first.get(name), second.get(name)) for name in {*first, *second}}
        if noise.requests[len(asked) :] != asked:
            changes["requests"] = np.array([math.inf])
        for name, difference in changes.items():
            norm = float(np.linalg.norm(difference))
            if name not in worst or norm > worst[name].norm:
                worst[name] = Change(norm, number, difference)
    return worst


def _difference(one: ArrayLike | None, other: ArrayLike | None) -> Floats:
    """Flat difference of two released arrays; infinite where they cannot be compared."""
    first, second = (np.asarray(math.nan if value is None else value, dtype=np.float64) for value in (one, other))
    if first.shape != second.shape:
        return np.array([math.inf])
    with np.errstate(invalid="ignore"):
        change = np.where(first == second, 0.0, first - second).ravel()
    return np.where(np.isnan(change), math.inf, change)


@dataclass(frozen=True)
class Leak:
    """A released name that violates its declaration: the reason, the value found and the value allowed."""

    name: str
    reason: Literal["undeclared", "sensitivity", "noise"]
    found: float
    allowed: float


def leaks(
    mechanism: Mechanism[Data],
    declared: Mapping[str, Declared],
    pairs: Iterable[tuple[Data, Data]],
    sources: Iterable[Source],
    *,
    tolerance: float = TOLERANCE,
    alpha: float = ALPHA,
) -> list[Leak]:
    """All releases that violate their declaration; empty for a correct mechanism.

    `undeclared`: a released name without a declaration. `sensitivity`: it changes more between
    neighbours than declared. `noise`: on the data of the first pair, run once with each of `sources`, its
    noise does not follow the declared distribution (a thousand values in all are enough), or none is declared
    although it changes.
    """
    neighbours = list(pairs)
    found = []
    for name, change in sorted(sensitivity_found(mechanism, neighbours).items()):
        if name not in declared:
            found.append(Leak(name, "undeclared", change.norm, 0.0))
        elif change.norm > declared[name].sensitivity * (1.0 + tolerance):
            found.append(Leak(name, "sensitivity", change.norm, declared[name].sensitivity))
    noises = [added_noise(mechanism, neighbours[0][0], source) for source in sources]
    for name, law in sorted(declared.items()):
        values = [noise[name].ravel() for noise in noises if name in noise]
        if values and not _noise_holds(np.concatenate(values), law, alpha):
            found.append(Leak(name, "noise", float(np.concatenate(values).std()), law.noise_std))
    return found


def _noise_holds(values: Floats, law: Declared, alpha: float) -> bool:
    """Whether noise is as declared: of the right distribution, or none where the sensitivity is 0."""
    if law.noise_std > 0:
        return noise_law(values, law.noise_std, alpha=alpha).holds
    return law.sensitivity == 0 and not values.any()


def added_noise(mechanism: Mechanism[Data], data: Data, source: Source) -> dict[str, Floats]:
    """The noise that `source` adds to every released name, in the array's shape."""
    loud, quiet = mechanism(data, source), mechanism(data, RecordedNoise())
    return {name: np.asarray(loud[name], np.float64) - np.asarray(quiet[name], np.float64) for name in loud}


def resends_differ(mechanism: Mechanism[Data], data: Data, source: Source) -> list[str]:
    """Released names whose bytes differ when the same release is sent again.

    A retransmission with new noise is a second release: an average of copies has less noise than was charged.
    """
    one, other = mechanism(data, source), mechanism(data, source)
    sent, again = ({name: np.asarray(value).tobytes() for name, value in release.items()} for release in (one, other))
    return sorted(name for name in {*sent, *again} if sent.get(name) != again.get(name))


# Black-box checks on neighbouring data sets.


@dataclass(frozen=True)
class GaussianAudit:
    """Distance of two neighbours in standard deviations, with its confidence interval, and the claimed one."""

    mu: float
    low: float
    high: float
    claimed: float

    @property
    def verdict(self) -> Literal["violated", "consistent"]:
        """`violated` when the lower confidence bound is above the claim."""
        return "violated" if self.low > self.claimed else "consistent"


def gaussian_audit(
    releases: ArrayLike,
    neighbour_releases: ArrayLike,
    claimed_mu: float,
    *,
    direction: ArrayLike | None = None,
    alpha: float = ALPHA,
) -> GaussianAudit:
    """Estimate mu from many releases on two neighbouring data sets, (n,) scores each, or (n, ...) arrays.

    Arrays are projected on `direction`; the best one is the `difference` that `sensitivity_found` gives.
    For noise that is normal with one scale, as `noise_law` and `spread_p_value` check: then this bound is
    far tighter than one from counts (`covey.privacy.attacks.epsilon_lower_bound`).
    """
    one, other = _scores(releases, direction), _scores(neighbour_releases, direction)
    degrees = len(one) + len(other) - 2
    pooled = math.sqrt((((one - one.mean()) ** 2).sum() + ((other - other.mean()) ** 2).sum()) / degrees)
    gap = abs(float(one.mean() - other.mean()))
    if pooled == 0:
        exact = 0.0 if gap == 0 else math.inf
        return GaussianAudit(exact, exact, exact, claimed_mu)
    mu = gap / pooled
    error = math.sqrt(1 / len(one) + 1 / len(other) + mu**2 / (2 * degrees))
    reach = float(stats.norm.isf(alpha / 2)) * error
    return GaussianAudit(mu, max(0.0, mu - reach), mu + reach, claimed_mu)


def spread_p_value(releases: ArrayLike, neighbour_releases: ArrayLike) -> float:
    """p-value for equal noise energy on two neighbouring data sets, from (n, ...) releases each.

    The scale of the noise can distinguish neighbours even where the declared sensitivity holds, for
    instance when it is divided by a number of samples that differs between them.
    """
    energies = []
    for given in (releases, neighbour_releases):
        values = np.asarray(given, dtype=np.float64).reshape(len(np.asarray(given)), -1)
        energies.append(((values - values.mean(axis=0)) ** 2).sum(axis=1))
    return float(stats.ttest_ind(*energies, equal_var=False).pvalue)


def _scores(releases: ArrayLike, direction: ArrayLike | None) -> Floats:
    """(n,) projections of releases on a direction of any length."""
    values = np.asarray(releases, dtype=np.float64)
    if len(values) < 2:
        raise ValueError(f"there are {len(values)} releases; an estimate needs at least 2, and hundreds to say much")
    if direction is None:
        if values.ndim != 1:
            raise ValueError(f"releases have shape {values.shape}; give the direction to project them on")
        return values
    along = np.asarray(direction, dtype=np.float64).ravel()
    return np.asarray(values.reshape(len(values), -1) @ (along / np.linalg.norm(along)))
