"""What stations saw of single users in a round: noised steps, and how noisy they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.identification.rule import Floats, Identification, Ints, RuleRound, Trained, Weights


@dataclass(frozen=True)
class Heard:
    """Steps of the n users whose upload was let in: users and their tasks (n,), steps (n, D) from model to upload.

    A step is the model that the user started from less its upload; noise_std: (n,) of the noise on each weight.
    """

    users: Ints
    tasks: Ints
    steps: Weights
    noise_std: Floats

    def of(self, task: int) -> Heard:
        """Those of one task."""
        rows = self.tasks == task
        return Heard(self.users[rows], self.tasks[rows], self.steps[rows], self.noise_std[rows])


def heard_steps(at: RuleRound, found: Identification, trained: Trained) -> Heard:
    """What stations saw in this round; post-processing of uploads, which are charged where they are made."""
    rows = np.flatnonzero(trained.intake.accepted)
    users = trained.intake.users[rows]
    tasks = found.identities[users]
    return Heard(
        users,
        tasks,
        at.models[tasks] - trained.intake.weights[rows],
        at.training.upload_noise(trained.noise_std[users], at.samples[users]),
    )
