"""Figures and claims: experiments on top of the library; they hold no algorithms."""

from typing import Final

#: All figures in display order; `plans.FIGURES`, which defines their cells, takes seconds to import.
FIGURE_NAMES: Final = (
    "2", "3", "4", "5", "6", "7", "8", "9", "10", "optimum", "transfer", "privacy", "noise", "bound",
)  # fmt: skip
