"""`sgd`: several local steps with an optimiser, under privacy of single samples or of whole devices.

Unit `sample`: every local step clips each sample's gradient, sums, and adds fresh noise to the sum; the optimiser sees
nothing but noised sums. Batches of one shuffled pass do not overlap, so that a sample is in one of its sums, and a pass
costs what one sum costs; Poisson batches cost every step, with amplification. Unit `device`: plain local steps, then
the whole update is clipped and noised once. With u = w - w' the update and alpha the learning rate of the round, it is
(X_i / alpha) u, the sum of gradients that one step of the same length would take, that is clipped to clip_i x X_i and
gets the noise; for every optimiser alike, so that u is clipped to alpha clip_i.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from covey.federated.clip import clipped_gradient_sum
from covey.federated.intake import ROUNDING, reach
from covey.federated.losses import loss_of
from covey.federated.models import load_flat
from covey.federated.steps import LocalUpdate
from covey.federated.training.full_batch import FullBatchSteps, full_batch_steps
from covey.federated.training.optimisers import Optimiser, Settings, travel
from covey.federated.training.protocol import Floats, Ints, LocalProblem, LocalTraining, Weights
from covey.privacy import GaussianReleases
from covey.scenario.schema import LOCAL_OPTIONS

#: Upper bound on the probability that some Poisson batch of an upload is larger than `reach` allows for.
_LARGER = 1e-13
#: Rounding errors of a norm in float64 stay below this share of it.
_MARGIN = 1e-9


class Sgd(LocalTraining):
    """`steps` or `epochs` of SGD with momentum or Adam, weight decay and a proximal term."""

    options: ClassVar[frozenset[str]] = frozenset(LOCAL_OPTIONS)
    units: ClassVar[frozenset[str]] = frozenset({"sample", "device"})

    def run(self, problem: LocalProblem) -> LocalUpdate:
        """The weights after all steps."""
        return self._run_device(problem) if self._whole_device else self._run_samples(problem)

    def releases(self, clip: Floats, noise_std: Floats, samples: Ints) -> GaussianReleases:
        """Unit `device`: one sum. Unit `sample`: of Poisson batches one of each step, else one of each pass begun."""
        adjacency, training = self.scenario.privacy.adjacency, self.scenario.training
        if self._whole_device:
            return GaussianReleases.of_sums(np.asarray(clip * samples), noise_std, adjacency)
        if training.sampling == "poisson":
            rate = self._sizes(samples) / samples
            return GaussianReleases.of_sums(clip, noise_std, adjacency, steps=self.steps(samples), rate=rate)
        passes = -(-self.steps(samples) // self._steps_of_pass(samples))
        return GaussianReleases.of_sums(clip, noise_std, adjacency, steps=passes)

    def reach(self, clip: Floats, samples: Ints, noise_std: Floats, length: int) -> Floats:
        """(n,) largest distance: of the clipped update and noise, or of steps that are as long as clipping allows.

        Weight decay is not in it: in the unit `sample`, a user shortens a longer update.
        """
        return self._reach(self.learning_rate, clip, samples, noise_std, length)

    def upload_noise(self, noise_std: Floats, samples: Ints) -> Floats:
        """(n,) noise on a weight as the optimiser carries it; see `Travel` for Adam in the unit `sample`.

        How later gradients answer to the noise of earlier steps is part of what a user learned, not counted here.
        """
        if self._whole_device:
            return np.asarray(self.learning_rate * noise_std / samples)
        noise = Sgd._travel(self, self.learning_rate, samples)[1]
        if self.scenario.training.optimizer == "adam":
            return np.where(noise_std > 0, noise, 0.0)
        return np.asarray(noise * noise_std / self._sizes(samples))

    def passes(self, samples: Ints) -> Ints:
        """(n,) samples of all batches, in expectation."""
        return np.asarray(self.steps(samples) * self._sizes(samples))

    def steps(self, samples: Ints) -> Ints:
        """(n,) local steps, tau."""
        training = self.scenario.training
        if training.epochs is None:
            return np.full(np.shape(samples), training.steps, dtype=np.int64)
        return np.asarray(training.epochs * self._steps_of_pass(samples))

    @property
    def _whole_device(self) -> bool:
        return self.scenario.privacy.unit == "device"

    def _settings(self, rate: float) -> Settings:
        return Settings.of(self.scenario.training, rate)

    def _sizes(self, samples: Ints) -> Ints:
        """(n,) samples of a batch, expected ones of a Poisson batch."""
        return np.minimum(samples, self.scenario.training.batch or samples)

    def _steps_of_pass(self, samples: Ints) -> Ints:
        """(n,) whole batches in all samples."""
        return np.asarray(samples // self._sizes(samples))

    def _reach(self, rate: float, clip: Floats, samples: Ints, noise_std: Floats, length: int) -> Floats:
        if self._whole_device:
            return reach(clip, samples, noise_std, rate, length)
        longest, noise = self._travel(rate, samples)
        one = np.ones(len(samples), dtype=np.int64)
        if self.scenario.training.optimizer == "adam":
            return reach(longest * math.sqrt(length), one, 0.0 * noise_std, 1.0, length)
        sizes, largest = self._sizes(samples), self._sizes(samples).astype(np.float64)
        if self.scenario.training.sampling == "poisson":
            unlikely = np.log(self.steps(samples) / _LARGER)  # Bernstein's inequality
            largest = np.minimum(samples, sizes + unlikely / 3.0 + np.sqrt(unlikely**2 / 9.0 + 2.0 * sizes * unlikely))
        return reach(longest * clip * largest / sizes, one, noise * noise_std / sizes, 1.0, length)

    def _travel(self, rate: float, samples: Ints) -> tuple[Floats, Floats]:
        """(n,) each: `Travel` of as many steps as users with `samples` (n,) take in a round."""
        counts = self.steps(samples)
        most = travel(self._settings(rate), int(counts.max(initial=1)))
        return most.longest[counts - 1], most.noise[counts - 1]

    @property
    def _drifts(self) -> bool:
        """Whether something that `reach` leaves out moves an upload, so that the user shortens it."""
        return self.scenario.training.weight_decay > 0

    def _optimiser(self, problem: LocalProblem, received: Tensor) -> Optimiser:
        """The optimiser of a round, at the weights where its steps begin."""
        return Optimiser(self._settings(problem.learning_rate), received)

    def _kept(self, problem: LocalProblem, weights: Tensor) -> Weights | None:
        """(D,) the model that the user keeps, made of where its steps ended; None where it keeps none."""
        return None

    def _batches(self, problem: LocalProblem) -> Callable[[], tuple[Tensor, Tensor]]:
        return problem.poisson_batch if self.scenario.training.sampling == "poisson" else problem.next_batch

    def _run_samples(self, problem: LocalProblem) -> LocalUpdate:
        """Steps on noised sums of clipped gradients, in float64, rounded once at the end."""
        draw, count = self._batches(problem), int(self.steps(np.array([problem.samples]))[0])
        received = torch.from_numpy(problem.weights.astype(np.float64))
        together = self._full_batch(problem, received, count, problem.clip) if problem.noise_std == 0 else None
        if together is not None:
            return LocalUpdate(
                _rounded(together.weights),
                mean_norm=float(together.norms.mean()),
                clipped_fraction=float((together.norms > problem.clip).mean()),
                rejected=0,
            )
        optimiser = self._optimiser(problem, received)
        noise = torch.from_numpy(problem.normals(count)) if problem.noise_std > 0 else None
        norms, seen, rejected = [], 0, 0
        for step in range(count):
            x, y = draw()
            load_flat(problem.module, optimiser.weights.numpy())
            found = clipped_gradient_sum(problem.module, x, y, problem.clip)
            total = found.total if noise is None else found.total + noise[step] * problem.noise_std
            optimiser.step(total, problem.size)
            norms.append(found.norms.numpy())
            seen, rejected = seen + len(x), rejected + found.rejected
        update = optimiser.weights
        if self._drifts:
            update = received + self._shortened(update - received, problem)
        every = np.concatenate(norms)
        finite = every[np.isfinite(every)]
        return LocalUpdate(
            _rounded(update),
            mean_norm=float(finite.mean()) if len(finite) else 0.0,
            clipped_fraction=float((finite > problem.clip).sum() / max(seen, 1)),
            rejected=rejected,
            kept=self._kept(problem, optimiser.weights),
        )

    def _full_batch(self, problem: LocalProblem, start: Tensor, count: int, clip: float) -> FullBatchSteps | None:
        """All steps at once where every one is plain and takes all samples, and where that is faster."""
        training = self.scenario.training
        settings = self._settings(problem.learning_rate)
        if training.sampling == "poisson" or 0 < training.batch < problem.samples or settings != settings.plain:
            return None
        x, y = problem.next_batch()
        return full_batch_steps(
            problem.module, start, x, y, count=count, rate=settings.rate, size=problem.size, clip=clip
        )

    def _shortened(self, update: Tensor, problem: LocalProblem) -> Tensor:
        """The update, no longer than what stations let in, less what rounding may add."""
        one = np.array([problem.samples])
        clip, noise_std = np.array([problem.clip]), np.array([problem.noise_std])
        longest = float(self._reach(problem.learning_rate, clip, one, noise_std, len(update))[0])
        longest, length = longest - ROUNDING / 2.0, float(torch.linalg.vector_norm(update))
        return update * (longest / length) if length > longest else update

    def _run_device(self, problem: LocalProblem) -> LocalUpdate:
        """Plain steps; then the whole update is clipped and noised."""
        draw, count = self._batches(problem), int(self.steps(np.array([problem.samples]))[0])
        received = torch.from_numpy(problem.weights.copy())
        together, end = self._full_batch(problem, received, count, math.inf), received
        if together is not None:
            end = together.weights
        else:
            optimiser = self._optimiser(problem, received)
            for _ in range(count):
                x, y = draw()
                optimiser.step(_mean_gradient(problem.module, optimiser.weights, x, y, problem.size))
            end = optimiser.weights
        received, end = received.double(), end.double()
        scale = problem.learning_rate / problem.samples
        total, most = (received - end) / scale, problem.clip * problem.samples
        length = float(torch.linalg.vector_norm(total))
        # An update that is not finite would reveal itself; it counts as none.
        finite = math.isfinite(length)
        clipped = finite and length > most
        if not finite:
            total = torch.zeros_like(total)
        elif clipped:
            total = total * (most / length / (1.0 + _MARGIN))
        if problem.noise_std > 0:
            total = total + torch.from_numpy(problem.normals(1)[0]) * problem.noise_std
        return LocalUpdate(
            _rounded(received - total * scale),
            mean_norm=length / problem.samples if finite else 0.0,
            clipped_fraction=float(clipped),
            rejected=0 if finite else problem.samples,
            kept=self._kept(problem, end),
        )


def _mean_gradient(module: nn.Module, weights: Tensor, x: Tensor, y: Tensor, size: int) -> Tensor:
    """(D,) gradient of the summed loss at `weights` (D,), divided by `size`; 0 of an empty batch."""
    if len(x) == 0:
        return torch.zeros_like(weights)
    parameters = list(module.parameters())
    with torch.no_grad():
        for parameter, piece in zip(parameters, torch.split(weights, [p.numel() for p in parameters]), strict=True):
            parameter.copy_(piece.view_as(parameter))
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    with torch.enable_grad():
        loss = loss_of(module)(module(x), y).sum() / size
        found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten() for gradient in found])


def _rounded(weights: Tensor) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """(D,) weights in float32; what overflows is infinite, which intake rejects."""
    return weights.float().numpy()
