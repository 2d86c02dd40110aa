"""A trained policy: inference, and its file format."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from covey.agents.admission_guard import admit, exchanged_bytes
from covey.agents.learner import build_head, choosable
from covey.agents.networks import Head
from covey.agents.settings import LearnerSettings
from covey.arrays import BoolArray
from covey.environment import features
from covey.environment.known_tasks import check_tasks_are_known
from covey.errors import PolicyError
from covey.files import write_atomically
from covey.network import NetworkLimits, Observation
from covey.scenario import Scenario
from covey.scenario.first_values import with_first_values
from covey.scenario.load import scenario_from_dict

Way = Literal["alone", "guarded"]

#: Version of the policy file format; incremented when older files can no longer be read.
FORMAT = 1


class LearnedPolicy:
    """A policy for `covey.simulate` and the environments: `(Observation, generator) -> (B, U) bool`.

    way: `alone`, every station takes its own greedy selection and nothing is exchanged; `guarded`, stations exchange
    utilities and admit users by gain while the plan stays valid. `exchanged` lists the bytes of every decision.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        weights: dict[str, dict[str, Tensor]],
        scenario: Scenario,
        *,
        way: Way = "guarded",
        trained_on: Scenario | None = None,
        origin: dict[str, Any] | None = None,
    ) -> None:
        self.settings, self.weights, self.scenario, self.way = settings, weights, scenario, way
        self.trained_on = scenario if trained_on is None else trained_on
        self.origin = origin or {}
        self.exchanged: list[int] = []
        self.__name__ = settings.algorithm if way == "guarded" else f"{settings.algorithm}_alone"
        self._heads: dict[tuple[Way, int], nn.Module] = {}

    def with_way(self, way: Way) -> LearnedPolicy:
        """The same policy in another decision mode."""
        return LearnedPolicy(
            self.settings, self.weights, self.scenario, way=way, trained_on=self.trained_on, origin=self.origin
        )

    def __call__(self, observation: Observation, rng: np.random.Generator) -> BoolArray:
        """The selection (B, U)."""
        return self.select(observation)

    def select(self, observation: Observation) -> BoolArray:
        """Selections (..., B, U) of one network or of a batch at once."""
        batch, head = observation.as_batch(), self._head(observation.limits)
        with torch.no_grad():
            inputs = torch.from_numpy(features(batch, self.settings.features))
            if self.way == "alone":
                self.exchanged += [0] * len(batch.identities)
                allowed = torch.from_numpy(choosable(batch, self.settings))
                selected = np.array(head.best(inputs, allowed).numpy(), dtype=bool)
            else:
                wanted = head.utilities(inputs, torch.from_numpy(batch.eligible))
                first, further = (part.numpy().astype(np.float64) for part in wanted)
                self.exchanged += exchanged_bytes(first, further).tolist()
                selected = admit(first, further, batch)
        return selected.reshape(*observation.leading, *selected.shape[1:])

    def _head(self, limits: NetworkLimits) -> Head:
        key = (self.way, limits.radio.blocks)
        if key not in self._heads:
            head = build_head(self.settings, limits)
            head.load_state_dict(self.weights[self.way])
            self._heads[key] = head
        return self._heads[key]  # type: ignore[return-value]

    def save(self, path: Path) -> None:
        """Write the policy with its scenario, settings and versions."""
        tensors = {f"{way}.{name}": tensor for way, part in self.weights.items() for name, tensor in part.items()}
        header = {
            "format": FORMAT,
            "version": metadata.version("covey"),
            "settings": self.settings.model_dump(mode="json"),
            "scenario": self.trained_on.model_dump(mode="json"),
            "origin": self.origin,
        }
        content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"covey": json.dumps(header)})
        write_atomically(path, content)


def load_policy(path: Path, scenario: Scenario | None = None, *, way: Way = "guarded") -> LearnedPolicy:
    """Load a policy from a file, for a scenario (by default that of its training); `PolicyError` if it does not fit."""
    header, tensors = _read(path)
    try:
        settings = LearnerSettings.model_validate(header["settings"])
        trained_on = scenario_from_dict(with_first_values(header["scenario"]), where=f"the scenario in '{path}'")
    except (KeyError, ValidationError) as error:
        raise PolicyError(f"'{path}' has settings that this version cannot read ({error}); train it again") from None
    chosen = trained_on if scenario is None else scenario
    check_fit(settings, trained_on, chosen, str(path))
    weights: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, key = name.partition(".")
        weights.setdefault(part, {})[key] = tensor
    return LearnedPolicy(settings, weights, chosen, way=way, trained_on=trained_on, origin=header.get("origin", {}))


def check_fit(settings: LearnerSettings, trained_on: Scenario, scenario: Scenario, name: str) -> None:
    """Raise `PolicyError` when a policy trained on one scenario cannot run in another."""
    check_tasks_are_known(scenario)
    then, now = trained_on.network, scenario.network
    problems = []
    if settings.head == "subset":
        problems += [
            f"{now_value} {what} instead of {then_value}"
            for what, now_value, then_value in (
                ("users", now.users, then.users),
                ("stations", now.stations, then.stations),
                ("blocks", now.blocks, then.blocks),
            )
            if now_value != then_value
        ]
    if (settings.features == "paper" or settings.head == "subset") and now.tasks != then.tasks:
        problems.append(f"{now.tasks} tasks instead of {then.tasks}")
    if problems:
        raise PolicyError(
            f"the policy '{name}' does not fit scenario '{scenario.name}': it has {', '.join(problems)}, and a policy"
            f" with the {settings.head} head and {settings.features} features runs only at the size it was trained"
            " for; train one for this scenario, or use the additive head with full features"
        )


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise PolicyError(f"there is no policy file '{path}'; train one with covey train")
    try:
        with safe_open(path, framework="pt") as file:
            header: dict[str, Any] = json.loads(file.metadata()["covey"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise PolicyError(f"'{path}' is not a policy file or is damaged ({error}); train it again") from None
    if header.get("format") != FORMAT:
        raise PolicyError(
            f"'{path}' has the policy format {header.get('format')}, this version reads {FORMAT}; train it again"
        )
    return header, tensors
