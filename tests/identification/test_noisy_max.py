from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, logsumexp, softmax
from scipy.stats import chisquare

from covey.federated import build_model, count_weights
from covey.identification import ScoreRule, build_rule
from covey.identification.noisy_max import identity_noise_scale, noisy_identities
from covey.privacy.noise_source import ReplayNoise, SecureNoise
from covey.scenario import load_scenario

SCORES = np.array([0.3, -0.2, 0.0, 0.25])
DRAWS = 40_000


def announced(scores: np.ndarray, scale: float, normals: np.ndarray) -> np.ndarray:
    """(K,) how often each task is announced with these scores."""
    draws = len(normals)
    found = noisy_identities(np.tile(scores, (draws, 1)), np.full(draws, scale), normals)
    return np.bincount(found, minlength=len(scores))


def test_the_noisy_maximum_survives_the_edges() -> None:
    scores, scale = np.array([[0.0, 1.0, 2.0]] * 2), np.array([1e-300, 1.0])
    assert noisy_identities(scores, scale, np.full((2, 2, 3), 1e-200)).tolist() == [2, 2]
    assert noisy_identities(scores, scale, np.zeros((2, 2, 3))).tolist() == [2, 2]
    assert noisy_identities(np.zeros((0, 3)), np.zeros(0), np.zeros((0, 2, 3))).tolist() == []
    # Noise that is huge against the scores makes all tasks alike.
    counts = announced(np.array([0.0, 1.0]), 1e6, np.random.default_rng(1).standard_normal((DRAWS, 2, 2)))
    assert chisquare(counts).pvalue > 1e-3


@given(st.integers(1, 10_000), st.floats(1e-3, 1e3), st.floats(1e-6, 1e3))
def test_the_scale_is_two_sensitivities_over_epsilon(samples: int, width: float, rho: float) -> None:
    epsilon = np.sqrt(8 * rho)
    assert identity_noise_scale(np.array([samples]), width, rho)[0] == pytest.approx(2 * (width / samples) / epsilon)


@settings(max_examples=100)
@given(st.integers(2, 6), st.floats(1e-4, 2.0), st.integers(0, 2**32 - 1))
def test_an_announcement_costs_its_rho_whatever_the_scores(tasks: int, rho: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    samples, width = 50, 2.8
    scale = identity_noise_scale(np.array([samples]), width, rho)[0]
    scores = rng.choice([0.01, 1.0, 30.0]) * rng.standard_normal(tasks)
    # Neighbours differ by at most width / samples in every score; at the corners they differ most.
    moved = scores + width / samples * rng.choice([-1.0, 1.0], tasks)
    here, there = log_softmax(scores / scale), log_softmax(moved / scale)
    assert np.abs(here - there).max() <= np.sqrt(8 * rho) + 1e-9
    for order in (1.001, 1.5, 2.0, 8.0, 64.0):  # Renyi divergences
        divergence = logsumexp(order * here + (1 - order) * there) / (order - 1)
        assert divergence <= order * rho * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("scale", [0.05, 0.2, 5.0])
def test_the_noisy_maximum_follows_the_exponential_law(scale: float) -> None:
    counts = announced(SCORES, scale, np.random.default_rng(0).standard_normal((DRAWS, 2, 4)))
    assert chisquare(counts, DRAWS * softmax(SCORES / scale)).pvalue > 1e-3
    if scale < 1:
        for wrong in (2 / 3, 3 / 2):
            assert chisquare(counts, DRAWS * softmax(SCORES / (wrong * scale))).pvalue < 1e-9


@pytest.mark.parametrize("source", [ReplayNoise(3), SecureNoise()])
def test_the_law_holds_with_the_noise_of_runs(source: ReplayNoise | SecureNoise) -> None:
    normals = np.stack([source(0, number, "identity_noise", 8).reshape(2, 4) for number in range(10_000)])
    # Secure noise is never the same; a right law fails once in a million runs.
    assert chisquare(announced(SCORES, 0.2, normals), 10_000 * softmax(SCORES / 0.2)).pvalue > 1e-6


@pytest.mark.parametrize("rule", ["gradient_loss", "loss", "soft"])
@pytest.mark.parametrize("count", [1, 2, 75])
def test_a_missing_sample_moves_scores_by_the_width_and_the_noise_by_nothing(
    rule: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = load_scenario(
        "quick", [f"clustering.rule={rule}", "privacy.identity=noisy_max", "privacy.adjacency=add_remove"]
    )
    built, rng = build_rule(chosen), np.random.default_rng(0)
    assert isinstance(built, ScoreRule)
    module = build_model(chosen.model, (1, 3, 3), 5)
    models, movements = (3 * rng.normal(size=(2, 4, count_weights(module)))).astype(np.float32)
    x, y = (
        torch.from_numpy(3 * rng.random((count, 1, 3, 3), dtype=np.float32)),
        torch.from_numpy(rng.integers(5, size=count)),
    )
    seen: list[Any] = []

    def watch(scores: np.ndarray, scale: np.ndarray, normals: np.ndarray) -> np.ndarray:
        seen.append((scores[0], scale[0]))
        return noisy_identities(scores, scale, normals)

    monkeypatch.setattr("covey.identification.noisy_max.noisy_identities", watch)
    for held in (count, count - 1):
        user = SimpleNamespace(
            module=module,
            models=models,
            movements=movements,
            noise=lambda *given: np.ones(given[-1]),
            batch_of=lambda *given, held=held: (x[:held], y[:held]),
            samples_of=lambda user: count,
        )
        built.announcement.tell(user, [0], 1, 1)  # type: ignore[arg-type]
    (whole, scale), (less, again) = seen
    assert scale == again
    assert 0 < np.abs(whole - less).max() <= built.score_width(replaced=False) / count * (1 + 1e-9)
