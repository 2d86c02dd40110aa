from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from covey.association import get_policy
from covey.environment import SurrogateRounds, calibration_for, rewards
from covey.environment.parallel import parallel_env
from covey.environment.real_rounds import RealRounds
from covey.errors import DataError, ScenarioError
from covey.network import VIOLATION_KINDS
from covey.scenario import Scenario, load_scenario
from covey.seeding import generator
from covey.simulation import simulate


@pytest.fixture(scope="module")
def quick() -> Scenario:
    return load_scenario("quick")


def changed(scenario: Scenario, section: str, **values: object) -> Scenario:
    return scenario.model_copy(update={section: getattr(scenario, section).model_copy(update=values)})


@pytest.mark.parametrize("policy", ["greedy", "random"])
def test_rounds_are_those_of_simulate(quick: Scenario, policy: str) -> None:
    seed = 3
    history = simulate(quick, policy, seed=seed, rounds=6)
    choose = get_policy(policy)
    with RealRounds(quick) as rounds:
        view = rounds.reset([seed])
        np.testing.assert_array_equal(rounds.positions_m[0][0], history.stations_m)
        np.testing.assert_array_equal(rounds.groups[0], history.groups)
        for record in history.records:
            observation = view[0]
            np.testing.assert_array_equal(view.identities[0], record.users.identity)
            np.testing.assert_array_equal(rounds.positions_m[1][0, :, 0], record.users.x_m)
            outcome = rounds.step(choose(observation, generator(seed, "policy", round=view.round))[None])
            np.testing.assert_array_equal(outcome.station[0], record.users.station)
            np.testing.assert_array_equal(outcome.block[0], record.users.block)
            np.testing.assert_array_equal(outcome.noise_std[0], record.users.noise_std)
            np.testing.assert_array_equal(outcome.loss[0], record.users.loss)
            for kind in VIOLATION_KINDS:
                assert outcome.kinds[kind].sum() == getattr(record, kind)
            gained = rewards(outcome, view.samples, quick.reward)
            assert gained.team[0] == pytest.approx(record.reward, rel=1e-12)
            assert gained.without_penalty[0] == pytest.approx(record.reward_without_penalty, rel=1e-12)
            assert outcome.leakage.sum() == pytest.approx(record.leakage, rel=1e-12)
            view = rounds.observation


def test_the_loss_before_a_round_is_that_after_the_last_where_no_model_is_offered() -> None:
    greedy = get_policy("greedy")
    with RealRounds(load_scenario("quick", ["clustering.rescue=false"])) as rounds:
        view, last = rounds.reset([0]), None
        kept = 0
        for _ in range(4):
            outcome = rounds.step(greedy(view[0], np.random.default_rng(0))[None])
            if last is not None:
                same = view.kept[0]
                np.testing.assert_array_equal(outcome.loss_before[0, same], last.loss[0, same])
                assert np.all(outcome.loss_before[0, ~same] != last.loss[0, ~same])
                kept += int(same.sum())
            last, view = outcome, rounds.observation
        assert kept > 0


def test_networks_side_by_side_equal_single_ones(quick: Scenario) -> None:
    rng = np.random.default_rng(4)
    selections = rng.random((3, 2, 4, 12)) < 0.2
    with RealRounds(quick, 2) as together, RealRounds(quick) as alone:
        together.reset([5, 6])
        outcomes = [together.step(selected) for selected in selections]
        for index, seed in enumerate([5, 6]):
            alone.reset([seed])
            for selected, outcome in zip(selections, outcomes, strict=True):
                single = alone.step(selected[index : index + 1])
                for field in fields(single):
                    if field.name != "kinds":
                        both = getattr(outcome, field.name)[index], getattr(single, field.name)[0]
                        np.testing.assert_array_equal(*both)
            for field in fields(alone.observation):
                if field.name not in ("round", "limits"):
                    both = getattr(together.observation, field.name)[index], getattr(alone.observation, field.name)[0]
                    np.testing.assert_array_equal(*both)


