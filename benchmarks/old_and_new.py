"""Time the same work in two checkouts, in turns in one run, and print the ratio of their times.

    python benchmarks/old_and_new.py OLD NEW --turns 7

A process of each checkout does the work once to warm up and then reports the seconds of the work alone, so that
imports and compilation do not count (except for `help`, which is a whole command). Seconds are of the processor, not
of the clock: the work runs in one thread, and other work on the machine must not count. Ratios above 1 mean that NEW
is faster; the interval is a 95 % t interval of the mean logarithm over turns.

Both checkouts start with the paper's models and offer nobody a model, so that they do the same work. Checkouts older
than these options know nothing else; in cases `with defaults`, which are not like for like, NEW also does what its
scenarios do by default.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from scipy import stats

#: Overrides for the paper's start, none in a checkout that has no other one.
_START = """
import json, time
import covey, covey.scenario
START = [*getattr(covey.scenario, "PAPER_START", ())]
"""
#: Does the work often enough for the clock of the processor, and says what once takes.
_TIMED = """
work()
begin = time.process_time()
for _ in range({times}):
    work()
print(json.dumps((time.process_time() - begin) / {times}))
"""
_RUNS = (
    _START
    + """
def work():
    scenario = covey.load_scenario({scenario!r}, [*{start}, *{overrides!r}])
    covey.simulate(scenario, {policy!r}, rounds={rounds}, seed=0)
"""
    + _TIMED
)
_STEPS = (
    _START
    + """
env = covey.parallel_env(covey.load_scenario("quick", START), learning="surrogate")
def work():
    for episode in range(4):
        _, infos = env.reset(seed=episode)
        while env.agents:
            actions = {agent: int(infos[agent]["action_mask"].argmax()) for agent in env.agents}
            infos = env.step(actions)[4]
"""
    + _TIMED.format(times=40)
)
_IMAGES = ["data.name=synthetic", "data.features=256", "model.name=mlp", "model.hidden=[64]", "data.mixes=default"]
_MLP = [*_IMAGES, "radio.downlink_rate_bps=1e12"]


def _rounds(scenario: str, rounds: int, overrides: list[str], times: int = 1, start: str = "START") -> str:
    return _RUNS.format(
        scenario=scenario, overrides=overrides, policy="greedy", rounds=rounds, times=times, start=start
    )


CASES = {
    "rounds of quick": _rounds("quick", 15, [], times=3),
    "rounds of quick with defaults": _rounds("quick", 15, [], times=3, start="[]"),
    "rounds of campus": _rounds("campus", 5, []),
    "rounds with an MLP": _rounds("quick", 5, _MLP, times=3),
    "rounds with an MLP, with defaults": _rounds("quick", 5, _MLP, times=3, start="[]"),
    "rounds of paper (CIFAR-10)": _rounds("paper", 1, []),
    "environment steps": _STEPS,
}


def seconds(checkout: Path, code: str) -> float:
    """Processor seconds that a process of this checkout reports for the work."""
    found = subprocess.run(
        [sys.executable, "-c", code], env=_environment(checkout), capture_output=True, text=True, check=False
    )
    if found.returncode:
        raise SystemExit(f"'{checkout}' cannot do the work:\n{found.stderr[-2000:]}")
    return float(json.loads(found.stdout.strip().splitlines()[-1]))


def help_seconds(checkout: Path) -> float:
    """Processor seconds of `covey run --help` as a whole command."""
    code = "from covey.cli.main import main; main(['run', '--help'])"
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], env=_environment(checkout), stdout=subprocess.DEVNULL, check=True)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime


def _environment(checkout: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}


def main() -> None:
    """Measure, print a table and, with --out, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--turns", type=int, default=7, help="how often each checkout does each work")
    parser.add_argument("--only", action="append", help="a case; repeatable")
    parser.add_argument("--out", type=Path, help="JSON file")
    given = parser.parse_args()
    results = {}
    for name in given.only or [*CASES, "help"]:
        logs, times = [], []
        for turn in range(given.turns):
            order = [given.old.resolve(), given.new.resolve()]
            measured = {}
            for checkout in order if turn % 2 == 0 else order[::-1]:
                measured[checkout] = help_seconds(checkout) if name == "help" else seconds(checkout, CASES[name])
            old, new = (measured[checkout] for checkout in order)
            logs.append(math.log(old / new))
            times.append((old, new))
        mean = statistics.mean(logs)
        wide = stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        results[name] = {
            "n": len(logs),
            "ratio": math.exp(mean),
            "low": math.exp(mean - wide),
            "high": math.exp(mean + wide),
            "old_s": statistics.median(old for old, _ in times),
            "new_s": statistics.median(new for _, new in times),
        }
        one = results[name]
        print(
            f"{name:34} {one['ratio']:.2f} times as fast ({one['low']:.2f} to {one['high']:.2f}, n = {one['n']}),"
            f" median {one['old_s']:.4f} s before, {one['new_s']:.4f} s now",
            flush=True,
        )
    if given.out is not None:
        given.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
