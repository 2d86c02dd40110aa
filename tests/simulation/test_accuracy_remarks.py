from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from covey.data.majority import majority_accuracy
from covey.data.over_time import DataOverTime
from covey.data.types import UserData
from covey.errors import ScenarioError
from covey.parts import DATA_OVER_TIME
from covey.simulation import History, Simulation, simulate
from covey.simulation.accuracy_remarks import accuracy_remarks, paired
from covey.simulation.run import user_data


@pytest.fixture(scope="module")
def played() -> History:
    return simulate("quick", rounds=2)


def told(history: History, accuracy: Any, majority: Any, central: float = math.nan) -> list[str]:
    """Remarks of a history whose last round had these accuracies of users."""
    last, users = history.records[-1], len(history.samples)
    accuracy, majority = np.broadcast_to(accuracy, users) + 0.0, np.broadcast_to(majority, users) + 0.0
    record = replace(
        last, accuracy=float(accuracy.mean()), majority=float(majority.mean()), central=central,
        users=replace(last.users, accuracy=accuracy, majority=majority),
    )  # fmt: skip
    return accuracy_remarks(replace(history, records=[*history.records[:-1], record]))


def test_every_record_has_the_accuracy_of_guessing(played: History) -> None:
    data = user_data(played.scenario, 0)
    expected = majority_accuracy(data)
    sizes = np.diff(data.test_offsets)
    for record in played.records:
        assert record.users.majority.tolist() == expected.tolist()
        assert record.majority == pytest.approx(float(np.average(expected, weights=sizes)))
        for group, value in enumerate(record.group_majority):
            own = data.groups == group
            assert value == pytest.approx(float(np.average(expected[own], weights=sizes[own])))
        assert math.isnan(record.central)


def test_a_run_that_learned_nothing_says_so_with_its_interval_and_n(played: History) -> None:
    noise = np.linspace(-0.1, 0.1, 12)
    (remark,) = told(played, 0.6 + noise, 0.6)
    assert "no better than naming each user's most frequent class" in remark
    assert "over 12 users" in remark
    half = stats.t.ppf(0.975, 11) * noise.std(ddof=1) / math.sqrt(12)
    assert f"{-half:+.3f} to {half:+.3f}" in remark


def test_a_run_clearly_above_guessing_says_nothing_and_one_barely_above_does(played: History) -> None:
    noise = np.linspace(-0.1, 0.1, 12)
    half = stats.t.ppf(0.975, 11) * noise.std(ddof=1) / math.sqrt(12)
    assert told(played, 0.6 + noise + half * 1.05, 0.6) == []
    assert len(told(played, 0.6 + noise + half * 0.95, 0.6)) == 1


def test_users_are_paired_with_their_own_line(played: History) -> None:
    # Lines that differ widely between users would drown the gain if it were not paired.
    lines = np.linspace(0.1, 0.9, 12)
    assert told(played, lines + 0.02 + np.linspace(-0.01, 0.01, 12), lines) == []


def test_the_interval_holds_its_level() -> None:
    rng = np.random.default_rng(0)
    found = [paired(0.5 + rng.normal(0.1, 0.2, 10), np.full(10, 0.5)) for _ in range(2000)]
    held = sum(one is not None and one.low <= 0.1 <= one.high for one in found)
    # Binomial with p = 0.95 and n = 2000: five standard deviations on both sides.
    assert abs(held - 1900) < 5 * math.sqrt(2000 * 0.95 * 0.05)


def test_nearer_to_guessing_than_to_the_central_model(played: History) -> None:
    (remark,) = told(played, 0.69, 0.6, central=0.8)
    assert "nearer to naming the most frequent class (0.600)" in remark
    assert "(0.800)" in remark
    assert told(played, 0.71, 0.6, central=0.8) == []


def test_data_from_which_the_network_can_learn_nothing(played: History) -> None:
    remarks = told(played, 0.5, 0.6, central=0.55)
    assert len(remarks) == 2
    assert "this model cannot learn more" in remarks[1]


def test_unknown_accuracies_and_single_users_give_no_interval() -> None:
    assert paired(np.full(3, np.nan), np.full(3, 0.5)) is None
    assert paired(np.array([0.9]), np.array([0.5])) is None
    known = paired(np.array([0.9, 0.8, np.nan]), np.array([0.5, 0.5, 0.5]))
    assert known is not None
    assert known.n == 2


class Swapped(DataOverTime):
    """From round 2 on users hold the test samples of user 0 as their labels' mix: only class 0 is left."""

    def at(self, round: int, first: UserData) -> UserData:
        if round == 0:
            return first
        return replace(first, y=np.zeros_like(first.y), test_y=np.zeros_like(first.test_y))


def test_the_lines_follow_data_that_change_over_time() -> None:
    DATA_OVER_TIME.register("swapped_for_lines", Swapped)
    seen: list[UserData] = []

    def half(data: UserData) -> np.ndarray[Any, np.dtype[np.float64]]:
        seen.append(data)
        return np.full(data.users, 0.5 if data.y.any() else 0.25)

    from covey.scenario import load_scenario

    scenario = load_scenario("quick", ["data.over_time='swapped_for_lines'"])
    history = simulate(scenario, rounds=2, reference=half)
    assert history.records[0].majority < 1
    assert history.records[1].majority == 1
    assert history.column("central").tolist() == [0.5, 0.25]
    assert history.column("group_central").tolist() == [[0.5] * 4, [0.25] * 4]
    assert history.user_column("central").tolist() == [[0.5] * 12, [0.25] * 12]
    assert len(seen) == 2


@pytest.mark.parametrize("wrong", [np.zeros(3), np.full(12, 1.5), np.full(12, np.nan), "x", None, [object()] * 12])
def test_a_reference_that_is_not_an_accuracy_per_user_is_refused(wrong: Any) -> None:
    with (
        Simulation("quick", rounds=1, reference=lambda data: wrong) as simulation,
        pytest.raises(ScenarioError, match="give one accuracy from 0 to 1 for each of 12 users"),
    ):
        simulation.play()


@pytest.mark.parametrize("wrong", ["x", 3, lambda: None, lambda data, more: None])
def test_a_reference_that_cannot_be_called_is_refused_before_round_1(wrong: Any) -> None:
    with pytest.raises(ScenarioError, match=r"^reference (is|cannot be).*give a function of the users' data[^\n]*$"):
        Simulation("quick", rounds=1, reference=wrong)
