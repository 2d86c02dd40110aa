"""Measured positions and gains: what a trace says is what a run sees, and mistakes in it are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import covey
from covey.errors import DataError, ScenarioError
from covey.radio import TraceChannel, TraceMobility, channel_and_mobility, read_trace


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_users_are_where_the_trace_says(tmp_path: Path) -> None:
    path = written(tmp_path, "round,user,x_m,y_m\n1,0,10,20\n1,1,30,40\n3,1,50,60\n")
    scenario = covey.load_scenario("quick", ["network.users=2", "network.tasks=2", "data.mixes=[{0=1},{5=1}]"])
    channel, mobility = channel_and_mobility(scenario, 0, str(path))
    assert channel is None
    history = covey.simulate(scenario, rounds=4, mobility=mobility)
    np.testing.assert_array_equal(history.user_column("x_m"), [[10, 30], [10, 30], [10, 50], [10, 50]])
    np.testing.assert_array_equal(history.user_column("y_m"), [[20, 40], [20, 40], [20, 60], [20, 60]])


def test_gains_are_what_the_trace_says(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "round,user,station,gain_db\n1,0,0,-80\n1,0,1,-90\n1,1,0,-100\n1,1,1,-110\n2,0,0,-70\n",
    )
    found = read_trace(path, 2, 2)
    assert isinstance(found, TraceChannel)
    nowhere = np.zeros((2, 2))
    np.testing.assert_allclose(10 * np.log10(found.gains(nowhere, nowhere, 0)), [[-80, -90], [-100, -110]])
    np.testing.assert_allclose(10 * np.log10(found.gains(nowhere, nowhere, 1)), [[-70, -90], [-100, -110]])
    np.testing.assert_allclose(found.gains(nowhere, nowhere, 9), found.gains(nowhere, nowhere, 1))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has the columns none"),
        ("round,user,x_m\n", "it needs round,user,x_m,y_m or"),
        ("round,user,x_m,y_m\n1,0,1,1\n", "does not name user 1 in round 1"),
        ("round,user,x_m,y_m\n1,0,1,1\n1,0,2,2\n1,1,3,3\n", "names user 0 of round 1 twice"),
        ("round,user,x_m,y_m\n1,0,here,1\n", "line 2 .* is not a number"),
        ("round,user,x_m,y_m\n0,0,1,1\n", "out of range"),
        ("round,user,x_m,y_m\n1,7,1,1\n", "users are 0 to 1"),
        ("round,user,x_m,y_m\n1,0,inf,1\n", "not finite"),
        ("round,user,station,gain_db\n1,0,5,-80\n", "stations 0 to 1"),
        ("round,user,station,gain_db\n1,0,0,-80\n1,0,1,-80\n1,1,0,-80\n", "user 1 and station 1 in round 1"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_trace(written(tmp_path, text), 2, 2)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_trace(tmp_path / "nothing.csv", 2, 2)


def measured(round: int, users: int, stations: int) -> np.ndarray | None:
    return None if round == 0 else np.full((users, stations), 1e-9)


def wrong(round: int, users: int, stations: int) -> np.ndarray:
    return np.zeros((users, stations))


def test_a_function_measures_gains() -> None:
    scenario = covey.load_scenario("quick")
    plain, _ = channel_and_mobility(scenario, 0)
    assert plain is None
    channel, mobility = channel_and_mobility(scenario, 0, hook=f"{__name__}:measured")
    assert mobility is None
    assert channel is not None
    users, stations = np.zeros((3, 2)), np.full((2, 2), 50.0)
    assert (channel.gains(users, stations, 1) == 1e-9).all()
    assert (channel.gains(users, stations, 0) != 1e-9).all()
    bad, _ = channel_and_mobility(scenario, 0, hook=f"{__name__}:wrong")
    assert bad is not None
    with pytest.raises(DataError, match=r"must return \(3, 2\) positive, finite"):
        bad.gains(users, stations, 0)


@pytest.mark.parametrize("hook", ["", "nothing", "no.such.module:f", "math:nothing", "math:pi"])
def test_a_function_that_is_none_is_named(hook: str) -> None:
    scenario = covey.load_scenario("quick")
    if not hook:
        assert channel_and_mobility(scenario, 0, hook=hook) == (None, None)
        return
    with pytest.raises(ScenarioError, match="give module:function"):
        channel_and_mobility(scenario, 0, hook=hook)


def test_a_trace_stays_at_its_end() -> None:
    mobility = TraceMobility(np.arange(8.0).reshape(2, 2, 2))
    rng = np.random.default_rng(0)
    positions, memory = mobility.first_m, mobility.start(mobility.first_m, rng)
    for _ in range(3):
        positions, memory = mobility.move(positions, memory, 1.0, rng)
    np.testing.assert_array_equal(positions, [[4, 5], [6, 7]])
