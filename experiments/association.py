"""Which learner, which penalty, which size, and does it hold on real rounds? Trains, judges and writes the page.

    python experiments/association.py train --processes 2      # all trainings, one folder each
    python experiments/association.py judge                    # held-out layouts on the surrogate, transfer, timing
    python experiments/association.py real --data digits       # the same policies on real rounds
    python experiments/association.py real --data cifar10
    python experiments/association.py page                     # docs/policies.md and pictures from the results alone

Finished cells are never computed again, so everything can be stopped and started at will.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from covey.association import Policy, get_policy
from covey.evaluation import compare
from covey.learners.policy import load_policy
from covey.scenario import load_scenario
from covey.simulation.storage import versions, write_atomically

RESULTS = Path("results/association")
SEEDS = range(5)
#: Cells of which fewer seeds are trained: they are side questions.
FEWER = {
    "dpvd_able": 2, "iql_able": 2, "dpvd_able_fixed": 2, "dpvd_team": 3, "literal": 2, "quick_dpvd": 3, "quick_iql": 2,
}  # fmt: skip
EPOCHS = 80
#: Held-out layouts of the surrogate comparison; seeds below 1,000 belong to no calibration and no training.
LAYOUTS = range(100, 140)
#: Policies whose CIFAR-10 runs, more than a minute each, are worth it.
CIFAR10 = ["dpvd_guarded", "dpvd_alone", "greedy", "coverage", "random", "local_search"]
REFERENCES = ("random", "nearest", "coverage", "greedy", "local_search", "exact")

#: Every cell is (scenario, algorithm, further options of `covey train`).
CELLS: dict[str, tuple[str, str, list[str]]] = {
    **{f"{alg}": ("paper", alg, []) for alg in ("dpvd", "iql", "qmix")},
    **{f"{alg}_able": ("paper", alg, ["--learner", "mask=able"]) for alg in ("dpvd", "iql")},
    "dpvd_able_fixed": ("paper", "dpvd", ["--learner", "mask=able", "--penalty", "fixed"]),
    "dpvd_fixed": ("paper", "dpvd", ["--penalty", "fixed"]),
    "dpvd_subset": ("paper", "dpvd", ["--head", "subset"]),
    "dpvd_subset_fixed": ("paper", "dpvd", ["--head", "subset", "--penalty", "fixed"]),
    "dpvd_team": ("paper", "dpvd", ["--learner", "credit=team"]),
    "literal": ("paper", "dpvd", ["--literal"]),
    "quick_dpvd": ("quick", "dpvd", []),
    "quick_iql": ("quick", "iql", []),
}
#: Settings tried for every algorithm before anything above was trained; the best on validation layouts was kept.
TRIALS: dict[str, list[str]] = {
    "slow": ["--learner", "learning_rate=1e-3"],
    "usual": [],
    "fast": ["--learner", "learning_rate=6e-3"],
}
#: Epochs of a trial, and its seed, which no other training uses.
TRIAL_EPOCHS, TRIAL_SEED = 40, 99


def folder(cell: str, seed: int, out: Path) -> Path:
    """Where one training is kept."""
    return out / cell / f"seed{seed}"


def train_one(cell: str, seed: int, out: Path) -> float:
    """One training in a process of its own; seconds, 0 when it was there."""
    target = folder(cell, seed, out)
    if (target / "done").exists():
        return 0.0
    scenario, algorithm, options = CELLS[cell]
    return _covey_train(target, scenario, algorithm, [*options, *chosen_options(cell)], seed, EPOCHS)


def _covey_train(target: Path, scenario: str, algorithm: str, options: list[str], seed: int, epochs: int) -> float:
    command = [sys.executable, "-m", "covey", "train", scenario, "--algorithm", algorithm, "--epochs", str(epochs)]
    command += ["--seed", str(seed), "--out", str(target), "--quiet", "--overwrite", *options]
    started = time.perf_counter()
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    (target / "done").touch()
    return time.perf_counter() - started


def tune(out: Path, processes: int) -> None:
    """Every algorithm with every trial setting, same epochs and seed; writes tuning.json."""
    jobs = [(alg, trial) for alg in ("dpvd", "iql", "qmix") for trial in TRIALS]
    found: dict[str, dict[str, Any]] = {}

    def one(job: tuple[str, str]) -> None:
        alg, trial = job
        target = out / "tuning" / f"{alg}_{trial}"
        if not (target / "done").exists():
            _covey_train(target, "paper", alg, TRIALS[trial], TRIAL_SEED, TRIAL_EPOCHS)
        found.setdefault(alg, {})[trial] = json.loads((target / "summary.json").read_text())["validation"]

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(one, jobs))
    ordered = {alg: {trial: found[alg][trial] for trial in TRIALS} for alg in ("dpvd", "iql", "qmix")}
    best = {
        alg: max(trials, key=lambda name: trials[name]["alone"] + trials[name]["guarded"])
        for alg, trials in ordered.items()
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"epochs": TRIAL_EPOCHS, "seed": TRIAL_SEED, "trials": ordered, "chosen": best}, indent=1) + "\n"
    write_atomically(RESULTS / "tuning.json", text.encode())


def chosen_options(cell: str) -> list[str]:
    """The tuned settings of the cell's algorithm; the literal loop keeps its own."""
    path = RESULTS / "tuning.json"
    if cell == "literal" or not path.is_file():
        return []
    return TRIALS[json.loads(path.read_text())["chosen"][CELLS[cell][1]]]


