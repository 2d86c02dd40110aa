"""Block coordinate descent on (30), and the sequential method that it is compared with: blocks, then noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.allocation.blocks import assign_blocks, stations_of
from covey.allocation.noise import leakage, noise_levels
from covey.arrays import BoolArray, FloatArray, IntArray
from covey.network.limits import RadioLimits

#: Relative decrease of the objective below which descent stops.
_MIN_GAIN = 1e-12


@dataclass(frozen=True)
class JointAllocation:
    """Blocks and noise of a selection.

    station: (U,) selecting station; block: (U,), -1 for none; noise_std: (U,), 0 where not served;
    objective: (30); passes: iterations over both steps, including the last, which gained nothing.
    """

    station: IntArray
    block: IntArray
    noise_std: FloatArray
    objective: float
    passes: int


@dataclass(frozen=True)
class JointProblem:
    """An instance of (30).

    gains: (U, B); selected: (B, U), at most one station per user; samples: (U,); identities: (U,);
    leakage_weight: gamma; the rest as in `assign_blocks` and `noise_levels`.
    """

    gains: FloatArray
    selected: BoolArray
    samples: FloatArray
    identities: IntArray
    radio: RadioLimits
    v_max: float
    n_min: float
    leakage_weight: float
    first_station: int = 0

    def objective(self, block: IntArray, noise_std: FloatArray) -> float:
        """(30): the share of samples left out, plus the weighted leakage of the served users per sample."""
        left_out = self.selected.any(axis=0) & (block < 0)
        served = np.flatnonzero(block >= 0)
        leaked = leakage(self.samples[served], noise_std[served]).sum()
        return float((self.samples[left_out].sum() + self.leakage_weight * leaked) / self.samples.sum())

    def blocks_for(self, selected: BoolArray, weights: FloatArray) -> IntArray:
        """The block step: blocks (U,) for the largest total weight of these users."""
        return assign_blocks(self.gains, selected, weights, self.radio, first_station=self.first_station).block

    def noise_for(self, block: IntArray) -> FloatArray:
        """The noise step: standard deviations (U,) of the users that hold a block."""
        return noise_levels(self.samples, np.where(block >= 0, self.identities, -1), self.v_max, self.n_min).std


def sequential_allocation(problem: JointProblem) -> JointAllocation:
    """Blocks that serve as many samples as possible, then noise of least leakage."""
    block = problem.blocks_for(problem.selected, problem.samples)
    std = problem.noise_for(block)
    return JointAllocation(stations_of(problem.selected), block, std, problem.objective(block, std), 1)


def block_coordinate_descent(problem: JointProblem, max_passes: int = 50) -> JointAllocation:
    """Alternate blocks given the noise and noise given the blocks until (30) no longer decreases (errata E31).

    Given the noise, a block for user i is worth X_i - gamma / (X_i std_i)^2: nothing unless
    X_i > (gamma / std_i^2)^(1/3). Where that holds for all users and all can be served, the result is the
    sequential one; otherwise users whose leakage costs more than their data are worth are dropped.
    """
    noise_std = np.full(len(problem.samples), np.sqrt(problem.v_max))
    station = stations_of(problem.selected)
    block = np.full(len(station), -1, dtype=np.int64)
    std = np.zeros(len(station))
    objective = np.inf
    passes = 0
    while passes < max_passes:
        passes += 1
        worth = problem.samples - problem.leakage_weight * leakage(problem.samples, noise_std)
        next_block = problem.blocks_for(problem.selected & (worth > 0), worth)
        next_std = problem.noise_for(next_block)
        next_objective = problem.objective(next_block, next_std)
        if next_objective >= objective * (1.0 - _MIN_GAIN):
            break
        block, std, objective = next_block, next_std, next_objective
        # Users without a block have no noise of their own; they keep the last one for the next block step.
        noise_std = np.where(block >= 0, std, noise_std)
    return JointAllocation(station, block, std, objective, passes)
