"""Benchmarks covey against its peers, interleaved, each in its own virtual environment: `make bench-peers`.

python benchmarks/peers/compare.py                       every contest, into benchmarks/peers.json
python benchmarks/peers/compare.py --only steps_12       only this one; the others in the file are kept
python benchmarks/peers/compare.py --only steps_12 --before CHECKOUT --out before_after.json
                                                         also covey as it is in another checkout, in the same turns
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OUT = HERE.with_name("peers.json")
ENVIRONMENTS = ROOT / ".venv-peers"


@dataclass(frozen=True)
class Contestant:
    """A script, its virtual environment (None: this one), its workload, and whose scripts and covey it runs."""

    script: str
    environment: str | None = None
    work: dict[str, Any] = field(default_factory=dict)
    processes: int = 1
    checkout: Path = ROOT

    def command(self, work: dict[str, Any]) -> list[str]:
        """The command line; with several processes, by torchrun."""
        python = sys.executable if self.environment is None else str(interpreter(self.environment))
        launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.processes}"]
        return [
            python,
            *(launch if self.processes > 1 else []),
            str(self.scripts / self.script),
            json.dumps(work | self.work),
        ]

    @property
    def scripts(self) -> Path:
        """The folder of its script."""
        return self.checkout / "benchmarks" / "peers"


@dataclass(frozen=True)
class Contest:
    """Contestants with the same workload; models of those in `agree` must move equally far in the first turn."""

    title: str
    work: dict[str, Any]
    contestants: dict[str, Contestant]
    repeats: int
    agree: tuple[str, ...] = ()
    units: int = 1
    unit: str = "round"


#: Above any gradient norm: clipping is computed but changes nothing.
LOOSE_CLIP = 1e6
#: covey always clips: once loosely, to match the peers, and once with noise, as in `covey run`.
COVEY = {
    "covey": Contestant("covey_rounds.py", work={"clip": LOOSE_CLIP}),
    "covey, clipped and noised": Contestant("covey_rounds.py", work={"clip": 3.0, "noise": 3.5}),
}


def learning_rounds(clients: int, repeats: int) -> Contest:
    """FedAvg with the paper's CNN: one pass over 100 samples of every client."""
    found = dict(COVEY)
    for batch in (100, 32):
        chosen = {"batch": batch}
        found |= {
            f"plain loop, batch {batch}": Contestant("plain_rounds.py", work=chosen),
            f"pfl, two threads, batch {batch}": Contestant("pfl_rounds.py", "pfl", chosen),
            f"pfl, two processes, batch {batch}": Contestant("pfl_rounds.py", "pfl", chosen, processes=2),
        }
    found["plain loop, batch 100, channels last"] = Contestant(
        "plain_rounds.py", work={"batch": 100, "channels_last": True}
    )
    same = ("covey", *(name for name in found if "batch 100" in name))
    title = f"FedAvg, {clients} clients x 100 samples, CNN"
    return Contest(title, {"clients": clients, "tasks": 1}, found, repeats, same)


def flower_rounds(clients: int, repeats: int) -> Contest:
    """The same with Flower, separately: its idle Ray processes would slow down the others."""
    found = dict(COVEY)
    for batch in (100, 32):
        found[f"Flower, batch {batch}"] = Contestant("flower_rounds.py", "flower", {"batch": batch})
    same = ("covey", "Flower, batch 100")
    title = f"FedAvg in Flower's simulation, {clients} clients x 100 samples, CNN"
    return Contest(title, {"clients": clients, "tasks": 1}, found, repeats, same)


def clustered_rounds(repeats: int) -> Contest:
    """IFCA: every client scores four models by their loss and takes a step with the best."""
    found = {
        "covey": COVEY["covey"],
        "plain loop": Contestant("plain_rounds.py"),
        "plain loop, channels last": Contestant("plain_rounds.py", work={"channels_last": True}),
        "Flower": Contestant("flower_rounds.py", "flower"),
    }
    work = {"clients": 12, "tasks": 4, "batch": 100}
    return Contest("IFCA, 12 clients x 100 samples, 4 models, CNN", work, found, repeats, tuple(found))


