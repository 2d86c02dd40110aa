"""Another local training in one file: two noised steps before the upload.

    covey run quick --set training.local=examples.parts.two_steps:TwoSteps

Both steps are clipped and noised, and the second sees the samples again, so that an upload costs twice.
"""

from __future__ import annotations

import math

from covey.federated import LocalProblem, LocalUpdate, Step, noised_step
from covey.federated.training.protocol import Floats, Ints
from covey.privacy import GaussianReleases


class TwoSteps(Step):
    """Two steps of the learning rate, each on its own batch with its own noise."""

    def run(self, problem: LocalProblem) -> LocalUpdate:
        """The weights after both steps."""
        noise = problem.normals(2) * problem.noise_std if problem.noise_std > 0 else (None, None)
        weights = problem.weights
        for step in range(2):
            x, y = problem.next_batch()
            update = noised_step(
                problem.module, weights, x, y, clip=problem.clip, noise=noise[step],
                learning_rate=problem.learning_rate, size=problem.size,
            )  # fmt: skip
            weights = update.weights
        return update

    def releases(self, clip: Floats, noise_std: Floats, samples: Ints) -> GaussianReleases:
        """Two sums of each user."""
        return GaussianReleases.of_sums(clip, noise_std, self.scenario.privacy.adjacency, steps=2)

    def reach(self, clip: Floats, samples: Ints, noise_std: Floats, length: int) -> Floats:
        """(n,) distance of two steps."""
        return 2 * super().reach(clip, samples, noise_std, length)

    def upload_noise(self, noise_std: Floats, samples: Ints) -> Floats:
        """(n,) noise on a weight: that of two batches of half the passes each, added up."""
        return 2 * math.sqrt(2) * super().upload_noise(noise_std, samples)

    def passes(self, samples: Ints) -> Ints:
        """(n,) samples of both batches."""
        return 2 * super().passes(samples)
