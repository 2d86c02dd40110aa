"""`oracle`: users are told their true group; a reference, not a method."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from covey.errors import ScenarioError
from covey.identification.rule import Identification, Ints, Rule, RuleRound
from covey.scenario import Scenario


class Oracle(Rule):
    """True groups in every round; tasks beyond the groups stay without users."""

    needs: ClassVar[frozenset[str]] = frozenset({"truth"})
    note: ClassVar[str] = "True groups were given to the users (oracle): a reference, not a method."

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        groups, tasks = scenario.groups, scenario.network.tasks
        if groups > tasks:
            raise ScenarioError(
                f"clustering.rule = 'oracle' gives every group a task of its own, but there are {groups} groups and"
                f" {tasks} tasks; raise network.tasks to {groups}, or choose another rule"
            )

    def start(self, users: int, tasks: int, truth: Ints, rng: np.random.Generator) -> Ints:
        """The true groups, (U,)."""
        return truth.copy()

    def identify(self, at: RuleRound) -> Identification:
        """The true groups, also in the first round and between announcements."""
        return at.kept(at.truth.copy())
