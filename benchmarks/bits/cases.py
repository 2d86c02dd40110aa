"""The cases on which two checkouts are compared: commands, and the files that must be bit-identical."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import Any

#: Numbers of worker processes: in-process, and two.
BOTH = (1, 2)
#: Cases that exercise the worker processes; the others run in-process unless all are requested.
SHARED = frozenset({
    "paper", "femnist", "campus", "quick-greedy-seed0", "rule-kmeans", "rule-loss", "identity-noisy_max",
    "identity-from_release", "batches", "cnn", "masked", "resumed-killed",
})  # fmt: skip
#: Compared files of a run's folder.
RUN_FILES = (
    "rounds.csv", "users.csv", "models.safetensors", "ledger.jsonl", "summary.json", "checkpoint.safetensors",
    "scenario.toml",
)  # fmt: skip
#: Files by which a resumed run equals one that was never interrupted; a journal holds the repeated round twice.
RESUMED_FILES = ("rounds.csv", "users.csv", "models.safetensors", "summary.json", "checkpoint.safetensors")
#: Files in which masked and blind runs are equal; the others contain the air time of the masks.
MASKED_FILES = ("models.safetensors", "ledger.jsonl")

#: Plays an environment with seeded actions and writes all observations; `{given}` are the arguments.
ENVIRONMENT = """
import json
import numpy as np
import covey

def plain(value):
    if isinstance(value, dict):
        return {{key: plain(item) for key, item in sorted(value.items())}}
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), value.tobytes().hex()]
    return float(value).hex()

def main():
    env = covey.parallel_env({given})
    rng = np.random.default_rng(7)
    with open("trace.txt", "w") as file:
        for seed in {seeds}:
            seen, infos = env.reset(seed=seed)
            file.write(json.dumps({{"reset": seed, "seen": plain(seen), "infos": plain(infos)}}) + "\\n")
            for step in range({steps}):
                if not env.agents:
                    break
                choices = {{}}
                for agent in env.agents:
                    mask = np.asarray(infos[agent]["action_mask"])
                    if {free}:
                        mask = np.ones_like(mask)
                    if mask.ndim == 1 and env.action_space(agent).shape == ():
                        choices[agent] = int(rng.choice(np.flatnonzero(mask)))
                    else:
                        choices[agent] = (rng.random(mask.shape) < 0.3).astype(np.int8) * mask
                seen, rewards, ended, stopped, infos = env.step(choices)
                for name, value in (("seen", seen), ("rewards", rewards), ("infos", infos), ("stopped", stopped)):
                    file.write(json.dumps({{"step": step, name: plain(value)}}) + "\\n")
    env.close()

