"""Run two checkouts side by side and compare their results bit by bit.

python benchmarks/equal_bits.py OLD NEW --data FOLDER        # everything; a few minutes on two cores
python benchmarks/equal_bits.py OLD NEW --only 'quick-*' --only masked
python benchmarks/equal_bits.py --list

Prints a line per case: equal, DIFFERENT (which file, where, by how much) or not compared (why), then a JSON summary.
Exit code 1 if anything differs, 130 if interrupted, otherwise 0. Results of OLD are cached in --out by the content of
its source, so that the next comparison with it is quick; those of NEW are kept if they differ. --data is a folder
with CIFAR-10 and FEMNIST as COVEY_DATA names it (docs/data.md); without them the presets `paper` and `femnist` are not
compared. The deployment demo is compared with the simulator within NEW.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType

from bits.cases import DEMO, DEMO_FILES, DEMO_SIMULATED, Case, cases
from bits.checkout import Checkout, StepError, check, result_key, run_alone
from bits.compare import compare_files

#: File patterns of the data sets in the data folder.
DATA_FILES = {"cifar10": "cifar-10-batches-*", "femnist": "femnist*"}
#: Number of concurrent commands.
TOGETHER = 2
DEMO_NAME = "deploy-demo"
_VERSIONS = """
import platform
from importlib.metadata import distributions
found = {f"{d.name}={d.version}" for d in distributions() if d.name != "covey"}
print(platform.python_version(), platform.machine(), *sorted(found))
"""


@dataclass
class Verdict:
    """The result of a case."""

    case: str
    status: str
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        more = "" if not self.differences else ": " + "; ".join(self.differences[:4])
        if len(self.differences) > 4:
            more += f"; and {len(self.differences) - 4} more"
        return f"{self.case:28} {self.status}{more}  [{self.seconds:.0f} s]"


@dataclass(frozen=True)
class Comparison:
    """Two checkouts, the results folder, and the data."""

    old: Checkout
    new: Checkout
    out: Path
    scratch: Path
    data: Path | None
    versions: str

    def judge(self, case: Case) -> Verdict:
        """Run a case with both checkouts, unless the old results are cached, and compare."""
        started = time.monotonic()
        if case.needs and not self.has_data(case.needs):
            why = f"there is no {case.needs} in --data; covey data fetch {case.needs} --to FOLDER, or docs/data.md"
            return Verdict(case.name, "not compared", [why])
        found: list[str] = []
        refused: list[str] = []
        folders: dict[tuple[str, int], Path] = {}
        for workers in case.workers:
            errors = {}
            for side, checkout in (("old", self.old), ("new", self.new)):
                try:
                    folders[side, workers] = self.results(side, checkout, case, workers)
                except StepError as error:
                    errors[side] = str(error)
            if len(errors) == 2:
                refused.append(f"workers {workers}: fails in both, old: {errors['old']}, new: {errors['new']}")
            else:
                found += [f"workers {workers}: fails in {side} only: {text}" for side, text in errors.items()]
        for workers in case.workers:
            found += self.between(case, ("old", workers), ("new", workers), folders)
            for side in ("old", "new"):
                found += inside(case, side, workers, folders)
        for side in ("old", "new"):
            for workers in case.workers[1:]:
                found += self.between(case, (side, case.workers[0]), (side, workers), folders)
        status = "DIFFERENT" if found else "not compared" if refused else "equal"
        return Verdict(case.name, status, found + refused, time.monotonic() - started)

    def results(self, side: str, checkout: Checkout, case: Case, workers: int) -> Path:
        """The folder of a case's results; those of the old checkout are cached."""
        key = result_key(case, workers, self.data, self.versions)
        kept = self.out / "results" / checkout.key / f"{case.name}-{workers}-{key}"
        if side == "old" and kept.is_dir():
            return kept
        folder = self.scratch / side / f"{case.name}-{workers}"
        folder.mkdir(parents=True)
        checkout.play(case, workers, folder, self.data)
        if side == "new":
            return folder
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.rename(kept)
        except OSError:  # lost a race with another comparison
            if not kept.is_dir():
                raise
        return kept

    def between(
        self, case: Case, first: tuple[str, int], second: tuple[str, int], folders: dict[tuple[str, int], Path]
    ) -> list[str]:
        """Differences between two results of a case; empty if one of them failed, which is reported already."""
        if first not in folders or second not in folders:
            return []
        label = f"{first[0]} {first[1]} and {second[0]} {second[1]} workers"
        return [
            f"{name} ({label}): {text}"
            for name in case.files
            if not _absent(case, name, folders[first], folders[second])
            for text in compare_files(folders[first] / name, folders[second] / name)
        ]

    def has_data(self, name: str) -> bool:
        """Whether a data set is in the data folder."""
        return self.data is not None and any(self.data.glob(DATA_FILES[name]))

    def judge_demo(self, python: str) -> Verdict:
        """The new checkout's deployment demo against its simulator."""
        started = time.monotonic()
        asked = subprocess.run([python, "-c", "import flwr"], capture_output=True, check=False, timeout=120)
        if asked.returncode:
            return Verdict(DEMO_NAME, "not compared", [f"{python} has no flwr; give one that has with --flower"])
        folder = self.scratch / "new" / DEMO_NAME
        folder.mkdir(parents=True)
        try:
            for number, step in enumerate((DEMO, DEMO_SIMULATED)):
                log = folder / f"step{number}.log"
                check(step, run_alone(self.new, python, step, folder, log), log)
        except StepError as error:
            return Verdict(DEMO_NAME, "DIFFERENT", [str(error)], time.monotonic() - started)
        found = [
            f"{name} (demo and simulator): {text}"
            for name in DEMO_FILES
            for text in compare_files(folder / "demo" / name, folder / "simulated" / name)
        ]
        return Verdict(DEMO_NAME, "DIFFERENT" if found else "equal", found, time.monotonic() - started)


