from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from covey.data import UserData
from covey.errors import PolicyError, ScenarioError
from covey.network import Observation
from covey.privacy import epsilon
from covey.scenario import dump_scenario, load_scenario
from covey.simulation import History, Simulation, simulate


def equal(a: History, b: History) -> bool:
    """Whether two runs are the same to the last bit."""
    rows = [[json.dumps(record.scalars()) for record in history.records] for history in (a, b)]
    columns = ("loss", "noise_std", "rho", "x_m", "identity")
    same_users = all(np.array_equal(a.user_column(name), b.user_column(name)) for name in columns)
    return rows[0] == rows[1] and np.array_equal(a.models, b.models) and same_users


def test_quick_learns_clusters_and_keeps_its_limits(quick_history: History) -> None:
    last = quick_history.records[-1]
    assert quick_history.complete
    assert last.loss < 0.6 * quick_history.start["loss"]
    assert last.accuracy > quick_history.start["accuracy"] + 0.3
    assert sum(record.violators for record in quick_history.records) == 0
    assert all(record.served <= 16 for record in quick_history.records)
    assert all(record.broadcasts <= 6 for record in quick_history.records)


def test_same_seed_same_bits_another_seed_another_run(quick, quick_history: History) -> None:
    assert equal(simulate(quick, "greedy", seed=0), quick_history)
    assert not np.array_equal(simulate(quick, "greedy", seed=1, rounds=2).models, quick_history.models)


def test_two_workers_give_the_same_bits(quick, quick_history: History) -> None:
    assert equal(simulate(quick, "greedy", seed=0, workers=2), quick_history)


def test_epsilon_in_the_record_is_the_ledgers(quick_history: History) -> None:
    clip, noise = quick_history.clip, quick_history.user_column("noise_std")
    rho = np.where(noise > 0, 2 * (clip / np.where(noise > 0, noise, 1)) ** 2, 0).sum(0)
    np.testing.assert_allclose(quick_history.ledger.rho, rho)
    assert quick_history.records[-1].epsilon_max == pytest.approx(epsilon(rho.max(), 1e-5))


def test_noise_meets_cap_and_floor(quick, quick_history: History) -> None:
    for record in quick_history.records:
        served = record.users.station >= 0
        for task in range(4):
            members = served & (record.users.identity == task)
            if members.any():
                variance = record.users.noise_std[members] ** 2
                mean = np.average(variance, weights=quick_history.samples[members])
                assert mean == pytest.approx(quick.privacy.v_max)
        floor = quick.privacy.n_min / quick_history.samples[served]
        assert (record.users.noise_std[served] >= floor * (1 - 1e-12)).all()


def test_a_task_nobody_served_keeps_its_model(quick) -> None:
    with Simulation(quick, lambda observation, rng: np.zeros((4, 12), bool), seed=0) as simulation:
        before = simulation.state.models.copy()
        record = simulation.play()
        assert record.served == 0
        np.testing.assert_array_equal(simulation.state.models, before)
        assert not simulation.state.movements.any()
        assert not simulation.state.ledger.rho.any()


def test_only_served_users_pay(quick) -> None:
    def only_first(observation: Observation, rng: np.random.Generator) -> np.ndarray:
        chosen = np.zeros((4, 12), bool)
        chosen[observation.capable[:, observation.identities[0]].argmax(), 0] = True
        return chosen

    history = simulate(
        load_scenario("quick", ["radio.min_rate_bps=1000", "clustering.turns=false"]), only_first, rounds=3
    )
    assert history.ledger.releases[0] == 3
    assert (history.ledger.rho[1:] == 0).all()
    assert history.policy == "only_first"


def test_reward_is_its_definition(quick, quick_history: History) -> None:
    for record in quick_history.records:
        served = record.users.station >= 0
        leak = (1 / (quick_history.samples[served] * record.users.noise_std[served]) ** 2).sum()
        cost = (record.users.loss * quick_history.samples).sum() + quick.reward.leakage_weight * leak
        assert record.reward_without_penalty == pytest.approx(-cost / 12)
        assert record.reward == pytest.approx(-cost / 12 - 1e3 * record.violators**2)


def test_violations_are_counted_and_projected_out(quick) -> None:
    history = simulate(quick, lambda observation, rng: np.ones((4, 12), bool), rounds=2)
    record = history.records[0]
    assert record.violators > 0
    assert record.selected_twice > 0
    assert record.unable > 0
    assert record.reward < record.reward_without_penalty
    assert record.broadcasts <= 6
    used = [(s, b) for s, b in zip(record.users.station, record.users.block, strict=True) if s >= 0]
    assert len(used) == len(set(used))


def test_budget_makes_users_sit_out(quick) -> None:
    scenario = load_scenario("quick", ["privacy.budget_epsilon=4"])
    history = simulate(scenario, "greedy", seed=0)
    assert history.ledger.refusals.sum() > 0
    assert (history.ledger.epsilon("zcdp") <= 4).all()
    assert history.records[-1].served < history.records[0].served
    assert sum(r.violators for r in history.records) == 0


def test_noise_off_is_reported_as_no_guarantee() -> None:
    history = simulate(load_scenario("quick", ["privacy.noise=off"]), rounds=2)
    assert "NO privacy guarantee" in history.notes[0]
    assert np.isinf(history.ledger.epsilon()).any()


