"""Study of association policies: learners, penalties, sizes, real rounds. Trains, evaluates and writes the page.

    python experiments/association.py tune                     # step sizes
    python experiments/association.py train --processes 2      # all trainings
    python experiments/association.py judge                    # held-out layouts on the surrogate
    python experiments/association.py transfer                 # other sizes, and timing
    python experiments/association.py real --data digits       # the same policies on real rounds
    python experiments/association.py real --data cifar10
    python experiments/association.py page                     # docs/policies.md and plots from the results alone

Finished cells are cached, so that every step can be interrupted and resumed. Trainings, their policies and their
evaluations are kept in the store of --trained; runs on real rounds are copied into that of the results.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from study import compute, options_of

from covey.agents.policy import Way, load_policy
from covey.association import Policy, get_policy
from covey.evaluation import compare
from covey.figures.cells import Cell, cells_in, policy_file
from covey.figures.kinds import Training
from covey.figures.scales import Settings
from covey.files import versions, write_atomically
from covey.jobs import Store, Values
from covey.scenario import PAPER_START, load_scenario

RESULTS = Path("results/association")
SEEDS = range(5)
#: Sets trained with fewer seeds, for secondary questions.
FEWER = {
    "dpvd_able": 2, "iql_able": 2, "dpvd_able_fixed": 2, "dpvd_team": 3, "literal": 2, "quick_dpvd": 3, "quick_iql": 2,
}  # fmt: skip
EPOCHS = 80
#: Held-out layouts of the surrogate comparison; no calibration or training uses seeds below 1,000.
LAYOUTS = range(100, 140)
#: Policies that are also run on CIFAR-10, at more than a minute per run.
CIFAR10 = ["dpvd_guarded", "dpvd_alone", "greedy", "coverage", "random", "local_search"]
REFERENCES = ("random", "nearest", "coverage", "greedy", "local_search", "exact")
PRESETS = {"digits": "paper_digits", "cifar10": "paper"}

#: Every set of trainings is (scenario, algorithm, further settings of the learner).
SETS: dict[str, tuple[str, str, Settings]] = {
    **{f"{alg}": ("paper", alg, ()) for alg in ("dpvd", "iql", "qmix")},
    **{f"{alg}_able": ("paper", alg, (("mask", "able"),)) for alg in ("dpvd", "iql")},
    "dpvd_able_fixed": ("paper", "dpvd", (("mask", "able"), ("penalty", "fixed"))),
    "dpvd_fixed": ("paper", "dpvd", (("penalty", "fixed"),)),
    "dpvd_subset": ("paper", "dpvd", (("head", "subset"),)),
    "dpvd_subset_fixed": ("paper", "dpvd", (("head", "subset"), ("penalty", "fixed"))),
    "dpvd_team": ("paper", "dpvd", (("credit", "team"),)),
    "literal": ("paper", "dpvd", ()),
    "quick_dpvd": ("paper_digits", "dpvd", ()),
    "quick_iql": ("paper_digits", "iql", ()),
}
#: Settings tried for every algorithm before anything above was trained; the best on validation layouts was kept.
TRIALS: dict[str, Settings] = {"slow": (("learning_rate", 1e-3),), "usual": (), "fast": (("learning_rate", 6e-3),)}
#: Epochs of a trial, and its seed, which no other training uses.
TRIAL_EPOCHS, TRIAL_SEED = 40, 99


@dataclass(frozen=True)
class RealPlay(Cell):
    """A policy on real rounds of one layout, which is the seed."""

    data: str = ""
    name: str = ""
    policy: str | Training = "greedy"
    way: Way = "guarded"
    kind: ClassVar[str] = "real"
    pinned: ClassVar[tuple[str, ...]] = PAPER_START

    @property
    def label(self) -> str:
        """Data, policy and layout."""
        return f"{self.data} {self.name} layout {self.seed}"

    def compute(self, folder: Path) -> Values:
        """Reward and metrics of the policy."""
        policy: Policy
        if isinstance(self.policy, str):
            policy = get_policy(self.policy)
        else:
            policy = load_policy(policy_file(folder, self.policy), self.loaded, way=self.way)
        result = compare(self.loaded, {self.name: policy}, [self.seed], learning="real").results[0]
        columns = ("reward", "without_penalty", "violators", "served", "final_loss")
        return {name: float(getattr(result, name)[0]) for name in columns}


def trial(algorithm: str, name: str) -> Training:
    """A trial of one setting."""
    settings = (("algorithm", algorithm), ("epochs", TRIAL_EPOCHS), *TRIALS[name])
    return Training("paper", seed=TRIAL_SEED, settings=settings)


def training(name: str, seed: int) -> Training:
    """A training of a set; tuned, except the paper's own loop, which keeps its step size."""
    scenario, algorithm, further = SETS[name]
    tuned = () if name == "literal" else TRIALS[_chosen().get(algorithm, "usual")]
    settings = (("algorithm", algorithm), ("epochs", EPOCHS), *further, *tuned)
    return Training(scenario, seed=seed, settings=settings, literal=name == "literal")


@cache
def _chosen() -> dict[str, str]:
    path = RESULTS / "tuning.json"
    return json.loads(path.read_text(encoding="utf-8"))["chosen"] if path.is_file() else {}


