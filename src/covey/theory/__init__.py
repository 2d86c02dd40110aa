"""Convergence: the printed theorems, the corrected ones, and the corrected bound on real rounds.

The derivation is in docs/theory.md.
"""

from covey.theory.bound import CAUSES, Bound
from covey.theory.curvature import Curvature, estimated_curvature, largest_of, softmax_curvature
from covey.theory.measured_steps import StepMeasures, lemma, measure_step, measure_users, one_step, split, worst_case
from covey.theory.participation import (
    Participation,
    expected_participation,
    noise_energy,
    participation,
    shares,
)
from covey.theory.run_bound import RunBound, Stationarity, TaskBound
from covey.theory.theorems import (
    long_run,
    printed_proposition_1,
    printed_theorem_1,
    printed_theorem_2,
    proposition_1,
    stationarity,
    theorem_1,
    theorem_2,
)

__all__ = [
    "CAUSES",
    "Bound",
    "Curvature",
    "Participation",
    "RunBound",
    "Stationarity",
    "StepMeasures",
    "TaskBound",
    "estimated_curvature",
    "expected_participation",
    "largest_of",
    "lemma",
    "long_run",
    "measure_step",
    "measure_users",
    "noise_energy",
    "one_step",
    "participation",
    "printed_proposition_1",
    "printed_theorem_1",
    "printed_theorem_2",
    "proposition_1",
    "shares",
    "softmax_curvature",
    "split",
    "stationarity",
    "theorem_1",
    "theorem_2",
    "worst_case",
]
