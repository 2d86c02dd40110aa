"""The uplink of examples/parts, used from outside the package: Python, the command line, environments."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples.parts.tdma_uplink import Tdma
from tests.networks import make_observation
from tests.pages import ROOT

import covey
from covey.association import get_policy
from covey.errors import PolicyError
from covey.network import NetworkLimits, Observation
from covey.scenario import Scenario, load_scenario

KEY = "radio.uplink=examples.parts.tdma_uplink:Tdma"
ROUNDS = 3


@pytest.fixture(scope="module")
def quick() -> Scenario:
    return load_scenario("quick", [KEY])


def with_slots(seed: int, **changes: object) -> Observation:
    observation = make_observation(seed, **changes)
    return replace(observation, limits=replace(observation.limits, uplink=Tdma(Scenario())))


@pytest.mark.parametrize("policy", ["greedy", "random"])
def test_runs_repeat_and_everybody_served_meets_the_floor(quick: Scenario, policy: str) -> None:
    history, again = (covey.simulate(quick, policy, rounds=ROUNDS, seed=1) for _ in range(2))
    np.testing.assert_array_equal(history.models, again.models)
    for record in history.records:
        served = record.users.station >= 0
        assert served.any()
        assert record.violators == 0
        assert np.all(record.users.rate_bps[served] >= quick.radio.min_rate_bps)
        assert record.uplink_s == pytest.approx(record.users.uplink_s.sum())
        assert record.delay_s == pytest.approx(record.downlink_s + record.compute_s + record.uplink_s)
        at = record.users.station[served], record.users.block[served]
        assert len(set(zip(*at, strict=True))) == served.sum()
        assert record.users.block.max() < quick.network.blocks


def test_slots_last_longer_and_serve_more_users_than_blocks() -> None:
    slots, blocks = (
        covey.simulate(load_scenario("quick", changes), "greedy", rounds=ROUNDS, seed=1) for changes in ([KEY], [])
    )
    assert slots.column("served").sum() >= blocks.column("served").sum()
    assert not np.array_equal(slots.column("uplink_s"), blocks.column("uplink_s"))


def test_the_command_line_gives_the_same_rounds(quick: Scenario, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = ["run", "quick", "--set", KEY, "--policy", "greedy", "--rounds", str(ROUNDS), "--seed", "1"]
    result = subprocess.run(
        [sys.executable, "-m", "covey", *command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True,
        timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    history = covey.simulate(quick, "greedy", rounds=ROUNDS, seed=1)
    with (out / "rounds.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["uplink_s"]) for row in rows] == pytest.approx(history.column("uplink_s").tolist())
    assert "tdma_uplink:Tdma" in (out / "scenario.toml").read_text(encoding="utf-8")


def test_an_environment_steps(quick: Scenario) -> None:
    env = covey.parallel_env(quick, actions="binary")
    env.reset(seed=3)
    observation = env.rounds.observation[0]
    selected = get_policy("greedy")(observation, np.random.default_rng(0))
    _, rewards, _, _, infos = env.step(dict(zip(env.agents, selected.astype(np.int8), strict=True)))
    assert len(rewards) == quick.network.stations
    assert infos["bs_0"]["violators"] == 0.0
    assert infos["bs_0"]["served"] == selected.sum() > 0
    env.close()


@pytest.mark.parametrize("name", ["random", "nearest", "coverage", "greedy", "local_search"])
def test_the_reference_policies_work(name: str) -> None:
    observation = with_slots(2, users=8, blocks=2)
    plan = observation.project(get_policy(name)(observation, np.random.default_rng(0)))
    assert plan.served.any()
    if name != "nearest":
        assert not plan.violators.any()


def test_the_exact_policy_refuses_in_one_sentence() -> None:
    with pytest.raises(PolicyError, match=r"'exact' supports only the uplink 'ofdma', not Tdma; use 'local_search'"):
        get_policy("exact")(with_slots(2), np.random.default_rng(0))


def test_slots_by_hand() -> None:
    limits = NetworkLimits.of(load_scenario("quick", [KEY, "radio.min_rate_bps=1e6"]), 650)
    observation = with_slots(0, users=4, stations=2, tasks=1, blocks=3)
    gains = np.array([[1e-9, 0.0], [1e-9, 0.0], [0.0, 1e-9], [1e-16, 0.0]])
    plan = replace(observation, gains=gains, available=np.ones(4, dtype=bool)).project(
        np.array([[True, True, False, True], [False, False, True, False]])
    )
    # Two users of station 0 in slots 0 and 1, one of station 1 in slot 0; user 3 is too far for the floor.
    assert plan.block.tolist() == [0, 1, 0, -1]
    assert plan.kinds["no_block"].tolist() == [False, False, False, True]
    uplink = observation.uplink
    rates = uplink.rates(gains, plan, observation.limits)
    expected = 3 * 1e6 * np.log2(1 + 1e-9 / 3e-12)
    np.testing.assert_allclose(rates, [expected, expected, expected, 0.0])
    assert uplink.air_time(rates, plan, 1e6).total_s == pytest.approx(3 * 1e6 / expected)
    assert uplink.unscheduled(gains, np.array([0, 2]), 1e6, observation.limits).total_s == pytest.approx(
        2 * 1e6 / expected
    )
    assert isinstance(limits.uplink, Tdma)
