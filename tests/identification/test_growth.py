"""Models that are taken into use later: whoever can grow does, with nothing charged for nothing; others refuse."""

from __future__ import annotations

import pytest

from covey.errors import ScenarioError
from covey.identification import Rule, build_rule
from covey.parts import RULES
from covey.scenario import Scenario, load_scenario

GROW = ("network.tasks=2", "clustering.max_tasks=4", "training.rounds=8")


def scenario_of(rule: str, identity: str = "raw", *more: str) -> Scenario:
    return load_scenario("quick", [*GROW, f"clustering.rule={rule}", f"privacy.identity={identity}", *more])


def can_grow(rule: type[Rule]) -> bool:
    return rule.guided or rule.grows


@pytest.mark.parametrize("rule", RULES.builtin)
def test_growth_that_cannot_happen_is_refused_where_the_rule_is_made(rule: str) -> None:
    """Offers make models for rules that take them, some rules make models by themselves, and others cannot grow."""
    part = RULES.get(rule)
    for offers in ("true", "false"):
        scenario = scenario_of(rule, part.announcements[0], f"clustering.rescue={offers}")
        if part.grows or (part.guided and offers == "true"):
            assert isinstance(build_rule(scenario), part)
            continue
        words = r"set clustering\.rescue = true" if part.guided else r"leave out clustering\.max_tasks"
        with pytest.raises(ScenarioError, match=rf"models cannot grow from 2 to 4.*{words}") as caught:
            build_rule(scenario)
        assert "\n" not in str(caught.value)
    # A start from uploads makes as many models as it finds groups, without offers.
    started = scenario_of(rule, part.announcements[0], "clustering.rescue=false", "clustering.start=release")
    if can_grow(part):
        assert isinstance(build_rule(started), part)
    full = load_scenario("quick", [f"clustering.rule={rule}", "clustering.first_tasks=4", "clustering.rescue=false"])
    assert isinstance(build_rule(full), part)
