from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from covey.privacy import epsilon
from covey.report import draw_curves
from covey.report.curves import PANELS, draw_panel, epsilons
from covey.report.pictures import png
from covey.simulation import History


def test_all_panels_are_drawn_with_titles(history: History) -> None:
    figure = draw_curves(history)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert len(titles) == len(PANELS) == len(set(titles))
    assert png(figure)


def test_losses_start_with_the_value_before_the_first_round(history: History) -> None:
    axes = draw_panel(history, "loss").axes[0]
    assert len(axes.lines) == 4
    for group, line in enumerate(axes.lines):
        assert line.get_xdata()[0] == 0
        assert line.get_ydata()[0] == history.start["group_loss"][group]
        assert line.get_ydata()[-1] == history.records[-1].group_loss[group]


def test_privacy_panel_shows_largest_mean_and_every_user(history: History) -> None:
    axes = draw_panel(history, "privacy").axes[0]
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    exact = history.ledger.epsilon()
    assert lines["largest"][-1] == pytest.approx(exact.max(), rel=1e-4)
    assert lines["mean"][-1] == pytest.approx(exact.mean(), rel=1e-4)
    assert len(axes.collections[0].get_segments()) == 12


def test_stacked_bars_add_up_to_the_delay(history: History) -> None:
    axes = draw_panel(history, "delay").axes[0]
    assert axes.get_ylabel().startswith("ms")
    heights = np.array([bar.get_height() for bar in axes.patches]).reshape(3, -1).sum(axis=0)
    np.testing.assert_allclose(heights, 1e3 * history.column("delay_s"))


def test_noise_off_is_called_unlimited(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=3, scenario={"privacy": {"noise": "off"}})
    axes = draw_panel(history, "privacy").axes[0]
    assert "unlimited" in axes.texts[0].get_text()


def test_a_budget_is_drawn(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=3, scenario={"privacy": {"budget_epsilon": 500.0}})
    labels = draw_panel(history, "privacy").axes[0].get_legend_handles_labels()[1]
    assert "budget" in labels


def test_undefined_values_and_idle_rounds_leave_gaps_not_errors(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=4)
    nothing = float("nan")
    history.records[1] = replace(
        history.records[1],
        group_loss=[nothing] * 4,
        group_accuracy=[nothing] * 4,
        clipped_fraction=nothing,
        delay_s=0.0,
        uplink_s=0.0,
    )
    history.start["group_loss"][0] = nothing
    assert png(draw_curves(history))


def test_one_round_many_groups_and_no_round(make_history: Callable[..., History]) -> None:
    assert png(draw_curves(make_history(rounds=1)))
    assert png(draw_curves(make_history(users=30, tasks=20, stations=10, rounds=2)))
    empty = draw_curves(make_history(played=0))
    assert "No round" in empty.texts[0].get_text()


def test_epsilons_interpolate_within_a_ten_thousandth_and_keep_the_ends() -> None:
    rho = np.geomspace(1e-4, 50.0, 300).reshape(3, 100)
    exact = np.array([epsilon(float(value), 1e-5) for value in rho.flat]).reshape(rho.shape)
    np.testing.assert_allclose(epsilons(rho, 1e-5), exact, rtol=3e-3)


def test_epsilons_of_zero_and_infinity() -> None:
    assert epsilons(np.array([[0.0, np.inf]]), 1e-5).tolist() == [[0.0, np.inf]]
    assert epsilons(np.array([0.5]), 1e-5)[0] == epsilon(0.5, 1e-5)


def test_equal_histories_give_equal_bytes(make_history: Callable[..., History]) -> None:
    first, second = (png(draw_panel(make_history(rounds=3), "accuracy")) for _ in range(2))
    assert first == second
