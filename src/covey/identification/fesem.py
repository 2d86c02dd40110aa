"""`fesem`: stations assign every uploaded local model to the nearest task model (FeSEM)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from covey.identification.gather import Gathering
from covey.identification.heard import Heard, heard_steps
from covey.identification.partition import best_partition
from covey.identification.rule import Floats, Identification, Ints, Regrouped, Rule, RuleRound, Trained, Weights
from covey.seeding import generator

_STARTED = "fesem_started"


class Fesem(Rule):
    """Expectation: an upload belongs to the nearest model. Maximisation: a model is the mean of its uploads.

    All users begin with one model, because distances between models that were drawn at random exceed every step;
    k-means on what was gathered from it gives the first task models. The distance of an upload to the models of the
    round has the same noise for every model, D tau_i^2, so that nothing biases the choice; the new ones hold the upload
    itself. Users that were not heard keep their task.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"single_uploads", "fresh_steps"})
    paper: ClassVar[str] = "FeSEM (Xie et al. 2020, arXiv 2005.01026)"
    computes: ClassVar[str] = "nothing beyond its local step"
    air: ClassVar[str] = "nothing more"
    limits: ClassVar[str] = (
        "with one step a round nobody is reassigned once models differ; users never heard keep their task"
    )
    sees: ClassVar[str] = "stations see every single noised upload and tell users their task"
    costs: ClassVar[str] = "nothing beyond the uploads"
    suits: ClassVar[str] = (
        "long local training, which leads users far from where they started. Not single steps: once models are farther"
        " apart than a step leads, nobody changes any more, and late users stay where they are; not under masks"
    )

    def start(self, users: int, tasks: int, truth: Ints, rng: np.random.Generator) -> Ints:
        """Task 0 for everybody, (U,)."""
        return np.zeros(users, dtype=np.int64)

    def find(self, at: RuleRound) -> Identification:
        """Nothing is announced: stations told users their task after the last round."""
        return at.kept()

    def after_round(self, at: RuleRound, found: Identification, trained: Trained) -> Regrouped:
        """Task models from the first uploads, or an assignment of the new ones and the models that follow from it."""
        heard = heard_steps(at, found, trained)
        if _STARTED not in found.memory:
            return self._first_models(at, found, heard)
        nearest = nearest_models(at.models, heard.tasks, heard.steps)
        identities = found.identities.copy()
        identities[heard.users] = nearest
        moved = nearest != heard.tasks
        if not moved.any():
            return Regrouped(identities, found.memory)
        models = trained.models.copy()
        for task in np.union1d(nearest[moved], heard.tasks[moved]).tolist():
            rows = nearest == task
            uploads = at.models[heard.tasks[rows]] - heard.steps[rows].astype(np.float64)
            models[task] = _mean(uploads, at.samples[heard.users[rows]]) if rows.any() else at.models[task]
        return Regrouped(identities, found.memory, models, fresh=np.any(models != at.models, axis=1))

    def _first_models(self, at: RuleRound, found: Identification, heard: Heard) -> Regrouped:
        gathering = Gathering.remembered(at).add(heard)
        if not gathering.complete(at.round, at.tasks):
            return Regrouped(found.identities, gathering.memory(), models=at.models)
        users = gathering.users
        weights = at.samples[users].astype(np.float64)
        rng = generator(at.seed, "kmeans", round=at.round)
        parts = best_partition(gathering.products().values, weights, at.tasks, rng)
        uploads = at.models[0] - gathering.means
        models = np.tile(_mean(uploads, at.samples[users]), (at.tasks, 1))
        for part in range(int(parts.max()) + 1):
            models[part] = _mean(uploads[parts == part], at.samples[users[parts == part]])
        identities = found.identities.copy()
        identities[users] = parts
        return Regrouped(
            identities,
            {_STARTED: np.ones(1, dtype=np.int64)},
            models,
            movements=models - at.models[0],
            fresh=np.ones(at.tasks, dtype=bool),
        )


def nearest_models(models: Weights, tasks: Ints, steps: Weights) -> Ints:
    """The model (n,) nearest to each upload; of equally near ones the user's own, else the lowest.

    models: (K, D); users stepped by `steps` (n, D) from the models of their `tasks` (n,). Squared distances are
    compared by |w_k - w_own|^2 + 2 <w_k - w_own, step>: what an upload's noise adds to all of them alike is left out.
    """
    nearest = tasks.copy()
    all_models = models.astype(np.float64)
    for task in np.unique(tasks).tolist():
        rows = tasks == task
        apart = all_models - all_models[task]
        farther = (apart**2).sum(axis=1) + 2 * steps[rows].astype(np.float64) @ apart.T
        best = farther.argmin(axis=1)
        nearest[rows] = np.where(farther[np.arange(len(best)), best] < 0.0, best, task)
    return nearest


def _mean(uploads: Floats, samples: Ints) -> Weights:
    """(D,) mean of `uploads` (n, D) weighted by `samples` (n,)."""
    return np.asarray(np.average(uploads, axis=0, weights=samples), dtype=np.float32)