def test_surrogate_and_real_rounds_start_from_the_same_view(quick: Scenario) -> None:
    surrogate = SurrogateRounds(quick, calibration_for(quick))
    with RealRounds(quick) as real:
        assert vars(real.limits).keys() == vars(surrogate.limits).keys()
        for name, value in vars(real.limits).items():
            np.testing.assert_array_equal(value, getattr(surrogate.limits, name))
        both = real.reset([9]), surrogate.reset([9])
        for field in fields(both[0]):
            if field.name != "limits":
                np.testing.assert_array_equal(*(getattr(view, field.name) for view in both))


def test_users_without_budget_sit_out(quick: Scenario) -> None:
    scenario = changed(quick, "privacy", budget_epsilon=2.0)
    history = simulate(scenario, "greedy", seed=0, rounds=5)
    assert sum(record.refused_releases for record in history.records) > 0
    greedy = get_policy("greedy")
    with RealRounds(scenario) as rounds:
        view = rounds.reset([0])
        assert view.available.all()
        for record in history.records:
            selected = greedy(view[0], generator(0, "policy", round=view.round))
            outcome = rounds.step(selected[None])
            np.testing.assert_array_equal(outcome.station[0], record.users.station)
            view = rounds.observation
        out = ~view.available[0]
        assert out.any()
        assert not view.eligible[0][:, out].any()
        everybody = rounds.step(np.ones((1, 4, 12), dtype=bool))
        assert np.all(everybody.station[0, out] == -1)
        assert not everybody.violators[0, out].any()


def test_leakage_is_not_priced_without_noise(quick: Scenario) -> None:
    with RealRounds(changed(quick, "privacy", noise="off")) as rounds:
        view = rounds.reset([0])
        outcome = rounds.step(get_policy("greedy")(view[0], np.random.default_rng(0))[None])
    assert outcome.served[0] > 0
    assert not outcome.leakage.any()


def test_closed_rounds_start_again(quick: Scenario) -> None:
    rounds = RealRounds(quick)
    with pytest.raises(ValueError, match="call reset first"):
        _ = rounds.observation
    assert not rounds.done
    first = rounds.reset([1])
    rounds.close()
    rounds.close()
    with pytest.raises(ValueError, match="call reset first"):
        rounds.step(np.zeros((1, 4, 12), dtype=bool))
    np.testing.assert_array_equal(rounds.reset([1]).gains, first.gains)
    rounds.close()


def test_wrong_use_is_explained(quick: Scenario) -> None:
    with pytest.raises(ValueError, match="count is 0"):
        RealRounds(quick, 0)
    with RealRounds(quick) as rounds:
        with pytest.raises(ValueError, match="2 seeds for 1 networks"):
            rounds.reset([0, 1])
        with pytest.raises(ScenarioError, match="seed is -1"):
            rounds.reset([-1])
        with pytest.raises(ValueError, match="call reset first"):
            _ = rounds.observation
    with pytest.raises(DataError):
        RealRounds(changed(quick, "data", name="folder", path="nowhere"))


def test_an_environment_with_real_rounds_learns_on_digits(quick: Scenario) -> None:
    env = parallel_env(changed(quick, "training", rounds=3), learning="real", features="full")
    _, infos = env.reset(seed=0)
    rng, costs = np.random.default_rng(0), []
    while env.agents:
        actions = {agent: rng.choice(np.flatnonzero(infos[agent]["action_mask"])) for agent in env.agents}
        observations, _, _, truncated, infos = env.step(actions)
        costs.append(infos["bs_0"]["cost"])
        assert all(env.observation_space(agent).contains(observations[agent]) for agent in observations)
    assert len(costs) == 3
    assert all(truncated.values())
    assert costs[-1] < costs[0]
    env.close()
    with pytest.raises(ValueError, match="call reset first"):
        env.state()
