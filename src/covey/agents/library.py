"""Trained policies by algorithm and scenario: shipped ones, those trained on this machine, or trained on demand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from covey.agents.policy import LearnedPolicy, Way, load_policy
from covey.agents.settings import LearnerSettings
from covey.agents.training import Trainer
from covey.agents.training_files import trained_policy
from covey.association import Policy, get_policy
from covey.data import data_root
from covey.environment import calibrate, calibration_path, find_calibration
from covey.environment.known_tasks import check_tasks_are_known
from covey.errors import PolicyError
from covey.parts import ALGORITHMS, POLICIES
from covey.scenario import Scenario, load_scenario
from covey.scenario.first_values import FIRST_VALUES

#: Policies of the presets, shipped with covey.
SHIPPED = Path(__file__).parent / "policies"
#: Real runs that calibrate the surrogate when a policy is trained on demand.
_RUNS = 12


def policy_path(algorithm: str, scenario: Scenario) -> Path:
    """Where a policy trained on demand for this scenario is stored."""
    values = scenario.model_dump(mode="json", exclude={"name", "description"})
    key = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
    return data_root() / "policies" / f"{algorithm}-{key}.safetensors"


def find_policy(algorithm: str, scenario: Scenario) -> LearnedPolicy:
    """The policy of this algorithm trained for this scenario: on this machine, else shipped; else `PolicyError`."""
    found = _stored(algorithm, scenario)
    if found is None:
        raise PolicyError(
            f"no {algorithm} policy has been trained for scenario '{scenario.name}'; train one with: covey train"
            f" {scenario.name} --algorithm {algorithm}, and give its policy.safetensors"
        )
    return found


def learned_policy(name: str | Path, scenario: Scenario | str, *, way: Way = "guarded") -> LearnedPolicy:
    """A trained policy for a scenario: from a file, or by algorithm (`dpvd`, ...), shipped or trained on this machine.

    way: `guarded` (stations exchange a few hundred bytes, no violations) or `alone` (nothing is exchanged).
    """
    chosen = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    if str(name) in ALGORITHMS:
        return find_policy(str(name), chosen).with_way(way)
    return load_policy(Path(name), chosen, way=way)


def is_learned(name: str) -> bool:
    """Whether a name refers to a trained policy: an algorithm, or a policy file."""
    return name in ALGORITHMS or name.endswith(".safetensors")


def policies_named(name: str, scenario: Scenario) -> dict[str, Policy]:
    """The policies of a name in a comparison: a trained policy alone and guarded, or a registered one."""
    if not is_learned(name):
        POLICIES.check(name, also=ALGORITHMS)
        return {name: get_policy(name)}
    learned = learned_policy(name, scenario)
    algorithm = learned.settings.algorithm
    return {f"{algorithm}_alone": learned.with_way("alone"), algorithm: learned.with_way("guarded")}


def policy_or_train(
    algorithm: str, scenario: Scenario, on_epoch: Callable[[dict[str, Any], int], None] | None = None
) -> LearnedPolicy:
    """The policy of this algorithm for this scenario; if there is none, it is trained on the surrogate and stored.

    `on_epoch(row, epochs)` is called after every epoch. A scenario without calibration is calibrated first.
    """
    check_tasks_are_known(scenario)
    found = _stored(algorithm, scenario)
    if found is not None:
        return found
    calibration = find_calibration(scenario)
    if calibration is None:
        calibration = calibrate(scenario, runs=_RUNS)
        calibration.save(calibration_path(scenario))
    settings = LearnerSettings.model_validate({"algorithm": algorithm})
    trainer = Trainer(scenario, settings, calibration=calibration)
    while not trainer.done:
        row = trainer.run_epoch()
        if on_epoch is not None:
            on_epoch(row, settings.epochs)
    policy = trained_policy(trainer)
    path = policy_path(algorithm, scenario)
    path.parent.mkdir(parents=True, exist_ok=True)
    policy.save(path)
    return policy


def _stored(algorithm: str, scenario: Scenario) -> LearnedPolicy | None:
    own = policy_path(algorithm, scenario)
    if own.is_file():
        return load_policy(own, scenario)
    for path in sorted(SHIPPED.glob(f"{algorithm}-*.safetensors")):
        policy = load_policy(path)
        if _with_papers_start(policy.trained_on) == _with_papers_start(scenario):
            return load_policy(path, scenario)
    return None


def _with_papers_start(scenario: Scenario) -> dict[str, Any]:
    """What a shipped policy has to share with a scenario: all but how groups are found, which it does not decide."""
    values = scenario.model_dump(mode="json", exclude={"name", "description"})
    return values | {section: values[section] | first for section, first in FIRST_VALUES.items()}
