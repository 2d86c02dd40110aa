"""The server of a deployment: plays a run's rounds with devices, and writes the same results as a simulated run.

It runs inside Flower's ServerApp process. The run's folder holds the settings (deploy.json and scenario.toml) and,
after every round, a checkpoint from which a killed run resumes.
"""

from __future__ import annotations

import csv
import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from covey import run_files
from covey.agents.policy import load_policy
from covey.association import Policy
from covey.deploy.app.wire import Packet
from covey.deploy.device_fleet import Courier, DeviceFleet, Incident, members_of
from covey.deploy.folders import read_groups
from covey.deploy.hello import Enrolment
from covey.errors import CoveyError, DeployError, ResumeError
from covey.files import csv_bytes, versions, write_atomically
from covey.parts import find_modules_in
from covey.privacy import JOURNAL, Journal
from covey.radio import channel_and_mobility
from covey.report import write_report
from covey.scenario import Scenario, load_stored_scenario
from covey.simulation import Simulation
from covey.simulation.checkpoint import CHECKPOINT, restore_checkpoint, save_checkpoint, write_results
from covey.simulation.progress import Progress
from covey.simulation.record import RoundRecord

if TYPE_CHECKING:
    from flwr.serverapp import Grid

SETTINGS, POLICY = run_files.DEPLOYMENT, run_files.POLICY
PROGRESS, OUTCOME, START, INCIDENTS = "progress.json", "outcome.json", "start.json", "incidents.csv"
#: The run's own copies of its input files, so that a resumed run sees the same network.
TRACE, GROUPS = "trace.csv", "groups.csv"


@dataclass(frozen=True)
class Settings:
    """How a deployed run is played; deploy.json in its folder.

    run: the run's id on devices. patience_s: timeout of an exchange; wait_s: timeout for devices to connect at the
    start. groups, trace: files in the folder, or empty; hook: module:function, or empty. modules: additional folder
    for the import of policies and parts given as module:attribute. token: of the newest submission; apps of older ones
    must not play the run.
    """

    run: str
    seed: int
    policy: str
    rounds: int
    patience_s: float = 60.0
    wait_s: float = 180.0
    metrics: bool = False
    groups: str = ""
    trace: str = ""
    hook: str = ""
    modules: str = ""
    token: str = ""

    def write(self, folder: Path) -> None:
        """Write deploy.json."""
        write_atomically(folder / SETTINGS, json.dumps(asdict(self), indent=2).encode() + b"\n")

    @classmethod
    def read(cls, folder: Path) -> Settings:
        """Read deploy.json."""
        path = folder / SETTINGS
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ResumeError(f"'{path}' is missing or damaged ({error}); start a new run in another folder") from None


def serve(grid: Grid, folder: str, token: str) -> None:
    """Play the run in `folder` over Flower's grid; its outcome, good or bad, is in outcome.json.

    An app whose `token` is not that of the newest submission exits without touching the folder.
    """
    # Imported here because it needs Flower, which is optional.
    from covey.deploy.courier import FlowerCourier

    path = Path(folder)
    _check_token(path, token)
    (path / OUTCOME).unlink(missing_ok=True)
    try:
        settings, scenario = Settings.read(path), load_stored_scenario(path / "scenario.toml")
        if settings.modules:
            find_modules_in(Path(settings.modules))
        _say(path, {"phase": "waiting for devices"})
        # Checked again to avoid a race: a withdrawal changes the token before it looks for this process.
        _check_token(path, token)
        admission = Enrolment(scenario, settings.seed)
        courier = FlowerCourier(grid, scenario.network.users, settings.patience_s, admission.check)
        courier.roll_call(settings.wait_s)
        play(courier, courier.hellos, path)
    except Withdrawn:
        raise
    except CoveyError as error:
        _finish(path, {"status": "failed", "error": str(error), "exit_code": error.exit_code})
        raise
    except Exception as error:
        _finish(path, {"status": "failed", "error": f"{type(error).__name__}: {error}", "exit_code": 1})
        raise
    _finish(path, {"status": "done"})


class Withdrawn(DeployError):  # noqa: N818
    """The run was submitted again, or was interrupted before it started."""


def _check_token(folder: Path, token: str) -> None:
    if Settings.read(folder).token != token:
        raise Withdrawn(f"this submission of '{folder}' has been withdrawn; another one may be playing it")


def play(courier: Courier, hellos: Mapping[int, Packet], folder: Path) -> Simulation:
    """Play all remaining rounds of the run in `folder` with devices that have said hello."""
    settings, scenario = Settings.read(folder), load_stored_scenario(folder / "scenario.toml")
    check_deployable(scenario)
    said = Enrolment(scenario, settings.seed).check_all(hellos)
    users = scenario.network.users
    groups = np.full(users, -1, dtype=np.int64)
    if settings.groups:
        groups = read_groups(folder / settings.groups, users, scenario.groups)
    members = members_of(said, groups)
    resuming = (folder / CHECKPOINT).exists()
    # The initial metrics are measured once; a resumed run does not measure them again.
    fleet = DeviceFleet(courier, scenario, settings.run, metrics=settings.metrics and not resuming)
    # Devices' total privacy cost, including other runs and the time this one was stopped: a round's ledger takes
    # the larger total, so that nothing is counted twice.
    fleet.hear(hellos)
    trace = str(folder / settings.trace) if settings.trace else ""
    channel, mobility = channel_and_mobility(scenario, settings.seed, trace, settings.hook)
    started = time.perf_counter()
    about = {"kind": "run", "scenario": scenario.name, "policy": settings.policy, "seed": settings.seed}
    with Progress(folder) as progress, Simulation(
        scenario, _policy(settings, scenario, folder), rounds=settings.rounds, seed=settings.seed,
        channel=channel, mobility=mobility, journal=Journal(folder / JOURNAL), fleet=fleet, members=members,
    ) as simulation:  # fmt: skip
        simulation.history.policy = settings.policy
        progress.claim()
        if resuming:
            simulation.history.start = _start(folder)
            restore_checkpoint(simulation, folder)
            fleet.metrics = settings.metrics
            fleet.incidents = _incidents(folder, simulation.state.round)
        else:
            # The cost of earlier runs counts from the start. A resumed run has its own totals, and a device may
            # already have been charged for the round that is played again, which is then charged once more.
            ledger = simulation.state.ledger.raise_to(fleet.device_ledgers())
            simulation.continue_from(replace(simulation.state, ledger=ledger), [])
            write_atomically(folder / START, json.dumps(simulation.history.start).encode())
            save_checkpoint(simulation, folder)
        progress.start(about, done=len(simulation.history.records), total=settings.rounds, resume=resuming)
        while not simulation.done:
            record = _play_round(simulation, fleet, folder)
            progress.row(record.row(), record.round)
        seconds = time.perf_counter() - started
        write_deployed(simulation, fleet, folder, seconds)
    return simulation


