from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.allocation import project
from covey.network import VIOLATION_KINDS, Plan, RadioLimits

from .conftest import make_instance

#: Far apart and strong: every block can be reused everywhere.
CLEAN = RadioLimits(blocks=4, downlink_slots=9, power_w=1.0, noise_w=1e-9, min_sinr=1.0)


def cells(users: int, stations: int) -> np.ndarray:
    """Gains (U, B) of users that only one station hears well, user i at station i % B."""
    gains = np.full((users, stations), 1e-8)
    gains[np.arange(users), np.arange(users) % stations] = 1.0
    return gains


def run(selected: np.ndarray, **changes: object) -> Plan:
    stations, users = selected.shape
    arguments: dict = {
        "identities": np.zeros(users, dtype=int),
        "capable": np.ones((stations, 2), dtype=bool),
        "gains": cells(users, stations),
        "samples": np.arange(1, users + 1) * 10,
    }
    radio = {name: changes.pop(name) for name in vars(CLEAN) if name in changes}
    return project(selected, **{**arguments, **changes}, radio=replace(CLEAN, **radio))


def select(stations: int, users: int, *pairs: tuple[int, int]) -> np.ndarray:
    selected = np.zeros((stations, users), dtype=bool)
    for b, i in pairs:
        selected[b, i] = True
    return selected


def broken(plan: Plan) -> dict[str, list[int]]:
    return {kind: np.flatnonzero(plan.kinds[kind]).tolist() for kind in VIOLATION_KINDS if plan.kinds[kind].any()}


def test_a_valid_selection_stays() -> None:
    plan = run(select(2, 4, (0, 0), (1, 1), (0, 2), (1, 3)))
    assert plan.station.tolist() == [0, 1, 0, 1]
    assert np.all(plan.block >= 0)
    assert broken(plan) == {}
    assert plan.active.tolist() == [[True, False], [True, False]]
    np.testing.assert_array_equal(plan.station_violations, 0.0)


def test_unable() -> None:
    plan = run(select(2, 2, (0, 0), (1, 1)), identities=np.array([0, 1]), capable=np.array([[True, False]] * 2))
    assert broken(plan) == {"unable": [1]}
    assert plan.station.tolist() == [0, -1]
    assert plan.station_violations.tolist() == [0.0, 1.0]


def test_an_identity_that_no_task_has_is_unable() -> None:
    plan = run(select(2, 2, (0, 0), (1, 1)), identities=np.array([-1, 7]))
    assert broken(plan) == {"unable": [0, 1]}
    assert not plan.served.any()


def test_beyond_blocks_counts_able_users_only_and_goes_by_number() -> None:
    selected = select(1, 4, (0, 0), (0, 1), (0, 2), (0, 3))
    plan = run(selected, blocks=2, identities=np.array([0, 1, 0, 0]), capable=np.array([[True, False]]))
    assert broken(plan) == {"unable": [1], "beyond_blocks": [3]}
    assert plan.served.tolist() == [True, False, True, False]


def test_selected_twice_is_served_by_the_strongest_suitor_and_split_between_them() -> None:
    plan = run(select(3, 3, (0, 1), (1, 1), (2, 1)))
    assert broken(plan) == {"selected_twice": [1]}
    assert plan.station.tolist() == [-1, 1, -1]
    np.testing.assert_allclose(plan.station_violations, 1 / 3)


def test_a_wrong_suitor_does_not_make_a_duplicate() -> None:
    plan = run(
        select(2, 2, (0, 1), (1, 1)), identities=np.array([0, 1]), capable=np.array([[True, False], [True, True]])
    )
    assert broken(plan) == {"unable": [1]}
    assert plan.station.tolist() == [-1, 1]
    assert plan.station_violations.tolist() == [1.0, 0.0]


def test_no_block() -> None:
    # Both users are at the border of both stations: they cannot share the only block.
    plan = run(select(2, 2, (0, 0), (1, 1)), gains=np.array([[1.0, 0.9], [0.9, 1.0]]), blocks=1, min_sinr=2.0)
    assert broken(plan) == {"no_block": [0]}
    assert plan.station.tolist() == [-1, 1]
    assert plan.station_violations.tolist() == [1.0, 0.0]


def test_no_broadcast_drops_the_smallest() -> None:
    identities = np.array([0, 0, 1, 1])
    plan = run(select(2, 4, (0, 0), (1, 1), (0, 2), (1, 3)), identities=identities, downlink_slots=2)
    # Samples of the pairs: (0, 0) 10, (1, 0) 20, (0, 1) 30, (1, 1) 40.
    assert broken(plan) == {"no_broadcast": [0, 1]}
    assert plan.active.tolist() == [[False, True], [False, True]]
    assert plan.station.tolist() == [-1, -1, 0, 1]
    none = run(select(2, 4, (0, 0), (1, 1)), downlink_slots=0)
    assert broken(none) == {"no_broadcast": [0, 1]}
    assert not none.active.any()


def test_equal_broadcasts_go_to_the_lower_station() -> None:
    plan = run(select(2, 2, (0, 0), (1, 1)), samples=np.array([5, 5]), downlink_slots=1)
    assert plan.served.tolist() == [True, False]


