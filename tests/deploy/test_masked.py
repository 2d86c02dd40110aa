"""Secure aggregation with users who answer garbage: in each phase they drop out, and nobody else does."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.deploy.near import NearCourier, deployed, make_devices, run_folder, small

from covey.deploy.app.wire import Array, Packet

Change = Callable[[dict[str, Array]], dict[str, Array]]


def ints(*values: int) -> Array:
    return "int64", (len(values),), np.array(values, dtype=np.int64).tobytes()


def raw(content: bytes) -> Array:
    return "uint8", (len(content),), content


def put(name: str, made: Callable[[np.ndarray], Array]) -> Change:  # type: ignore[type-arg]
    """Replace one array by what `made` makes of it."""

    def change(arrays: dict[str, Array]) -> dict[str, Array]:
        kind, shape, data = arrays[name]
        return arrays | {name: made(np.frombuffer(data, dtype=kind).reshape(shape))}

    return change


def row(name: str, position: int, value: int) -> Change:
    def made(values: np.ndarray) -> Array:  # type: ignore[type-arg]
        values = values.copy()
        values[position] = value
        return ints(*values.tolist())

    return put(name, made)


ENVELOPES: dict[str, Change] = {
    "nothing": lambda arrays: {},
    "unequal": put("envelopes/sender", lambda values: ints(*values[1:].tolist())),
    "stranger": row("envelopes/receiver", 0, 99),
    "negative": row("envelopes/receiver", 0, -1),
    "long": row("envelopes/length", 0, 10**12),
    "shorter": row("envelopes/length", 0, -5),
    "short": put("envelopes/payload", lambda values: raw(values.tobytes()[:-1])),
    "not theirs": row("envelopes/sender", 0, 3),
    "floats": put(
        "envelopes/receiver", lambda values: ("float64", values.shape, np.full(len(values), np.inf).tobytes())
    ),
    "none": lambda arrays: {
        "envelopes/sender": ints(),
        "envelopes/receiver": ints(),
        "envelopes/length": ints(),
        "envelopes/payload": raw(b""),
    },
}
GARBAGE: dict[str, dict[str, Change]] = {
    "keys": {
        "nothing": lambda arrays: {},
        "short": put("keys/envelope", lambda values: raw(values.tobytes()[:31])),
        "long": put("keys/mask", lambda values: raw(values.tobytes() * 2)),
        "of low order": put("keys/mask", lambda values: raw(bytes(32))),
        "twice the same": lambda arrays: dict.fromkeys(arrays, arrays["keys/mask"]),
        "floats": put("keys/mask", lambda values: ("float32", (8,), values.tobytes())),
    },
    "shares": ENVELOPES,
    "upload": {
        "nothing": lambda arrays: {},
        "short": put("upload/words", lambda values: ("uint64", (1, 2), bytes(16))),
        "floats": put("upload/words", lambda values: ("float64", values.shape, values.tobytes())),
    },
    "counts": ENVELOPES,
    "reveal": {
        "nothing": lambda arrays: {},
        "fewer tasks": put("answer/counts", lambda values: ints(*values[:1].tolist())),
        "no tasks": put("answer/counts", lambda values: ints()),
        "other counts": put("answer/counts", lambda values: ints(*np.roll(values, 1).tolist())),
        "negative counts": row("answer/counts", 0, -3),
        "unequal": put("answer/slot", lambda values: ints(*values[1:].tolist())),
        "stranger": row("answer/user", 0, 99),
        "unknown task": row("answer/slot", 0, 77),
        "short": put("answer/share", lambda values: raw(values.tobytes()[:-1])),
        "outside the field": put("answer/share", lambda values: raw(b"\xff" * values.size)),
    },
}


@pytest.mark.parametrize(
    ("phase", "name"), [(phase, name) for phase, changes in GARBAGE.items() for name in changes], ids=str
)
def test_who_answers_garbage_drops_out_alone(tmp_path: Path, phase: str, name: str) -> None:
    scenario = small("security.mode=masked", "security.threshold=0.6")
    devices = make_devices(scenario, 0, tmp_path / "site")
    folder = run_folder(scenario, tmp_path / "run", rounds=2, metrics=False)

    def meddle(user: int, request: Packet, answer: Packet) -> Packet | None:
        if user != 1 or request.header["kind"] != phase or answer.header["status"] != "ok":
            return answer
        return Packet(answer.header, GARBAGE[phase][name](answer.arrays))

    simulation = deployed(NearCourier(devices, meddle), folder)
    history = simulation.history
    assert history.complete
    assert np.isfinite(history.models).all()
    with open(folder / "incidents.csv", encoding="utf-8", newline="") as file:
        noted = {(row["user"], row["kind"], row["status"]) for row in csv.DictReader(file)}
    assert noted == {("1", phase, "garbage")}
    # The others' sums were opened all the same.
    moved = (history.models != simulation.world.first_models).any(axis=1)
    assert moved.any()
