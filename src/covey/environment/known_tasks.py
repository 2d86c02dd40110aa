"""Precondition of environments and learned policies: stations know the users' tasks."""

from __future__ import annotations

from covey.errors import ScenarioError
from covey.scenario import Scenario


def check_tasks_are_known(scenario: Scenario) -> None:
    """Raise `ScenarioError` where stations do not know the users' tasks, which learned policies observe."""
    if scenario.security.mode != "none":
        raise ScenarioError(
            f"in scenario '{scenario.name}' stations do not know the users' tasks (security.mode ="
            f" '{scenario.security.mode}'), which environments and learned policies need; use a reference policy such"
            " as greedy, or security.mode = 'none'"
        )
