"""Models of devices' own that uploads are made from: kept on the device, round by round, and never on the wire."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deploy.near import NearCourier, deployed, make_devices, open_devices, run_folder, small
from tests.deploy.test_device import request_for

from covey.deploy import Device
from covey.deploy.device_state import DeviceState
from covey.errors import DataError
from covey.simulation import Simulation

OWN = ["training.personal=mr_mtl", "training.steps=3", "training.batch=20"]


def ready(folder: Path, *more: str) -> dict[int, Device]:
    return make_devices(small(*OWN, *more), 3, folder, metrics=True)


@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize("mode", ["none", "masked"])
def test_devices_keep_what_users_of_the_simulator_keep(tmp_path: Path, unit: str, mode: str) -> None:
    options = [f"privacy.unit={unit}", f"security.mode={mode}"]
    devices, courier = ready(tmp_path / "site", *options), NearCourier({})
    courier.devices = devices
    run = deployed(courier, run_folder(small(*OWN, *options), tmp_path / "run", seed=3))
    with Simulation(small(*OWN, *options), seed=3, rounds=4) as simulation:
        while not simulation.done:
            simulation.play()
        state = simulation.state
    assert run.state.personal.size == 0
    assert np.isnan(run.history.column("personal_accuracy")).all()
    assert state.personal_begun.any()
    for user, device in devices.items():
        kept = device.state.own_model("test", 99, device.weights)
        assert (kept is not None) == state.personal_begun[user]
        if kept is not None:
            np.testing.assert_allclose(kept, state.personal[user], atol=0 if mode == "none" else 1e-4)
    if unit == "device":
        sent = [answer for _, request, answer in courier.seen if request.header["kind"] == "train"]
        assert sent or mode == "masked"
        for answer in sent:
            (upload,) = answer.arrays.values()
            kept = devices[int(answer.header["user"])].state.own_model("test", 99, run.world.weights)  # type: ignore[arg-type]
            assert kept is None or upload[2] != kept.tobytes()


def released(device: Device, request: Any) -> np.ndarray:
    answer = device.answer(request)
    assert answer.header["status"] == "ok", answer.header
    return np.frombuffer(answer.arrays["upload/weights"][2], np.float32)


def test_the_next_round_starts_from_it_also_after_a_restart(tmp_path: Path) -> None:
    devices = ready(tmp_path)
    first, second = request_for(devices, batch=20), request_for(devices, batch=20, round=1)
    one = released(devices[0], first)
    kept = devices[0].state.own_model("run", 1, devices[0].weights)
    assert kept is not None
    assert kept.tobytes() == one.tobytes()
    whole = released(devices[0], second)
    other = make_devices(small(*OWN), 3, tmp_path / "other", metrics=True)
    released(other[0], first)
    restarted = open_devices(tmp_path / "other", 5, metrics=True)
    assert released(restarted[0], second).tobytes() == whole.tobytes()
    # Without the model of the first round the second one would be another.
    fresh = make_devices(small(*OWN), 3, tmp_path / "fresh", metrics=True)
    assert released(fresh[0], second).tobytes() != whole.tobytes()


def test_a_round_that_was_trained_and_not_answered_is_trained_again_from_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = ready(tmp_path / "whole")
    requests = [request_for(devices, batch=20, round=number) for number in (0, 1, 2)]
    wanted = [released(devices[0], request).tobytes() for request in requests]
    device = ready(tmp_path / "cut")[0]
    for number, request in enumerate(requests):
        with monkeypatch.context() as patch:
            patch.setattr(DeviceState, "store", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
            assert device.answer(request).header["status"] == "failed"
        spent = device.state.ledger.rho[0]
        device = open_devices(tmp_path / "cut", 5, metrics=True)[0]
        assert released(device, request).tobytes() == wanted[number]
        assert device.state.ledger.rho[0] > spent > 0  # charged before it was computed, each time


@pytest.mark.parametrize("purpose", ["kmeans_noise", "a rule of one's own"])
def test_models_of_runs_are_apart_and_releases_of_other_purposes_leave_them_alone(tmp_path: Path, purpose: str) -> None:
    devices = ready(tmp_path, "clustering.rule=kmeans")
    device, request = devices[0], request_for(devices, batch=20)
    released(device, request)
    kept = device.state.own_model("run", 9, device.weights)
    assert kept is not None
    base = {"base/weights": ("float32", (device.weights,), kept.tobytes())}
    other = replace(request, header=request.header | {"round": 1, "purpose": purpose, "task": -1}, arrays=base)
    from_base = released(device, replace(other, arrays=request.arrays | base))
    assert from_base.tobytes() != kept.tobytes()
    after = device.state.own_model("run", 9, device.weights)
    assert after is not None
    assert after.tobytes() == kept.tobytes()
    assert device.state.own_model("another run", 9, device.weights) is None


def test_a_damaged_model_stops_the_round_before_it_is_charged(tmp_path: Path) -> None:
    devices = ready(tmp_path)
    device = devices[0]
    released(device, request_for(devices, batch=20))
    spent = device.state.ledger.rho[0]
    (path,) = (device.folder.private / "models").glob("*.safetensors")
    assert path.parent.stat().st_mode & 0o077 == 0
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match="restore it from a backup, or delete it"):
        device.state.own_model("run", 1, device.weights)
    assert device.answer(request_for(devices, batch=20, round=1)).header["status"] == "failed"
    assert device.state.ledger.rho[0] == spent
    device.state.keep_model("other", 0, None, np.zeros(3, np.float32))
    with pytest.raises(DataError, match="it holds float32 of shape"):
        device.state.own_model("other", 1, device.weights)


@pytest.mark.parametrize("unit", ["sample", "device"])
def test_a_killed_server_that_resumes_meets_the_same_models(tmp_path: Path, unit: str) -> None:
    options = [*OWN, f"privacy.unit={unit}"]
    scenario = small(*options)
    whole = deployed(NearCourier(ready(tmp_path / "a", *options)), run_folder(scenario, tmp_path / "run-a", seed=3))
    devices = ready(tmp_path / "b", *options)
    folder, asked = run_folder(scenario, tmp_path / "run-b", seed=3), []

    def stop(_: int, request: Any, answer: Any) -> Any:
        asked.append(request.header["kind"])
        if request.header["kind"] == "train" and request.header["round"] == 2:
            raise KeyboardInterrupt
        return answer

    with pytest.raises(KeyboardInterrupt):
        deployed(NearCourier(devices, stop), folder)
    again = deployed(NearCourier(open_devices(tmp_path / "b", 5, metrics=True)), folder)
    assert asked
    assert again.state.round == whole.state.round == 4
    assert again.state.models.tobytes() == whole.state.models.tobytes()