def tune(store: Store) -> None:
    """tuning.json: every algorithm with every trial setting, same epochs and seed."""
    trials = {alg: {name: store[trial(alg, name)]["validation"] for name in TRIALS} for alg in ("dpvd", "iql", "qmix")}
    best = {
        alg: max(scores, key=lambda name: scores[name]["alone"] + scores[name]["guarded"])
        for alg, scores in trials.items()
    }
    text = json.dumps({"epochs": TRIAL_EPOCHS, "seed": TRIAL_SEED, "trials": trials, "chosen": best}, indent=1) + "\n"
    write_atomically(RESULTS / "tuning.json", text.encode())


def trained(name: str, store: Store) -> Iterator[tuple[int, Path]]:
    """Seeds and policies of the finished trainings of a set."""
    for seed in SEEDS:
        if store.intact(one := training(name, seed)):
            yield seed, policy_file(store.folder, one)


def judge(store: Store) -> None:
    """References once, every trained policy alone and guarded, all on the same held-out layouts."""
    for name in ("paper", "paper_digits"):
        scenario = load_scenario(name, PAPER_START)
        policies: dict[str, Policy] = {reference: get_policy(reference) for reference in REFERENCES}
        for one in (one for one, (where, _, _) in SETS.items() if where == name):
            for seed, path in trained(one, store):
                policy = load_policy(path, scenario)
                policies[f"{one}|{seed}|alone"] = policy.with_way("alone")
                policies[f"{one}|{seed}|guarded"] = policy.with_way("guarded")
        comparison = compare(scenario, policies, LAYOUTS, kept=Store(store.folder / "pieces.jsonl"))
        values = comparison.to_dict()
        del values["paired_differences"]  # for all pairs; the page recomputes those it shows
        _write(f"surrogate_{name}.json", values)
        print(name, "judged:", len(policies), "policies")


def transfer(store: Store) -> None:
    """Transfer of the policy trained at 12 users and 4 stations to other sizes, without retraining."""
    rows = []
    for users, stations, blocks, side in ((12, 4, 4, 500), (12, 8, 4, 500), (100, 4, 8, 1000), (100, 16, 8, 1000),
                                          (1000, 4, 16, 1000), (1000, 16, 16, 2000)):  # fmt: skip
        scenario = load_scenario("paper", [
            *PAPER_START, f"network.users={users}", f"network.stations={stations}", f"network.blocks={blocks}",
            f"network.area_m=[{side}.0, {side}.0]", f"network.task_sets={_task_sets(stations)}",
        ])  # fmt: skip
        layouts = range(200, 220 if users <= 100 else 206)
        names = ("coverage", "greedy")
        policies: dict[str, Policy] = {name: get_policy(name) for name in names}
        for seed, path in trained("dpvd", store):
            policy = load_policy(path, scenario)
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


def real_play(data: str, name: str, layout: int) -> RealPlay:
    """A policy on real rounds: a reference, or the first training of a set as `dpvd_guarded`, `dpvd_alone`, ..."""
    algorithm, _, way = name.rpartition("_")
    if name in REFERENCES:
        return RealPlay(PRESETS[data], (), layout, data, name, name)
    first = training(algorithm if data == "cifar10" else f"quick_{algorithm}", 0)
    return RealPlay(PRESETS[data], (), layout, data, name, first, way)  # type: ignore[arg-type]


def _write(name: str, values: dict[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    write_atomically(RESULTS / name, (json.dumps(values | {"versions": versions()}, indent=1) + "\n").encode())


def main() -> None:
    """The command line."""
    parser = options_of(__doc__, RESULTS)
    parser.add_argument("what", choices=("tune", "train", "judge", "transfer", "real", "page"))
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--data", choices=tuple(PRESETS), default="digits")
    parser.add_argument("--layouts", type=int, default=20)
    parser.add_argument("--policies", nargs="*", help="only these, on real rounds")
    parser.add_argument("--trained", type=Path, default=Path("runs/association"), help="folder of the trainings")
    options = parser.parse_args()
    np.seterr(all="raise", under="ignore")
    if options.what == "tune":
        compute([trial(alg, name) for alg in ("dpvd", "iql", "qmix") for name in TRIALS], options.trained, options)
    elif options.what == "train":
        sets = [(name, seed) for seed in SEEDS for name in options.sets if seed < FEWER.get(name, len(SEEDS))]
        compute([training(*one) for one in sets], options.trained, options)
    store = cells_in(options.trained, any_version=options.any_version)
    if options.what == "tune":
        tune(store)
    elif options.what == "judge":
        judge(store)
    elif options.what == "transfer":
        transfer(store)
    elif options.what == "real":
        learned = [f"{alg}_{way}" for alg in ("dpvd", "iql") for way in ("guarded", "alone")]
        names = options.policies or (CIFAR10 if options.data == "cifar10" else [*REFERENCES, *learned])
        layouts = range(100, 100 + options.layouts)
        published = cells_in(options.out, any_version=options.any_version)
        cells = [real_play(options.data, name, layout) for layout in layouts for name in names]
        missing = [cell for cell in cells if not published.has(cell)]
        compute(missing, options.trained, options)
        store = cells_in(options.trained, any_version=options.any_version)
        for cell in missing:
            published.take(store.find(cell))  # type: ignore[arg-type]
        published.tidy()
    elif options.what == "page":
        from association_page import write_page

        write_page(RESULTS)


if __name__ == "__main__":
    main()
