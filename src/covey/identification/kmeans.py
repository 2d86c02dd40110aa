"""`kmeans`: stations cluster local models that all users trained from one common model and uploaded."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.identification.measures import best_match, count_pairs
from covey.identification.rule import Floats, Identification, Ints, Rule, RuleRound, Weights
from covey.seeding import generator

_STARTS = 20
#: Weights turned to float64 at once: large models of many users would not fit twice.
_COLUMNS = 1 << 16


@dataclass(frozen=True)
class Gathered:
    """Uploads that started from one model: weights (n, D); start (D,); noise_std (n,) on each weight; samples (n,)."""

    weights: Weights
    start: Weights
    noise_std: Floats
    samples: Ints


class KMeans(Rule):
    """Central clustering of noised uploads.

    The common model is the mean of the task models: local models are comparable only when they started from the same
    weights. The uploads are clipped, noised and charged like any other; users that cannot afford one keep their task.
    """

    paper: ClassVar[str] = "arXiv:2507.07320, its comparison by central clustering"
    computes: ClassVar[str] = "a local step from the mean of all models"
    sees: ClassVar[str] = "stations see a noised upload of every user"
    costs: ClassVar[str] = "one more noised upload per user and announcement"
    suits: ClassVar[str] = "little noise and few weights"
    limits: ClassVar[str] = (
        "noise of uploads, which grows with the number of weights and differs between users, hides the groups"
    )
    needs: ClassVar[frozenset[str]] = frozenset({"single_uploads"})
    uploads: ClassVar[int] = 1

    def find(self, at: RuleRound) -> Identification:
        """All users upload a step from the common model; k-means on what arrived names their tasks."""
        # Imported here because listing and planning rules needs no torch.
        from covey.federated import Steps, admit
        from covey.federated.training import least_noise

        batch = at.scenario.training.batch
        releases = least_noise(at.scenario.privacy, at.training, at.clip, at.samples)
        noise_std = releases.noise_std
        ledger = at.ledger.copy()
        everyone = np.arange(at.users)
        paid = ledger.charge(everyone, releases)
        users = everyone[paid]
        at.journal.record(at.round, "gradient", users, releases.of(users))
        identities = at.identities.copy()
        if len(users) >= at.tasks:
            start = at.models.mean(axis=0, dtype=np.float64).astype(np.float32)
            steps = Steps(
                users, None, at.clip[users], noise_std[users], at.training.learning_rate, batch,
                at.samples[users], purpose="kmeans_noise", base=start,
            )  # fmt: skip
            result = at.fleet.release(at.round, steps)
            far = at.training.reach(at.clip[users], at.samples[users], noise_std[users], at.models.shape[1])
            nowhere = np.zeros(len(users), dtype=np.int64)
            intake = admit(result.uploads, at.round, users, start[None], nowhere, far)
            came = users[intake.accepted]
            rng = generator(at.seed, "kmeans", round=at.round)
            if len(came) >= at.tasks:
                noise = at.training.upload_noise(noise_std[came], at.samples[came])
                uploads = Gathered(intake.weights[intake.accepted], start, noise, at.samples[came])
                clusters = self.clusters(uploads, at.tasks, rng)
                identities[came] = best_match(count_pairs(clusters, identities[came], at.tasks, at.tasks))[clusters]
        return Identification(identities, ledger, uploaders=users, refused=everyone[~paid], memory=at.memory)

    def clusters(self, uploads: Gathered, tasks: int, rng: np.random.Generator) -> Ints:
        """The cluster of each upload, (n,) from 0 to tasks - 1, by distances as they are."""
        return kmeans_clusters(uploads.weights, tasks, rng)


def kmeans_identities(
    local_models: npt.NDArray[np.floating], current: Ints, tasks: int, rng: np.random.Generator
) -> Ints:
    """The task of each user, (U,), by k-means on the users' `local_models` (U, D).

    Clusters get the task numbers that change the fewest of the `current` identities (U,).
    """
    clusters = kmeans_clusters(local_models, tasks, rng)
    identities: Ints = best_match(count_pairs(clusters, current, tasks, tasks))[clusters]
    return identities


def kmeans_clusters(local_models: npt.NDArray[np.floating], tasks: int, rng: np.random.Generator) -> Ints:
    """The cluster of each of n users, (n,), by k-means on their `local_models` (n, D)."""
    # Imported here because worker processes, which never come here, would spend seconds on it.
    from sklearn.cluster import KMeans as Clusters
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer different models than tasks: the remaining clusters stay empty, which is what we want.
        warnings.simplefilter("ignore", ConvergenceWarning)
        points = _same_distances(local_models)
        means = Clusters(min(tasks, len(points)), n_init=_STARTS, random_state=int(rng.integers(2**31)))
        clusters: Ints = means.fit(points).labels_.astype(np.int64)
    return clusters


def _same_distances(points: npt.NDArray[np.floating]) -> Floats:
    """At most U coordinates with the same distances between the U points as `points` (U, D)."""
    users, size = points.shape
    if size <= users:
        return points.astype(np.float64)
    products = np.zeros((users, users))
    for start in range(0, size, _COLUMNS):
        part = points[:, start : start + _COLUMNS].astype(np.float64)
        part -= part.mean(0)
        products += part @ part.T
    values, vectors = np.linalg.eigh(products)
    coordinates: Floats = vectors * np.sqrt(values.clip(0.0))
    return coordinates
