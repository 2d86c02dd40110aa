"""`mr_mtl`: mean-regularised multi-task learning (Liu, Hu, Wu and Smith, NeurIPS 2022): users upload their own model.

User i keeps a model v_i. In a round in which it is served, its local steps begin at v_i, the first time at the model w
of its task as received, on its loss plus pull / 2 x |v - w|^2; where they end is the new v_i. Uploads are averaged into
w as always, and charged as those of `sgd`.

Unit `sample`: every step sees a noised sum, and v_i is made of noised sums and broadcast models alone: it is covered by
what its user paid, and is uploaded itself. An upload thus holds the sums of all earlier rounds of its user. Unit
`device`: steps are plain and v_i is not protected: it stays on the device. What leaves is w plus v_i - w, clipped as a
whole and noised once.

How far from w an upload may be: as far as clipping and noise lead from a model that stands still, in training.rounds
rounds. Local training is linear in its gradients and leaves a share a of the distance that was there before, so that
this is the way of one round times 1 + |a| + ... + |a|^(rounds - 1), for noise the root of the sum of squares. Models
move, so that an honest v_i may be farther: its user then uploads the nearest point within. That is post-processing of
v_i, which it keeps as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from covey.errors import ScenarioError
from covey.federated.personal.protocol import Personal, PersonalProblem
from covey.federated.training import LocalProblem, LocalTraining, Sgd, Step
from covey.federated.training.optimisers import Optimiser, Settings, remaining
from covey.federated.training.protocol import Floats, Ints, Weights
from covey.scenario import Scenario


class MrMtl(Personal):
    """A model of each user's own, trained and uploaded when it is served, and pulled towards that of its task.

    Unlike in the paper, where all users take part in every round, one that is not served keeps its model as it is.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    uploads: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset({"personal_pull"})

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        training = scenario.training
        if training.proximal > 0:
            raise ScenarioError(
                f"training.proximal is {training.proximal:g}, but with training.personal = 'mr_mtl' it is"
                " training.personal_pull that pulls towards the received model; put it back with"
                " training.proximal=default"
            )
        if training.optimizer == "sgd":
            self.refuse_divergence("learning_rate")

    def training(self, local: LocalTraining) -> LocalTraining:
        """Steps from the user's own model, in place of `step` or `sgd`."""
        if type(local) not in (Step, Sgd):
            raise ScenarioError(
                "training.personal is 'mr_mtl', which starts the steps of 'step' or 'sgd' from users' own models, but"
                f" training.local is '{self.scenario.training.local}'; set training.local = \"sgd\", or choose another"
                " training.personal"
            )
        return FromOwnModel(self.scenario)

    def run(self, problem: PersonalProblem) -> Weights:
        """The model as it is: local training makes it."""
        return problem.weights

    def passes(self, samples: Ints) -> Ints:
        """(n,) zeros: those of local training are counted there."""
        return np.zeros_like(samples)


class FromOwnModel(Sgd):
    """Local steps from the user's own model, pulled towards the received one."""

    withholds: ClassVar[Mapping[str, str]] = {
        "fresh_steps": (
            "training.personal is 'mr_mtl', where uploads start from users' own models; choose another, or set"
            ' training.personal = "none"'
        )
    }

    @property
    def carries_over(self) -> bool:
        """In the unit `sample`: a user's own model is made of all its noised sums."""
        return not self._whole_device

    def _settings(self, rate: float) -> Settings:
        return replace(super()._settings(rate), proximal=self.scenario.training.personal_pull)

    def _optimiser(self, problem: LocalProblem, received: Tensor) -> Optimiser:
        own = received if problem.own is None else torch.from_numpy(np.array(problem.own)).to(received.dtype)
        return Optimiser(self._settings(problem.learning_rate), own, received)

    def _full_batch(self, problem: LocalProblem, start: Tensor, count: int, clip: float) -> None:
        """Never: steps do not begin at the received weights."""

    def _travel(self, rate: float, samples: Ints) -> tuple[Floats, Floats]:
        """(n,) each, of training.rounds rounds with a received model that stands still."""
        longest, noise = super()._travel(rate, samples)
        counts = self.steps(samples)
        left = np.abs(remaining(self._settings(rate), int(counts.max(initial=1)))[counts - 1])
        rounds = self.scenario.training.rounds
        return longest * _geometric(left, rounds), noise * np.sqrt(_geometric(left**2, rounds))

    @property
    def _drifts(self) -> bool:
        return True

    def _kept(self, problem: LocalProblem, weights: Tensor) -> Weights | None:
        """Where the steps ended; one that is not finite would never be again, so that the model before stays."""
        if bool(torch.isfinite(weights.float()).all()):
            return weights.float().numpy()
        return np.array(problem.weights if problem.own is None else problem.own)


def _geometric(ratio: Floats, terms: int) -> Floats:
    """(n,) 1 + ratio + ... + ratio^(terms - 1), ratio (n,) from 0."""
    one = np.isclose(ratio, 1.0, rtol=0.0, atol=1e-12)
    safe = np.where(one, 0.0, ratio)
    with np.errstate(over="ignore"):
        return np.where(one, float(terms), (1.0 - safe**terms) / (1.0 - safe))
