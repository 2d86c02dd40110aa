from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from covey.environment import Outcome, SurrogateRounds, calibration_for, learning_hash
from covey.environment import render as module
from covey.environment.parallel import parallel_env
from covey.environment.render import Moment, draw, moment, to_rgb
from covey.errors import ScenarioError
from covey.scenario import load_scenario
from covey.scenario.load import scenario_from_dict


def played(users: int = 12, share: float = 0.3) -> tuple[SurrogateRounds, Outcome, Moment]:
    scenario = load_scenario("quick", [f"network.users={users}"])
    rounds = SurrogateRounds(scenario, calibration_for(scenario), 2)
    rounds.reset([0, 1])
    before = moment(rounds)
    return rounds, rounds.step(np.random.default_rng(0).random((2, 4, users)) < share), before


def texts(figure: Figure) -> str:
    axes = figure.axes[0]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    return "\n".join([axes.get_title(loc="left"), *(text.get_text() for text in axes.texts), *legend])


@pytest.mark.parametrize("users", [12, 100])
def test_links_are_those_of_served_users_and_violators_are_marked(users: int) -> None:
    rounds, outcome, before = played(users, 3.6 / users)
    for index in range(2):
        axes = draw(rounds, index, outcome, before=before).axes[0]
        (links,) = [part for part in axes.collections if isinstance(part, LineCollection)]
        served = np.flatnonzero(outcome.station[index] >= 0)
        ends = np.array(links.get_segments()).reshape(-1, 2, 2)
        np.testing.assert_allclose(ends[:, 0], before.users_m[index, served])
        np.testing.assert_allclose(ends[:, 1], before.stations_m[index, outcome.station[index, served]])
        crosses = [np.asarray(part.get_offsets()) for part in axes.collections]
        wrong = before.users_m[index, outcome.violators[index]]
        assert len(wrong)
        assert any(np.array_equal(spots, wrong) for spots in crosses)


def test_the_title_tells_round_and_reward() -> None:
    rounds, outcome, before = played()
    with_outcome = texts(draw(rounds, 0, outcome, before=before))
    violators, served = int(outcome.violators[0].sum()), int(outcome.served[0])
    assert "Round 1 of 15, reward -" in with_outcome
    assert f"{served} of 12 users served, {violators} broke a rule" in with_outcome
    assert "bs_0: 0, 1, 2" in with_outcome
    fixed = texts(draw(rounds, 0, outcome, before=before, penalty="fixed"))
    assert "reward -5," in fixed
    assert "Round 1 of 15" in texts(draw(rounds, 0, outcome))
    following = texts(draw(rounds))
    assert following.startswith("Round 2 of 15\n")
    assert "before the stations choose" in following
    while not rounds.done:
        rounds.step(np.zeros((2, 4, 12), dtype=bool))
    assert "the episode is over" in texts(draw(rounds))


def test_pixels_differ_between_rounds_and_repeat_for_the_same_round() -> None:
    env = parallel_env("quick", render_mode="rgb_array")
    env.reset(seed=0)
    start = env.render()
    assert start.dtype == np.uint8
    assert start.ndim == 3
    assert start.shape[2] == 3
    assert len(np.unique(start.reshape(-1, 3), axis=0)) > 20
    env.step(dict.fromkeys(env.agents, 300))
    after = env.render()
    assert after.shape == start.shape
    assert not np.array_equal(start, after)
    np.testing.assert_array_equal(after, env.render())


def test_flat_areas_and_many_tasks_can_be_drawn() -> None:
    quick = load_scenario("quick")
    values = quick.model_dump(mode="json")
    values["data"]["mixes"] = None
    values["network"] |= {"users": 60, "tasks": 14, "tasks_per_station": 14, "area_m": [2000.0, 50.0]}
    scenario = scenario_from_dict(values)
    rounds = SurrogateRounds(scenario, replace(calibration_for(quick), hash=learning_hash(scenario)))
    rounds.reset([0])
    outcome = rounds.step(np.random.default_rng(0).random((1, 4, 60)) < 0.05)
    figure = draw(rounds, 0, outcome)
    assert "bs_0: 0 ... 13" in texts(figure)
    height, width, _ = to_rgb(figure).shape
    legend = figure.legends[0].get_window_extent()
    assert legend.x1 <= width
    assert 0 <= legend.y0 < legend.y1 <= height


def test_without_a_display_human_mode_is_one_clear_error() -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    with pytest.raises(ScenarioError, match=r"'human' needs a display.*render_mode='rgb_array'"):
        parallel_env("quick", render_mode="human")


def test_human_mode_shows_every_round_in_one_window(monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    monkeypatch.setattr(module, "_interactive", lambda backend: True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the stand-in for a window cannot be shown
        env = parallel_env("quick", render_mode="human")
        env.reset(seed=0)
        (number,) = plt.get_fignums()
        image = plt.figure(number).axes[0].images[0]
        start = np.array(image.get_array())
        env.step(dict.fromkeys(env.agents, 300))
        assert plt.get_fignums() == [number]
        assert not np.array_equal(start, image.get_array())
        assert env.render() is None
        env.close()
        assert plt.get_fignums() == []
        env.close()


def test_render_needs_a_mode() -> None:
    env = parallel_env("quick")
    env.reset(seed=0)
    with pytest.raises(ValueError, match="render_mode is None"):
        env.render()