def inside(case: Case, side: str, workers: int, folders: dict[tuple[str, int], Path]) -> Iterator[str]:
    """Differences between files of one result that must be equal."""
    if (side, workers) in folders:
        folder = folders[side, workers]
        for first, second in case.within:
            for text in compare_files(folder / first, folder / second):
                yield f"{first} and {second} ({side}, {workers} workers): {text}"


def _absent(case: Case, name: str, *folders: Path) -> bool:
    return name in case.optional and not any((folder / name).exists() for folder in folders)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, nargs="?", help="reference checkout")
    parser.add_argument("new", type=Path, nargs="?", help="checkout that is compared with it")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="cases, * allowed; repeatable")
    parser.add_argument("--out", type=Path, default=Path("build/equal_bits"), help="where old results are kept")
    parser.add_argument("--data", type=Path, help="folder of CIFAR-10 and FEMNIST; COVEY_DATA when not given")
    parser.add_argument("--python", default=sys.executable, help="interpreter of both checkouts")
    parser.add_argument("--flower", metavar="PYTHON", help="interpreter with flwr for the demo; --python if not given")
    parser.add_argument("--all-workers", action="store_true", help="every run with 1 and 2 worker processes")
    parser.add_argument("--list", action="store_true", help="print the names of all cases")
    given = parser.parse_args(arguments)
    # Commands run in other folders; a link is not followed, because it tells a virtual environment from its base.
    given.python = os.path.abspath(shutil.which(given.python) or given.python)
    if given.flower is not None:
        given.flower = os.path.abspath(shutil.which(given.flower) or given.flower)
    if not given.list and given.new is None:
        parser.error("give two checkouts, OLD and NEW")
    return given


def chosen(names: list[str], everywhere: bool) -> tuple[list[Case], bool]:
    """The requested cases, and whether the demo is among them."""

    def wanted(name: str) -> bool:
        return not names or any(fnmatch.fnmatch(name, pattern) for pattern in names)

    found, demo = [case for case in cases(everywhere) if wanted(case.name)], wanted(DEMO_NAME)
    if not found and not demo:
        raise SystemExit(f"no case is called {', '.join(names)}; --list prints their names")
    return found, demo


def compare(given: argparse.Namespace) -> list[Verdict]:
    """All verdicts, each printed as soon as it is known."""
    asked, demo = chosen(given.only, given.all_workers)
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    data = given.data or (Path(os.environ["COVEY_DATA"]) if os.environ.get("COVEY_DATA") else None)
    versions = subprocess.run([given.python, "-c", _VERSIONS], capture_output=True, text=True, check=True).stdout
    old, new = (Checkout(folder.resolve(), out, given.python) for folder in (given.old, given.new))
    print(f"old: {old.folder} ({old.commit}, source {old.key})\nnew: {new.folder} ({new.commit}, source {new.key})")
    scratch = Path(tempfile.mkdtemp(prefix="compared-", dir=out))
    comparison = Comparison(old, new, out, scratch, None if data is None else data.resolve(), versions)
    verdicts: list[Verdict] = []

    def tell(verdict: Verdict) -> None:
        verdicts.append(verdict)
        print(verdict, flush=True)
        if verdict.status == "equal":
            for left in (scratch / "new").glob(f"{verdict.case}*"):
                if left.name in (verdict.case, *(f"{verdict.case}-{workers}" for workers in (1, 2))):
                    shutil.rmtree(left)

    pool = ThreadPoolExecutor(TOGETHER)
    try:
        for done in as_completed([pool.submit(comparison.judge, case) for case in asked]):
            tell(done.result())
        if demo:
            tell(comparison.judge_demo(given.flower or given.python))
    except KeyboardInterrupt:
        seen = {verdict.case for verdict in verdicts}
        left = [case.name for case in asked if case.name not in seen] + [DEMO_NAME] * demo
        verdicts += [Verdict(name, "not compared", ["interrupted"]) for name in left]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        old.close()
        new.close()
    if not any(verdict.status == "DIFFERENT" for verdict in verdicts):
        shutil.rmtree(scratch)
    else:
        print(f"what differs is kept in {scratch}")
    return verdicts


def main(arguments: list[str] | None = None) -> int:
    """Compare and print; returns the exit code."""
    given = parse(arguments)
    if given.list:
        print("\n".join([*(case.name for case in cases()), DEMO_NAME]))
        return 0

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background of a script: commands that a case interrupts would ignore it as well.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    started = time.monotonic()
    verdicts = compare(given)
    count = {status: sum(v.status == status for v in verdicts) for status in ("equal", "DIFFERENT", "not compared")}
    summary = {"seconds": round(time.monotonic() - started), "count": count}
    listed = [asdict(verdict) for verdict in verdicts if verdict.status != "equal"]
    print(json.dumps(summary | {"equal": sorted(v.case for v in verdicts if v.status == "equal"), "others": listed}))
    if count["DIFFERENT"]:
        return 1
    return 130 if any(verdict.differences == ["interrupted"] for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
