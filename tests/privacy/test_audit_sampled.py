"""Audits of local training of several sums and of sampled batches, and of mutants of them.

The training is small and written against the protocol: a linear score per sample, whose gradients are given vectors.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from covey.federated import LocalProblem, LocalTraining, LocalUpdate
from covey.privacy import GaussianReleases, Ledger
from covey.privacy.audit_sampled import sampled_audit
from covey.scenario import Scenario, load_scenario

CLIP, STD, RATE, STEPS, WIDTH = 2.0, 6.0, 0.3, 5, 4


class Sums(LocalTraining):
    """`STEPS` noised sums of clipped vectors, one after the other, from batches of samples."""

    units = frozenset({"sample", "device"})
    rate, steps, told_steps, per_sample, told_rate = 1.0, STEPS, STEPS, True, None
    fixed = 0

    def run(self, problem: LocalProblem) -> LocalUpdate:
        noises = problem.normals(self.steps) * problem.noise_std
        sums = []
        for step in range(self.steps):
            x, _ = problem.next_batch()
            vectors = x.numpy().astype(np.float64)
            if self.per_sample:
                norms = np.linalg.norm(vectors, axis=1, keepdims=True)
                vectors = vectors * np.minimum(1.0, problem.clip / np.maximum(norms, 1e-12))
            sums.append(vectors.sum(axis=0) + noises[step])
        return LocalUpdate(np.concatenate(sums).astype(np.float32), 0.0, 0.0, 0)

    def releases(self, clip, noise_std, samples) -> GaussianReleases:
        told = self.rate if self.told_rate is None else self.told_rate
        return GaussianReleases.of_sums(
            clip, noise_std, self.scenario.privacy.adjacency, steps=self.told_steps, rate=told
        )

    def reach(self, clip, samples, noise_std, length):
        return np.full(len(samples), 1e9)

    def passes(self, samples):
        return samples


class PoissonSums(Sums):
    rate = RATE


class FixedClaimedPoisson(Sums):
    """Mutant: batches are a fixed number of samples, always with the last one; the gain of sampling is claimed."""

    told_rate = RATE


class ChargedOnce(Sums):
    """Mutant: noise for five sums, one charged."""

    told_steps = 1


class PoissonHalfNoise(PoissonSums):
    """Mutant: half of the noise that is told."""


def scenario(adjacency: str = "add_remove") -> Scenario:
    return load_scenario("quick", [f"privacy.adjacency={adjacency}"])


def released(training: Sums, data: np.ndarray, n: int, seed: int, std: float = STD) -> np.ndarray:
    """(n, steps, WIDTH) releases."""
    rng = np.random.default_rng(seed)
    found = np.empty((n, training.steps, WIDTH))
    for row in range(n):

        def batch() -> tuple[torch.Tensor, torch.Tensor]:
            chosen = rng.random(len(data)) < training.rate
            return torch.tensor(data[chosen]), torch.zeros(int(chosen.sum()))

        problem = LocalProblem(
            nn.Identity(), np.zeros(1, np.float32), CLIP, std, 1.0, len(data), max(round(training.rate * len(data)), 1),
            batch, batch, lambda steps: rng.standard_normal((steps, WIDTH)),
        )  # fmt: skip
        found[row] = training.run(problem).weights.reshape(training.steps, WIDTH)
    return found


def audit(kind: type[Sums], *, n: int = 4000, std: float = STD):
    """The audit of a training on data with and without one sample, against what the training tells."""
    training = kind(scenario())
    told = training.releases(np.array([CLIP]), np.array([STD]), np.array([3]))
    multiplier, rate, steps = float(told.multiplier[0]), float(told.rate[0]), int(told.steps[0])
    # The other samples have no part in the direction of the added one.
    others = np.zeros((3, WIDTH))
    others[:, 1] = [0.5, -1.0, 3.0]
    added = np.zeros((1, WIDTH))
    added[0, 0] = 9.0
    both = [
        released(training, data, n, seed, std) for seed, data in ((1, others), (2, np.concatenate([others, added])))
    ]
    projections = [sums[:, :, 0] / CLIP for sums in both]
    if steps < training.steps:  # several sums that are told as one: their mean, in units of one
        projections = [p.sum(axis=1, keepdims=True) / np.sqrt(training.steps) for p in projections]
    return sampled_audit(*projections, multiplier, rate), told


@pytest.mark.parametrize("kind", [Sums, PoissonSums])
def test_the_measured_mu_lies_in_its_interval_with_and_without_sampling(kind: type[Sums]) -> None:
    found, told = audit(kind)
    assert found.low <= found.claimed <= found.high
    assert found.high - found.low < 0.45
    assert found.verdict == "consistent"
    if kind is Sums:  # mu of several Gaussian sums is known
        assert found.claimed == pytest.approx(float(np.sqrt(2 * told.rho[0])), rel=0.02)
    else:
        assert found.claimed < 0.6 * float(np.sqrt(2 * told.rho[0]))


def test_a_gain_without_poisson_sampling_is_caught() -> None:
    found, told = audit(FixedClaimedPoisson)
    assert found.verdict == "violated"
    # What the ledger would have reported for it, and what is right.
    ledgers = [Ledger(1, adjacency="add_remove") for _ in range(2)]
    ledgers[0].charge([0], told)
    ledgers[1].charge([0], Sums(scenario()).releases(np.array([CLIP]), np.array([STD]), np.array([3])))
    assert ledgers[0].epsilon()[0] < 0.6 * ledgers[1].epsilon()[0]


def test_noise_charged_once_for_five_sums_is_caught() -> None:
    found, _ = audit(ChargedOnce)
    assert found.verdict == "violated"
    assert found.low > 1.5 * found.claimed


def test_half_the_noise_under_sampling_is_caught() -> None:
    found, _ = audit(PoissonHalfNoise, std=STD / 2)
    assert found.verdict == "violated"


def test_a_device_told_with_the_sensitivity_of_a_sample_is_caught() -> None:
    """Per-sample clipping bounds a sum of n samples by n C, not by C: a whole device moves it by that."""

    class Device(Sums):
        steps = told_steps = 1

        def run(self, problem: LocalProblem) -> LocalUpdate:
            x, _ = problem.next_batch()
            total = x.numpy().astype(np.float64).sum(axis=0)
            total *= min(1.0, problem.clip / max(float(np.linalg.norm(total)), 1e-12))
            return LocalUpdate((total + problem.normals(1)[0] * problem.noise_std).astype(np.float32), 0.0, 0.0, 0)

    class PerSample(Device):
        run = Sums.run

    data = np.zeros((6, WIDTH))
    data[:, 0] = 3.0
    verdicts = []
    for kind in (Device, PerSample):
        training = kind(scenario())
        told = training.releases(np.array([CLIP]), np.array([STD]), np.array([6]))
        nobody, device = released(training, data[:0], 4000, 1), released(training, data, 4000, 2)
        projections = (sums[:, :, 0] / CLIP for sums in (nobody, device))
        verdicts.append(sampled_audit(*projections, float(told.multiplier[0])).verdict)
    assert verdicts == ["consistent", "violated"]


def test_batches_of_fixed_size_are_no_gain_and_no_single_clip_under_add_remove() -> None:
    """One sample more changes who is in a batch of fixed size: the sum moves by more than one clipped gradient."""
    rng, moved = np.random.default_rng(0), []
    data = rng.normal(size=(21, WIDTH)) * 10
    data *= CLIP / np.linalg.norm(data, axis=1, keepdims=True)
    for seed in range(50):
        sums = [
            data[np.random.default_rng(seed).permutation(n)[:10]].sum(axis=0) for n in (20, 21)
        ]  # the draw that a simulation makes
        moved.append(np.linalg.norm(sums[0] - sums[1]))
    assert max(moved) > 2 * CLIP  # even beyond that of replacing a sample, 4 times the cost of one clipped gradient
    for sampled in ("training.batch=10",):
        with pytest.raises(Exception, match="batch of fixed size"):
            load_scenario("quick", ["privacy.adjacency=add_remove", sampled])
    load_scenario("quick", ["privacy.adjacency=add_remove", "training.batch=10", "privacy.unit=device"])
    load_scenario("quick", ["privacy.adjacency=replace_one", "training.batch=10"])
