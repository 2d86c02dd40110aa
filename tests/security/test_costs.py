from __future__ import annotations

import json

import numpy as np
from tests.security.rounds import parameters

from covey.security import PHASES, CostRecord, SeededEntropy, aggregate_masked

ENVELOPE = 8 + 12 + 16  # two ids, nonce, tag
ELEMENT = 33


def record(tasks: list[int], stations: list[int], **dropped: tuple[int, ...]) -> CostRecord:
    options = {"parameters": parameters(), "entropy": SeededEntropy(0), **dropped}
    return aggregate_masked(np.ones((6, 5)), [10] * 6, tasks, stations, **options).cost  # type: ignore[arg-type]


def test_bytes_follow_from_the_sizes() -> None:
    cost = record([0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1])
    key, share, count = 4 + 32 + 32, ENVELOPE + 7 * ELEMENT, ENVELOPE + 3 * ELEMENT
    answer = 4 * (1 + 3) + 3 * 6 * (4 + ELEMENT)
    upload = 4 + 3 * 6 * 8
    up = {"keys": key, "shares": 5 * share, "upload": upload, "counts": 5 * count, "unmask": answer}
    down = {"keys": 5 * key, "shares": 5 * share, "upload": 0, "counts": 5 * count + 6 * 4, "unmask": 0}
    between = {"keys": 6 * key, "shares": 18 * share, "counts": 18 * count, "unmask": 3 * answer, "upload": 12 + 144}
    for phase in PHASES:
        assert cost.up_bytes[phase].tolist() == [up[phase]] * 6
        assert cost.down_bytes[phase].tolist() == [down[phase]] * 6
        assert cost.backhaul_bytes[phase] == between[phase]
    assert cost.total_up_bytes().tolist() == [sum(up.values())] * 6
    assert cost.total_down_bytes().tolist() == [sum(down.values())] * 6


def test_a_single_station_needs_no_backhaul() -> None:
    assert set(record([0] * 6, [3] * 6).backhaul_bytes.values()) == {0}


def test_dropped_users_are_charged_for_what_they_did() -> None:
    cost = record([0] * 6, [0] * 6, dropped_before=(1,), dropped_after=(2,))
    assert cost.up_bytes["upload"].tolist() == [148, 0, 148, 148, 148, 148]
    for phase in ("counts", "unmask"):
        assert np.flatnonzero(cost.up_bytes[phase] == 0).tolist() == [1, 2]
    assert np.flatnonzero(cost.down_bytes["counts"] == 0).tolist() == [1, 2]
    assert np.all(cost.up_bytes["shares"] > 0)


def test_times_are_recorded_and_the_summary_is_json() -> None:
    cost = record([0] * 6, [0] * 6)
    assert all(np.all(cost.user_ms[phase] > 0) for phase in PHASES)
    assert cost.station_ms["unmask"] > 0
    table = json.loads(json.dumps(cost.summary()))
    assert set(table) == set(PHASES)
    assert table["upload"]["up_bytes_per_user"] == 148
