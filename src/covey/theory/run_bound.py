"""The bound on a whole run: per round, accumulated, and as an average squared gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.theory.bound import CAUSES, Array, Bound
from covey.theory.curvature import Curvature
from covey.theory.measured_steps import StepMeasures, lemma, one_step, split, worst_case

#: Relative tolerance of loss comparisons, for the rounding of models to float32.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Stationarity:
    """Weighted mean of ||grad F||^2 over the rounds as measured, and its bounds; weights are effective steps.

    bound: from the actual errors; worst: from participation alone.
    """

    measured: float
    bound: float
    worst: float


@dataclass(frozen=True)
class TaskBound:
    """Bound and measured loss of one task, on the group that it is matched with at the end of the run.

    samples: of the group. lowest: a lower bound of its loss (0 for cross-entropy). All arrays are (T,).
    """

    task: int
    group: int
    samples: int
    learning_rate: float
    lowest: float
    curvature: Curvature
    measures: StepMeasures

    @cached_property
    def bound(self) -> Bound:
        """The one-step bound of every round, with the contribution of each cause."""
        return one_step(self.measures, self.curvature, self.learning_rate)

    @cached_property
    def lemma(self) -> Array:
        """The one-step bound from the whole step at once."""
        return lemma(self.measures, self.curvature, self.learning_rate)

    @cached_property
    def worst(self) -> Array:
        """The one-step bound of the theorem, from participation alone."""
        return worst_case(self.measures, self.curvature, self.learning_rate)

    @cached_property
    def accumulated(self) -> Array:
        """Bound on the loss after every round from the loss before the first: one-step changes added up."""
        return np.asarray(self.measures.loss[0] + np.cumsum(self.bound.total - self.measures.loss))

    @property
    def played(self) -> NDArray[np.bool_]:
        """Rounds with participants; in the others the model does not change, and the bound is the loss."""
        return np.asarray((self.measures.length > 0) | (self.measures.noise_energy > 0))

    @property
    def held(self) -> NDArray[np.bool_]:
        """Where the measured loss, one draw of the noise, is not above the one-step bound on its expectation."""
        return np.asarray(self.measures.next_loss <= self.bound.total + _ROUNDING * np.abs(self.measures.loss))

    @property
    def excess(self) -> Array:
        """How far the measured loss is above the one-step bound, in standard deviations of the noise's effect."""
        above = np.where(self.held, 0.0, self.measures.next_loss - self.bound.total)
        deviation = self.learning_rate * self.measures.chance
        return np.asarray(np.divide(above, deviation, out=np.where(above > 0, np.inf, 0.0), where=deviation > 0))

    @property
    def promised(self) -> NDArray[np.bool_]:
        """Where the one-step bound is below the loss before the step: descent was guaranteed in expectation."""
        return np.asarray(self.bound.total < self.measures.loss)

    def ratio(self, bound: Array) -> Array:
        """A bound on the loss after each round over the measured loss, both above `lowest`."""
        truth = self.measures.next_loss - self.lowest
        return np.asarray((bound - self.lowest) / np.maximum(truth, np.finfo(float).tiny))

    @property
    def looseness(self) -> Array:
        """One-step bound over measured loss."""
        return self.ratio(self.bound.total)

    @property
    def accumulated_looseness(self) -> Array:
        """Accumulated bound over measured loss."""
        return self.ratio(self.accumulated)

    @property
    def effective_steps(self) -> Array:
        """alpha kept L, the step that clipping leaves in units of 1 / L; the theorems require at most 1."""
        return np.asarray(self.learning_rate * self.measures.kept * self.curvature.largest)

    @property
    def path_dominance(self) -> float:
        """Smallest ||grad F||^2 / (2 (F - lowest)) along the path: an empirical Polyak-Lojasiewicz constant."""
        height = 2.0 * (self.measures.loss - self.lowest)
        return float(np.min(self.measures.gradient**2 / np.maximum(height, np.finfo(float).tiny)))

    @cached_property
    def stationarity(self) -> Stationarity:
        """The form that needs no convexity: one-step bounds added up and solved for the gradients."""
        weight = split(self.measures, self.curvature, self.learning_rate).step / 2.0
        total, first = float(weight.sum()), float(self.measures.loss[0]) - self.lowest
        added, worst = self.bound.added.sum(), (self.worst - self.bound.kept).sum()
        measured = float((weight * self.measures.gradient**2).sum()) / total
        return Stationarity(measured, (first + float(added)) / total, (first + float(worst)) / total)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and lists."""
        sums = self.bound.summed()
        return {
            "task": self.task,
            "group": self.group,
            "samples": self.samples,
            "curvature": {
                "largest": self.curvature.largest, "mean": self.curvature.mean, "kind": self.curvature.kind,
                "learning_rate_times_largest": self.learning_rate * self.curvature.largest,
            },
            "dominance_assumed": 0.0,
            "path_dominance": self.path_dominance,
            "lowest_loss": self.lowest,
            "played_rounds": int(self.played.sum()),
            "held_rounds": int((self.held & self.played).sum()),
            "descent_rounds": int((self.measures.next_loss < self.measures.loss).sum()),
            "promised_rounds": int((self.promised & self.played).sum()),
            "looseness_median": _median(self.looseness[self.played]),
            "looseness_max": float(self.looseness[self.played].max()) if self.played.any() else None,
            "accumulated_looseness": float(self.accumulated_looseness[-1]),
            "stationarity": vars(self.stationarity),
            "added": {name: float(value) for name, value in sums.causes.items()},
            "dominant": str(sums.dominant),
            "rounds": {
                **{name: values.tolist() for name, values in vars(self.measures).items()},
                "effective_step": self.effective_steps.tolist(),
                "bound": self.bound.total.tolist(),
                "bound_kept": self.bound.kept.tolist(),
                **{f"bound_{name}": value.tolist() for name, value in self.bound.causes.items()},
                "bound_lemma": self.lemma.tolist(),
                "bound_worst": self.worst.tolist(),
                "bound_accumulated": self.accumulated.tolist(),
                "looseness": self.looseness.tolist(),
                "accumulated_looseness": self.accumulated_looseness.tolist(),
                "dominant": self.bound.dominant.tolist(),
            },
        }  # fmt: skip


@dataclass(frozen=True)
class RunBound:
    """The bounds of all tasks that have a group, and of the run as a whole."""

    tasks: list[TaskBound]

    @property
    def rounds(self) -> int:
        """Rounds played, T."""
        return len(self.tasks[0].measures.loss)

    @property
    def weights(self) -> Array:
        """Each task's share of all samples, so that losses of tasks average to the loss of the run."""
        samples = np.array([task.samples for task in self.tasks], dtype=np.float64)
        return np.asarray(samples / samples.sum())

    @cached_property
    def added(self) -> dict[str, float]:
        """Contribution of each cause to the run's loss bound over all rounds, weighted by samples."""
        sums = [task.bound.summed() for task in self.tasks]
        return {name: float(self.weights @ [float(s.causes[name]) for s in sums]) for name in CAUSES}

    @property
    def shares(self) -> dict[str, float]:
        """Contribution of each cause as a share of the total; 0 where the total is 0."""
        total = sum(self.added.values())
        return {name: value / total if total > 0 else 0.0 for name, value in self.added.items()}

    @property
    def dominant(self) -> str:
        """The cause of largest contribution, "none" where all are 0."""
        return max(self.added, key=lambda name: self.added[name]) if any(self.added.values()) else "none"

    def to_dict(self) -> dict[str, Any]:
        """The run's numbers, then those of every task."""
        looseness = np.concatenate([task.looseness[task.played] for task in self.tasks])
        worst = np.concatenate([task.ratio(task.worst)[task.played] for task in self.tasks])
        loss = self.weights @ np.array([task.measures.next_loss for task in self.tasks])
        accumulated = self.weights @ np.array([task.accumulated for task in self.tasks])
        lowest = float(self.weights @ np.array([task.lowest for task in self.tasks]))
        tasks = [task.to_dict() for task in self.tasks]
        excess = max(float(task.excess.max()) for task in self.tasks)
        return {
            "rounds": self.rounds,
            "steps": sum(task["played_rounds"] for task in tasks),
            "held_steps": sum(task["held_rounds"] for task in tasks),
            "largest_excess": excess if np.isfinite(excess) else None,
            "descent_steps": sum(task["descent_rounds"] for task in tasks),
            "promised_steps": sum(task["promised_rounds"] for task in tasks),
            "looseness_median": _median(looseness),
            "looseness_max": float(looseness.max()) if len(looseness) else None,
            "worst_case_looseness_median": _median(worst),
            "accumulated_looseness": float((accumulated[-1] - lowest) / max(loss[-1] - lowest, np.finfo(float).tiny)),
            "added": self.added,
            "shares": self.shares,
            "dominant": self.dominant,
            "tasks": tasks,
        }


def _median(values: Array) -> float | None:
    return float(np.median(values)) if len(values) else None
