"""The bound on real rounds, from the measured error vectors.

A round moves a task's model by -alpha (u + n): u is the mean of the clipped gradients of the
participating users, n the noise. With g the full gradient of the group, u = kept g + e, and the error e is a
sum of three vectors: the effects of missing users, wrong users and clipping. `kept` is the share of the
gradient that clipping leaves, so that alpha kept is the effective step size; without clipping it is 1 and the
result is the corrected Theorem 1 before its worst cases are taken (docs/theory.md). Where that step is longer
than 1 / L, the excess is an error term of its own, the overshoot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import NDArray

from covey.theory.bound import Array, Bound
from covey.theory.curvature import Curvature
from covey.theory.participation import noise_energy, shares


@dataclass(frozen=True)
class StepMeasures:
    """Measurements of a task's rounds that the bound needs; all arrays are (T,).

    loss, next_loss: F before and after. gradient: ||g||. kept: see the module. along: <g, u>. length: ||u||.
    missing, wrong, clipping, error: norms of the three parts of e, and of e. noise_energy: E||n||^2.
    noise: ||n|| as drawn. chance: standard deviation of <g, n>, the random effect of noise on the loss per unit of
    step size. missing_share, wrong_share: as in `shares`. largest: largest norm of a sample's
    clipped gradient.
    """

    loss: Array
    next_loss: Array
    gradient: Array
    kept: Array
    along: Array
    length: Array
    missing: Array
    wrong: Array
    clipping: Array
    error: Array
    noise_energy: Array
    noise: Array
    chance: Array
    missing_share: Array
    wrong_share: Array
    largest: Array

    @classmethod
    def stack(cls, rounds: Sequence[StepMeasures]) -> Self:
        """The measures of several rounds, one after the other."""
        return cls(**{f.name: np.concatenate([np.atleast_1d(getattr(r, f.name)) for r in rounds]) for f in fields(cls)})


def measure_step(
    *,
    loss: float,
    next_loss: float,
    gradient: Array,
    clipped: Array,
    right: Array,
    served: Array,
    taken: Array,
    moved: Array,
    group_samples: float,
    right_samples: float,
    served_samples: float,
    largest: float,
    noise_energy: float,
) -> StepMeasures:
    """The measures of one round of one task, (1,) each.

    All vectors are (D,), means over samples at the weights before the step, and 0 for an empty set of
    users: gradient: over the group, not clipped. clipped: over the group, clipped. right: over participating users
    of the group, clipped. served: over all participating users, clipped. taken: what they sent, without noise; it
    differs from `served` where they drew batches, and that counts as clipping. moved: the step of the
    model divided by -alpha, with noise.
    """
    square = float(gradient @ gradient)
    projection = float(clipped @ gradient) / square if square > 0 else 1.0
    # Any positive number is valid; where clipping reverses the gradient, the whole difference is its error.
    kept = projection if projection > 0 else 1.0
    missing_share, wrong_share = shares(group_samples, right_samples, served_samples)
    nobody = served_samples == 0  # then nothing was clipped: the whole error is due to missing users
    numbers = {
        "loss": loss,
        "next_loss": next_loss,
        "gradient": np.sqrt(square),
        "kept": kept,
        "along": gradient @ taken,
        "length": np.linalg.norm(taken),
        "missing": kept * np.sqrt(square) if nobody else np.linalg.norm(right - clipped),
        "wrong": np.linalg.norm(served - right),
        "clipping": 0.0 if nobody else np.linalg.norm(clipped - kept * gradient + taken - served),
        "error": np.linalg.norm(taken - kept * gradient),
        "noise_energy": noise_energy,
        "noise": np.linalg.norm(moved - taken),
        "chance": np.sqrt(square * noise_energy / len(gradient)),
        "missing_share": missing_share,
        "wrong_share": wrong_share,
        "largest": largest,
    }
    return StepMeasures(**{name: np.atleast_1d(np.asarray(value, dtype=np.float64)) for name, value in numbers.items()})


def measure_users(
    *,
    loss: float,
    next_loss: float,
    samples: Array,
    member: NDArray[np.bool_],
    served: NDArray[np.bool_],
    sums: Array,
    clipped_sums: Array,
    before: Array,
    clean: Array,
    after: Array,
    learning_rate: float,
    noise_std: Array,
    largest: float,
) -> StepMeasures:
    """`measure_step` from the n users of one task, members of its group and participants, (1,) each.

    samples, member, served: (n,). sums, clipped_sums: (n, D) sums over samples of the gradients at `before` (D,), the
    model before the round; `after` (D,) is the model after it. clean: (m, D) what the m served users would
    have uploaded without noise. noise_std: (n,) of a coordinate of a user's mean gradient.
    """
    count = np.asarray(samples, dtype=np.float64)
    uploads = np.average(clean, axis=0, weights=count[served]) if served.any() else before
    return measure_step(
        loss=loss,
        next_loss=next_loss,
        gradient=_mean(sums, count, member),
        clipped=_mean(clipped_sums, count, member),
        right=_mean(clipped_sums, count, member & served),
        served=_mean(clipped_sums, count, served),
        taken=(before - uploads) / learning_rate,
        moved=(before - after) / learning_rate,
        group_samples=float(count[member].sum()),
        right_samples=float(count[member & served].sum()),
        served_samples=float(count[served].sum()),
        largest=largest,
        noise_energy=float(noise_energy(count, served, noise_std, weights=len(before))),
    )


def _mean(sums: Array, samples: Array, users: NDArray[np.bool_]) -> Array:
    """(D,) mean gradient over the samples of these users; 0 for none."""
    return np.asarray(sums[users].sum(axis=0) / max(float(samples[users].sum()), 1.0))


@dataclass(frozen=True)
class Split:
    """A step as `kept` times the gradient and an error, with kept chosen so that alpha kept <= 1 / L; (T,) each.

    step: alpha kept, of which half times ||g||^2 is taken off the loss at least. error: norm of the rest of the
    step, u - kept g. overshoot: norm of its part along g, where a step is longer than 1 / L.
    """

    kept: Array
    step: Array
    error: Array
    overshoot: Array


def split(measures: StepMeasures, curvature: Curvature, learning_rate: float) -> Split:
    """The split of all rounds that keeps as much of the gradient as descent can use."""
    longest = 1.0 / (learning_rate * max(curvature.largest, np.finfo(np.float64).tiny))
    kept = np.minimum(measures.kept, longest)
    beyond = measures.kept - kept
    along = measures.along - measures.kept * measures.gradient**2  # of the error, before it takes the overshoot
    square = measures.error**2 + 2.0 * beyond * along + (beyond * measures.gradient) ** 2
    overshoot = np.where(measures.length > 0, beyond * measures.gradient, 0.0)
    return Split(kept, learning_rate * kept, np.sqrt(np.maximum(square, 0.0)), overshoot)


def lemma(measures: StepMeasures, curvature: Curvature, learning_rate: float) -> Array:
    """Bound on the expected next loss, (T,), from the whole step at once: only curvature makes it loose."""
    return np.asarray(
        measures.loss
        - learning_rate * measures.along
        + curvature.largest * learning_rate**2 / 2.0 * measures.length**2
        + _noise_cost(measures, curvature, learning_rate)
    )


def one_step(measures: StepMeasures, curvature: Curvature, learning_rate: float) -> Bound:
    """Bound on the expected next loss of every round, (T,), with the contribution of each cause.

    kept: F - step / 2 ||g||^2. The squared error, times step / (2 kept^2), is apportioned to missing users, wrong
    users, clipping and overshoot in proportion to the lengths of their parts; noise is isotropic and costs the
    mean curvature. Never below `lemma`.
    """
    made = split(measures, curvature, learning_rate)
    cost = made.step / 2.0 * (made.error / made.kept) ** 2
    lengths = measures.missing + measures.wrong + measures.clipping + made.overshoot
    unit = np.divide(cost, lengths, out=np.zeros_like(cost), where=lengths > 0)
    return Bound.of(
        kept=measures.loss - made.step / 2.0 * measures.gradient**2,
        missing=unit * measures.missing,
        wrong=unit * measures.wrong,
        clipping=unit * measures.clipping,
        overshoot=unit * made.overshoot,
        noise=_noise_cost(measures, curvature, learning_rate),
    )


def worst_case(measures: StepMeasures, curvature: Curvature, learning_rate: float) -> Array:
    """The same bound, (T,), from participation alone: any gradients of norm up to `largest` are allowed for.

    This is the corrected theorem with zeta_2 = 0 and zeta_1 = largest^2, which clipping guarantees. Never below
    `one_step`.
    """
    made = split(measures, curvature, learning_rate)
    share = np.maximum(measures.missing_share, measures.wrong_share)
    error = 2.0 * measures.largest * share + measures.clipping + made.overshoot
    return np.asarray(
        measures.loss
        - made.step / 2.0 * measures.gradient**2
        + made.step / 2.0 * (error / made.kept) ** 2
        + _noise_cost(measures, curvature, learning_rate)
    )


def _noise_cost(measures: StepMeasures, curvature: Curvature, learning_rate: float) -> Array:
    return np.asarray(curvature.mean * learning_rate**2 / 2.0 * measures.noise_energy)