def train(out: Path, processes: int, cells: list[str]) -> None:
    """All trainings of these cells that are not there yet."""
    jobs = [(cell, seed) for seed in SEEDS for cell in cells if seed < FEWER.get(cell, len(SEEDS))]
    with Progress() as progress, ThreadPoolExecutor(processes) as pool:
        bar = progress.add_task("trainings", total=len(jobs))
        for _ in pool.map(lambda job: (train_one(*job, out), progress.advance(bar)), jobs):
            pass


def judge(out: Path) -> None:
    """References once, every trained policy alone and guarded, all on the same held-out layouts."""
    for name in ("paper", "quick"):
        scenario = load_scenario(name)
        policies: dict[str, Policy] = {reference: get_policy(reference) for reference in REFERENCES}
        for cell, (where, _, _) in CELLS.items():
            for seed in SEEDS if where == name else ():
                path = folder(cell, seed, out) / "policy.safetensors"
                if (path.parent / "done").exists():
                    policy = load_policy(path, scenario)
                    policies[f"{cell}|{seed}|alone"] = policy.with_way("alone")
                    policies[f"{cell}|{seed}|guarded"] = policy.with_way("guarded")
        comparison = compare(scenario, policies, LAYOUTS)
        values = comparison.to_dict()
        del values["paired_differences"]  # of all pairs, and computed again for those that the page shows
        _write(f"surrogate_{name}.json", values)
        print(name, "judged:", len(policies), "policies")


def transfer(out: Path) -> None:
    """The policy trained at 12 users and 4 stations, elsewhere, without training again."""
    rows = []
    for users, stations, blocks, side in ((12, 4, 4, 500), (12, 8, 4, 500), (100, 4, 8, 1000), (100, 16, 8, 1000),
                                          (1000, 4, 16, 1000), (1000, 16, 16, 2000)):  # fmt: skip
        scenario = load_scenario("paper", [
            f"network.users={users}", f"network.stations={stations}", f"network.blocks={blocks}",
            f"network.area_m=[{side}.0, {side}.0]", f"network.task_sets={_task_sets(stations)}",
        ])  # fmt: skip
        layouts = range(200, 220 if users <= 100 else 206)
        names = ("coverage", "greedy")
        policies: dict[str, Policy] = {name: get_policy(name) for name in names}
        for seed in SEEDS:
            policy = load_policy(folder("dpvd", seed, out) / "policy.safetensors", scenario)
            policies[f"dpvd|{seed}|alone"] = policy.with_way("alone")
            policies[f"dpvd|{seed}|guarded"] = policy.with_way("guarded")
        comparison = compare(scenario, policies, layouts, together=1)
        rows.append({"users": users, "stations": stations, "blocks": blocks, "side_m": side, **comparison.to_dict()})
        print(
            users, stations, {r.policy: (round(r.reward.mean()), round(r.decision_ms, 2)) for r in comparison.results}
        )
    _write("transfer.json", {"rows": rows, "load_average": os.getloadavg()[0]})


def _task_sets(stations: int) -> list[list[int]]:
    return [sorted((b + j) % 4 for j in range(3)) for b in range(stations)]


def real(out: Path, data: str, layouts: int, policies: list[str] | None) -> None:
    """Policies on real rounds; one file per (policy, layout), so that it can be stopped and started."""
    name = {"digits": "quick", "cifar10": "paper"}[data]
    prefix = "quick_" if name == "quick" else ""
    scenario = load_scenario(name)
    makers: dict[str, Any] = {reference: (lambda r=reference: get_policy(r)) for reference in REFERENCES}
    for cell in ("dpvd", "iql"):
        for way in ("guarded", "alone"):
            path = folder(prefix + cell, 0, out) / "policy.safetensors"
            makers[f"{cell}_{way}"] = lambda p=path, w=way: load_policy(p, scenario, way=w)
    chosen = policies or (CIFAR10 if data == "cifar10" else list(makers))
    makers = {policy: makers[policy] for policy in chosen}
    for layout in range(100, 100 + layouts):
        for policy, make in makers.items():
            target = RESULTS / "real" / data / f"{policy}-{layout}.json"
            if target.is_file():
                continue
            comparison = compare(scenario, {policy: make()}, [layout], learning="real")
            target.parent.mkdir(parents=True, exist_ok=True)
            result = comparison.results[0]
            _write(str(target.relative_to(RESULTS)), {
                "reward": float(result.reward[0]), "without_penalty": float(result.without_penalty[0]),
                "violators": float(result.violators[0]), "served": float(result.served[0]),
                "final_loss": float(result.final_loss[0]),
            })  # fmt: skip
            print(data, layout, policy, round(float(result.reward[0]), 1), flush=True)


def _write(name: str, values: dict[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_atomically(RESULTS / name, (json.dumps(values | {"versions": versions()}, indent=1) + "\n").encode())


def main() -> None:
    """Read the arguments and do what they ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tune", "train", "judge", "transfer", "real", "page"))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cells", nargs="*", default=list(CELLS))
    parser.add_argument("--data", choices=("digits", "cifar10"), default="digits")
    parser.add_argument("--layouts", type=int, default=20)
    parser.add_argument("--policies", nargs="*", help="only these, on real rounds")
    parser.add_argument("--out", type=Path, default=Path("runs/association"), help="folder of the trainings")
    options = parser.parse_args()
    np.seterr(all="raise", under="ignore")
    if options.what == "tune":
        tune(options.out, options.processes)
    elif options.what == "train":
        train(options.out, options.processes, options.cells)
    elif options.what == "judge":
        judge(options.out)
    elif options.what == "transfer":
        transfer(options.out)
    elif options.what == "real":
        real(options.out, options.data, options.layouts, options.policies)
    else:
        from association_page import write_page

        write_page(RESULTS)


if __name__ == "__main__":
    main()
