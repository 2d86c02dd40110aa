from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from covey.allocation import Allocation, Problem, check, noise_levels, project

from .conftest import MIN_SINR, NOISE_W, POWER_W, make_instance

#: Three users, two stations, two tasks; everybody is heard by its own station only.
PROBLEM = Problem(
    gains=np.array([[1e-9, 1e-15], [1e-9, 1e-15], [1e-15, 1e-9]]),
    identities=np.array([0, 1, 1]),
    capable=np.array([[True, True], [False, True]]),
    samples=np.array([100.0, 200.0, 300.0]),
    power_w=1.0,
    noise_w=1e-12,
    bandwidth_hz=1e6,
    min_rate_bps=1e6,
    v_max=12.0,
    n_min=100.0,
    model_bits=1e6,
    downlink_rate_bps=3e8,
    downlink_limit_s=0.01,
)


def good() -> Allocation:
    station, block = np.array([0, 0, 1]), np.array([0, 1, 0])
    std = noise_levels(PROBLEM.samples, PROBLEM.identities, 12.0, 100.0).std
    return Allocation.from_indices(station, block, std, stations=2, blocks=2)


def broken_by(allocation: Allocation, problem: Problem = PROBLEM) -> dict[str, tuple]:
    return {c.name: c.violated for c in check(allocation, problem).violations}


def test_a_valid_allocation_has_no_violation_and_known_slacks() -> None:
    report = check(good(), PROBLEM)
    assert report.ok, str(report)
    assert report["users_per_station"].slack.tolist() == [0.0, 1.0]
    assert report["downlink_time"].worst == pytest.approx(0.0, abs=1e-15)
    rate = 1e6 * np.log2(1 + 1e-9 / (1e-15 + 1e-12))
    assert report["uplink_rate"].slack[0, 0] == pytest.approx(rate - 1e6)
    assert np.isinf(report["uplink_rate"].slack[1, 0])
    np.testing.assert_allclose(report["noise_cap"].slack, 0.0, atol=1e-9)


def test_an_empty_allocation_is_valid() -> None:
    none = np.full(3, -1)
    assert check(Allocation.from_indices(none, none, np.zeros(3), stations=2, blocks=2), PROBLEM).ok


def test_not_binary() -> None:
    allocation = good()
    association, grants = allocation.association.copy(), allocation.grants.copy()
    association[0, 0] = grants[0, 0, 0] = 0.5
    found = broken_by(replace(allocation, association=association, grants=grants))
    assert found["binary_association"] == ((0, 0),)
    assert found["binary_blocks"] == ((0, 0, 0),)
    grants[0, 0, 0] = np.nan
    assert (0, 0, 0) in broken_by(replace(allocation, grants=grants))["binary_blocks"]


def test_association_without_block_and_block_without_association() -> None:
    allocation = good()
    grants = allocation.grants.copy()
    grants[0, 1, 1] = 0.0
    assert broken_by(replace(allocation, grants=grants)) == {
        "association_has_block": ((0, 1),),
        "uplink_rate": ((0, 1),),
    }
    association = allocation.association.copy()
    association[1, 2] = 0.0
    assert broken_by(replace(allocation, association=association))["association_has_block"] == ((1, 2),)


def test_too_many_users_of_a_station() -> None:
    association, grants = np.ones((1, 3)), np.zeros((1, 3, 2))
    grants[0, [0, 1], [0, 1]] = 1.0
    problem = replace(PROBLEM, gains=PROBLEM.gains[:, :1], capable=PROBLEM.capable[:1])
    found = broken_by(Allocation(association, grants, good().noise_std), problem)
    assert found["users_per_station"] == ((0,),)


def test_two_stations_for_one_user() -> None:
    allocation = good()
    association, grants = allocation.association.copy(), allocation.grants.copy()
    association[1, 1] = grants[1, 1, 1] = 1.0
    found = broken_by(replace(allocation, association=association, grants=grants))
    assert found["one_station_per_user"] == ((1,),)
    assert found["one_block_per_user"] == ((1,),)


def test_two_users_on_one_block() -> None:
    allocation = good()
    grants = allocation.grants.copy()
    grants[0, 1] = [1.0, 0.0]
    assert broken_by(replace(allocation, grants=grants)) == {"one_user_per_block": ((0, 0),)}


def test_two_blocks_for_one_user() -> None:
    allocation = good()
    grants = allocation.grants.copy()
    grants[1, 2] = 1.0
    found = broken_by(replace(allocation, grants=grants))
    assert set(found) == {"association_has_block", "one_block_per_user"}
    assert found["one_block_per_user"] == ((2,),)


def test_incapable_station() -> None:
    found = broken_by(good(), replace(PROBLEM, capable=np.array([[True, False], [True, True]])))
    assert found == {"capability": ((0, 1),)}
    assert broken_by(good(), replace(PROBLEM, identities=np.array([-1, 1, 1])))["capability"] == ((0, 0),)


