from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.networks import make_observation

from covey.network import Observation
from covey.uplink.ofdma_admission import OfdmaAdmission as Admission


def valid(observation: Observation, station: np.ndarray, block: np.ndarray) -> bool:
    """Whether a plan keeps every rule, by loops."""
    served = np.flatnonzero(station >= 0)
    pairs = {(station[i], observation.identities[i]) for i in served}
    if len(pairs) > observation.downlink_slots or len({(station[i], block[i]) for i in served}) < len(served):
        return False
    for i in served:
        if not (observation.available[i] and observation.capable[station[i], observation.identities[i]]):
            return False
        loud = [p for p in served if block[p] == block[i] and station[p] != station[i]]
        interference_w = observation.noise_w + observation.power_w * observation.gains[loud, station[i]].sum()
        if observation.power_w * observation.gains[i, station[i]] < observation.min_sinr * interference_w:
            return False
    return True


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32 - 1), slots=st.integers(0, 8), blocks=st.integers(1, 4))
def test_candidates_are_exactly_the_pairs_that_keep_the_plan_valid(seed: int, slots: int, blocks: int) -> None:
    observation = make_observation(seed, users=8, slots=slots, blocks=blocks, available=0.9)
    rng = np.random.default_rng(seed)
    plan = Admission(observation)
    for _ in range(rng.integers(0, 8)):
        pairs = np.argwhere(plan.candidates())
        served = np.flatnonzero(plan.station >= 0)
        if len(served) and rng.random() < 0.25:
            plan.remove(int(rng.choice(served)))
        elif len(pairs):
            plan.admit(*map(int, rng.choice(pairs)))
    assert valid(observation, plan.station, plan.block)
    expected = np.zeros((4, 8), dtype=bool)
    for b in range(4):
        for i in np.flatnonzero(plan.station < 0):
            for n in range(blocks):
                station, block = plan.station.copy(), plan.block.copy()
                station[i], block[i] = b, n
                expected[b, i] |= valid(observation, station, block)
    np.testing.assert_array_equal(plan.candidates(), expected)


def test_counts_and_value() -> None:
    observation = make_observation(1)
    plan = Admission(observation)
    assert plan.value == (0.0, 0)
    station, user = map(int, np.argwhere(plan.candidates())[0])
    plan.admit(station, user)
    assert plan.value == (observation.samples[user], -1)
    assert np.argwhere(plan.selected).tolist() == [[station, user]]
    plan.remove(user)
    assert plan.value == (0.0, 0)
    np.testing.assert_array_equal(plan.candidates(), Admission(observation).candidates())


def test_a_copy_is_independent() -> None:
    plan = Admission(make_observation(2))
    twin = plan.copy()
    twin.admit(*map(int, np.argwhere(twin.candidates())[0]))
    assert not plan.selected.any()
    np.testing.assert_array_equal(plan.candidates(), Admission(make_observation(2)).candidates())


def test_a_plan_can_be_rebuilt_from_its_blocks() -> None:
    observation = make_observation(3)
    plan = Admission(observation)
    for _ in range(5):
        plan.admit(*map(int, np.argwhere(plan.candidates())[-1]))
    again = Admission.of_plan(observation, plan.station, plan.block)
    np.testing.assert_array_equal(again.candidates(), plan.candidates())
    np.testing.assert_array_equal(again.members, plan.members)
    assert again.value == plan.value


def test_only_candidates_can_be_admitted() -> None:
    plan = Admission(make_observation(4))
    station, user = map(int, np.argwhere(plan.candidates())[0])
    plan.admit(station, user)
    with pytest.raises(ValueError, match=f"user {user} cannot be admitted"):
        plan.admit(station, user)


def test_stations_that_do_not_exist_admit_nobody() -> None:
    plan = Admission(make_observation(4))
    for station in (-1, 4):
        with pytest.raises(ValueError, match=f"cannot be admitted by station {station}"):
            plan.admit(station, 0)


def test_gains_of_another_network_are_refused() -> None:
    observation = make_observation(4)
    with pytest.raises(ValueError, match=r"gains \(11, 4\) must be \(U, B\), here \(12, 4\)"):
        Admission(replace(observation, gains=observation.gains[1:]))
