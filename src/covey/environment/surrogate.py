"""A model of learning that costs microseconds: the one-step bound as a recursion, with fitted constants.

State is the loss L[g, k] of every true group g on every task's model k. Whenever task k is served, each group's loss on
it changes by what its own samples do and by what the others' do, in their shares 1 - w and w of all that trained it,
by a term for mixed company, is pushed up by the share m of the group's own samples that did not take part, and by the
noise n of the mean update:

    L <- L + (1 - w) own(L) + w other(L) + w (1 - w) mixed(L) + missing m^2 + noise n

The terms are those of the one-step bound: contraction, wrong users, missing users, noise. The bound squares w, since it
bounds the length of an error; real steps follow the mean gradient, whose effect on a loss is linear in the shares to
first order. Squared, half-mixed models look far better than they are, and policies that serve many users with them.
`own` is piecewise linear because networks first have to leave a plateau and slow down at the end; `other` and `mixed`
are linear in L. A task that nobody serves keeps its model. A user announces the task whose model seems to fit it best:
its group's losses plus an offset of its own and the error of judging by a sample, new in every round.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray, dense
from covey.compiled import compiled


@dataclass(frozen=True)
class Constants:
    """Fitted constants of the surrogate.

    start, start_std: mean and spread of the untrained models' losses; knots, own: losses and what a round of the
    group's own samples changes there, between them on straight lines and beyond them constant; other, mixed, missing,
    noise: of the recursion; floor, ceiling: the smallest and the largest loss of a group seen; offset_std: spread of a
    user's losses around its group's; judgement_std: spread of the error with which users compare their losses.
    """

    start: float
    start_std: float
    knots: tuple[float, ...]
    own: tuple[float, ...]
    other: tuple[float, float]
    mixed: tuple[float, float]
    missing: float
    noise: float
    floor: float
    ceiling: float
    offset_std: float
    judgement_std: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The constants that `to_dict` gave, also after JSON; `KeyError` or `TypeError` when they are not these."""
        lists = {name: tuple(values[name]) for name in ("knots", "own", "other", "mixed")}
        return cls(**values | lists)


def announced(losses: FloatArray, groups: IntArray, offsets: FloatArray) -> IntArray:
    """(N, U): the task whose model fits each user best; losses: (N, G, K), groups: (N, U), offsets: (N, U, K)."""
    return _announced(dense(losses, np.float64), dense(groups, np.int64), dense(offsets, np.float64))


@compiled
def _announced(losses: FloatArray, groups: IntArray, offsets: FloatArray) -> IntArray:
    networks, users, tasks = offsets.shape
    if groups.shape != (networks, users) or losses.shape[0] != networks or losses.shape[2] != tasks:
        raise ValueError("losses, groups and offsets do not fit together; they must be (N, G, K), (N, U) and (N, U, K)")
    found = np.zeros((networks, users), dtype=np.int64)
    for n in range(networks):
        for i in range(users):
            if not 0 <= groups[n, i] < losses.shape[1]:
                raise IndexError("a user's group is beyond the last; number them from 0")
            least = np.inf
            for task in range(tasks):
                seems = losses[n, groups[n, i], task] + offsets[n, i, task]
                if seems < least:
                    least, found[n, i] = seems, task
    return found


def own_losses(losses: FloatArray, groups: IntArray, tasks: IntArray) -> FloatArray:
    """(N, U): the loss of each user on the model of its task; losses: (N, G, K), groups, tasks: (N, U)."""
    return _own_losses(dense(losses, np.float64), dense(groups, np.int64), dense(tasks, np.int64))


@compiled
def _own_losses(losses: FloatArray, groups: IntArray, tasks: IntArray) -> FloatArray:
    networks, users = groups.shape
    if tasks.shape != groups.shape or len(losses) != networks:
        raise ValueError("losses, groups and tasks do not fit together; they must be (N, G, K), (N, U) and (N, U)")
    found = np.empty((networks, users))
    for n in range(networks):
        for i in range(users):
            if not (0 <= groups[n, i] < losses.shape[1] and 0 <= tasks[n, i] < losses.shape[2]):
                raise IndexError("a user's group or task is beyond the last; number them from 0")
            found[n, i] = losses[n, groups[n, i], tasks[n, i]]
    return found


def recursion(
    constants: Constants, losses: FloatArray, wrong: FloatArray, missing: FloatArray, noise: FloatArray
) -> FloatArray:
    """Losses after one served round; all arrays have the same shape, `noise` is sum std^2 / N^2 over served users."""
    own = np.interp(losses, constants.knots, constants.own)
    weights = (*constants.other, *constants.mixed, constants.missing, constants.noise)
    after = _recursion(
        dense(losses, np.float64).ravel(),
        dense(own, np.float64).ravel(),
        dense(wrong, np.float64).ravel(),
        dense(missing, np.float64).ravel(),
        dense(noise, np.float64).ravel(),
        tuple(map(float, weights)),
        (float(constants.floor), float(constants.ceiling)),
    )
    return after.reshape(losses.shape)


