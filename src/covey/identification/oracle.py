"""`oracle`: users are told their true group; a reference, not a method."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from covey.identification.rule import Identification, Ints, Rule, RuleRound


class Oracle(Rule):
    """True groups in every round."""

    paper: ClassVar[str] = "none: a reference"
    computes: ClassVar[str] = "nothing"
    sees: ClassVar[str] = "everybody is told the true groups"
    costs: ClassVar[str] = "0"
    air: ClassVar[str] = "none"
    suits: ClassVar[str] = "an upper reference where the true groups are known"
    limits: ClassVar[str] = "it is not a method: nobody knows the groups"
    needs: ClassVar[frozenset[str]] = frozenset({"truth"})
    note: ClassVar[str] = "True groups were given to the users (oracle): a reference, not a method."

    def start(self, users: int, tasks: int, truth: Ints, rng: np.random.Generator) -> Ints:
        """The true groups, (U,)."""
        return truth.copy()

    def identify(self, at: RuleRound) -> Identification:
        """The true groups, also in the first round and between announcements."""
        return at.kept(at.truth.copy())
