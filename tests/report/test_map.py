from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure

from covey.report import draw_map
from covey.report.map import cells
from covey.report.pictures import png
from covey.simulation import History

PNG = b"\x89PNG"


def _area(polygon: np.ndarray) -> float:  # type: ignore[type-arg]
    x, y = polygon.T
    return 0.5 * abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1)))


def _texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


@pytest.mark.parametrize("stations", [1, 2, 7, 40])
def test_cells_tile_the_area_and_hold_the_points_nearest_to_their_station(stations: int) -> None:
    rng = np.random.default_rng(stations)
    points = rng.uniform(0, 1, (stations, 2)) * [30.0, 20.0]
    polygons = cells(points, 30.0, 20.0)
    assert sum(map(_area, polygons)) == pytest.approx(600.0)
    for own, polygon in enumerate(polygons):
        inside = rng.dirichlet(np.ones(len(polygon)), 50) @ polygon  # convex, so mixtures stay inside
        nearest = np.linalg.norm(inside[:, None] - points[None], axis=2).argmin(axis=1)
        assert (nearest == own).all()


def test_coinciding_and_border_stations_still_have_cells() -> None:
    polygons = cells(np.array([[0.0, 0.0], [10.0, 10.0], [10.0, 10.0]]), 10.0, 10.0)
    assert [round(_area(polygon), 6) for polygon in polygons] == [50.0, 50.0, 50.0]


def test_twelve_users_are_numbered_and_their_links_labelled(history: History) -> None:
    texts = _texts(draw_map(history))
    record = history.records[-1]
    assert set(map(str, range(12))) <= set(texts)
    blocks = sorted(text for text in texts if text.startswith("b") and text[1:].isdigit())
    assert blocks == sorted(f"b{block}" for block in record.users.block if block >= 0)
    assert any(text.startswith("station 3\ntasks") for text in texts)


def test_large_networks_drop_labels_not_users(make_history: Callable[..., History]) -> None:
    history = make_history(users=200, stations=20, rounds=2)
    figure = draw_map(history)
    assert not any(text[1:].isdigit() for text in _texts(figure) if text.startswith("b"))
    drawn = sum(len(c.get_offsets()) for c in figure.axes[0].collections if c.get_zorder() in (3, 4))
    assert drawn == 200
    assert png(figure).startswith(PNG)


def test_rings_mark_wrong_identities_and_crosses_mark_violations(make_history: Callable[..., History]) -> None:
    history = make_history(users=30, rounds=3, seed=2)
    for index, record in enumerate(history.records):
        figure = draw_map(history, index)
        by_order = {c.get_zorder(): len(c.get_offsets()) for c in figure.axes[0].collections}
        wrong = round(30 * (1 - record.clustering_accuracy))
        assert by_order[5] == wrong
        assert by_order[6] == record.violators
        assert f"Round {record.round} of 3" in figure.axes[0].get_title(loc="left")


def test_equal_scale_on_both_axes(history: History) -> None:
    figure = draw_map(history)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    (x0, y0), (x1, y1) = axes.transData.transform([[0, 0], [100, 100]])
    assert x1 - x0 == pytest.approx(y1 - y0)


def test_a_dollar_name_is_written_as_it_is(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=1, scenario={"name": "a $\\frac{1}$ name"})
    figure = draw_map(history)
    assert "$\\frac{1}$" in figure.texts[-1].get_text()
    assert png(figure).startswith(PNG)


def test_no_round_and_one_user(make_history: Callable[..., History]) -> None:
    assert "Before the first round" in draw_map(make_history(played=0)).axes[0].get_title(loc="left")
    assert png(draw_map(make_history(users=1, stations=1, tasks=1, blocks=1, rounds=1))).startswith(PNG)


def test_all_users_on_one_spot(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=1)
    users = history.records[-1].users
    users.x_m[:], users.y_m[:] = history.stations_m[0]
    assert png(draw_map(history)).startswith(PNG)
