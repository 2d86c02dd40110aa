"""`loss_vectors`: stations cluster users by their losses on all models, as CLoVE does (arXiv:2506.22427).

A user announces its mean loss on each of the K models. Users of one group have alike losses on every model, whichever
of them they like best; so k-means on the vectors finds the groups, and a one-to-one matching of clusters to models
gives every group a model of its own. Picking the model of smallest loss, as IFCA does, leaves two groups on one model
for good when both like it best at the start.
"""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification.rule import Floats, Ints, Memory, RuleRound, ScoreRule
from covey.seeding import generator

_STARTS = 20
#: Losses that are larger or undefined count as this: k-means squares them.
_WORST = 1e6
#: What an announcement still counts at the next one, where announcements carry noise.
_FADE = 0.8
_TOTALS, _COUNTS = "loss_vectors", "loss_vector_counts"


class LossVectors(ScoreRule):
    """k-means on the users' loss vectors, and the matching of clusters to models with the smallest sum of losses.

    Without noise each announcement is clustered by itself. With noise of known size, stations cluster what users have
    announced so far, older announcements counting less: users of one group have alike losses in every round, however
    the models move, so that the groups add up over rounds and the noise averages out. Levels that would hide them are
    taken out first: that of a user, and that of a model in the round.
    """

    paper: ClassVar[str] = "CLoVE, arXiv:2506.22427"
    computes: ClassVar[str] = "its loss on its samples at every model"
    sees: ClassVar[str] = "stations see K losses of every user"
    air: ClassVar[str] = "K numbers per user"
    suits: ClassVar[str] = "any start, also where groups like one model best; raw finds the groups within rounds"
    limits: ClassVar[str] = (
        "masked uploads, which it is refused with; few samples per user together with a small charge; a user"
        " unlike all others can take a cluster"
    )
    guided: ClassVar[bool] = False  # every model is matched with users
    needs: ClassVar[frozenset[str]] = frozenset({"losses", "single_announcements"})
    announcements: ClassVar[tuple[str, ...]] = ("raw", "noisy_losses", "noisy_contrasts")
    # Forward passes only.
    passes_per_model: ClassVar[float] = 1.0 / 3.0

    def told(self, losses: Floats, similarity: Floats) -> npt.NDArray[Any]:
        """The losses of each user, (n, K), or NaN for users who have none that is finite."""
        known = np.isfinite(losses)
        return np.where(known.any(axis=1, keepdims=True), np.where(known, losses, _WORST).clip(0.0, _WORST), np.nan)

    def hear(self, told: npt.NDArray[Any], users: Ints, at: RuleRound) -> tuple[Ints, Memory]:
        """Tasks (U,) by the vectors `told` (n, K), and their faded sums; users without a vector keep their task."""
        if told.ndim != 2 or told.shape[1] != at.tasks:
            # Nobody told anything, or devices told something else.
            return at.identities, at.memory
        heard = ~np.isnan(told).any(axis=1)
        users, vectors = users[heard], told[heard].clip(-_WORST, _WORST)
        if len(users) == 0:
            return at.identities, at.memory
        memory, weight = at.memory, np.ones(len(users))
        noise_std = self.announcement.noise_std(at.samples[users])
        if noise_std.any():
            vectors, variance, memory = remembered(vectors, noise_std**2, users, at)
            weight = reliability(vectors, variance)
        rng = generator(at.seed, "kmeans", round=at.round)
        identities = at.identities.copy()
        identities[users] = vector_identities(vectors, identities[users], rng, weight)
        return identities, memory


def remembered(vectors: Floats, variance: Floats, users: Ints, at: RuleRound) -> tuple[Floats, Floats, Memory]:
    """Faded means of what `users` (n,) have announced, (n, K), the variance of their noise, (n,), and the memory.

    vectors: (n, K) of this round, with noise of `variance` (n,) on every number. What is remembered is less each
    user's mean and each model's mean in its round; the models' means of this round are added again.
    """
    shares = vectors - vectors.mean(axis=1, keepdims=True)
    level = shares.mean(axis=0)
    totals = np.array(at.memory.get(_TOTALS, np.zeros((at.users, at.tasks))))
    # (U, 2): sums of the weights of all announcements, and of their squares.
    counts = np.array(at.memory.get(_COUNTS, np.zeros((at.users, 2))))
    totals[users] = _FADE * totals[users] + shares - level
    counts[users] = np.array([_FADE, _FADE**2]) * counts[users] + 1.0
    number, squares = counts[users].T
    memory = {**at.memory, _TOTALS: totals, _COUNTS: counts}
    return totals[users] / number[:, None] + level, variance * squares / number**2, memory


def reliability(vectors: Floats, variance: Floats) -> Floats:
    """Weights (n,), at most 1, of users whose `vectors` (n, K) carry noise of `variance` (n,) on every number.

    Inverse to the variance of a vector's numbers around the mean of all vectors: where noise dominates, inverse to the
    noise; where groups do, alike.
    """
    spread = float(np.mean((vectors - vectors.mean(axis=0)) ** 2)) - float(variance.mean())
    weight = 1.0 / (max(spread, 0.0) + variance)
    return np.asarray(weight / weight.max(), dtype=np.float64)


def vector_identities(vectors: Floats, current: Ints, rng: np.random.Generator, weight: Floats | None = None) -> Ints:
    """The task of each user, (n,): the model that its cluster of `vectors` (n, K) is matched to.

    k-means makes at most K clusters, with users of `weight` (n,), all alike when not given; each gets the model by
    which the weighted sum of all users' losses becomes smallest. Ties keep as many `current` tasks (n,) as they can.
    Fewer different vectors than models make fewer clusters, and leave models without users.
    """
    # Imported here because worker processes, which never come here, would spend seconds on it.
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    users, tasks = vectors.shape
    weight = np.ones(users) if weight is None else weight
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        means = KMeans(min(tasks, users), n_init=_STARTS, random_state=int(rng.integers(2**31)))
        clusters = means.fit(vectors, sample_weight=weight).labels_.astype(np.int64)
    cost = np.zeros((tasks, tasks))
    np.add.at(cost, clusters, weight[:, None] * vectors)
    kept = np.zeros((tasks, tasks))
    np.add.at(kept, (clusters, current), 1.0)
    # Far below any difference of losses that means something, and above rounding.
    cost -= 1e-9 * max(float(np.abs(cost).max()), 1e-9) / users * kept
    identities: Ints = linear_sum_assignment(cost)[1].astype(np.int64)[clusters]
    return identities
