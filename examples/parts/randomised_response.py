"""An announcement in one file: randomised response, where a user says its task or, by chance, any other.

    covey run quick --set privacy.identity=examples.parts.randomised_response:RandomisedResponse

An answer is at most e^epsilon times as likely as it would be with any other data of the user, so that it costs rho =
epsilon^2 / 2 (`privacy.identity_rho`). Scores need no bounds, and every rule goes with it by which users tell tasks;
but its noise does not fall with the number of samples, as that of `noisy_max` does.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.errors import ScenarioError
from covey.federated.user_compute import UserCompute
from covey.identification import Announcement, Identification, RuleRound, ScoreRule
from covey.identification.announcement import answers
from covey.scenario import Scenario


class RandomisedResponse(Announcement):
    """The user's task with probability e^epsilon / (e^epsilon + K - 1), every other task equally often."""

    needs: ClassVar[frozenset[str]] = frozenset({"charge"})
    request: ClassVar[str] = "announce"
    together: ClassVar[bool] = True
    note: ClassVar[str] = "Identities were announced by randomised response; epsilon includes them."
    words: ClassVar[str] = "announced by randomised response, charged"

    def __init__(self, scenario: Scenario, rule: ScoreRule) -> None:
        super().__init__(scenario, rule)
        if scenario.privacy.noise == "off":
            raise ScenarioError("randomised response needs noise; set privacy.noise to 'replay' or 'secure'")

    @property
    def rho(self) -> float:
        """Cost of one answer."""
        return self.scenario.privacy.identity_rho

    def tell(self, compute: UserCompute, users: list[int], round: int, together: int) -> npt.NDArray[Any]:
        """What these users say, (n,); runs on the device, and the task itself does not leave it."""
        tasks = self.rule.told(*compute.score(users, round, self.batch, self.rule.gradients, together))
        # Half the squared length of two standard normal values is exponential, and e to minus that uniform.
        normals = np.stack([compute.noise(user, round, "identity_noise", 4).reshape(2, 2) for user in users])
        return respond(tasks, len(compute.models), math.sqrt(2 * self.rho), np.exp(-(normals**2).sum(axis=2) / 2))

    def find(self, at: RuleRound) -> Identification:
        """Users that do not sit out pay, and only then are asked; those that cannot afford it keep their task."""
        ledger, everyone = at.ledger.copy(), np.flatnonzero(~at.exhausted)
        paid = ledger.charge(everyone, self.rho, "identity")
        users = everyone[paid]
        at.journal.record(at.round, "identity", users, np.full(len(users), self.rho))
        told = at.fleet.tell(at.round, users)
        # Under masks the answers stay on the devices, and stations know no task.
        hidden = np.where(np.isin(np.arange(at.users), users), -1, at.identities)
        identities = hidden if told is None else answers(told, users, at, self.rule)
        return Identification(identities, ledger, refused=everyone[~paid], memory=at.memory)


def respond(
    task: npt.NDArray[Any], tasks: int, epsilon: float, uniform: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Answers (n,) of users of `task` (n,), from two uniform numbers each, (n, 2): whether to lie, and how."""
    honest = uniform[:, 0] * (1 + (tasks - 1) * math.exp(-epsilon)) < 1
    shift = 1 + np.minimum((uniform[:, 1] * (tasks - 1)).astype(np.int64), tasks - 2)
    return np.where(honest, task, (task + shift) % tasks)
