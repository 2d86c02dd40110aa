"""Blocks, broadcasts and noise for a given association, their exact optima, and an independent check."""

from covey.allocation.bcd import (
    JointAllocation,
    JointProblem,
    block_coordinate_descent,
    sequential_allocation,
)
from covey.allocation.blocks import BlockAssignment, assign_blocks, min_sinr
from covey.allocation.checker import Allocation, CheckReport, Constraint, Problem, check
from covey.allocation.exact import ExactSolution, exact_association, exact_blocks
from covey.allocation.groups import TooLargeError
from covey.allocation.interior_point import noise_levels_interior_point
from covey.allocation.noise import NoiseLevels, leakage, noise_levels, noise_of_many
from covey.allocation.projection import VIOLATION_KINDS, Plan, Plans, project, project_many

__all__ = [
    "VIOLATION_KINDS",
    "Allocation",
    "BlockAssignment",
    "CheckReport",
    "Constraint",
    "ExactSolution",
    "JointAllocation",
    "JointProblem",
    "NoiseLevels",
    "Plan",
    "Plans",
    "Problem",
    "TooLargeError",
    "assign_blocks",
    "block_coordinate_descent",
    "check",
    "exact_association",
    "exact_blocks",
    "leakage",
    "min_sinr",
    "noise_levels",
    "noise_levels_interior_point",
    "noise_of_many",
    "project",
    "project_many",
    "sequential_allocation",
]
