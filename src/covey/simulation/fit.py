"""Whether data, parts and fleet of a run fit together: whoever cannot give what a part needs refuses before round 1."""

from __future__ import annotations

from collections.abc import Mapping

from covey.data.over_time import DataOverTime
from covey.errors import ScenarioError
from covey.federated import Aggregation, LocalTraining, Members, Personal
from covey.identification import Rule, ScoreRule
from covey.identification.start import Start
from covey.parts import AGGREGATIONS, RULES, UPLINKS, refuse_unmet
from covey.scenario import Scenario
from covey.simulation.world import World


def check_members(scenario: Scenario, members: Members) -> None:
    """Refuse data whose users or groups are not those of the scenario."""
    users = len(members.samples)
    if users != scenario.network.users:
        raise ScenarioError(
            f"the data has {users} users but the scenario {scenario.network.users}; set network.users = {users}"
        )
    if members.groups.max() >= scenario.groups:
        raise ScenarioError(
            f"the data has groups numbered up to {members.groups.max()}, but the scenario {scenario.groups}; set"
            f" data.groups = {members.groups.max() + 1}, and leave out data.mixes and other lists by group"
        )


def check_parts(
    scenario: Scenario,
    lacking: Mapping[str, str],
    rule: Rule,
    start: Start,
    training: LocalTraining,
    aggregation: Aggregation,
    personal: Personal,
    over_time: DataOverTime,
) -> None:
    """Refuse the first part that needs something of `lacking`, which says for each need why it cannot be met."""
    parts = [
        ("clustering.rule", scenario.clustering.rule, rule.needs),
        ("clustering.start", scenario.clustering.start, start.needs),
        ("training.local", scenario.training.local, training.needs),
        ("training.aggregation", scenario.training.aggregation, aggregation.needs),
        ("training.personal", scenario.training.personal, personal.needs),
        ("data.over_time", scenario.data.over_time, over_time.needs),
        ("radio.uplink", scenario.radio.uplink, UPLINKS.build(scenario.radio.uplink, scenario).needs),
    ]
    if isinstance(rule, ScoreRule):
        if not hasattr(rule, "announcement"):
            raise RULES.refused(scenario.clustering.rule, "does not call super().__init__(scenario) when it is made")
        parts.append(("privacy.identity", scenario.privacy.identity, rule.announcement.needs))
    for key, name, needs in parts:
        refuse_unmet(key, name, needs, lacking)
    if scenario.security.mode != "none" and not aggregation.works_under_masks:
        raise AGGREGATIONS.error(
            f"training.aggregation is '{scenario.training.aggregation}', but security.mode is"
            f" '{scenario.security.mode}', which can only carry out the mean weighted by samples and would never call"
            ' its combine; use "mean", or set security.mode = "none"'
        )


def what_is_lacking(scenario: Scenario, members: Members, training: LocalTraining) -> dict[str, str]:
    """What no part can have in this run, by need, and why."""
    lacking = dict(training.withholds)
    if scenario.security.mode != "none":
        lacking["single_uploads"] = lacking["single_announcements"] = (
            f"security.mode is '{scenario.security.mode}', where stations see sums only; choose another, or set"
            ' security.mode = "none"'
        )
    if members.groups.min() < 0:
        lacking["truth"] = "the true groups are not known here; give them, or choose another"
    return lacking


def check_broadcasts(world: World) -> None:
    """Refuse a run whose stations do not know tasks, and could not send all models in a round."""
    scenario, slots = world.scenario, world.limits.radio.downlink_slots
    if world.blind and slots < scenario.network.tasks:
        raise ScenarioError(
            f"with security.mode = '{scenario.security.mode}' all {scenario.network.tasks} models may have to"
            f" be broadcast in a round, but only {slots} fit into radio.downlink_limit_s; raise"
            " it, or radio.downlink_rate_bps"
        )
