from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from covey.errors import ScenarioError
from covey.parts import PATH_LOSSES
from covey.radio import Channel, build_channel, build_path_loss, distances, register_path_loss
from covey.scenario import load_scenario
from covey.scenario.schema import Radio

STATIONS = np.array([[0.0, 0.0], [300.0, 400.0]])
USERS = np.array([[0.0, 0.0], [3.0, 4.0], [300.0, 0.0]])


@pytest.mark.parametrize(
    ("name", "reach_m"),
    # Where 30 dBm arrive with -90 dBm, that is, where 120 dB are lost.
    [("3gpp_macro", 609.0), ("3gpp_umi", 274.0), ("inverse_square", 1e6)],
)
def test_path_loss_reaches_120_db_at_the_known_distance(name: str, reach_m: float) -> None:
    path_loss = build_path_loss(Radio(path_loss=name))
    assert path_loss(np.array([reach_m]))[0] == pytest.approx(120.0, abs=0.05)
    assert np.all(np.diff(path_loss(np.array([1.0, 10.0, 100.0, 1000.0]))) > 0)


def test_carrier_matters_only_for_umi() -> None:
    distance_m = np.array([100.0])
    for name, difference_db in (("3gpp_macro", 0.0), ("3gpp_umi", 26 * np.log10(2)), ("inverse_square", 0.0)):
        low, high = (build_path_loss(Radio(path_loss=name, carrier_hz=f))(distance_m)[0] for f in (2e9, 4e9))
        assert high - low == pytest.approx(difference_db)


def test_unknown_path_loss_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="3gpp_macro, 3gpp_umi, inverse_square"):
        Radio(path_loss="fog")
    with pytest.raises(ScenarioError, match="did you mean '3gpp_umi'"):
        build_path_loss(Radio.model_construct(path_loss="3gpp_um"))


def test_registered_path_loss_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PATH_LOSSES, "_registered", {})
    register_path_loss("flat", lambda radio: lambda distance_m: np.full_like(distance_m, 30.0))
    gains = Channel(Radio(path_loss="flat"), 1.0, 0).gains(USERS, STATIONS, 0)
    np.testing.assert_allclose(gains, 1e-3)


OWN = """
from pathlib import Path

import numpy as np

def flat(radio):
    return lambda distance_m: np.full_like(distance_m, 30.0)

class Constant:
    def __init__(self, radio, min_distance_m, seed):
        self.gain = min_distance_m * (seed + 1)

    def gains(self, users_m, stations_m, round):
        return np.full((len(users_m), len(stations_m)), self.gain * (round + 1))
"""


def test_a_channel_and_a_path_loss_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_channels.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    gains = Channel(Radio(path_loss="own_channels:flat"), 1.0, 0).gains(USERS, STATIONS, 0)
    np.testing.assert_allclose(gains, 1e-3)
    scenario = load_scenario("quick", ["radio.channel=own_channels:Constant", "network.min_distance_m=2"])
    assert (build_channel(scenario, 4).gains(USERS, STATIONS, 1) == 20.0).all()
    with pytest.raises(ScenarioError, match="cannot be called with 3 arguments"):
        build_channel(load_scenario("quick", ["radio.channel=own_channels:flat"]), 0)


def test_the_default_channel_is_the_path_loss() -> None:
    scenario = load_scenario("quick")
    assert scenario.radio.channel == "path_loss"
    built = build_channel(scenario, 3).gains(USERS, STATIONS, 2)
    own = Channel(scenario.radio, scenario.network.min_distance_m, 3).gains(USERS, STATIONS, 2)
    np.testing.assert_array_equal(built, own)


@pytest.mark.parametrize(
    ("radio", "draws"), [(Radio(), False), (Radio(fading="rayleigh"), True), (Radio(shadowing_db=1.0), True)]
)
def test_a_channel_says_whether_it_draws(radio: Radio, draws: bool) -> None:
    assert Channel(radio, 10.0, 0).draws is draws


def test_distances() -> None:
    np.testing.assert_allclose(distances(USERS, STATIONS), [[0, 500], [5, np.hypot(297, 396)], [300, 400]])


def test_distances_of_many_networks_equal_the_norm_bit_by_bit() -> None:
    rng = np.random.default_rng(4)
    users, stations = rng.uniform(0, 500, (5, 7, 2)), rng.uniform(0, 500, (5, 3, 2))
    users[0, 0] = stations[0, 0]
    expected = np.linalg.norm(users[:, :, None] - stations[:, None], axis=-1)
    np.testing.assert_array_equal(distances(users, stations), expected)
    np.testing.assert_array_equal(distances(users[1], stations), distances(np.stack([users[1]] * 5), stations))


@pytest.mark.parametrize("radio", [Radio(), Radio(fading="rayleigh", shadowing_db=6.0)])
def test_gains_over_known_distances_are_the_gains(radio: Radio) -> None:
    channel = Channel(radio, 10.0, 3)
    found = channel.gains_over(distances(USERS, STATIONS), 2)
    np.testing.assert_array_equal(found, channel.gains(USERS, STATIONS, 2))


def test_gains_are_bounded_by_the_smallest_distance() -> None:
    gains = Channel(Radio(path_loss="inverse_square"), 10.0, 0).gains(USERS, STATIONS, 0)
    np.testing.assert_allclose(gains[:2, 0], 1e-2)
    assert gains[2, 0] == pytest.approx(300.0**-2)
    with pytest.raises(ValueError, match="min_distance_m"):
        Channel(Radio(), 0.0, 0)


def test_without_fading_gains_do_not_depend_on_round_or_seed() -> None:
    first = Channel(Radio(), 10.0, 1).gains(USERS, STATIONS, 0)
    np.testing.assert_array_equal(first, Channel(Radio(), 10.0, 2).gains(USERS, STATIONS, 9))


def test_rayleigh_fading_is_redrawn_every_round_with_unit_mean_power() -> None:
    users = np.random.default_rng(0).uniform(50, 500, (4000, 2))
    plain = Channel(Radio(), 10.0, 3).gains(users, STATIONS, 0)
    faded = Channel(Radio(fading="rayleigh"), 10.0, 3)
    power = faded.gains(users, STATIONS, 5) / plain
    # Exponential of mean 1: mean and variance 1, and P(power > 1) = 1/e; tolerances are 4 standard errors.
    assert power.mean() == pytest.approx(1.0, abs=4 / np.sqrt(power.size))
    assert (power > 1).mean() == pytest.approx(np.exp(-1), abs=4 * 0.5 / np.sqrt(power.size))
    assert not np.allclose(power, faded.gains(users, STATIONS, 6) / plain)
    np.testing.assert_array_equal(faded.gains(users, STATIONS, 5), faded.gains(users, STATIONS, 5))


def test_shadowing_stays_for_the_run_and_has_the_asked_deviation() -> None:
    users = np.random.default_rng(0).uniform(50, 500, (4000, 2))
    plain = Channel(Radio(), 10.0, 3).gains(users, STATIONS, 0)
    shadowed = Channel(Radio(shadowing_db=6.0), 10.0, 3)
    deviation_db = 10 * np.log10(shadowed.gains(users, STATIONS, 0) / plain)
    assert deviation_db.std() == pytest.approx(6.0, rel=0.05)
    np.testing.assert_array_equal(shadowed.gains(users, STATIONS, 0), shadowed.gains(users, STATIONS, 7))
    other_run = Channel(Radio(shadowing_db=6.0), 10.0, 4)
    assert not np.allclose(shadowed.gains(users, STATIONS, 0), other_run.gains(users, STATIONS, 0))
