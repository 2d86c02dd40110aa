"""A whole deployment on this machine: a SuperLink, a SuperNode for every user, and a run, as separate processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from covey.association import Policy
from covey.deploy.certificates import make_certificates
from covey.deploy.folders import prepare, prepared
from covey.deploy.processes import (
    Started,
    Tls,
    environment,
    free_port,
    register_node,
    superlink_command,
    write_connection,
)
from covey.deploy.runs import follow, new_run
from covey.extras import require_extra
from covey.scenario import Scenario

#: Makes the `quick` scenario small enough for a laptop: five users, two stations, two tasks.
DEMO_OVERRIDES = [
    "name=demo",
    "description=Five users, two stations and two tasks on scikit-learn's digits.",
    "network.users=5",
    "network.stations=2",
    "network.tasks=2",
    "network.tasks_per_station=2",
    "network.blocks=3",
    "data.mixes=[{0=2,1=1,2=1},{5=2,6=1,7=1}]",
    "training.rounds=10",
]
_START_S = 180.0


@dataclass(frozen=True)
class Site:
    """A local deployment under `folder`: device folders, certificates if any, logs, FLWR_HOME."""

    folder: Path
    scenario: Scenario
    seed: int = 0
    tls: bool = False

    @property
    def groups(self) -> Path:
        """The true groups, for measurement."""
        return self.folder / "server" / "groups.csv"

    def device(self, user: int) -> Path:
        """The folder of a user's device."""
        return self.folder / f"user-{user:03d}"

    @property
    def certificates(self) -> Tls | None:
        """The SuperLink's certificates."""
        where = self.folder / "certificates"
        return Tls(where / "ca.crt", where / "server.crt", where / "server.key") if self.tls else None

    def make(self) -> None:
        """Write all folders; those of an earlier attempt with the same scenario and seed are reused."""
        if not prepared(self.scenario, self.seed, self.folder):
            prepare(self.scenario, self.seed, self.folder)
        if self.tls:
            users, where = self.scenario.network.users, self.folder / "certificates"
            files = ["ca.crt", "server.crt", "server.key", *(f"user-{user:03d}.pub" for user in range(users))]
            if not all((where / name).is_file() for name in files):
                (where / "ca.crt").unlink(missing_ok=True)  # of an incomplete attempt
                make_certificates(where, ["127.0.0.1", "localhost"], users)

    def processes(self) -> Started:
        """An empty set of processes of this site."""
        return Started(self.folder / "logs", environment(self.folder / "flwr"))

    def start_superlink(self, started: Started) -> str:
        """Start the SuperLink, wait until it listens, and return its address."""
        port = free_port()
        address = f"127.0.0.1:{port}"
        write_connection(self.folder / "flwr", address, self.certificates)
        started.start("superlink", superlink_command("127.0.0.1", port, self.certificates, None, node_keys=self.tls))
        started.wait_for_port("superlink", port, _START_S)
        if self.tls:
            self.register(started)
        return address

    def register(self, started: Started) -> None:
        """Register the node keys of the deployment with the SuperLink."""
        for user in range(self.scenario.network.users):
            register_node(started, self.folder / "certificates" / f"user-{user:03d}.pub", _START_S)

    def start_node(self, started: Started, user: int, address: str, *more: str) -> subprocess.Popen[bytes]:
        """Start a user's device."""
        command = [
            sys.executable, "-m", "covey", "deploy", "node", str(self.device(user)),
            "--superlink", address, "--metrics",
        ]  # fmt: skip
        if self.tls:
            where = self.folder / "certificates"
            command += ["--ca", str(where / "ca.crt"), "--node-key", str(where / f"user-{user:03d}.key")]
        return started.start(f"user-{user:03d}", [*command, *more])


def demo(
    site: Site,
    out: Path,
    decides: str | Policy = "greedy",
    *,
    policy: str,
    rounds: int | None,
    patience_s: float,
    say: Callable[[str], None],
    on_progress: Callable[[dict[str, Any]], None],
    overwrite: bool = False,
) -> None:
    """Make a site and play a run with real processes on this machine; all are stopped on exit, also on errors."""
    require_extra("flower", "a deployment")
    site.make()
    new_run(
        site.scenario, out, decides, overwrite=overwrite, seed=site.seed, policy=policy,
        rounds=rounds or site.scenario.training.rounds, patience_s=patience_s, wait_s=600.0, metrics=True,
        groups=site.groups,
    )  # fmt: skip
    users: Sequence[int] = range(site.scenario.network.users)
    with site.processes() as started:
        say("starting the SuperLink")
        address = site.start_superlink(started)
        say(f"starting {len(users)} devices")
        for user in users:
            site.start_node(started, user, address)
        say("starting the run")
        follow(started, out, on_progress)
