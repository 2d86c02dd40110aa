from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from covey.environment import feature_names, features, state_vector
from covey.environment.features import FULL
from covey.network import NetworkLimits, Observation
from covey.scenario import load_scenario

STATIONS, USERS, TASKS = 4, 12, 4


@pytest.fixture(scope="module")
def limits() -> NetworkLimits:
    return NetworkLimits.of(load_scenario("quick"), 650)


@pytest.fixture
def view(limits: NetworkLimits) -> Observation:
    """Two networks in round 6; some users sit out, and two users of a task have equally many samples."""
    rng = np.random.default_rng(2)
    samples = rng.integers(60, 91, (2, USERS))
    samples[:, 3] = samples[:, 5]
    identities = rng.integers(0, TASKS, (2, USERS))
    identities[:, 3] = identities[:, 5]
    available = rng.random((2, USERS)) < 0.8
    available[:, [3, 5]] = True
    distances_m = rng.uniform(10.0, 500.0, (2, USERS, STATIONS))
    return Observation(
        round=6,
        identities=identities,
        distances_m=distances_m,
        gains=10 ** (-(128.1 + 37.6 * np.log10(distances_m / 1000)) / 10),
        samples=samples,
        available=available,
        kept=rng.random((2, USERS)) < 0.5,
        limits=limits,
    )


def by_loops(view: Observation, n: int, b: int, i: int) -> dict[str, float]:
    """What station b of network n knows of user i, counted user by user."""
    task, samples = view.identities[n, i], view.samples[n]
    peers = [j for j in range(USERS) if view.identities[n, j] == task and view.available[n, j]]
    alike = peers if view.available[n, i] else [j for j in range(USERS) if not view.available[n, j]]
    distance = view.distances_m[n, :, b]
    larger = [j for j in alike if (-samples[j], j) < (-samples[i], i)]
    closer = [j for j in alike if (distance[j], j) < (distance[i], i)]
    turn = [(view.round + step) % STATIONS for step in range(STATIONS)]
    before = [s for s in turn[: turn.index(b)] if view.limits.capable[s, task]]
    snr = view.power_w * view.gains[n, i, b] / view.noise_w / view.min_sinr
    announced = {view.identities[n, j] for j in range(USERS) if view.available[n, j]}
    return {
        "able": float(view.limits.capable[b, task]),
        "distance": distance[i] / np.hypot(500, 500),
        "margin": np.log10(snr) / 2,
        "samples": samples[i] / samples.mean(),
        "largest": 1 / (1 + len(larger)),
        "closest": 1 / (1 + len(closer)),
        "task_users": len(peers) / (USERS / TASKS),
        "task_samples": sum(samples[j] for j in peers) / (samples.sum() / TASKS),
        "turn": 1 / (1 + len(before)),
        "choices": view.limits.capable[:, task].sum() / STATIONS,
        "slots": min(view.downlink_slots / len(announced), 4.0),
        "left": 1 - 6 / view.limits.rounds,
        "kept": float(view.kept[n, i]),
        "first_round": 0.0,
    }


def test_full_features_equal_a_loop_over_users(view: Observation) -> None:
    found = features(view, "full")
    assert found.shape == (2, STATIONS, USERS, len(FULL))
    assert found.dtype == np.float32
    for n, b, i in np.ndindex(found.shape[:3]):
        expected = by_loops(view, n, b, i)
        assert dict(zip(FULL, found[n, b, i].tolist(), strict=True)) == pytest.approx(expected, rel=1e-6), (n, b, i)


def test_paper_features_are_tasks_and_own_distances(view: Observation) -> None:
    found = features(view, "paper")
    assert found.shape == (2, STATIONS, USERS, len(feature_names("paper", TASKS)))
    for n, b, i in np.ndindex(found.shape[:3]):
        expected = [0.0] * TASKS + [view.distances_m[n, i, b] / np.hypot(500, 500)]
        expected[view.identities[n, i]] = 1.0
        assert found[n, b, i].tolist() == pytest.approx(expected)


def test_in_the_first_round_identities_are_marked_as_random(view: Observation) -> None:
    first = features(replace(view, round=0), "full")
    assert np.all(first[..., FULL.index("first_round")] == 1.0)
    assert np.all(first[..., FULL.index("left")] == 1.0)


def test_a_station_uses_no_other_stations_measurements(view: Observation) -> None:
    moved = view.distances_m.copy()
    moved[..., 1:] *= 0.5
    changed = replace(view, distances_m=moved, gains=np.where(np.arange(STATIONS) > 0, 1e-9, view.gains))
    for kind in ("paper", "full"):
        before, after = features(view, kind), features(changed, kind)
        np.testing.assert_array_equal(before[:, 0], after[:, 0])
        assert not np.array_equal(before[:, 1], after[:, 1])


def test_renumbering_users_renumbers_their_features(view: Observation) -> None:
    samples = np.tile(np.arange(60, 60 + USERS), (2, 1))
    view = replace(view, samples=samples)
    order = np.random.default_rng(3).permutation(USERS)
    arrays = {name: getattr(view, name)[:, order] for name in vars(view) if name not in ("round", "limits")}
    renumbered = replace(view, **arrays)
    for kind in ("paper", "full"):
        np.testing.assert_array_equal(features(view, kind)[:, :, order], features(renumbered, kind))


def test_one_network_has_the_features_of_its_place_in_a_batch(view: Observation) -> None:
    for kind in ("paper", "full"):
        np.testing.assert_array_equal(features(view[1], kind), features(view, kind)[1])
    np.testing.assert_array_equal(state_vector(view[1]), state_vector(view)[1])


def test_the_state_holds_identities_distances_and_time(view: Observation) -> None:
    found = state_vector(view)
    assert found.shape == (2, USERS * (TASKS + STATIONS) + 1)
    one_hot = found[:, : USERS * TASKS].reshape(2, USERS, TASKS)
    np.testing.assert_array_equal(one_hot.argmax(axis=2), view.identities)
    assert np.all(one_hot.sum(axis=2) == 1.0)
    distances = found[:, USERS * TASKS : -1].reshape(2, USERS, STATIONS)
    np.testing.assert_allclose(distances * np.hypot(500, 500), view.distances_m, rtol=1e-6)
    np.testing.assert_allclose(found[:, -1], 6 / view.limits.rounds)


def test_eligible_users_are_available_and_have_a_task_of_the_station(view: Observation) -> None:
    expected = view.limits.capable[:, view.identities].transpose(1, 0, 2) & view.available[:, None, :]
    np.testing.assert_array_equal(view.eligible, expected)
    assert expected.any()
    assert not expected.all()


@pytest.mark.parametrize("task", [-1, 99])
def test_tasks_that_no_station_knows_are_refused(view: Observation, task: int) -> None:
    with pytest.raises(IndexError, match="beyond the last"):
        _ = replace(view, identities=np.full_like(view.identities, task)).eligible


def test_views_that_do_not_fit_together_are_refused(view: Observation) -> None:
    other = replace(view, identities=view.identities[:, 1:])
    with pytest.raises(ValueError, match="do not fit together"):
        _ = other.eligible
    with pytest.raises(ValueError, match="do not fit together"):
        features(other, "paper")