def test_replay_says_it_is_not_private_and_identities_are_named(quick_history: History) -> None:
    assert "NOT private" in quick_history.notes[0]
    assert any("Identities are NOT protected" in note for note in quick_history.notes)


def test_secure_noise_differs_from_run_to_run() -> None:
    scenario = load_scenario("quick", ["privacy.noise=secure"])
    a, b = simulate(scenario, rounds=1), simulate(scenario, rounds=1)
    assert not np.array_equal(a.models, b.models)
    np.testing.assert_array_equal(a.ledger.rho, b.ledger.rho)


@pytest.mark.parametrize("rule", ["loss", "printed_sign", "kmeans", "oracle"])
def test_every_rule_runs(rule: str) -> None:
    history = simulate(load_scenario("quick", [f"clustering.rule={rule}"]), rounds=4)
    assert history.records[-1].loss < history.start["loss"]
    if rule == "oracle":
        assert history.records[0].clustering_accuracy == 1.0
    if rule == "kmeans":
        assert history.records[1].uplink_s > history.records[0].uplink_s
        assert history.ledger.releases.min() >= 3


@pytest.mark.parametrize("switch", ["training.batch=16", "privacy.adjacency=add_remove"])
def test_minibatch_training_and_other_scenario_switches(switch: str) -> None:
    overrides = [switch, "clustering.batch=20", "radio.fading=rayleigh", "radio.shadowing_db=6",
                 "mobility.model=random_waypoint"]  # fmt: skip
    history = simulate(load_scenario("quick", overrides), rounds=3)
    assert np.isfinite(history.column("loss")).all()


class OwnModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x.flatten(1) * self.scale)


def test_own_model_data_channel_and_mobility(quick) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, 1, 8, 8))

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = rng.integers(10, size=count)
        return (centres[y] + 0.3 * rng.normal(size=(count, 1, 8, 8))).astype(np.float32), y

    data = UserData.from_users(
        [draw(80) for _ in range(12)], test=[draw(20) for _ in range(12)], groups=np.arange(12) % 4
    )

    class Flat:
        def gains(self, users_m: np.ndarray, stations_m: np.ndarray, round: int) -> np.ndarray:
            return np.full((len(users_m), len(stations_m)), 1e-9) * (1 + np.arange(len(stations_m)))

    class Jump:
        def start(self, positions_m: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            return np.zeros((len(positions_m), 0))

        def move(self, positions_m, memory, duration_s, rng):
            return rng.uniform(0, 500, positions_m.shape), memory

    history = simulate(quick, "greedy", rounds=3, model=OwnModel(), data=data, channel=Flat(), mobility=Jump())
    assert history.models.shape == (4, 64 + 650)
    assert history.records[-1].loss < history.start["loss"]
    assert not np.array_equal(history.records[0].users.x_m, history.records[1].users.x_m)


def test_wrong_calls(quick) -> None:
    with pytest.raises(PolicyError, match="greedy"):
        simulate(quick, "greedyy", rounds=1)
    with pytest.raises(PolicyError):
        simulate(quick, lambda observation, rng: np.zeros((2, 2), bool), rounds=1)
    with pytest.raises(ScenarioError, match="seed"):
        simulate(quick, seed=-1)
    with pytest.raises(ScenarioError, match="round"):
        simulate(quick, rounds=0)
    data = UserData.from_users(
        [(np.zeros((5, 4), np.float32), np.zeros(5, int))] * 2,
        test=[(np.zeros((5, 4), np.float32), np.zeros(5, int))] * 2,
        groups=np.array([0, 1]),
    )
    with pytest.raises(ScenarioError, match=r"network\.users = 2"):
        simulate(quick, data=data)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"scenario": 5}, ScenarioError, "the scenario is 5; give a Scenario, or the name"),
        ({"scenario": None}, ScenarioError, "the scenario is None"),
        ({"policy": 3}, PolicyError, "the policy is 3, which cannot be called; give the name of one"),
        ({"policy": None}, PolicyError, "the policy is None"),
        ({"seed": 1.5}, ScenarioError, "the seed is 1.5; seeds are whole numbers from 0"),
        ({"seed": "1"}, ScenarioError, "the seed is '1'"),
        ({"seed": True}, ScenarioError, "the seed is True"),
        ({"rounds": 2.0}, ScenarioError, "rounds is 2.0; a run has at least 1 round"),
        ({"rounds": 10**12}, ScenarioError, "at most 1000000000"),
        ({"workers": 0}, ScenarioError, "workers is 0; give the number of processes"),
        ({"workers": 1.5}, ScenarioError, "workers is 1.5"),
    ],
)
def test_arguments_of_a_wrong_type_get_one_sentence(given, error, words) -> None:
    with pytest.raises(error) as caught:
        simulate(**({"scenario": "quick"} | given))
    assert words in str(caught.value)


def test_numpy_integers_and_paths_are_as_good_as_their_own(tmp_path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(dump_scenario(load_scenario("quick")))
    history = simulate(path, seed=np.int64(3), rounds=np.int32(1))
    assert (history.seed, history.rounds, type(history.seed)) == (3, 1, int)