def test_several_kinds_of_one_user_count_once() -> None:
    # User 1: unable at station 0, wanted by 1 and 2, and its broadcast does not fit.
    capable = np.array([[False, False], [True, True], [True, True]])
    plan = run(select(3, 3, (0, 1), (1, 1), (2, 1)), capable=capable, downlink_slots=0)
    assert broken(plan) == {"unable": [1], "selected_twice": [1], "no_broadcast": [1]}
    assert plan.violators.sum() == 1
    np.testing.assert_allclose(plan.station_violations, 1 / 3)


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32 - 1), density=st.floats(0, 1), slots=st.integers(0, 12))
def test_projected_plans_are_valid_and_charges_sum_up(seed: int, density: float, slots: int) -> None:
    problem = make_instance(seed)
    rng = np.random.default_rng(seed)
    selected = rng.random((4, 12)) < density
    plan = project(
        selected, problem.identities, problem.capable, problem.gains, problem.samples,
        problem.limited(slots), first_station=seed % 4,
    )  # fmt: skip
    served = plan.served
    assert np.array_equal(served, plan.block >= 0)
    assert plan.active.sum() <= slots
    assert np.all(selected[plan.station[served], np.flatnonzero(served)])
    assert np.all(plan.active[plan.station[served], problem.identities[served]])
    assert np.array_equal(plan.active, plan.active & problem.capable)
    assert plan.station_violations.sum() == pytest.approx(plan.violators.sum())
    assert np.array_equal(plan.violators, np.any([plan.kinds[kind] for kind in VIOLATION_KINDS], axis=0))
    # Whoever was selected is served or has broken a rule.
    assert np.all(served[selected.any(axis=0) & ~plan.violators])


def batch(networks: int) -> tuple[dict, list[np.ndarray]]:
    """Arguments of `project`, and the selections, of which some are empty and some full."""
    problems = [make_instance(seed) for seed in range(networks)]
    rng = np.random.default_rng(networks)
    selected = [rng.random((4, 12)) < density for density in np.linspace(0, 1, networks)]
    identities = [rng.integers(-1, 5, 12) if n % 5 == 0 else p.identities for n, p in enumerate(problems)]
    arguments = {
        "identities": np.array(identities).reshape(networks, 12),
        "capable": make_instance(0).capable,
        "gains": np.array([p.gains for p in problems]).reshape(networks, 12, 4),
        "samples": np.array([p.samples for p in problems]).reshape(networks, 12),
        "first_station": np.arange(networks) % 4,
        "radio": make_instance(0).limited(5),
    }
    return arguments, selected


def test_a_batch_is_projected_network_by_network() -> None:
    arguments, selected = batch(60)
    plans = project(np.stack(selected), **arguments)
    shared = {key: arguments[key] for key in ("capable", "radio")}
    for n, chosen in enumerate(selected):
        own = {key: arguments[key][n] for key in ("identities", "gains", "samples", "first_station")}
        plan = project(chosen, **own, **shared)
        for name in ("station", "block", "active", "violators", "station_violations", "served"):
            np.testing.assert_array_equal(getattr(plans, name)[n], getattr(plan, name))
        for kind in VIOLATION_KINDS:
            np.testing.assert_array_equal(plans.kinds[kind][n], plan.kinds[kind])
    assert all(plans.kinds[kind].any() for kind in VIOLATION_KINDS)


def test_an_empty_batch_and_an_empty_selection() -> None:
    arguments, _ = batch(0)
    none = project(np.zeros((0, 4, 12), dtype=bool), **arguments)
    assert none.station.shape == (0, 12)
    assert none.active.shape == (0, 4, 4)
    assert none.station_violations.shape == (0, 4)
    arguments, selected = batch(3)
    nobody = project(np.zeros_like(selected), **{**arguments, "first_station": 1})
    assert not nobody.served.any()
    assert not nobody.violators.any()
    assert not nobody.active.any()


def test_input_is_left_alone_whatever_its_layout() -> None:
    arguments, selected = batch(6)
    expected = project(np.stack(selected), **arguments)
    gains = np.asfortranarray(arguments["gains"])
    gains.flags.writeable = False
    chosen = np.stack(selected).astype(int)
    before = chosen.copy()
    plans = project(chosen, **{**arguments, "gains": gains, "samples": arguments["samples"].astype(np.int32)})
    np.testing.assert_array_equal(plans.block, expected.block)
    np.testing.assert_array_equal(chosen, before)


def test_a_user_without_samples_may_be_dropped_but_not_served() -> None:
    samples = np.array([0, 10])
    plan = run(select(2, 2, (0, 0), (1, 1)), samples=samples, identities=np.array([7, 0]))
    assert broken(plan) == {"unable": [0]}
    with pytest.raises(ValueError, match="positive and finite"):
        run(select(2, 2, (0, 0), (1, 1)), samples=samples)


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    arguments, selected = batch(3)
    for key in ("identities", "gains", "samples", "capable"):
        with pytest.raises(ValueError, match="do not fit together"):
            project(np.stack(selected), **{**arguments, key: arguments[key][:2]})


def test_more_leading_axes_give_the_same_plans() -> None:
    arguments, selected = batch(6)
    plans = project(np.stack(selected), **arguments)
    shaped = {
        key: arguments[key].reshape(2, 3, *arguments[key].shape[1:]) for key in ("identities", "gains", "samples")
    }
    shaped["first_station"] = arguments["first_station"].reshape(2, 3)
    both = project(np.stack(selected).reshape(2, 3, 4, 12), **{**arguments, **shaped})
    for name in ("station", "block", "active", "violators", "station_violations"):
        np.testing.assert_array_equal(getattr(both, name).reshape(getattr(plans, name).shape), getattr(plans, name))


def test_blocks_can_be_granted_in_another_way() -> None:
    asked = []

    def first_users_only(station: np.ndarray) -> np.ndarray:
        asked.append(station.copy())
        return np.where(np.arange(len(station)) < 2, 0, -1)

    plan = run(select(2, 4, (0, 0), (1, 1), (0, 2), (1, 3)), grant=first_users_only)
    assert [station.tolist() for station in asked] == [[0, 1, 0, 1]]
    assert broken(plan) == {"no_block": [2, 3]}
    assert plan.block.tolist() == [0, 0, -1, -1]
