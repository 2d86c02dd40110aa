"""Another personal model in one file: the received one, trained a little on the user's own samples.

    covey run quick --set training.personal=examples.parts.fine_tuned:FineTuned

It begins anew from the received model in every round, so that the device remembers nothing.
"""

from __future__ import annotations

import torch

from covey.federated import Ditto, PersonalProblem, flatten, load_flat
from covey.federated.personal.protocol import Weights


class FineTuned(Ditto):
    """`training.personal_steps` plain steps from the received model."""

    def run(self, problem: PersonalProblem) -> Weights:
        """The weights after them; what the user had before does not matter."""
        load_flat(problem.module, problem.received)
        steps = torch.optim.SGD(problem.module.parameters(), lr=self.scenario.training.personal_rate)
        for _ in range(self.scenario.training.personal_steps):
            x, y = problem.next_batch()
            steps.zero_grad()
            problem.loss(problem.module(x), y).mean().backward()  # type: ignore[no-untyped-call]
            steps.step()
        return flatten(problem.module)