@compiled
def _recursion(
    losses: FloatArray,
    own: FloatArray,
    wrong: FloatArray,
    missing: FloatArray,
    noise: FloatArray,
    weights: tuple[float, ...],
    limits: tuple[float, float],
) -> FloatArray:
    """`recursion` in one pass, from what the own samples change; all arrays: (M,)."""
    other, other_slope, mixed, mixed_slope, missing_weight, noise_weight = weights
    after = np.empty(len(losses))
    for m in range(len(losses)):
        loss, w = losses[m], wrong[m]
        changed = loss + (1.0 - w) * (own[m] + w * (mixed + mixed_slope * loss)) + w * (other + other_slope * loss)
        changed += missing_weight * (missing[m] * missing[m]) + noise_weight * noise[m]
        after[m] = min(max(changed, limits[0]), limits[1])
    return after


def learn(
    constants: Constants,
    losses: FloatArray,
    groups: IntArray,
    identities: IntArray,
    samples: IntArray,
    served: BoolArray,
    noise_std: FloatArray,
) -> FloatArray:
    """Losses (N, G, K) of the true groups on all models after a round, from those before.

    groups, identities, samples, served, noise_std: (N, U).
    """
    sizes = (losses.shape[1], losses.shape[2])
    wrong, missing, noise, trained = composition(groups, identities, samples, served, noise_std, *sizes)
    after = recursion(constants, losses, wrong, missing, noise)
    return np.where(trained, after, losses)


def composition(
    groups: IntArray,
    identities: IntArray,
    samples: IntArray,
    served: BoolArray,
    noise_std: FloatArray,
    count: int,
    tasks: int,
) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """What trained every model, seen from every group, (N, G, K) each: the share of other groups, the share of the
    group's own samples that is missing, the noise of the mean update, and whether anybody trained it at all.

    count, tasks: G and K.
    """
    arrays = dense(groups, np.int64), dense(identities, np.int64), dense(samples, np.float64), dense(served, np.bool_)
    joined, total, wrong, lacking, trained = _shares(*arrays, count, tasks)
    noise = joined @ (noise_std**2)[:, :, None]  # (N, K, 1)
    return wrong, lacking, _per_sample(noise, total, count), trained


@compiled
def _shares(
    groups: IntArray, identities: IntArray, samples: FloatArray, served: BoolArray, count: int, tasks: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, BoolArray]:
    """Who joined, (N, K, U) of 0 and 1, the samples that joined, (N, K), and the answers of `composition` but noise."""
    networks, users = groups.shape
    if not groups.shape == identities.shape == samples.shape == served.shape:
        raise ValueError("groups, identities, samples and served do not fit together; all must be (N, U)")
    joined, total = np.zeros((networks, tasks, users)), np.zeros((networks, tasks))
    wrong, lacking = np.ones((networks, count, tasks)), np.ones((networks, count, tasks))
    trained = np.zeros((networks, count, tasks), dtype=np.bool_)
    both, held = np.empty((count, tasks)), np.empty(count)
    for n in range(networks):
        both[:] = 0.0
        held[:] = 0.0
        for i in range(users):
            group, task = groups[n, i], identities[n, i]
            if not 0 <= group < count:
                raise IndexError("a user's group is beyond the last; number them from 0")
            held[group] += samples[n, i]
            if served[n, i] and 0 <= task < tasks:
                joined[n, task, i] = 1.0
                total[n, task] += samples[n, i]
                both[group, task] += samples[n, i]
        for group in range(count):
            for task in range(tasks):
                if total[n, task] > 0:
                    trained[n, group, task] = True
                    wrong[n, group, task] = 1.0 - both[group, task] / total[n, task]
                if held[group] > 0:
                    lacking[n, group, task] = 1.0 - both[group, task] / held[group]
    return joined, total, wrong, lacking, trained


@compiled
def _per_sample(noise: FloatArray, total: FloatArray, count: int) -> FloatArray:
    """(N, G, K) noise of the mean update, the same for all groups, from its sum (N, K, 1) and the samples (N, K)."""
    networks, tasks = total.shape
    mean = np.zeros((networks, count, tasks))
    for n in range(networks):
        for task in range(tasks):
            if total[n, task] > 0:
                mean[n, :, task] = noise[n, task, 0] / (total[n, task] * total[n, task])
    return mean
