"""`ditto`: a personal model that is pulled towards the received one (Li, Hu, Beirami and Smith, ICML 2021)."""

from __future__ import annotations

import numpy as np
import torch

from covey.federated.models import flatten, load_flat
from covey.federated.personal.protocol import Ints, Personal, PersonalProblem, Weights
from covey.scenario import Scenario


class Ditto(Personal):
    """Local steps on the user's loss plus pull / 2 x squared distance to the model of its task.

    Unlike in the paper every user trains in every round, not only those that upload: the model was broadcast to all.
    """

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.refuse_divergence("personal_rate")

    def run(self, problem: PersonalProblem) -> Weights:
        """The personal model after `training.personal_steps` steps v <- v - rate (gradient + pull (v - received))."""
        training = self.scenario.training
        load_flat(problem.module, problem.weights)
        parameters = list(problem.module.parameters())
        parts = torch.split(torch.from_numpy(np.array(problem.received)), [own.numel() for own in parameters])
        pulls = [part.view_as(own) for part, own in zip(parts, parameters, strict=True)]
        for _ in range(training.personal_steps):
            x, y = problem.next_batch()
            gradients = torch.autograd.grad(problem.loss(problem.module(x), y).mean(), parameters)
            with torch.no_grad():
                for own, gradient, towards in zip(parameters, gradients, pulls, strict=True):
                    own.sub_(training.personal_rate * (gradient + training.personal_pull * (own - towards)))
        return flatten(problem.module)

    def passes(self, samples: Ints) -> Ints:
        """(n,) batch sizes times steps."""
        training = self.scenario.training
        return np.asarray(training.personal_steps * np.minimum(samples, training.personal_batch or samples))
