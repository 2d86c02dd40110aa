"""Blocks, broadcasts and noise for a given association, their exact optima, and an independent check."""

from covey.allocation.bcd import (
    JointAllocation,
    JointProblem,
    block_coordinate_descent,
    sequential_allocation,
)
from covey.allocation.blocks import BlockAssignment, assign_blocks, match_blocks
from covey.allocation.checker import Allocation, CheckReport, Constraint, Problem, check
from covey.allocation.exact import ExactSolution, exact_association, exact_blocks
from covey.allocation.groups import TooLargeError
from covey.allocation.interior_point import noise_levels_interior_point
from covey.allocation.noise import NoiseLevels, leakage, noise_levels
from covey.allocation.projection import Grant, project

__all__ = [
    "Allocation",
    "BlockAssignment",
    "CheckReport",
    "Constraint",
    "ExactSolution",
    "Grant",
    "JointAllocation",
    "JointProblem",
    "NoiseLevels",
    "Problem",
    "TooLargeError",
    "assign_blocks",
    "block_coordinate_descent",
    "check",
    "exact_association",
    "exact_blocks",
    "leakage",
    "match_blocks",
    "noise_levels",
    "noise_levels_interior_point",
    "project",
    "sequential_allocation",
]
