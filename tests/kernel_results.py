"""Results of everything that compiled kernels compute.

Run as a program it imports the modules that are given, prints the results, and does without numba if told so.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

#: What cannot be imported where the compiled kernels are not installed.
COMPILERS = ("numba", "llvmlite")


def results(folder: Path) -> dict[str, str]:
    """A hash of every result, by name: a run, an episode, noise levels, blocks, and policies that admit users."""
    import covey
    from covey.allocation import assign_blocks, noise_levels
    from covey.network.limits import RadioLimits

    found: dict[str, str] = {}
    out = folder / "run"
    covey_run("run", "quick", "--rounds", "2", "--seed", "1", "--out", str(out))
    for name in ("rounds.csv", "users.csv", "models.safetensors", "ledger.jsonl"):
        found[name] = hashlib.sha256((out / name).read_bytes()).hexdigest()
    for policy in ("coverage", "local_search"):
        history = covey.simulate("quick", policy, rounds=1, seed=3)
        found[policy] = _hash(history.served_rounds, history.models)
    found["episode"] = _hash(*_episode())
    rng = np.random.default_rng(5)
    levels, blocks = [], []
    for _ in range(5):
        samples, tasks = rng.integers(20, 900, 12), rng.integers(-1, 4, 12)
        made = noise_levels(samples, tasks, rng.uniform(0.5, 20.0), rng.uniform(10.0, 900.0), 5)
        levels += [made.std, made.feasible, made.price, made.best_floor]
        stations = rng.integers(-1, 3, 12)
        selected = stations == np.arange(3)[:, None]
        radio = RadioLimits(blocks=4, downlink_slots=6, power_w=1.0, noise_w=1e-12, min_sinr=1.0)
        granted = assign_blocks(rng.exponential(1e-9, (12, 3)), selected, samples, radio)
        blocks.append(granted.block)
    found["noise"], found["blocks"] = _hash(*levels), _hash(*blocks)
    return found


def covey_run(*arguments: str) -> None:
    """One command of the command line, in this process."""
    from covey.cli.main import main

    try:
        main(list(arguments))
    except SystemExit as ended:
        if ended.code:
            raise


def _episode() -> list[Any]:
    """Observations and rewards of one episode under random allowed actions."""
    import covey

    env = covey.parallel_env("quick", features="full")
    rng, seen = np.random.default_rng(2), []
    observations, infos = env.reset(seed=7)
    while env.agents:
        seen += [observations[agent] for agent in env.agents]
        chosen = {agent: int(rng.choice(np.flatnonzero(infos[agent]["action_mask"]))) for agent in env.agents}
        observations, rewards, _, _, infos = env.step(chosen)
        seen.append(list(rewards.values()))
    return seen


def _hash(*arrays: Any) -> str:
    return hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()


if __name__ == "__main__":
    if "--without-numba" in sys.argv:
        for compiler in COMPILERS:
            sys.modules[compiler] = None  # type: ignore[assignment]
    modules = [import_module(name) for name in sys.argv[1:] if not name.startswith("-")]
    with tempfile.TemporaryDirectory() as folder:
        answer = results(Path(folder))
    loaded = [name for name in sys.modules if name.split(".")[0] in COMPILERS and sys.modules[name] is not None]
    print(json.dumps({"results": answer, "compilers": loaded}))