def environment_steps(users: int, side_m: float, steps: dict[str, int], repeats: int) -> Contest:
    """One step is one decision for all users of four stations, with movement and rates.

    On covey's area few users of mobile-env are in range of a station, so its steps are cheap; its default is 200 m.
    """
    work = {"stations": 4, "users": users, "side_m": side_m, "rounds": 100, "chosen": min(0.3, 8 / users)}
    found = {
        "covey, one network": Contestant("covey_steps.py", work={"networks": 1, "steps": steps["one"]}),
        "covey, 64 networks": Contestant("covey_steps.py", work={"networks": 64, "steps": steps["many"]}),
        f"mobile-env, {side_m:.0f} m": Contestant("mobile_env_steps.py", "mobile_env", {"steps": steps["peer"]}),
        "mobile-env, 200 m": Contestant("mobile_env_steps.py", "mobile_env", {"steps": steps["peer"], "side_m": 200.0}),
    }
    return Contest(f"environment steps, 4 stations x {users} users", work, found, repeats, unit="step")


def updates(repeats: int) -> Contest:
    """An epoch: 32 networks x 15 rounds played, 30 gradient steps of 96 transitions."""
    work = {"networks": 32, "updates": 30, "batch": 96, "hidden": 64}
    found = {
        "covey": Contestant("covey_updates.py"),
        "BenchMARL": Contestant("benchmarl_updates.py", "interop"),
    }
    return Contest("VDN on covey's environment, 480 steps and 30 gradient steps", work, found, repeats, unit="epoch")


def contests() -> dict[str, Contest]:
    """All contests by name."""
    return {
        "fedavg_12": learning_rounds(12, 15),
        "fedavg_100": learning_rounds(100, 7),
        "flower_12": flower_rounds(12, 15),
        "flower_100": flower_rounds(100, 15),
        "ifca_12": clustered_rounds(11),
        "steps_12": environment_steps(12, 500.0, {"one": 600, "many": 6400, "peer": 60}, 9),
        "steps_1000": environment_steps(1000, 2000.0, {"one": 20, "many": 128, "peer": 2}, 9),
        "vdn": updates(9),
    }


def with_before(contest: Contest, checkout: Path) -> Contest:
    """The contest with covey's contestants a second time, as they are in another checkout."""
    before = {
        f"{name}, before": replace(contestant, checkout=checkout)
        for name, contestant in contest.contestants.items()
        if contestant.script.startswith("covey_")
    }
    return replace(contest, contestants=contest.contestants | before)


