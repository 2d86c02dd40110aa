"""Attacks on users' uploads, and the success that differential privacy allows them at most.

Used as regression tests: each attack has to succeed where there is no noise, and to fail where there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from covey.privacy.audit import ALPHA

Floats = NDArray[np.float64]


# Distinguishing neighbouring data sets, and membership inference.


@dataclass(frozen=True)
class Advantage:
    """True minus false positive rate of an attack, with its confidence interval."""

    value: float
    low: float
    high: float


def advantage(members: ArrayLike, others: ArrayLike, *, alpha: float = ALPHA) -> Advantage:
    """Advantage of a threshold attack, from scores of members (n,) and of non-members (m,).

    The threshold is chosen on the first half of the scores and evaluated on the second; the interval
    fails with probability at most `alpha` (Clopper-Pearson).
    """
    (learn_in, judge_in), (learn_out, judge_out) = _halves(members), _halves(others)
    candidates = np.concatenate([learn_in, learn_out])
    threshold = candidates[np.argmax([(learn_in > t).mean() - (learn_out > t).mean() for t in candidates])]
    hits, alarms = int((judge_in > threshold).sum()), int((judge_out > threshold).sum())
    low_hit, high_hit = counted_interval(hits, len(judge_in), alpha / 2)
    low_alarm, high_alarm = counted_interval(alarms, len(judge_out), alpha / 2)
    value = hits / len(judge_in) - alarms / len(judge_out)
    return Advantage(value, float(low_hit - high_alarm), float(high_hit - low_alarm))


def advantage_bound(epsilon: float, delta: float) -> float:
    """The largest advantage that any attack can have on an (epsilon, delta) mechanism."""
    # The same as (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), without overflow.
    return min(1.0, math.tanh(epsilon / 2) + 2 * delta / (math.exp(min(epsilon, 700.0)) + 1))


def gaussian_advantage_bound(mu: float) -> float:
    """The largest advantage on Gaussian releases whose neighbours are `mu` standard deviations apart."""
    return float(2 * stats.norm.cdf(mu / 2) - 1)


def epsilon_lower_bound(scores: ArrayLike, neighbour_scores: ArrayLike, delta: float, *, alpha: float = ALPHA) -> float:
    """Lower bound on the mechanism's epsilon, with confidence 1 - alpha, from (n,) scores on two neighbours.

    The threshold is chosen on the first half of the scores and evaluated on the second (Clopper-Pearson),
    without any assumption about the noise. 0 where nothing is found.
    """
    one, other = _halves(scores), _halves(neighbour_scores)
    chosen, judged = (one[0], other[0]), (one[1], other[1])
    thresholds = np.unique(np.quantile(np.concatenate(chosen), np.linspace(0.005, 0.995, 199)))
    bounds = _epsilons(chosen, thresholds, delta, alpha)
    test, number = np.unravel_index(int(bounds.argmax()), bounds.shape)
    return max(0.0, float(_epsilons(judged, thresholds[[number]], delta, alpha)[test, 0]))


def _epsilons(scores: tuple[Floats, Floats], thresholds: Floats, delta: float, alpha: float) -> Floats:
    """Lower bounds of ln((P - delta) / Q), (4, n): above and below each threshold, in both directions."""
    bounds = []
    for side in (1, -1):
        hits = [(side * values[:, None] > side * thresholds).sum(axis=0) for values in scores]
        (low, high), (low_other, high_other) = (
            counted_interval(count, len(values), alpha) for count, values in zip(hits, scores, strict=True)
        )
        bounds += [(low - delta) / high_other, (low_other - delta) / high]
    return np.log(np.maximum(bounds, np.finfo(np.float64).tiny))


def counted_interval(hits: ArrayLike, trials: int, alpha: float) -> tuple[Floats, Floats]:
    """Clopper-Pearson interval of a probability after `hits` in `trials`; each end fails with at most alpha / 2."""
    count = np.asarray(hits)
    low = np.where(count > 0, stats.beta.ppf(alpha / 2, np.maximum(count, 1), trials - count + 1), 0.0)
    high = np.where(count < trials, stats.beta.isf(alpha / 2, count + 1, np.maximum(trials - count, 1)), 1.0)
    return low, high


def _halves(given: ArrayLike) -> tuple[Floats, Floats]:
    values = np.asarray(given, dtype=np.float64)
    if values.ndim != 1 or len(values) < 4:
        raise ValueError(
            f"scores have shape {values.shape}; give a vector of at least 4, half of which sets the threshold"
        )
    return values[: len(values) // 2], values[len(values) // 2 :]


# A softmax model: one linear layer, its weights (classes, features) flattened, then its biases (classes,).


def softmax_gradients(weights: ArrayLike, x: ArrayLike, label: int, clip: float = math.inf) -> Floats:
    """Gradients (n, D) of the cross-entropy loss of one sample at `weights` (n, D), clipped to the norm `clip`.

    Rows of `weights` are softmax models of `x` (features,). This is the contribution an attacker expects of a sample.
    """
    models, sample = np.asarray(weights, dtype=np.float64), np.append(np.asarray(x, dtype=np.float64).ravel(), 1.0)
    classes = models.shape[1] // len(sample)
    split = classes * (len(sample) - 1)
    logits = models[:, :split].reshape(len(models), classes, -1) @ sample[:-1] + models[:, split:]
    residuals = np.exp(logits - logits.max(axis=1, keepdims=True))
    residuals /= residuals.sum(axis=1, keepdims=True)
    residuals[:, label] -= 1.0
    norms = np.linalg.norm(residuals, axis=1, keepdims=True) * np.linalg.norm(sample)
    residuals *= np.minimum(1.0, clip / np.maximum(norms, np.finfo(np.float64).tiny))
    return np.concatenate([(residuals[:, :, None] * sample[:-1]).reshape(len(models), -1), residuals], axis=1)


def invert_softmax(gradients: ArrayLike, features: int) -> Floats:
    """Samples (n, features) reconstructed from single-sample `gradients` (n, D) of softmax models, up to a factor.

    The gradient of a class's weights is that of its bias times the sample, so the quotient gives the
    sample; the class with the largest bias gradient is the most accurate. Clipping does not prevent it.
    """
    given = np.asarray(gradients, dtype=np.float64)
    weights, biases = _parts(given, features)
    rows = np.arange(len(given))
    best = np.abs(biases).argmax(axis=1)
    return np.asarray(weights[rows, best] / biases[rows, best, None])


def match_softmax(gradients: ArrayLike, expected: ArrayLike, features: int) -> Floats:
    """Samples (n, features), up to a factor, by an attacker who knows the label and the model's output.

    `expected` (n, D) are gradients with the right biases, such as those of any sample near the wanted
    one. All classes are combined by a matched filter, which is optimal in white noise.
    """
    weights = _parts(np.asarray(gradients, dtype=np.float64), features)[0]
    residuals = _parts(np.asarray(expected, dtype=np.float64), features)[1]
    return np.asarray(np.einsum("ncf,nc->nf", weights, residuals))


def correlations(found: ArrayLike, wanted: ArrayLike) -> Floats:
    """Correlation of each row of `found` (n, features) with that of `wanted`, (n,); 0 for a constant row."""
    rows = [np.asarray(given, dtype=np.float64) for given in (found, wanted)]
    one, other = (values - values.mean(axis=1, keepdims=True) for values in rows)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray(np.divide((one * other).sum(axis=1), lengths, out=np.zeros(len(one)), where=lengths > 0))


def _parts(gradients: Floats, features: int) -> tuple[Floats, Floats]:
    """Weight gradients (n, classes, features) and bias gradients (n, classes)."""
    classes, rest = divmod(gradients.shape[1], features + 1)
    if rest:
        raise ValueError(f"gradients have {gradients.shape[1]} values; a softmax model has multiples of {features + 1}")
    return gradients[:, : classes * features].reshape(len(gradients), classes, features), gradients[:, -classes:]
