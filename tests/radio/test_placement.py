from __future__ import annotations

import numpy as np

from covey.radio import place
from covey.scenario.schema import Network


def test_positions_are_in_the_area_and_follow_the_seed() -> None:
    network = Network(users=300, stations=20, area_m=(500.0, 100.0))
    stations_m, users_m = place(network, 1)
    assert stations_m.shape == (20, 2)
    assert users_m.shape == (300, 2)
    for points in (stations_m, users_m):
        assert np.all((points >= 0) & (points <= (500.0, 100.0)))
    np.testing.assert_allclose(users_m.mean(axis=0), (250.0, 50.0), rtol=0.15)
    np.testing.assert_array_equal(users_m, place(network, 1)[1])
    assert not np.allclose(users_m, place(network, 2)[1])


def test_given_positions_win_and_leave_the_others_alone() -> None:
    free_stations, free_users = place(Network(), 7)
    given = tuple((float(b), 10.0 * b) for b in range(4))
    stations_m, users_m = place(Network(station_positions_m=given), 7)
    np.testing.assert_array_equal(stations_m, np.array(given))
    np.testing.assert_array_equal(users_m, free_users)
    users = tuple((float(i), 5.0) for i in range(12))
    stations_m, users_m = place(Network(user_positions_m=users), 7)
    np.testing.assert_array_equal(stations_m, free_stations)
    np.testing.assert_array_equal(users_m, np.array(users))