def _play_round(simulation: Simulation, fleet: DeviceFleet, folder: Path) -> RoundRecord:
    state, history = simulation.state, simulation.history
    _say(folder, {"phase": "playing", "round": len(history.records), "rounds": history.rounds})
    started = time.perf_counter()
    fleet.begin(state.round, state.ledger)
    record = simulation.play()
    write_incidents(fleet, folder)
    save_checkpoint(simulation, folder)
    _say(folder, {
        "phase": "playing", "round": record.round, "rounds": history.rounds, "served": record.served,
        "joined": int(record.users.joined.sum()), "loss": record.loss,
        "seconds": round(time.perf_counter() - started, 2),
    })  # fmt: skip
    return record


def write_deployed(simulation: Simulation, fleet: DeviceFleet, folder: Path, seconds: float) -> None:
    """Write the results of a simulated run, and those specific to a deployment: incidents and traffic."""
    write_incidents(fleet, folder)
    extra = {
        "versions": versions(),
        "wall_seconds": round(seconds, 3),
        "deployment": {
            "incidents": dict(Counter(incident.status for incident in fleet.incidents)),
            "metrics": fleet.metrics,
            "traffic": fleet.traffic.summary(),
        },
    }
    simulation.history.added = [_remark(fleet)]
    write_results(simulation.history, folder, extra)
    write_report(simulation.history, folder, versions(), write_atomically)


def _remark(fleet: DeviceFleet) -> str:
    """A summary of failed requests for the report."""
    users = "Users were real devices: delay and energy are those of the radio model, not measured"
    if not fleet.incidents:
        return f"{users}. They fulfilled every request."
    kinds = Counter(incident.status for incident in fleet.incidents)
    listed = ", ".join(f"{number} {status}" for status, number in sorted(kinds.items()))
    return f"{users}. They did not fulfil {len(fleet.incidents)} requests ({listed}); incidents.csv has each."


def write_incidents(fleet: DeviceFleet, folder: Path) -> None:
    """Write incidents.csv."""
    rows = [asdict(incident) for incident in fleet.incidents]
    write_atomically(folder / INCIDENTS, csv_bytes(rows) or b"round,user,kind,status,reason\n")


def _start(folder: Path) -> dict[str, Any]:
    """Losses and accuracies before the first round, as written before the run was resumed."""
    path = folder / START
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not {"loss", "accuracy", "group_loss", "group_accuracy"} <= found.keys():
            raise ValueError("it does not hold losses and accuracies")
    except (OSError, ValueError) as error:
        raise ResumeError(f"'{path}' is missing or damaged ({error}); start a new run in another folder") from None
    return found


def _incidents(folder: Path, rounds: int) -> list[Incident]:
    """The incidents of the first `rounds` rounds, as written before the run was resumed."""
    path = folder / INCIDENTS
    if not path.is_file():
        return []
    try:
        with open(path, encoding="utf-8", newline="") as file:
            found = [
                Incident(int(row["round"]), int(row["user"]), row["kind"], row["status"], row["reason"])
                for row in csv.DictReader(file)
            ]
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise ResumeError(f"'{path}' is damaged ({error}); delete it to resume without its lines") from None
    return [incident for incident in found if incident.round <= rounds]


def check_deployable(scenario: Scenario) -> None:
    """Raise a `DeployError` for scenarios that devices do not support."""
    if scenario.security.mode == "blind":
        raise DeployError("security.mode is 'blind', which is for comparison in simulations; use 'none' or 'masked'")
    if scenario.radio.loss_probability > 0:
        raise DeployError(
            f"radio.loss_probability is {scenario.radio.loss_probability:g}, but a deployment has real losses only; set"
            " it to 0"
        )


def _policy(settings: Settings, scenario: Scenario, folder: Path) -> str | Policy:
    """The policy: the name of a reference policy, or the learned policy in the folder."""
    if not (folder / POLICY).is_file():
        return settings.policy
    return load_policy(folder / POLICY, scenario)


def _say(folder: Path, progress: dict[str, Any]) -> None:
    shown = {key: None if value != value else value for key, value in progress.items()}
    write_atomically(folder / PROGRESS, json.dumps({"pid": os.getpid(), "at": time.time(), **shown}).encode())


def _finish(folder: Path, outcome: dict[str, Any]) -> None:
    write_atomically(folder / OUTCOME, json.dumps(outcome).encode())
