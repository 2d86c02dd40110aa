"""Devices in this process: what a deployment does, without Flower and its processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from covey.deploy import Device, DeviceFolder, Settings, play, prepare
from covey.deploy.app.wire import Packet, pack, unpack
from covey.scenario import Scenario, dump_scenario, load_scenario
from covey.simulation import Simulation

#: Five users and two tasks on digits; small enough for every test.
SMALL = [
    "network.users=5",
    "network.stations=2",
    "network.tasks=2",
    "network.blocks=3",
    "network.tasks_per_station=2",
    "data.samples_min=30",
    "data.samples_max=50",
    "data.test_samples=10",
    "data.mixes=[{0=1,1=1},{5=1,6=1}]",
]
#: Changes an answer of a user to a request, or loses it by returning None.
Meddler = Callable[[int, Packet, Packet], Packet | None]


def small(*overrides: str) -> Scenario:
    return load_scenario("quick", [*SMALL, *overrides])


class NearCourier:
    """Brings packets to devices in this process, through their bytes as on a wire."""

    def __init__(self, devices: Mapping[int, Device], meddle: Meddler | None = None) -> None:
        self.devices = dict(devices)
        self.meddle = meddle
        self.seen: list[tuple[int, Packet, Packet]] = []

    def exchange(self, requests: Mapping[int, Packet]) -> dict[int, Packet]:
        answers = {}
        for user, request in requests.items():
            if user not in self.devices:
                continue
            answer = self.devices[user].answer(unpack(pack(request)))
            self.seen.append((user, request, answer))
            changed = answer if self.meddle is None else self.meddle(user, request, answer)
            if changed is not None:
                answers[user] = unpack(pack(changed))
        return answers

    def hellos(self) -> dict[int, Packet]:
        return {user: device.answer(Packet({"kind": "hello"})) for user, device in self.devices.items()}


def make_devices(scenario: Scenario, seed: int, folder: Path, **settings: object) -> dict[int, Device]:
    """The devices of all users, prepared under `folder`."""
    prepare(scenario, seed, folder)
    return open_devices(folder, scenario.network.users, **settings)


def open_devices(folder: Path, users: int, **settings: object) -> dict[int, Device]:
    return {
        user: Device(DeviceFolder.open(folder / f"user-{user:03d}"), **settings)  # type: ignore[arg-type]
        for user in range(users)
    }


def run_folder(scenario: Scenario, folder: Path, **settings: object) -> Path:
    """A folder with the settings of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scenario.toml").write_text(dump_scenario(scenario), encoding="utf-8")
    given = {"run": "test", "seed": 0, "policy": "greedy", "rounds": 4, "metrics": True} | settings
    Settings(**given).write(folder)  # type: ignore[arg-type]
    return folder


def deployed(courier: NearCourier, folder: Path) -> Simulation:
    """The run of a folder, played to its end with devices in this process."""
    return play(courier, courier.hellos(), folder)
