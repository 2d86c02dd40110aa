"""Users of a task that may hold two groups take turns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from covey.errors import ScenarioError
from covey.identification.turns import HEARD, LAST, OPEN, after_turns, resting, taking_turns
from covey.network import Observation
from covey.scenario import PAPER_START, dump_scenario, load_scenario
from covey.simulation import Simulation

SEEDS = range(1000, 1004)
#: Two groups on two of six models; nobody moves, so that a policy with a taste serves the same users.
STILL = (
    "data.mixes=[{0=1,1=1,2=1,3=1,4=1},{5=1,6=1,7=1,8=1,9=1}]",
    "network.tasks=2",
    "clustering.max_tasks=6",
    "mobility.speed_m_s=0",
    "radio.fading=none",
)


def memory(heard: list[int], last: list[int], tasks: list[int]) -> dict[str, np.ndarray]:
    return {HEARD: np.array(heard), LAST: np.isin(np.arange(len(heard)), last), OPEN: np.array(tasks, dtype=bool)}


def rest(identities: list[int], reachable: list[int], before: dict[str, np.ndarray]) -> list[int]:
    found = resting(np.array(identities), np.isin(np.arange(len(identities)), reachable), before)
    return [int(user) for user in np.flatnonzero(found)]


def test_those_who_were_heard_most_sit_out() -> None:
    assert rest([0, 0, 0, 0], [0, 1, 2, 3], memory([3, 0, 1, 0], [0], [1])) == [0, 2]


def test_nobody_sits_out_where_all_were_heard_alike() -> None:
    assert rest([0, 0, 0, 0], [0, 1, 2, 3], memory([2, 2, 2, 2], [0], [1])) == []


def test_as_many_stay_as_were_served_in_the_last_round() -> None:
    assert rest([0, 0, 0, 0], [0, 1, 2, 3], memory([3, 0, 1, 2], [0, 2, 3], [1])) == [0]
    assert rest([0, 0, 0, 0], [0, 1, 2, 3], memory([3, 0, 1, 2], [0, 1, 2, 3], [1])) == []


def test_users_that_no_station_reaches_are_not_waited_for() -> None:
    assert rest([0, 0, 0], [0, 2], memory([3, 0, 1], [0], [1])) == [0]
    assert rest([0, 0, 0], [0], memory([3, 0, 1], [0], [1])) == []


def test_only_users_of_open_tasks_take_turns() -> None:
    before = memory([3, 0, 3, 0], [0, 2], [0, 1])
    assert rest([0, 0, 1, 1], [0, 1, 2, 3], before) == [2]
    assert taking_turns(before)
    assert not taking_turns(before | {OPEN: np.zeros(2, dtype=bool)})
    assert not taking_turns({})


@pytest.mark.parametrize("seed", range(20))
def test_there_is_always_somebody_to_serve(seed: int) -> None:
    rng = np.random.default_rng(seed)
    users, tasks = int(rng.integers(1, 30)), int(rng.integers(1, 5))
    identities, reachable = rng.integers(tasks, size=users), rng.random(users) < 0.7
    before = {
        HEARD: rng.integers(4, size=users),
        LAST: rng.random(users) < 0.3,
        OPEN: np.ones(tasks, dtype=bool),
    }
    stay = reachable & ~resting(identities, reachable, before)
    for task in range(tasks):
        mine = identities == task
        served = (before[LAST] & mine).sum()
        assert (stay & mine).sum() >= min((reachable & mine).sum(), max(served, 1))


def test_a_turn_counts_whether_or_not_stations_used_it() -> None:
    """Users 0 and 1 share a task, of which 0 was heard; nobody of task 1 was, though its users could have been."""
    tasks = np.array([0, 0, 1, 1])
    asked = np.array([True, True, True, False])
    found = after_turns(tasks, tasks, asked, np.array([0]), np.array([True, False]), {})
    assert found[HEARD].tolist() == [1, 0, 1, 0]
    assert found[LAST].tolist() == [True, False, False, False]
    assert found[OPEN].tolist() == [True, False]


def test_who_stays_but_is_never_chosen_is_not_waited_for() -> None:
    """Three of twelve users are served in a round, user 5 never; it costs a place once until all had a turn."""
    tasks, everybody, unsettled = np.zeros(12, dtype=np.int64), np.ones(12, dtype=bool), np.array([True])
    before: dict[str, np.ndarray] = {}
    served, heard = [], np.zeros(12, dtype=np.int64)
    for _ in range(40):
        stay = everybody & ~resting(tasks, everybody, before) if before else everybody
        chosen = np.flatnonzero(stay & (np.arange(12) != 5))[:3]
        heard[chosen] += 1
        served.append(len(chosen))
        before = after_turns(tasks, tasks, stay, chosen, unsettled, before)
    assert np.mean(served) >= 2.7
    assert np.delete(heard, 5).min() >= 9


def test_users_without_a_known_task_take_no_turns() -> None:
    nobody = np.full(3, -1)
    found = after_turns(nobody, nobody, np.ones(3, dtype=bool), np.array([0]), np.ones(2, dtype=bool), {})
    assert found[HEARD].tolist() == [1, 0, 0]
    assert not resting(nobody, np.ones(3, dtype=bool), found).any()


def test_counts_begin_again_with_a_new_task() -> None:
    before, now = np.array([0, 0, 1]), np.array([0, 1, 1])
    found = after_turns(before, now, np.ones(3, dtype=bool), np.array([0, 1, 2]), np.ones(2, dtype=bool),
                        memory([4, 4, 4], [0], [1, 1]))  # fmt: skip
    assert found[HEARD].tolist() == [5, 1, 5]


def first_of_each_task(observation: Observation, rng: np.random.Generator) -> np.ndarray:
    """One user of each task and station, the same as long as it is there."""
    chosen = np.zeros_like(observation.eligible)
    owned = observation.owned
    for station, task in np.argwhere(observation.capable):
        mine = np.flatnonzero(owned[station] & (observation.identities == task))
        chosen[station, mine[:1]] = True
    return chosen


def heard(turns: bool, seed: int) -> np.ndarray:
    """(U,) whether each user was served in any of eight rounds."""
    given = [*STILL, f"clustering.turns={str(turns).lower()}"]
    with Simulation(load_scenario("paper_digits", given), first_of_each_task, seed=seed) as run:
        served = np.zeros(run.world.users, dtype=bool)
        for _ in range(8):
            served |= run.play().users.station >= 0
        return served


def test_a_policy_with_a_taste_hears_more_users() -> None:
    with_turns, without = (np.array([heard(turns, seed) for seed in SEEDS]) for turns in (True, False))
    assert with_turns.sum() > 1.5 * without.sum()


def test_nobody_takes_turns_where_no_model_is_offered() -> None:
    for given, turns in (
        ([], True),
        (["clustering.rescue=false"], False),
        (["clustering.rescue=false", "clustering.start=release"], True),
    ):
        assert load_scenario("paper_digits", given).clustering.turns is turns
    with Simulation(load_scenario("paper_digits", ["clustering.rescue=false"]), seed=1000) as run:
        run.play()
        assert not any(name.startswith("turns.") for name in run.state.memory)


@pytest.mark.parametrize("asked", ["true", "on"])
def test_turns_that_nobody_would_take_are_refused(asked: str, tmp_path: Path) -> None:
    given = f"clustering.turns={asked}"
    with pytest.raises(ScenarioError, match=r"^clustering\.turns is [^\n]*rescue=true or clustering\.start=release$"):
        load_scenario("quick", [given, *PAPER_START])
    for taken_back in ("false", "default"):
        later = [given, *PAPER_START, f"clustering.turns={taken_back}"]
        assert not load_scenario("quick", later).clustering.turns
    # A stored scenario says true, and its other keys are overridden later.
    path = tmp_path / "scenario.toml"
    path.write_text(dump_scenario(load_scenario("quick")), encoding="utf-8")
    assert "turns = true" in path.read_text(encoding="utf-8")
    assert load_scenario(path, PAPER_START).clustering == load_scenario("quick", PAPER_START).clustering
    for rest in (["clustering.rescue=false", "clustering.start=release"], ["clustering.start=random"]):
        assert load_scenario("quick", ["clustering.turns=true", *rest]).clustering.turns


def test_turns_end_with_the_start() -> None:
    given = ["clustering.rescue=false", "clustering.start=release"]
    with Simulation(load_scenario("paper_digits", given), seed=1000) as run:
        while run.world.start.under_way(run.state.round, run.state.memory):
            record = run.play()
            assert record.starting
        assert not any(name.startswith("turns.") for name in run.state.memory)


def test_a_user_is_reachable_where_its_own_link_carries_the_rate_floor() -> None:
    with Simulation(load_scenario("paper_digits", ["radio.user_power_dbm=0"]), seed=1000) as run:
        seen: list[Observation] = []

        def look(observation: Observation, rng: np.random.Generator) -> np.ndarray:
            seen.append(observation)
            return np.zeros_like(observation.eligible)

        run.policy = look
        run.play()
    (observation,) = seen
    alone = observation.gains * observation.power_w / observation.noise_w >= observation.min_sinr
    assert (observation.reachable == (observation.eligible & alone.T)).all()
    assert 0 < observation.reachable.sum() < observation.eligible.sum()
