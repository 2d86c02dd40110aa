"""`mixture`: the first noised uploads, made from one common model, are grouped by a Gaussian mixture (R-DPCFL)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from covey.identification.from_release import released_identities
from covey.identification.gather import Gathering
from covey.identification.heard import Heard, heard_steps
from covey.identification.loss import Loss
from covey.identification.products import Products
from covey.identification.rule import Floats, Identification, Ints, Memory, Regrouped, RuleRound, Trained
from covey.seeding import generator

_STARTS = 20
#: Separation from which on groups are as good as certain (overlap below 0.05).
_APART = 2.0
_POSTERIOR, _UNTIL, _HEARD = "mixture_posterior", "mixture_until", "mixture_heard"


class Mixture(Loss):
    """Stations group first uploads softly; users follow that for a while, and then their own losses.

    All users begin with one model. Once enough were heard, a Gaussian mixture in debiased coordinates of their steps
    gives as many models as groups can be told apart. For up to half of the rounds a user's task is drawn from its
    posterior, the longer the clearer the groups; then users decide by loss, as in the rule `loss`. Users that had not
    been heard draw from the sizes of the groups until their first upload shows which model goes their way. Compute time
    is counted as if users compared models from the second round on, which is an upper bound.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"losses", "single_uploads", "fresh_steps"})
    announcements: ClassVar[tuple[str, ...]] = ("raw", "noisy_max")
    guided: ClassVar[bool] = False  # it has a start of its own
    paper: ClassVar[str] = "R-DPCFL (Malekmohammadi, Taik, Farnadi, TMLR 2025)"
    air: ClassVar[str] = "a task per user in later rounds"
    limits: ClassVar[str] = "groups whose first gradients differ less than their noise, as rotated images"
    sees: ClassVar[str] = "stations see every single noised upload and every user's task"
    costs: ClassVar[str] = "nothing beyond the uploads for the groups; later announcements as `loss`"
    suits: ClassVar[str] = (
        "groups whose first gradients differ by more than the noise; finds fewer groups than tasks. Not under masks,"
        " and weak where most users cannot be heard in the first rounds"
    )

    def start(self, users: int, tasks: int, truth: Ints, rng: np.random.Generator) -> Ints:
        """Task 0 for everybody, (U,)."""
        return np.zeros(users, dtype=np.int64)

    def identify(self, at: RuleRound) -> Identification:
        """One task for all, then draws from the posterior, then announcements."""
        if at.round == 0 or (_POSTERIOR in at.memory and at.round >= int(at.memory[_UNTIL][0])):
            return super().identify(at)
        if _POSTERIOR not in at.memory:
            return at.kept()
        draws = generator(at.seed, "mixture", round=at.round).random(at.users)
        reached = np.cumsum(at.memory[_POSTERIOR], axis=1) > draws[:, None]
        # Rounding can leave the sum a little below 1.
        reached[:, -1] = True
        return at.kept(reached.argmax(axis=1))

    def after_round(self, at: RuleRound, found: Identification, trained: Trained) -> Regrouped:
        """Gathers steps, makes models of them, and places users that are heard late."""
        heard = heard_steps(at, found, trained)
        if _POSTERIOR in found.memory:
            return Regrouped(found.identities, self._placed_late(at, found, heard, trained))
        gathering = Gathering.remembered(at).add(heard)
        if not gathering.complete(at.round, at.tasks):
            return Regrouped(found.identities, gathering.memory(), models=at.models)
        users = gathering.users
        groups = fit_mixture(gathering.products(), at.tasks, generator(at.seed, "mixture", round=at.round))
        uploads = at.models[0] - gathering.means
        models = np.tile(np.average(uploads, axis=0, weights=at.samples[users]), (at.tasks, 1))
        shares = groups.posterior * at.samples[users, None]
        parts = shares.shape[1]
        models[:parts] = (shares.T @ uploads) / shares.sum(axis=0)[:, None]
        posterior = np.zeros((at.users, at.tasks))
        posterior[:, :parts] = groups.posterior.mean(axis=0)
        posterior[users, :parts] = groups.posterior
        rounds = (1 - groups.overlap) * self.scenario.training.rounds / 2
        memory = {
            _POSTERIOR: posterior,
            _UNTIL: np.array([at.round + 1 + round(rounds)]),
            _HEARD: gathering.times > 0,
        }
        # Every model has moved from the common one.
        fresh = np.ones(at.tasks, dtype=bool)
        return Regrouped(
            posterior.argmax(axis=1),
            memory,
            models=models.astype(np.float32),
            movements=(models - at.models[0]).astype(np.float32),
            fresh=fresh,
        )

    def _placed_late(self, at: RuleRound, found: Identification, heard: Heard, trained: Trained) -> Memory:
        """The memory, with a sure posterior for users that were heard for the first time."""
        memory = dict(found.memory)
        late = ~memory[_HEARD][heard.users]
        if not late.any():
            return memory
        users, tasks = heard.users[late], heard.tasks[late]
        own = released_identities(
            -heard.steps[late], tasks, at.samples[users], trained.models - trained.first_models[0], trained.totals
        )
        posterior, known = memory[_POSTERIOR].copy(), memory[_HEARD].copy()
        posterior[users], known[users] = np.eye(at.tasks)[own], True
        return memory | {_POSTERIOR: posterior, _HEARD: known}