main()
"""


@dataclass(frozen=True)
class Step:
    """One process: a covey `command` or a Python `script`; `die` as in `play`; `code` is the expected exit code."""

    command: tuple[str, ...] = ()
    script: str = ""
    die: tuple[int, int] | None = None
    code: int = 0
    limit_s: float = 300.0


@dataclass(frozen=True)
class Case:
    """Steps in one folder, files compared between the checkouts, and pairs of files compared within each.

    workers: numbers of worker processes to run the steps with, `{workers}` in a command; their results are also
    compared with each other; needs: data set; optional: files that may be absent on both sides.
    """

    name: str
    steps: tuple[Step, ...]
    files: tuple[str, ...]
    workers: tuple[int, ...] = (1,)
    needs: str = ""
    within: tuple[tuple[str, str], ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def counted(self) -> bool:
        """Whether a step has worker processes."""
        return any("{workers}" in step.command for step in self.steps)


def run_step(scenario: str, *arguments: str, out: str = "run", **more: Any) -> Step:
    """`covey run` into the folder `out`."""
    given = ("run", scenario, "--out", out, "--quiet", "--workers", "{workers}", *arguments)
    return Step(given, **more)


def run_case(name: str, scenario: str, *arguments: str, limit_s: float = 300.0, **more: Any) -> Case:
    """One run."""
    return Case(name, (run_step(scenario, *arguments, limit_s=limit_s),), _in("run", RUN_FILES), **more)


def _in(folder: str, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


def _set(*pairs: str) -> tuple[str, ...]:
    return tuple(part for pair in pairs for part in ("--set", pair))


def _presets() -> list[Case]:
    return [
        *(
            run_case(f"quick-{policy}-seed{seed}", "quick", "--policy", policy, "--seed", str(seed))
            for policy in ("greedy", "random", "dpvd")
            for seed in (0, 1)
        ),
        run_case("campus", "campus", "--rounds", "2"),
        run_case("paper", "paper", "--rounds", "2", needs="cifar10", limit_s=900),
        run_case("femnist", "femnist", "--rounds", "2", needs="femnist", limit_s=900),
    ]


def _settings() -> list[Case]:
    """Runs that differ from `quick` in one respect, 5 rounds each."""
    settings: dict[str, tuple[str, ...]] = {
        **{f"rule-{rule}": _set(f"clustering.rule={rule}") for rule in ("loss", "kmeans", "printed_sign", "oracle")},
        "announce-every": _set("clustering.announce_every=2", "clustering.announce_rounds=4"),
        "identity-noisy_max": ("--identity", "noisy_max"),
        "identity-from_release": ("--identity", "from_release"),
        "identity-noisy_max-loss": ("--identity", "noisy_max", *_set("clustering.rule=loss")),
        "budget": _set("privacy.budget_epsilon=3"),
        "budget-noisy_max": ("--identity", "noisy_max", *_set("privacy.budget_epsilon=3")),
        "loss-of-uploads": _set("radio.loss_probability=0.3"),
        "batches": _set("training.batch=20", "clustering.batch=16"),
        "noise-off": _set("privacy.noise=off"),
        "add_remove": _set("privacy.adjacency=add_remove", "privacy.noise=replay"),
        "fading": _set(
            "radio.fading=rayleigh", "radio.shadowing_db=6", "radio.path_loss=3gpp_umi", "mobility.model=static"
        ),
        "synthetic-mlp": _set(
            "data.name=synthetic", "data.partition=label_swap", "model.name=mlp", "model.hidden=[16,8]",
            "mobility.model=random_waypoint", "radio.downlink_rate_bps=1e8",
        ),
        "rotation": _set("data.partition=rotation"),
        "dirichlet": _set("data.partition=dirichlet", "data.samples_min=30", "data.samples_max=40", "privacy.n_min=50"),
        "cnn": _set("model.name=cnn", "model.channels=[4,8]", "radio.downlink_rate_bps=1e9"),
        "cnn-pooled": _set("model.name=cnn", "model.channels=[16,16]", "radio.downlink_rate_bps=1e9"),
        "local_search": ("--policy", "local_search"),
        "exact": ("--policy", "exact"),
        "coverage": ("--policy", "coverage"),
        "nearest": ("--policy", "nearest"),
    }  # fmt: skip
    return [run_case(name, "quick", "--rounds", "5", "--seed", "1", *given) for name, given in settings.items()]


def _security() -> list[Case]:
    """Masked sums equal sums in the clear."""
    plain = ("--rounds", "5", "--seed", "1")
    found = []
    for name, more in (("masked", ()), ("masked-noisy_max", ("--identity", "noisy_max"))):
        steps = (
            run_step("quick", *plain, "--security", "masked", *more, out="masked"),
            run_step("quick", *plain, "--security", "blind", *more, out="blind"),
        )
        files = (*_in("masked", RUN_FILES), *_in("blind", RUN_FILES))
        within = tuple((f"masked/{file}", f"blind/{file}") for file in MASKED_FILES)
        found.append(Case(name, steps, files, within=within))
    lossy = _set("radio.loss_probability=0.2", "security.minimum=3")
    found.append(run_case("masked-lossy", "quick", *plain, "--security", "masked", *lossy))
    return found


def _resumed() -> list[Case]:
    """Killed when the third round is to be saved (the first checkpoint is that of the start), then resumed."""
    found = []
    for name, how, code in (("killed", signal.SIGKILL, -signal.SIGKILL), ("interrupted", signal.SIGINT, 130)):
        steps = (
            run_step("quick", "--rounds", "5", "--seed", "1", out="whole"),
            run_step("quick", "--rounds", "5", "--seed", "1", die=(int(how), 4), code=int(code)),
            Step(("run", "--resume", "--out", "run", "--quiet", "--workers", "{workers}")),
        )
        within = tuple((f"run/{file}", f"whole/{file}") for file in RESUMED_FILES)
        found.append(Case(f"resumed-{name}", steps, _in("run", RUN_FILES), within=within))
    return found


def _learned() -> list[Case]:
    trained = ("metrics.csv", "policy.safetensors", "scenario.toml", "learner.json")
    found = []
    for algorithm in ("dpvd", "qmix", "iql"):
        train = Step(("train", "quick", "--algorithm", algorithm, "--epochs", "5", "--out", "train", "--quiet"))
        policy = "train/policy.safetensors"
        evaluate = Step(("evaluate", policy, "quick", "--layouts", "4", "--out", "judged", "--quiet"))
        use = run_step("quick", "--policy", policy, "--rounds", "3")
        files = (*_in("train", trained), "judged/comparison.csv", "judged/comparison.json", *_in("run", RUN_FILES))
        found.append(Case(f"train-{algorithm}", (train, evaluate, use), files))
    more = ("--head", "subset", "--penalty", "fixed", "--seed", "2")
    subset = Step(("train", "quick", "--epochs", "5", "--out", "train", "--quiet", *more))
    found.append(Case("train-subset", (subset,), _in("train", trained)))
    real = (
        "evaluate", "dpvd", "quick", "--learning", "real", "--layouts", "2", "--against", "greedy",
        "--against", "random", "--out", "judged", "--quiet", "--processes", "{workers}",
    )  # fmt: skip
    found.append(Case("evaluate-real", (Step(real),), ("judged/comparison.csv", "judged/comparison.json")))
    given = ("--runs", "4", "--processes", "{workers}", "--out", "calibration.json", "--quiet")
    small = _set("training.rounds=6")
    found.append(Case("calibrate", (Step(("calibrate", "quick", *given, *small)),), ("calibration.json",)))
    return found


def _environments() -> list[Case]:
    given = {
        "environment-real": ('"quick", learning="real"', "(3,)", 6, False),
        "environment-real-noisy_max": (
            'covey.load_scenario("quick", ["privacy.identity=noisy_max", "privacy.budget_epsilon=3"]), learning="real"',
            "(4,)", 5, False,
        ),
        "environment-surrogate": ('"quick"', "(3, 4, 5)", 15, False),
        "environment-violations": ('"quick", actions="binary", penalty="fixed", features="full"', "(3, 4)", 15, True),
        "environment-campus": ('"campus", learning="real", actions="binary"', "(1,)", 2, False),
    }  # fmt: skip
    return [
        Case(
            name,
            (Step(script=ENVIRONMENT.format(given=call, seeds=seeds, steps=steps, free=free)),),
            ("trace.txt",),
        )
        for name, (call, seeds, steps, free) in given.items()
    ]


def cases(everywhere: bool = False) -> list[Case]:
    """All cases, quick ones first, so that most differences show early.

    everywhere: run every case that has worker processes with one and with two of them.
    """
    found = [*_settings(), *_environments(), *_security(), *_resumed(), *_learned(), *_presets()]
    return [
        replace(case, workers=BOTH) if case.name in SHARED or (everywhere and case.counted) else case for case in found
    ]


#: The deployment demo, with three devices, and the simulated run that it must equal, within one checkout.
DEMO = Step(
    ("deploy", "demo", "--rounds", "2", "--set", "network.users=3", "--out", "demo", "--patience", "300", "--quiet"),
    limit_s=600,
)
DEMO_SIMULATED = Step(
    ("run", "demo/scenario.toml", "--rounds", "2", "--out", "simulated", "--quiet", "--workers", "1"), limit_s=120
)
DEMO_FILES = ("models.safetensors", "users.csv", "rounds.csv")
