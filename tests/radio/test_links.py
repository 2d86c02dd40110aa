from __future__ import annotations

import numpy as np
import pytest

from covey.radio import (
    broadcast_times,
    compute_energies,
    compute_times,
    dbm_to_w,
    downlink_slots,
    overhead,
    uplink_rates,
    uplink_times,
)
from covey.scenario.schema import Compute

LINK = {"power_w": 2.0, "noise_w": 0.5, "bandwidth_hz": 1e6}


def rates_by_loops(gains: np.ndarray, station: np.ndarray, block: np.ndarray) -> np.ndarray:
    rates = np.zeros(len(gains))
    for i in range(len(gains)):
        if station[i] < 0 or block[i] < 0:
            continue
        interference = 0.0
        for p in range(len(gains)):
            if p != i and block[p] == block[i] and station[p] >= 0 and station[p] != station[i]:
                interference += LINK["power_w"] * gains[p, station[i]]
        sinr = LINK["power_w"] * gains[i, station[i]] / (interference + LINK["noise_w"])
        rates[i] = LINK["bandwidth_hz"] * np.log2(1 + sinr)
    return rates


def test_dbm() -> None:
    assert dbm_to_w(30.0) == pytest.approx(1.0)
    assert dbm_to_w(-90.0) == pytest.approx(1e-12)


def test_rates_equal_the_formula_in_loops() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        gains = rng.exponential(1.0, (9, 3))
        station, block = rng.integers(-1, 3, 9), rng.integers(-1, 2, 9)
        expected = rates_by_loops(gains, station, block)
        np.testing.assert_allclose(uplink_rates(gains, station, block, **LINK), expected)


def test_the_interferers_gain_to_the_receiver_counts() -> None:
    # User 1 is loud at its own station and silent at station 0, so user 0 hears no interference.
    gains = np.array([[1.0, 0.0], [0.0, 100.0]])
    rates = uplink_rates(gains, np.array([0, 1]), np.array([0, 0]), **LINK)
    assert rates[0] == pytest.approx(1e6 * np.log2(1 + 2.0 / 0.5))


def test_nobody_served() -> None:
    none = np.full(3, -1)
    np.testing.assert_array_equal(uplink_rates(np.ones((3, 2)), none, none, **LINK), 0.0)


def test_broadcast_times_count_pairs() -> None:
    active = np.array([[True, False, True], [False, False, False]])
    np.testing.assert_allclose(broadcast_times(active, 1e6, 1e8), [0.02, 0.0])


@pytest.mark.parametrize(
    ("limit_s", "bits", "rate_bps", "slots"),
    [
        (0.01, 552_714 * 32, 6.2 * 552_714 * 32 / 0.01, 6),
        (0.01, 1e6, 6e8, 6),
        (0.29, 1.0, 100.0, 29),  # 0.29 x 100 is 28.999999999999996
        (0.01, 1e6, 5.999e8, 5),
        (0.01, 1e9, 1e6, 0),
    ],
)
def test_downlink_slots(limit_s: float, bits: float, rate_bps: float, slots: int) -> None:
    assert downlink_slots(limit_s, bits, rate_bps) == slots


def test_slots_beyond_all_integers_are_as_many_as_any_network_could_use() -> None:
    assert downlink_slots(1e9, 1e-12, 1e15) == 10**12


def test_slots_agree_with_times() -> None:
    for slots in range(1, 60):
        rate_bps = slots * 20_800 / 0.01
        fits = downlink_slots(0.01, 20_800, rate_bps)
        assert fits == slots
        assert broadcast_times(np.ones((1, fits), dtype=bool), 20_800, rate_bps).sum() <= 0.01 * (1 + 1e-9)


def test_overhead_counts_served_users_and_sent_broadcasts_only() -> None:
    rates = np.array([1e6, 0.0, 2e6])
    active = np.array([[True, True], [False, True]])
    link = {"model_bits": 4e6, "downlink_rate_bps": 4e8, "user_power_w": 0.5, "station_power_w": 6.0}
    result = overhead(rates, active, **link)
    np.testing.assert_allclose(result.uplink_s, [4.0, 0.0, 2.0])
    np.testing.assert_allclose(result.uplink_s, uplink_times(rates, 4e6))
    np.testing.assert_allclose(result.user_energy_j, [2.0, 0.0, 1.0])
    np.testing.assert_allclose(result.station_energy_j, [0.12, 0.06])
    assert result.delay_s == pytest.approx(4.03)
    assert result.energy_j == pytest.approx(3.18)
    doubled = overhead(rates, active, **link, uploads=2)
    np.testing.assert_allclose(doubled.uplink_s, 2 * result.uplink_s)
    np.testing.assert_allclose(doubled.downlink_s, result.downlink_s)


def test_an_idle_round_costs_nothing() -> None:
    idle = overhead(
        np.zeros(3), np.zeros((2, 2), dtype=bool), model_bits=1.0, downlink_rate_bps=1.0, user_power_w=1.0,
        station_power_w=1.0,
    )  # fmt: skip
    assert idle.delay_s == 0.0
    assert idle.energy_j == 0.0


def test_computing() -> None:
    compute = Compute(cycles_per_weight=6.0, frequency_hz=1e9, capacitance=1e-28)
    samples = np.array([100, 0, 300])
    np.testing.assert_allclose(compute_times(samples, 4, 1000, compute), 6.0 * 1000 * 4 * samples / 1e9)
    np.testing.assert_allclose(compute_energies(samples, 4, 1000, compute), 6.0 * 1000 * 4 * samples * 1e-28 * 1e18)
