"""Which task a user takes for its own, and how well users were grouped."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Rule = Literal["gradient_loss", "loss", "printed_sign"]

_KMEANS_STARTS = 20
#: Weights turned to float64 at once: large models of many users would not fit twice.
_COLUMNS = 1 << 16


def identities_from_scores(
    losses: Floats, similarity: Floats, similarity_weight: float, rule: Rule = "gradient_loss"
) -> Ints:
    """The task of each user, (U,), from its `losses` and `similarity`, both (U, K).

    `gradient_loss` is Eq. (4) with mean losses and the similarity of the descent direction to the
    model's last movement: the printed sign prefers the worst task (errata E1, E2). `printed_sign` is
    that printed form, for comparison; `loss` takes the smallest loss. Ties go to the lowest task. A
    loss that is not finite is worse than any that is.
    """
    if losses.shape != similarity.shape or losses.ndim != 2:
        raise ValueError(f"losses {losses.shape} and similarity {similarity.shape} must both be (users, tasks)")
    if not 0 <= similarity_weight <= 1:
        raise ValueError(f"similarity_weight is {similarity_weight}; it must be between 0 and 1")
    signs = {"gradient_loss": 1.0, "printed_sign": -1.0, "loss": 0.0}
    if rule not in signs:
        raise ValueError(f"rule is '{rule}'; use one of {', '.join(signs)}")
    weight = 0.0 if rule == "loss" else similarity_weight
    similar = signs[rule] * np.nan_to_num(similarity, nan=0.0)
    usable = np.isfinite(losses)
    # With a weight of 1 the loss is out of the score, but not the rule that it has to be finite.
    score = np.where(usable, weight * similar - (1 - weight) * np.where(usable, losses, 0.0), -np.inf)
    identities: Ints = score.argmax(1)
    return identities


def noisy_identities(scores: Floats, scale: Floats, normals: Floats) -> Ints:
    """The task of each user, (n,), with the largest score after Gumbel noise of `scale` (n,).

    scores: (n, K); normals: (n, 2, K) standard normal values, two of which make one Gumbel value: half
    the sum of their squares is exponential, and minus its logarithm is Gumbel.
    """
    gumbel = -np.log(np.maximum((normals**2).sum(axis=1) / 2, np.finfo(np.float64).tiny))
    return np.asarray((scores + scale[:, None] * gumbel).argmax(axis=1), dtype=np.int64)


def identity_noise_scale(samples: Ints, width: float, rho: float) -> Floats:
    """Scale of the Gumbel noise, (n,), that makes an announcement from the mean of `samples` bounded scores cost `rho`.

    One sample moves each mean score by at most width / samples, the sensitivity; the noisy maximum of
    scores of that sensitivity costs epsilon^2 / 8 with scale 2 x sensitivity / epsilon.
    """
    return np.asarray(width / samples / np.sqrt(2.0 * rho), dtype=np.float64)


def released_identities(
    steps: npt.NDArray[np.floating], task: Ints, samples: Ints, paths: npt.NDArray[np.floating], totals: Floats
) -> Ints:
    """The task of each user, (n,), whose model has gone most in the direction of the user's own last noised step.

    steps: (n, D) what each user uploaded, less the model of its `task` (n,) that it started from; paths: (K, D) from
    the first to the newest weights of the models, the last steps having been averaged over totals[k] samples (K,).
    The whole path counts, because noise averages out along it. A user takes its own last step out of its task's path,
    which would otherwise resemble its noise. Users for whom no model has moved keep their task. Nothing is used that
    was not released or broadcast, so that this costs no privacy.
    """
    step, path = steps.astype(np.float64), paths.astype(np.float64)
    rows = np.arange(len(steps))
    size, share = (step**2).sum(axis=1), samples / totals[task]
    products = step @ path.T
    lengths = np.broadcast_to((path**2).sum(axis=1), products.shape).copy()
    inner = products[rows, task]
    products[rows, task] = inner - share * size
    lengths[rows, task] = np.maximum(lengths[rows, task] - 2 * share * inner + share**2 * size, 0.0)
    # Rounding leaves a little of a path that was the user's alone.
    known = lengths > 1e-12 * size[:, None]
    cosines = np.divide(products, np.sqrt(lengths), out=np.full(products.shape, -np.inf), where=known)
    return np.where(known.any(axis=1), cosines.argmax(axis=1), task)


def random_identities(users: int, tasks: int, rng: np.random.Generator) -> Ints:
    """A random task for each user, (U,), with at least one user for every task."""
    if users < tasks:
        raise ValueError(f"{users} users cannot cover {tasks} tasks; there must be at least one user for each task")
    identities = rng.integers(tasks, size=users)
    identities[rng.permutation(users)[:tasks]] = np.arange(tasks)
    return identities


def kmeans_identities(
    local_models: npt.NDArray[np.floating], current: Ints, tasks: int, rng: np.random.Generator
) -> Ints:
    """The task of each user, (U,), by k-means on the users' `local_models` (U, D).

    Clusters get the task numbers that change the fewest of the `current` identities (U,).
    """
    # Imported here because worker processes, which never come here, would spend seconds on it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer different models than tasks: the remaining clusters stay empty, which is what we want.
        warnings.simplefilter("ignore", ConvergenceWarning)
        points = _same_distances(local_models)
        means = KMeans(min(tasks, len(points)), n_init=_KMEANS_STARTS, random_state=int(rng.integers(2**31)))
        clusters = means.fit(points).labels_.astype(np.int64)
    identities: Ints = _best_match(_counts(clusters, current, tasks))[clusters]
    return identities


def clustering_accuracy(identities: Ints, groups: Ints) -> float:
    """Fraction of users in the right group under the best naming of the tasks (errata E18).

    Users whose identity or group is not known (-1) do not count; without any others it is undefined.
    """
    identities, groups = _known(identities, groups)
    if len(groups) == 0:
        return float("nan")
    size = int(max(identities.max(), groups.max())) + 1
    counts = _counts(identities, groups, size)
    return float(counts[np.arange(size), _best_match(counts)].sum() / len(identities))


def matching(identities: Ints, groups: Ints, tasks: int) -> Ints:
    """The group that each task stands for, (K,), by the naming that puts most users right; -1 if no group is known."""
    identities, groups = _known(identities, groups)
    if len(groups) == 0:
        return np.full(tasks, -1, dtype=np.int64)
    return _best_match(_counts(identities, groups, tasks))


def adjusted_rand_index(identities: Ints, groups: Ints) -> float:
    """Agreement of two groupings over pairs of users: 1 when equal, about 0 when independent.

    Users whose identity or group is not known (-1) do not count; without any others it is undefined.
    """
    identities, groups = _known(identities, groups)
    if len(groups) == 0:
        return float("nan")
    counts = _counts(identities, groups, int(max(identities.max(), groups.max())) + 1)

    def pairs(numbers: npt.NDArray[np.int64]) -> float:
        return float((numbers * (numbers - 1) // 2).sum())

    both, first, second = pairs(counts), pairs(counts.sum(1)), pairs(counts.sum(0))
    expected = first * second / max(pairs(counts.sum(keepdims=True)), 1.0)
    largest = (first + second) / 2
    return 1.0 if largest == expected else (both - expected) / (largest - expected)


def _known(identities: Ints, groups: Ints) -> tuple[Ints, Ints]:
    """Both labels of the users who have both."""
    if identities.shape != groups.shape:
        raise ValueError(
            f"labels of {identities.shape} and {groups.shape} users cannot be compared; give one for each user"
        )
    known = (identities != -1) & (groups != -1)
    return identities[known], groups[known]


def _counts(rows: Ints, columns: Ints, size: int) -> Ints:
    """How often each pair of labels occurs, (size, size)."""
    if rows.shape != columns.shape:
        raise ValueError(f"labels of {rows.shape} and {columns.shape} users cannot be compared; give one for each user")
    if rows.size and not (min(rows.min(), columns.min()) >= 0 and max(rows.max(), columns.max()) < size):
        raise ValueError(f"labels must be numbers from 0 to {size - 1}")
    table = np.zeros((size, size), dtype=np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def _best_match(counts: Ints) -> Ints:
    """For each row the column of a one-to-one matching with the largest sum."""
    from scipy.optimize import linear_sum_assignment

    columns: Ints = linear_sum_assignment(counts, maximize=True)[1].astype(np.int64)
    return columns


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
