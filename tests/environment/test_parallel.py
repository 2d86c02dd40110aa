from __future__ import annotations

import warnings
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.test import parallel_api_test
from pettingzoo.test.state_test import test_parallel_env as check_parallel_state
from pettingzoo.test.state_test import test_state_space as check_state_space

from covey.association import get_policy
from covey.environment import SurrogateRounds, calibration_for, features, rewards, subset_numbers, subsets
from covey.environment.parallel import INFO_KEYS, AssociationEnv, parallel_env, vector_env
from covey.environment.real_rounds import RealRounds
from covey.errors import PolicyError, ScenarioError
from covey.network import VIOLATION_KINDS
from covey.scenario import Scenario, dump_scenario, load_scenario

AGENTS = ["bs_0", "bs_1", "bs_2", "bs_3"]


@pytest.fixture(scope="module")
def quick() -> Scenario:
    return load_scenario("quick")


def changed(scenario: Scenario, section: str, **values: object) -> Scenario:
    return scenario.model_copy(update={section: getattr(scenario, section).model_copy(update=values)})


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return np.array_equal(one, other)


def allowed_actions(env: AssociationEnv, infos: dict[str, Any], rng: np.random.Generator) -> dict[str, int]:
    return {agent: int(rng.choice(np.flatnonzero(infos[agent]["action_mask"]))) for agent in env.agents}