@dataclass(frozen=True)
class Groups:
    """A mixture: posterior (n, m) of each user's group, and `separation` of the two groups that are nearest.

    The separation is their distance over twice the larger spread.
    """

    posterior: Floats
    separation: float

    @property
    def overlap(self) -> float:
        """Share of the nearest groups' users that look as if of the other: 2 Q(separation)."""
        return math.erfc(self.separation / math.sqrt(2.0))


def fit_mixture(products: Products, most: int, rng: np.random.Generator) -> Groups:
    """The mixture of `most` spherical Gaussians, or of fewer where these are clearly apart and separated better.

    The coordinates are those in which n users' debiased `products` are largest; the spread of a group is at least that
    of the noise.
    """
    # Imported here because worker processes, which never come here, would spend seconds on it.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    points, floor = coordinates(products, most - 1)
    seed = int(rng.integers(2**31))
    best = Groups(np.ones((len(points), 1)), 0.0)
    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer different points than groups: such a mixture is separated badly.
        warnings.simplefilter("ignore", ConvergenceWarning)
        for parts in range(min(most, len(points)), 1, -1):
            found = GaussianMixture(
                parts, covariance_type="spherical", reg_covar=floor, n_init=_STARTS, init_params="k-means++",
                random_state=seed,
            ).fit(points)  # fmt: skip
            gap = separation(found.means_, np.sqrt(found.covariances_))
            if best.posterior.shape[1] == 1 or gap > max(best.separation, _APART):
                best = Groups(found.predict_proba(points), gap)
    return best


def separation(means: Floats, spreads: Floats) -> float:
    """Smallest distance between two of the `means` (m, d), over twice the larger of their `spreads` (m,)."""
    apart = np.linalg.norm(means[:, None] - means[None], axis=2) / (2 * np.maximum.outer(spreads, spreads))
    return float(apart[~np.eye(len(means), dtype=bool)].min())


def coordinates(products: Products, most: int) -> tuple[Floats, float]:
    """At most `most` coordinates (n, d) of n users about their mean, and the variance that noise gives the first.

    Both in units in which the first coordinate has variance 1. Noise of variance v on every product moves a coordinate
    of eigenvalue e by noise of variance v / e.
    """
    users = products.users
    centring = np.eye(users) - 1.0 / users
    values, vectors = np.linalg.eigh(centring @ products.values @ centring)
    values, vectors = values[::-1], vectors[:, ::-1]
    first = float(values[0])
    if not first > 1e-12 * float(np.abs(products.values).max()):
        return np.zeros((users, 1)), 1.0
    kept = max(1, min(most, int((values > 1e-9 * first).sum())))
    points = vectors[:, :kept] * np.sqrt(values[:kept] / first * users)
    noise = float(products.variance[~np.eye(users, dtype=bool)].mean()) / first / first * users
    return points, min(max(noise, 1e-6), 1.0)