def test_downlink_time() -> None:
    found = broken_by(good(), replace(PROBLEM, downlink_rate_bps=2.99e8))
    assert found == {"downlink_time": ((0,),)}


def test_rate_under_interference_at_the_receiver() -> None:
    # User 2 transmits on the block of user 0; only its gain to station 0 matters.
    gains = PROBLEM.gains.copy()
    gains[2, 0] = 2e-9
    found = broken_by(good(), replace(PROBLEM, gains=gains))
    assert found == {"uplink_rate": ((0, 0),)}
    gains = PROBLEM.gains.copy()
    gains[2, 1] = 1.0
    assert check(good(), replace(PROBLEM, gains=gains)).ok


def test_a_user_does_not_disturb_itself() -> None:
    # Granted by both stations on the same block, which breaks other rules; its own signal is no interference.
    association, grants = np.zeros((2, 3)), np.zeros((2, 3, 2))
    association[:, 1] = grants[:, 1, 0] = 1.0
    problem = replace(PROBLEM, gains=np.full((3, 2), 1e-9))
    found = check(Allocation(association, grants, good().noise_std), problem)
    assert found["uplink_rate"].ok
    assert found["one_station_per_user"].violated == ((1,),)


def test_rate_floor_has_a_small_tolerance() -> None:
    at_floor = check(good(), PROBLEM)["uplink_rate"].slack[0, 0] + 1e6
    assert check(good(), replace(PROBLEM, min_rate_bps=at_floor * (1 + 1e-10))).ok
    assert not check(good(), replace(PROBLEM, min_rate_bps=at_floor * (1 + 1e-8))).ok


def test_noise_cap_and_floor() -> None:
    allocation = good()
    louder = allocation.noise_std.copy()
    louder[1] *= 1 + 1e-6
    assert broken_by(replace(allocation, noise_std=louder)) == {"noise_cap": ((1,),)}
    quieter = allocation.noise_std.copy()
    quieter[2] = 0.999 * 100 / 300
    assert broken_by(replace(allocation, noise_std=quieter)) == {"noise_floor": ((2,),)}


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_noise_must_be_a_number(value: float) -> None:
    std = good().noise_std.copy()
    std[1] = value
    assert broken_by(replace(good(), noise_std=std))["finite_noise"] == ((1,),)


def test_noise_of_users_that_are_not_served_does_not_count() -> None:
    station, block = np.array([0, -1, 1]), np.array([0, -1, 0])
    std = noise_levels(PROBLEM.samples, np.array([0, -1, 1]), 12.0, 100.0).std
    std[1] = 1e9
    assert check(Allocation.from_indices(station, block, std, stations=2, blocks=2), PROBLEM).ok


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="noise_std has the shape"):
        check(replace(good(), noise_std=np.zeros(2)), PROBLEM)
    with pytest.raises(ValueError, match="association has the shape"):
        check(replace(good(), association=good().association.T), PROBLEM)


def test_report_can_be_read_and_stored() -> None:
    std = good().noise_std.copy()
    std[2] = 0.0
    report = check(replace(good(), noise_std=std), PROBLEM)
    text = str(report)
    assert "noise_floor" in text
    assert "(user): (2)" in text
    stored = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert stored["ok"] is False
    assert [c["name"] for c in stored["constraints"] if not c["ok"]] == ["noise_floor"]


@settings(max_examples=1000)
@given(
    seed=st.integers(0, 2**32 - 1),
    density=st.sampled_from([0.1, 0.3, 0.6, 1.0]),
    blocks=st.integers(1, 5),
    slots=st.integers(1, 9),
)
def test_projected_plans_with_feasible_noise_pass(seed: int, density: float, blocks: int, slots: int) -> None:
    problem = make_instance(seed, users=10, blocks=blocks)
    rng = np.random.default_rng(seed)
    selected = rng.random((4, 10)) < density
    # Deep fades and strong links side by side, so that sums lose digits if anything does.
    problem.gains *= 10 ** rng.uniform(-3, 3, problem.gains.shape)
    plan = project(
        selected, problem.identities, problem.capable, problem.gains, problem.samples, problem.limited(slots),
        first_station=seed % 4,
    )  # fmt: skip
    noise = noise_levels(problem.samples, np.where(plan.served, problem.identities, -1), 12.0, 100.0)
    assume(noise.feasible.all())
    report = check(
        Allocation.from_indices(plan.station, plan.block, noise.std, stations=4, blocks=blocks),
        Problem(
            gains=problem.gains,
            identities=problem.identities,
            capable=problem.capable,
            samples=problem.samples.astype(float),
            power_w=POWER_W,
            noise_w=NOISE_W,
            bandwidth_hz=1e6,
            min_rate_bps=1e6 * np.log2(1 + MIN_SINR),
            v_max=12.0,
            n_min=100.0,
            model_bits=1e6,
            downlink_rate_bps=slots * 1e8,
            downlink_limit_s=0.01,
        ),
    )
    assert report.ok, str(report)