@pytest.mark.parametrize("actions", ["subset", "binary"])
@pytest.mark.parametrize("mask_in", ["infos", "obs"])
@pytest.mark.parametrize("kind", ["paper", "full"])
def test_pettingzoo_accepts_the_environment(actions: str, mask_in: str, kind: str) -> None:
    env = parallel_env("quick", actions=actions, mask_in=mask_in, features=kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(env, num_cycles=40)
        check_state_space(env)
        check_parallel_state(env)


def test_spaces(quick: Scenario) -> None:
    env = parallel_env(quick)
    assert env.possible_agents == AGENTS
    assert env.metadata["name"] == "covey_association_v0"
    for agent in AGENTS:
        assert env.action_space(agent) == spaces.Discrete(794)
        box = env.observation_space(agent)
        assert box.shape == (12 * 5,)
        assert box.dtype == np.float32
        assert box.is_bounded()
        assert env.observation_space(agent) is box
        assert env.action_space(agent) is env.action_space(agent)
    assert env.state_space.shape == (12 * 4 + 12 * 4 + 1,)
    assert parallel_env(quick, actions="binary").action_space("bs_0") == spaces.MultiBinary(12)
    masked = parallel_env(quick, mask_in="obs", features="full").observation_space("bs_0")
    assert masked["observations"].shape == (12 * 14,)
    assert masked["action_mask"] == spaces.Box(0, 1, (794,), np.int8)


def test_seeding_one_agents_space_leaves_the_others_alone(quick: Scenario) -> None:
    env, other = parallel_env(quick), parallel_env(quick)
    for made in (env, other):
        made.action_space("bs_1").seed(7)
    env.action_space("bs_0").seed(3)
    first = [int(env.action_space("bs_1").sample()) for _ in range(5)]
    assert first == [int(other.action_space("bs_1").sample()) for _ in range(5)]


def test_two_environments_agree_for_200_steps(quick: Scenario) -> None:
    envs = [parallel_env(quick, features="full") for _ in range(2)]
    rng = np.random.default_rng(0)
    results = [env.reset(seed=4) for env in envs]
    for _ in range(200):
        assert equal(results[0][0], results[1][0])
        assert equal(results[0][-1], results[1][-1])
        assert np.array_equal(envs[0].state(), envs[1].state())
        if not envs[0].agents:
            results = [env.reset() for env in envs]
            continue
        actions = {agent: int(rng.integers(794)) for agent in envs[0].agents}
        results = [env.step(actions) for env in envs]
        for one, other in zip(*results, strict=True):
            assert equal(one, other)


def test_a_seed_is_a_layout_and_begins_a_sequence(quick: Scenario) -> None:
    env, fresh = parallel_env(quick), parallel_env(quick)

    def state(env: AssociationEnv, **how: Any) -> bytes:
        env.reset(**how)
        return env.state().tobytes()

    sequence = [state(env, seed=1), *(state(env) for _ in range(3))]
    assert len(set(sequence)) == 4
    assert sequence == [state(fresh, seed=1), *(state(fresh) for _ in range(3))]
    assert state(env, seed=2) != sequence[0]
    assert state(env) not in sequence
    # A named layout is the layout of that seed, and the sequence goes on after it.
    state(env, seed=1)
    assert state(env, options={"layout": 2}) == state(fresh, seed=2)
    assert state(env) == sequence[1]
    assert state(parallel_env(quick)) != state(parallel_env(quick))


def test_the_layout_of_a_seed_is_that_of_simulate(quick: Scenario) -> None:
    rounds = vector_env(quick, 1)
    view = rounds.reset([6])
    env = parallel_env(quick)
    env.reset(seed=6)
    np.testing.assert_array_equal(env.rounds.observation.gains, view.gains)
    np.testing.assert_array_equal(env.rounds.observation.identities, view.identities)


@pytest.mark.parametrize("value", [-1, 1.5, "one"])
def test_seeds_and_layouts_are_whole_numbers(quick: Scenario, value: Any) -> None:
    env = parallel_env(quick)
    with pytest.raises(ScenarioError, match=r"the seed is .* a whole number from 0"):
        env.reset(seed=value)
    with pytest.raises(ScenarioError, match=r"the layout is .* a whole number from 0"):
        env.reset(options={"layout": value})


def test_masks_equal_brute_force(quick: Scenario) -> None:
    env = parallel_env(quick)
    binary = parallel_env(quick, actions="binary")
    in_obs = parallel_env(quick, mask_in="obs")
    order = [members for size in range(5) for members in combinations(range(12), size)]
    rng = np.random.default_rng(1)
    _, infos = env.reset(seed=0)
    _, bits = binary.reset(seed=0)
    seen, masked = in_obs.reset(seed=0)
    while env.agents:
        identities = env.rounds.observation.identities[0]
        for station, agent in enumerate(AGENTS):
            able = [int(task) in quick.network.station_tasks[station] for task in identities]
            expected = [all(able[user] for user in members) for members in order]
            mask = infos[agent]["action_mask"]
            assert mask.dtype == np.int8
            assert mask.tolist() == expected
            assert bits[agent]["action_mask"].tolist() == able
            assert seen[agent]["action_mask"].tolist() == expected
            assert "action_mask" not in masked[agent]
        actions = allowed_actions(env, infos, rng)
        _, _, _, _, infos = env.step(actions)
        seen, _, _, _, masked = in_obs.step(actions)
        _, _, _, _, bits = binary.step({agent: subsets(12, 4)[number] for agent, number in actions.items()})
        assert infos["bs_0"]["unable"] == infos["bs_0"]["beyond_blocks"] == 0.0


def test_bits_and_subset_numbers_say_the_same(quick: Scenario) -> None:
    numbered, binary = parallel_env(quick), parallel_env(quick, actions="binary")
    numbered.reset(seed=3)
    binary.reset(seed=3)
    rng = np.random.default_rng(2)
    while numbered.agents:
        chosen = {agent: int(rng.integers(794)) for agent in AGENTS}
        one = numbered.step(chosen)
        other = binary.step({agent: subsets(12, 4)[number].astype(np.int8) for agent, number in chosen.items()})
        assert all(equal(a, b) for a, b in zip(one[:4], other[:4], strict=True))


def test_rewards_are_shares_of_the_team_reward_and_infos_its_parts(quick: Scenario) -> None:
    for penalty in ("progressive", "fixed"):
        env, rounds = parallel_env(quick, penalty=penalty), vector_env(quick, 1)
        _, infos = env.reset(seed=5)
        view = rounds.reset([5])
        for agent in AGENTS:
            assert infos[agent].keys() == {*INFO_KEYS, "action_mask"}
            assert all(infos[agent][key] == 0.0 and type(infos[agent][key]) is float for key in INFO_KEYS)
        rng = np.random.default_rng(3)
        while env.agents:
            actions = {agent: int(rng.integers(794)) for agent in AGENTS}
            _, shares, _, _, infos = env.step(actions)
            outcome = rounds.step(subsets(12, 4)[[actions[agent] for agent in AGENTS]][None])
            gained = rewards(outcome, view.samples, quick.reward, penalty)
            view = rounds.observation
            team = infos["bs_0"]
            assert sum(shares.values()) == pytest.approx(team["team_reward"], rel=1e-9)
            assert team["team_reward"] == gained.team[0]
            assert team["team_reward"] == pytest.approx(-team["cost"] - team["leakage_cost"] - team["penalty"])
            assert team["reward_without_penalty"] == pytest.approx(team["team_reward"] + team["penalty"])
            assert team["cost_before"] == gained.cost_before[0]
            assert team["served"] == (outcome.station >= 0).sum()
            for kind in VIOLATION_KINDS:
                assert team[kind] == outcome.kinds[kind].sum()
            assert sum(infos[agent]["station_violations"] for agent in AGENTS) == pytest.approx(team["violators"])
            for station, agent in enumerate(AGENTS):
                assert shares[agent] == gained.stations[0, station]
                same = infos[agent].keys() - {"station_violations", "action_mask"}
                assert all(infos[agent][key] == team[key] for key in same)
                assert all(type(infos[agent][key]) is float for key in INFO_KEYS)


def test_episodes_are_truncated_after_the_last_round(quick: Scenario) -> None:
    env = parallel_env(changed(quick, "training", rounds=2))
    env.reset(seed=0)
    _, _, terminated, truncated, _ = env.step(dict.fromkeys(AGENTS, 0))
    assert not any(truncated.values())
    assert env.agents == AGENTS
    observations, shares, terminated, truncated, infos = env.step(dict.fromkeys(AGENTS, 0))
    assert env.agents == []
    assert truncated == dict.fromkeys(AGENTS, True)
    assert terminated == dict.fromkeys(AGENTS, False)
    assert list(observations) == list(infos) == list(shares) == AGENTS
    assert env.state()[-1] == 1.0
    with pytest.raises(ValueError, match="call reset first"):
        env.step(dict.fromkeys(AGENTS, 0))
    env.reset()
    assert env.agents == AGENTS


def test_illegal_choices_are_played_and_counted(quick: Scenario) -> None:
    env = parallel_env(quick, actions="binary")
    _, infos = env.reset(seed=0)
    everybody = {agent: np.ones(12, dtype=np.int8) for agent in AGENTS}
    _, _, _, _, infos = env.step(everybody)
    assert infos["bs_0"]["violators"] == 12.0
    assert infos["bs_0"]["penalty"] == 144_000.0
    assert infos["bs_0"]["unable"] > 0
    assert infos["bs_0"]["beyond_blocks"] > 0
    assert infos["bs_0"]["selected_twice"] > 0
    subset = parallel_env(quick)
    _, infos = subset.reset(seed=0)
    masked = {agent: int(np.flatnonzero(infos[agent]["action_mask"] == 0)[0]) for agent in AGENTS}
    _, _, _, _, infos = subset.step(masked)
    assert infos["bs_0"]["unable"] > 0


def test_wrong_actions_are_explained(quick: Scenario) -> None:
    env, binary = parallel_env(quick), parallel_env(quick, actions="binary")
    with pytest.raises(ValueError, match="call reset first"):
        env.step(dict.fromkeys(AGENTS, 0))
    env.reset(seed=0)
    binary.reset(seed=0)
    with pytest.raises(PolicyError, match="no action for bs_1, bs_2, bs_3"):
        env.step({"bs_0": 0})
    with pytest.raises(PolicyError, match="numbered 0 to 793"):
        env.step(dict.fromkeys(AGENTS, 794))
    with pytest.raises(PolicyError, match="not a whole number"):
        env.step(dict.fromkeys(AGENTS, 0.5))
    with pytest.raises(PolicyError, match=r"must be \(4, 12\)"):
        binary.step(dict.fromkeys(AGENTS, np.zeros(11)))
    with pytest.raises(PolicyError, match="only True and False"):
        binary.step(dict.fromkeys(AGENTS, np.full(12, 0.5)))
    assert env.agents == AGENTS
    env.step(dict.fromkeys(AGENTS, np.int64(3)))


def test_bounds_hold_on_strange_networks(quick: Scenario) -> None:
    strange = [
        changed(quick, "radio", path_loss="inverse_square", noise_dbm_per_block=-150.0),
        changed(quick, "radio", user_power_dbm=-200.0),
        changed(quick, "radio", downlink_rate_bps=1e12),
    ]
    for scenario in strange:
        env = parallel_env(scenario, features="full", actions="binary")
        observations, _ = env.reset(seed=0)
        while env.agents:
            assert all(env.observation_space(agent).contains(observations[agent]) for agent in AGENTS)
            assert env.state_space.contains(env.state())
            observations, *_ = env.step(dict.fromkeys(AGENTS, np.zeros(12)))


def test_bounds_cut_nothing_off_an_ordinary_network(quick: Scenario) -> None:
    for kind in ("paper", "full"):
        env = parallel_env(quick, features=kind)
        observations, infos = env.reset(seed=1)
        rng = np.random.default_rng(4)
        while env.agents:
            table = features(env.rounds.observation, kind)[0].reshape(4, -1)
            np.testing.assert_array_equal(np.stack([observations[agent] for agent in AGENTS]), table)
            observations, _, _, _, infos = env.step(allowed_actions(env, infos, rng))


def test_a_policy_can_be_played_through_the_environment(quick: Scenario) -> None:
    env, greedy = parallel_env(quick), get_policy("greedy")
    env.reset(seed=0)
    total = 0.0
    while env.agents:
        observation = env.rounds.observation[0]
        numbers = subset_numbers(greedy(observation, np.random.default_rng(0)), 4)
        _, _, _, _, infos = env.step(dict(zip(AGENTS, numbers, strict=True)))
        assert infos["bs_0"]["violators"] == 0.0
        total += infos["bs_0"]["team_reward"]
    assert total < 0.0


def test_scenarios_come_as_objects_names_and_files(quick: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(dump_scenario(changed(quick, "network", blocks=2)), encoding="utf-8")
    assert parallel_env(str(path)).action_space("bs_0") == spaces.Discrete(79)
    assert isinstance(vector_env("quick", 3), SurrogateRounds)
    with vector_env("quick", 2, learning="real") as rounds:
        assert isinstance(rounds, RealRounds)
        assert rounds.count == 2
    large = changed(quick, "network", users=40)
    with pytest.raises(PolicyError, match=r"actions='binary'"):
        parallel_env(large)
    assert parallel_env(large, actions="binary").action_space("bs_0") == spaces.MultiBinary(40)


def test_wrong_arguments_are_explained(quick: Scenario) -> None:
    for name, value in (
        ("learning", "slow"),
        ("actions", "all"),
        ("penalty", "none"),
        ("features", "most"),
        ("mask_in", "state"),
        ("render_mode", "ansi"),
    ):
        with pytest.raises(ScenarioError, match=f"{name} is '{value}'; it is one of"):
            parallel_env(quick, **{name: value})
    with pytest.raises(ScenarioError, match="neither a file nor one of the presets"):
        parallel_env("quik")
    with pytest.raises(ScenarioError, match="count is 0"):
        vector_env(quick, 0)
    with pytest.raises(ScenarioError, match="needs no calibration"):
        parallel_env(quick, learning="real", calibration=calibration_for(quick))
    with pytest.raises(ValueError, match="2 networks; an environment plays exactly 1"):
        AssociationEnv(vector_env(quick, 2))


def test_calibrations_must_fit_the_scenario(quick: Scenario) -> None:
    other = changed(quick, "training", learning_rate=0.0123)
    with pytest.raises(ScenarioError, match=r"stale: training\.learning_rate"):
        parallel_env(other, calibration=calibration_for(quick))
    with pytest.raises(ScenarioError, match=r"there is no calibration.*covey calibrate quick"):
        parallel_env(other)
    # What only concerns radio and places needs no new fit.
    parallel_env(changed(quick, "network", users=10), calibration=calibration_for(quick)).reset(seed=0)