def interpreter(name: str) -> Path:
    """The interpreter of a peer's virtual environment, which is created if missing."""
    if name == "interop":
        return ROOT / ".venv-interop" / "bin" / "python"
    python = ENVIRONMENTS / name / "bin" / "python"
    ready = ENVIRONMENTS / name / ".ready"
    pins = HERE / f"{name}.txt"
    if not ready.exists() or ready.stat().st_mtime < pins.stat().st_mtime:
        print(f"Setting up {python.parents[1].relative_to(ROOT)} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
        quiet = ["-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--requirement", str(pins)]
        subprocess.run([str(python), *quiet], check=True)
        ready.touch()
    return python


class Player:
    """A running contestant, suspended between its turns: idle processes such as Ray's would still use CPU time."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self._process, self._name = process, name

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the contestant and all its descendants."""
        for process in family(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def answer(self) -> dict[str, Any]:
        """The next line of its output."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._name} ended before its turn; its messages are above")
        found: dict[str, Any] = json.loads(line)
        return found

    def turn(self) -> dict[str, Any]:
        """The result of one turn."""
        assert self._process.stdin is not None
        self.signal(signal.SIGCONT)
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        found = self.answer()
        self.signal(signal.SIGSTOP)
        return found


def family(process: int) -> list[int]:
    """A process and its descendants, from /proc."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name is in parentheses and may contain anything; the parent is the second field after it.
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    found = [process]
    for known in found:
        found += children.get(known, [])
    return found


@contextmanager
def playing(name: str, contestant: Contestant, work: dict[str, Any], log: Any) -> Iterator[Player]:
    """Context manager of a ready contestant; it is terminated at the end."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}
    if contestant.checkout != ROOT:
        environment["PYTHONPATH"] = str(contestant.checkout / "src")
    with subprocess.Popen(
        contestant.command(work),
        cwd=contestant.scripts,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
    ) as process:
        player = Player(process, name)
        player.answer()
        player.signal(signal.SIGSTOP)
        try:
            yield player
        finally:
            assert process.stdin is not None
            player.signal(signal.SIGCONT)
            process.stdin.close()
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()


def hold(contest: Contest, log: Any) -> dict[str, Any]:
    """Run all turns of a contest and summarise them."""
    seconds: dict[str, list[float]] = {name: [] for name in contest.contestants}
    learning: dict[str, list[float]] = {name: [] for name in contest.contestants}
    moved = {}
    with ExitStack() as stack:
        players = {
            name: stack.enter_context(playing(name, contestant, contest.work, log))
            for name, contestant in contest.contestants.items()
        }
        for number in range(contest.repeats + 1):
            for name, player in players.items():
                said = player.turn()
                if number == 0:
                    moved[name] = said["moved"]
                    continue
                units = contest.contestants[name].work.get("steps", 1)
                seconds[name].append(said["seconds"] / units)
                learning[name].append(said.get("learning", math.nan))
    first = next(iter(contest.contestants))
    result: dict[str, Any] = {
        "title": contest.title,
        "unit": contest.unit,
        "repeats": contest.repeats,
        "seconds": seconds,
        "median_s": {name: statistics.median(values) for name, values in seconds.items()},
        "times_covey": {name: ratio(values, seconds[first]) for name, values in seconds.items() if name != first},
    }
    if contest.agree:
        expected = moved[contest.agree[0]]
        result["largest_relative_difference_of_movement"] = max(
            abs(moved[name] - expected) / expected for name in contest.agree
        )
    if contest.unit == "epoch":
        result["learning_times_covey"] = {
            name: ratio(values, learning[first]) for name, values in learning.items() if name != first
        }
    return result


def ratio(slow: list[float], fast: list[float]) -> dict[str, float]:
    """Slowdown of `slow` against `fast`, paired by turn: geometric mean and its 95 % interval."""
    logs = np.log(np.array(slow) / np.array(fast))
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    mean = logs.mean()
    return {"mean": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half), "n": len(logs)}


def main() -> None:
    known = contests()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=sorted(known), help="one contest; repeatable")
    parser.add_argument("--out", type=Path, default=OUT, help="file of the results")
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="add covey of this checkout; not with peers.json"
    )
    arguments = parser.parse_args()
    if arguments.before and arguments.out == OUT:
        parser.error(f"--before needs an --out of its own; {OUT.name} holds the contests of this checkout")
    report = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {"contests": {}}
    log_path = arguments.out.with_suffix(".log")
    for name, contest in known.items():
        if arguments.only and name not in arguments.only:
            continue
        if arguments.before:
            contest = with_before(contest, arguments.before.resolve())
        for contestant in contest.contestants.values():
            if contestant.environment:
                interpreter(contestant.environment)
        load = os.getloadavg()[0]
        print(f"{name}: {contest.title} ...", flush=True)
        with log_path.open("a", encoding="utf-8") as log:
            found = hold(contest, log)
        report["contests"][name] = found | {"load_average_before": load}
        report["machine"] = {"cores": os.cpu_count(), "python": sys.version.split()[0]}
        arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        for peer, numbers in found["times_covey"].items():
            print(f"  {peer}: {numbers['mean']:.2f} times covey's time ({numbers['low']:.2f} to {numbers['high']:.2f})")


if __name__ == "__main__":
    main()
