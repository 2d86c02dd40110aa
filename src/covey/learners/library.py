"""Trained policies by algorithm and scenario: shipped ones, those trained on this machine, or trained on demand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from covey.data import data_root
from covey.environment import calibrate, calibration_path, find_calibration
from covey.environment.site import check_tasks_are_known
from covey.errors import PolicyError
from covey.learners.policy import LearnedPolicy, Way, load_policy
from covey.learners.settings import LearnerSettings
from covey.learners.storage import trained_policy
from covey.learners.training import Trainer
from covey.scenario import Scenario, load_scenario

#: Names under which a learned policy can be asked for.
ALGORITHMS = ("dpvd", "iql", "qmix")
#: Policies of the presets, shipped with covey.
SHIPPED = Path(__file__).parent / "policies"
#: Real runs that calibrate the surrogate when a policy is trained on demand.
_RUNS = 12


def policy_path(algorithm: str, scenario: Scenario) -> Path:
    """Where a policy trained on demand for this scenario is kept."""
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
    """A trained policy for a scenario: of a file, or by algorithm (`dpvd`, ...) shipped or trained here before.

    way: `guarded` (stations exchange a few hundred bytes, nobody violates a rule) or `alone` (nothing is exchanged).
    """
    chosen = scenario if isinstance(scenario, Scenario) else load_scenario(scenario)
    if str(name) in ALGORITHMS:
        return find_policy(str(name), chosen).with_way(way)
    return load_policy(Path(name), chosen, way=way)


def policy_or_train(
    algorithm: str, scenario: Scenario, on_epoch: Callable[[dict[str, Any], int], None] | None = None
) -> LearnedPolicy:
    """The policy of this algorithm for this scenario; trained now, on the surrogate, and kept when there is none.

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
        if policy_path(algorithm, policy.trained_on) == own:
            return load_policy(path, scenario)
    return None
