"""`step`: one step on the noised sum of clipped gradients, Eqs. (5) and (6), as in the paper."""

from __future__ import annotations

import numpy as np

from covey.federated.intake import reach
from covey.federated.steps import LocalUpdate, noised_step
from covey.federated.training.protocol import Floats, Ints, LocalProblem, LocalTraining
from covey.privacy import GaussianReleases


class Step(LocalTraining):
    """One gradient step on all samples or on a batch: per-sample clipping, sum, noise."""

    def run(self, problem: LocalProblem) -> LocalUpdate:
        """The weights after one step."""
        x, y = problem.next_batch()
        noise = problem.normals(1)[0] * problem.noise_std if problem.noise_std > 0 else None
        return noised_step(
            problem.module,
            problem.weights,
            x,
            y,
            clip=problem.clip,
            noise=noise,
            learning_rate=problem.learning_rate,
            size=problem.size,
        )

    def releases(self, clip: Floats, noise_std: Floats, samples: Ints) -> GaussianReleases:
        """One sum of each user."""
        return GaussianReleases.of_sums(clip, noise_std, self.scenario.privacy.adjacency)

    def reach(self, clip: Floats, samples: Ints, noise_std: Floats, length: int) -> Floats:
        """(n,) largest length of one step of clipped gradients and noise."""
        return reach(clip, self.passes(samples), noise_std, self.learning_rate, length)

    def passes(self, samples: Ints) -> Ints:
        """(n,) batch sizes."""
        return np.minimum(samples, self.scenario.training.batch or samples)
