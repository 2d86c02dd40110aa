"""Models that are taken into use later: whoever can grow does, with nothing charged for nothing; others refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from covey.errors import ScenarioError
from covey.federated import Engine
from covey.identification import Rule, build_rule
from covey.identification.start import IN_PLAY, OwnStart, models_in_play
from covey.parts import RULES
from covey.scenario import Scenario, load_scenario
from covey.simulation import Simulation
from covey.simulation.round import begin_round, decide, finish_round

GROW = ("network.tasks=2", "clustering.max_tasks=4", "training.rounds=8")
#: Every built-in rule with each of its announcements.
METHODS = [(rule, identity) for rule in RULES.builtin for identity in RULES.get(rule).announcements]


def scenario_of(rule: str, identity: str = "raw", *more: str) -> Scenario:
    return load_scenario("paper_digits", [*GROW, f"clustering.rule={rule}", f"privacy.identity={identity}", *more])


def can_grow(rule: type[Rule]) -> bool:
    return rule.guided or rule.grows


@pytest.mark.parametrize("start", ["random", "release"])
@pytest.mark.parametrize(("rule", "identity"), METHODS, ids=lambda name: name)
def test_nobody_trains_a_model_that_was_never_sent(rule: str, identity: str, start: str) -> None:
    scenario = scenario_of(rule, identity, f"clustering.start={start}")
    if not can_grow(RULES.get(rule)):
        with pytest.raises(ScenarioError, match=rf"cannot grow from 2 to 4 with clustering\.rule = '{rule}'"):
            Simulation(scenario)
        return
    if start == "release" and not RULES.get(rule).guided:
        with pytest.raises(ScenarioError, match="which has a start of its own"):
            Simulation(scenario)
        return
    for seed in (1000, 1002, 1004):
        with Simulation(scenario, seed=seed) as run:
            while not run.done:
                in_play, before = models_in_play(run.state.memory, 4), run.state.ledger.spent["gradient"].copy()
                users = run.play().users
                served = users.station >= 0
                assert not users.rejection.any(), "every upload is let in"
                np.testing.assert_array_equal(users.joined == 1, served)
                np.testing.assert_array_equal(run.state.ledger.spent["gradient"] > before, served)
                assert in_play[users.identity].all()
                assert np.isfinite(users.loss).all()
                assert np.isfinite(run.state.models).all()


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
    full = load_scenario(
        "paper_digits", [f"clustering.rule={rule}", "clustering.first_tasks=4", "clustering.rescue=false"]
    )
    assert isinstance(build_rule(full), part)


def test_bipartition_grows_by_itself() -> None:
    with Simulation(scenario_of("bipartition", "raw", "clustering.rescue=false"), seed=1000) as run:
        assert isinstance(run.world.start, OwnStart)
        assert IN_PLAY not in run.state.memory
        while not run.done:
            record = run.play()
        assert len(np.unique(record.users.identity)) > 2


def test_a_user_of_a_task_that_is_not_in_play_is_not_served_nor_charged() -> None:
    """Whatever a rule makes of models that nobody was sent."""
    with Simulation(scenario_of("gradient_loss", "raw", "clustering.announce_every=5"), seed=1000) as run:
        run.play()
        run.play()
        lost = np.array([0, 3, 5])
        identities = np.where(np.isin(np.arange(12), lost), 3, run.state.identities)
        state = replace(run.state, identities=identities)
        for everybody in (False, True):
            turn = begin_round(run.world, state)
            assert not turn.observation.available[lost].any()
            assert turn.observation.available.sum() == 9
            selected = decide(run.world, turn, run.policy)
            assert not selected[:, lost].any()
            finished = finish_round(run.world, turn, np.ones_like(selected) if everybody else selected)
            assert (finished.record.users.station[lost] == -1).all()
            spent = finished.state.ledger.spent["gradient"] - state.ledger.spent["gradient"]
            assert not spent[lost].any()
            assert spent.any() or everybody
            # They sit out this round only.
            assert not finished.state.exhausted.any()


def test_models_that_are_not_in_play_are_never_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in broadcasts nor to be measured on: devices would get them, and then get them taken away again."""
    published = []
    publish = Engine.publish

    def listen(engine: Engine, models: np.ndarray, movements: np.ndarray) -> None:
        published.append(np.isfinite(models).all(axis=1))
        publish(engine, models, movements)

    monkeypatch.setattr(Engine, "publish", listen)
    with Simulation(scenario_of("gradient_loss"), seed=1000) as run:
        assert [known.tolist() for known in published] == [[True, True, False, False]]
        while not run.done:
            published.clear()
            in_play = models_in_play(run.state.memory, 4)
            run.play()
            assert len(published) == 2
            for known in published:
                np.testing.assert_array_equal(known, in_play)
        assert in_play.all()
