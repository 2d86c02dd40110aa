"""Time the same work in two checkouts, in turns in one run, and print the ratio of their times.

    python benchmarks/old_and_new.py OLD NEW --turns 7

A process of each checkout does the work once to warm up and then reports the seconds of the work alone, so that
imports and compilation do not count (except for `help`, which is a whole command). Ratios above 1 mean that NEW is
faster; the interval is a 95 % t interval of the mean logarithm over turns.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from scipy import stats

_RUNS = """
import json, time
import covey
def work():
    covey.simulate(covey.load_scenario({scenario!r}, {overrides!r}), {policy!r}, rounds={rounds}, seed=0)
work()
begin = time.perf_counter()
work()
print(json.dumps(time.perf_counter() - begin))
"""
_STEPS = """
import json, time
import covey
env = covey.parallel_env(covey.load_scenario("quick"), learning="surrogate")
def work():
    for episode in range(4):
        _, infos = env.reset(seed=episode)
        while env.agents:
            actions = {agent: int(infos[agent]["action_mask"].argmax()) for agent in env.agents}
            infos = env.step(actions)[4]
work()
begin = time.perf_counter()
work()
print(json.dumps(time.perf_counter() - begin))
"""
_IMAGES = ["data.name=synthetic", "data.features=256", "model.name=mlp", "model.hidden=[64]", "data.mixes=default"]
CASES = {
    "rounds of quick": _RUNS.format(scenario="quick", overrides=[], policy="greedy", rounds=15),
    "rounds of campus": _RUNS.format(scenario="campus", overrides=[], policy="greedy", rounds=5),
    "rounds with an MLP": _RUNS.format(
        scenario="quick", overrides=[*_IMAGES, "radio.downlink_rate_bps=1e12"], policy="greedy", rounds=5
    ),
    "rounds of paper (CIFAR-10)": _RUNS.format(scenario="paper", overrides=[], policy="greedy", rounds=1),
    "environment steps": _STEPS,
}


def seconds(checkout: Path, code: str) -> float:
    """Seconds that a process of this checkout reports for the work."""
    found = subprocess.run(
        [sys.executable, "-c", code], env=_environment(checkout), capture_output=True, text=True, check=False
    )
    if found.returncode:
        raise SystemExit(f"'{checkout}' cannot do the work:\n{found.stderr[-2000:]}")
    return float(json.loads(found.stdout.strip().splitlines()[-1]))


def help_seconds(checkout: Path) -> float:
    """Seconds of `covey run --help` as a whole command."""
    code = "from covey.cli.main import main; main(['run', '--help'])"
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], env=_environment(checkout), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


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
            f"{name:28} {one['ratio']:.2f} times as fast ({one['low']:.2f} to {one['high']:.2f}, n = {one['n']}),"
            f" median {one['old_s']:.3f} s before, {one['new_s']:.3f} s now",
            flush=True,
        )
    if given.out is not None:
        given.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
