"""Folders of a deployment: one for every device, with its own data and settings, and one for the server."""

from __future__ import annotations

import csv
import io
import json
import os
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from covey.errors import DataError, DeployError, OutputError
from covey.files import make_folder, write_atomically
from covey.scenario import Scenario, dump_scenario, load_stored_scenario
from covey.scenario.load import fingerprint as scenario_fingerprint
from covey.simulation.run import user_data

_SEED = "seed.json"
_ARRAYS = ("x", "y", "test_x", "test_y")


@dataclass(frozen=True)
class DeviceFolder:
    """Configuration of a device: its user number, the run's seed, the scenario, and its data.

    The folder holds device.json, scenario.toml and data.npz; `private` is the device's own state. declared: number of
    samples that the owner declares, whatever the device holds; None for that of data.npz.
    """

    path: Path
    user: int
    seed: int
    classes: int
    scenario: Scenario
    declared: int | None = None

    @property
    def private(self) -> Path:
        """The folder of ledger, stored answers, socket and key."""
        return self.path / "private"

    @property
    def fingerprint(self) -> str:
        """A digest of the scenario and the seed, which the server compares with its own."""
        return f"{scenario_fingerprint(self.scenario)}-{self.seed}"

    @classmethod
    def open(cls, path: Path) -> DeviceFolder:
        """Load the folder at `path`, as `covey deploy prepare` writes it."""
        about = path / "device.json"
        if not about.is_file():
            raise DataError(f"'{path}' is no device folder: it has no device.json; make one with covey deploy prepare")
        try:
            given = json.loads(about.read_text(encoding="utf-8"))
            user, seed, classes = int(given["user"]), int(given["seed"]), int(given["classes"])
            declared = None if given.get("samples") is None else int(given["samples"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"'{about}' is damaged ({error}); it needs the numbers user, seed and classes") from None
        scenario = load_stored_scenario(path / "scenario.toml")
        _check_declared(about, declared, scenario)
        if not 0 <= user < scenario.network.users:
            raise DataError(
                f"'{about}' names user {user}, but the scenario has users 0 to {scenario.network.users - 1}"
            )
        return cls(path, user, seed, classes, scenario, declared)

    def data(self) -> dict[str, NDArray[np.float32] | NDArray[np.int64]]:
        """The device's own samples: x, y, test_x, test_y of data.npz, validated."""
        path = self.path / "data.npz"
        try:
            with np.load(path, allow_pickle=False) as file:
                found = {name: file[name] for name in _ARRAYS}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise DataError(
                f"'{path}' cannot be read ({error}); it must hold the arrays {', '.join(_ARRAYS)}"
            ) from None
        limits = {"": ("samples_max", self.scenario.data.samples_max)}
        limits["test_"] = ("test_samples", self.scenario.data.test_samples)
        for half, (key, most) in limits.items():
            x, y = found[f"{half}x"], found[f"{half}y"]
            if x.ndim < 2 or x.dtype != np.float32 or y.dtype != np.int64 or y.shape != (len(x),) or len(x) == 0:
                raise DataError(
                    f"'{path}': {half}x must be float32 and {half}y int64 with one class for each sample, and not empty"
                )
            if len(x) > most:
                raise DataError(
                    f"'{path}': {half}x has {len(x)} samples, but the scenario allows {most}; leave some out, or"
                    f" prepare all devices again with a larger data.{key}"
                )
            if not np.isfinite(x).all() or y.min() < 0 or y.max() >= self.classes:
                raise DataError(f"'{path}': {half}x must be finite and {half}y from 0 to {self.classes - 1}")
        return found


def _check_declared(about: Path, declared: int | None, scenario: Scenario) -> None:
    """Refuse a declared number of samples that is out of range, or missing where neighbours differ in the true one."""
    most = scenario.data.samples_max
    if declared is not None and not 1 <= declared <= most:
        raise DataError(f"'{about}' declares {declared} samples; declare 1 to {most} (data.samples_max)")
    if declared is None and scenario.privacy.adjacency == "add_remove":
        raise DataError(
            f"'{about}' declares no number of samples, but with privacy.adjacency = 'add_remove' the true one tells"
            f' whether a sample is there; add "samples": a whole number from 1 to {most} chosen without looking at the'
            " data, or prepare devices with 'replace_one'"
        )


def prepare(scenario: Scenario, seed: int, out: Path) -> list[Path]:
    """Write the folders of all devices and of the server under `out`; returns those of the devices.

    `out/user-007` is for device 7 only. `out/server` holds scenario.toml and, for measurement only, groups.csv
    with the true groups. Under `add_remove` device.json declares the number of samples of the scenario's draw.
    """
    if (out / "server" / _SEED).exists() or any(out.glob("user-*/private")):
        raise OutputError(f"'{out}' already holds a deployment; choose another folder with --out")
    data = user_data(scenario, seed)
    make_folder(out)
    folders = []
    text = dump_scenario(scenario).encode()
    for user in range(data.users):
        folder = out / f"user-{user:03d}"
        make_folder(folder)
        os.chmod(folder, 0o700)
        rows = slice(int(data.offsets[user]), int(data.offsets[user + 1]))
        tests = slice(int(data.test_offsets[user]), int(data.test_offsets[user + 1]))
        buffer = io.BytesIO()
        np.savez(buffer, x=data.x[rows], y=data.y[rows], test_x=data.test_x[tests], test_y=data.test_y[tests])
        write_atomically(folder / "data.npz", buffer.getvalue())
        write_atomically(folder / "scenario.toml", text)
        about = {"user": user, "seed": seed, "classes": len(data.classes)}
        if scenario.privacy.adjacency == "add_remove":
            about["samples"] = int(data.samples[user])
        write_atomically(folder / "device.json", json.dumps(about).encode() + b"\n")
        folders.append(folder)
    server = out / "server"
    make_folder(server)
    write_atomically(server / "scenario.toml", text)
    rows_csv = "user,group\n" + "".join(f"{user},{group}\n" for user, group in enumerate(data.groups.tolist()))
    write_atomically(server / "groups.csv", rows_csv.encode())
    # Last: it marks the deployment as complete.
    write_atomically(server / _SEED, json.dumps({"seed": seed}).encode() + b"\n")
    return folders


def prepared(scenario: Scenario, seed: int, out: Path) -> bool:
    """Whether `out` holds the deployment that `prepare` would write."""
    server = out / "server"
    if not (server / _SEED).is_file() or read_seed(server) != seed:
        return False
    return load_stored_scenario(server / "scenario.toml") == scenario


def read_seed(server: Path) -> int:
    """The seed of the deployment that the server's folder belongs to."""
    path = server / _SEED
    if not path.is_file():
        raise DeployError("give the server's folder of covey deploy prepare, as in: covey deploy run site/server")
    try:
        seed = json.loads(path.read_text(encoding="utf-8"))["seed"]
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ValueError(f"the seed is {seed!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"'{path}' is damaged ({type(error).__name__}: {error}); it must hold the seed that devices were prepared"
            ' with, as in {"seed": 0}'
        ) from None
    return seed


def read_groups(path: Path, users: int, count: int) -> NDArray[np.int64]:
    """(U,) true groups from a CSV file with the columns user and group; -1 for users it does not name."""
    groups = np.full(users, -1, dtype=np.int64)
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for line, row in enumerate(csv.DictReader(file), start=2):
                user, group = int(row["user"]), int(row["group"])
                if not (0 <= user < users and 0 <= group < count):
                    raise ValueError(f"line {line} names user {user} and group {group}")
                groups[user] = group
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise DataError(
            f"'{path}' is not a table of groups ({error}); it needs the columns user (0 to {users - 1}) and group"
            f" (0 to {count - 1}, by data.groups)"
        ) from None
    return groups
