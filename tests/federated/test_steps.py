from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federated.networks import cnn, make, samples
from torch import nn

from covey.federated import (
    bounded_scores,
    count_weights,
    evaluate,
    flatten,
    initial_weights,
    noised_step,
    task_scores,
)
from covey.federated.per_sample import looped_gradients
from covey.federated.steps import group_scores, sample_losses
from covey.identification.noisy_max import identity_noise_scale, noisy_identities, score_width

SHAPE = (2, 10, 10)


def setting() -> tuple[nn.Module, np.ndarray, np.ndarray, torch.Tensor, torch.Tensor]:
    module = make(cnn, torch.float32)
    models = initial_weights(module, 3, seed=2)
    movements = np.random.default_rng(0).standard_normal(models.shape).astype(np.float32)
    return module, models, movements, *samples(10, SHAPE, 3, torch.float32)


def loaded(weights: np.ndarray) -> nn.Module:
    module = make(cnn, torch.float32)
    nn.utils.vector_to_parameters(torch.from_numpy(weights), module.parameters())
    return module


def test_scores_are_mean_losses_and_cosines_of_the_descent_direction() -> None:
    module, models, movements, x, y = setting()
    losses, similarity = task_scores(module, models, movements, x, y, gradients=True)
    for k in range(3):
        other = loaded(models[k])
        loss = nn.functional.cross_entropy(other(x), y)
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(other.parameters()))])
        cosine = nn.functional.cosine_similarity(-gradient, torch.from_numpy(movements[k]), dim=0)
        assert losses[k] == pytest.approx(float(loss.detach()), rel=1e-5)
        assert similarity[k] == pytest.approx(float(cosine), rel=1e-3, abs=1e-5)


def test_a_step_downhill_is_similar_and_a_step_uphill_is_not() -> None:
    module, models, movements, x, y = setting()
    gradient = looped_gradients(loaded(models[0]), x, y)[0].mean(0).numpy()
    movements[0], movements[1] = -0.1 * gradient, 0.1 * gradient
    models[1] = models[0]
    similarity = task_scores(module, models, movements, x, y, gradients=True)[1]
    assert similarity[0] == pytest.approx(1.0, abs=1e-5)
    assert similarity[1] == pytest.approx(-1.0, abs=1e-5)


def test_similarity_is_zero_where_it_is_not_defined() -> None:
    module, models, movements, x, y = setting()
    movements[1] = 0
    models[2] = np.nan
    losses, similarity = task_scores(module, models, movements, x, y, gradients=True)
    assert similarity[0] != 0
    assert similarity[1] == similarity[2] == 0
    assert np.isfinite(losses).tolist() == [True, True, False]


def test_without_gradients_only_losses_are_computed() -> None:
    module, models, movements, x, y = setting()
    losses, similarity = task_scores(module, models, movements, x, y, gradients=False)
    np.testing.assert_allclose(losses, task_scores(module, models, movements, x, y, gradients=True)[0], rtol=1e-5)
    assert not similarity.any()


@pytest.mark.parametrize("gradients", [True, False])
def test_users_scored_together_get_the_scores_they_get_alone(gradients: bool) -> None:
    module, models, movements, x, y = setting()
    movements[1] = 0
    group_x, group_y = x.view(2, 5, *SHAPE), y.view(2, 5)
    losses, similarity = group_scores(module, models, movements, [(group_x, group_y)], gradients=gradients)
    for user in range(2):
        alone = task_scores(module, models, movements, group_x[user], group_y[user], gradients=gradients)
        np.testing.assert_allclose(losses[user], alone[0], rtol=1e-5)
        np.testing.assert_allclose(similarity[user], alone[1], rtol=1e-3, atol=1e-5)


def test_evaluation_sums_losses_and_counts_right_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.federated.steps._FORWARD_ELEMENTS", 1)
    module, models, _, _, _ = setting()
    x, y = samples(70, SHAPE, 3, torch.float32)
    outputs = loaded(models[1])(x)
    loss, correct = evaluate(module, models[1], x, y)
    assert loss == pytest.approx(float(nn.functional.cross_entropy(outputs, y, reduction="sum").detach()), rel=1e-5)
    assert correct == int((outputs.argmax(1) == y).sum())
    assert sample_losses(module, x, y)[0].shape == (70,)


def test_a_step_without_noise_or_clipping_is_gradient_descent() -> None:
    module, models, _, x, y = setting()
    update = noised_step(module, models[0], x, y, clip=math.inf, noise=None, learning_rate=0.1)
    gradients = looped_gradients(loaded(models[0]), x, y)[0].double().numpy()
    np.testing.assert_allclose(update.weights, models[0] - 0.1 * gradients.mean(0), rtol=1e-5, atol=1e-7)
    assert update.weights.dtype == np.float32
    assert update.mean_norm == pytest.approx(np.linalg.norm(gradients, axis=1).mean(), rel=1e-4)
    assert (update.clipped_fraction, update.rejected) == (0.0, 0)


def test_noise_is_added_to_the_sum_and_divided_by_the_samples() -> None:
    module, models, _, x, y = setting()
    noise = np.random.default_rng(0).standard_normal(count_weights(module))
    quiet = noised_step(module, models[0], x, y, clip=0.5, noise=None, learning_rate=0.2)
    loud = noised_step(module, models[0], x, y, clip=0.5, noise=noise, learning_rate=0.2)
    moved = loud.weights.astype(np.float64) - quiet.weights
    np.testing.assert_allclose(moved, -0.2 / 10 * noise, atol=1e-7)


def test_a_step_moves_no_further_than_clipping_allows() -> None:
    module, models, _, x, y = setting()
    update = noised_step(module, models[0], x, y, clip=1e-3, noise=None, learning_rate=1.0)
    assert np.linalg.norm(update.weights.astype(np.float64) - models[0]) <= 1e-3 + 1e-6
    assert update.clipped_fraction == 1.0


def test_bad_samples_are_left_out_and_counted() -> None:
    module, models, _, x, y = setting()
    x[4] = math.nan
    update = noised_step(module, models[0], x, y, clip=0.5, noise=None, learning_rate=0.2)
    assert update.rejected == 1
    assert np.isfinite(update.weights).all()
    assert math.isfinite(update.mean_norm)
    x[:] = math.nan
    update = noised_step(module, models[0], x, y, clip=0.5, noise=None, learning_rate=0.2)
    assert np.array_equal(update.weights, models[0])
    assert (update.rejected, update.mean_norm, update.clipped_fraction) == (10, 0.0, 0.0)


def test_an_overflowing_step_is_infinite_not_an_error() -> None:
    module, models, _, x, y = setting()
    noise = np.full(count_weights(module), 1e40)
    assert np.isinf(noised_step(module, models[0], x, y, clip=1.0, noise=noise, learning_rate=1.0).weights).all()


def test_steps_without_samples_or_with_wrong_noise_are_refused() -> None:
    module, models, _, x, y = setting()
    with pytest.raises(ValueError, match="at least one sample"):
        noised_step(module, models[0], x[:0], y[:0], clip=1.0, noise=None, learning_rate=0.1)
    with pytest.raises(ValueError, match="one for each"):
        noised_step(module, models[0], x, y, clip=1.0, noise=np.zeros(3), learning_rate=0.1)


def test_weights_of_the_module_are_those_loaded_last() -> None:
    module, models, movements, x, y = setting()
    task_scores(module, models, movements, x, y, gradients=True)
    assert np.array_equal(flatten(module), models[-1])


BOUNDS = {"similarity_weight": 0.2, "loss_bound": 1.0, "slope_bound": 0.5}


def slopes(weights: np.ndarray, movement: np.ndarray, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:
    """(n,) how fast the loss of each sample grows along the movement, by gradients of one sample at a time."""
    gradients = looped_gradients(loaded(weights), x, y)[0].double().numpy()
    return gradients @ (movement / np.linalg.norm(movement.astype(np.float64)))


def test_bounded_scores_are_means_of_cut_losses_and_slopes() -> None:
    module, models, movements, x, y = setting()
    movements[2] = 0
    found = bounded_scores(module, models, movements, x, y, **BOUNDS)
    cut = 0
    for k in range(3):
        losses = nn.functional.cross_entropy(loaded(models[k])(x), y, reduction="none").detach().double().numpy()
        falls = np.zeros(10) if k == 2 else -slopes(models[k], movements[k], x, y) / 0.5
        expected = 0.2 * falls.clip(-1, 1) - 0.8 * losses.clip(0, 1.0)
        assert found[k] == pytest.approx(expected.mean(), rel=1e-4)
        cut += (losses > 1.0).sum() + (np.abs(falls) > 1).sum()
    assert cut > 0


def test_bounded_scores_do_not_depend_on_how_samples_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    module, models, movements, _, _ = setting()
    x, y = samples(70, SHAPE, 3, torch.float32)
    whole = bounded_scores(module, models, movements, x, y, **BOUNDS)
    monkeypatch.setattr("covey.federated.steps._FORWARD_ELEMENTS", 1)
    np.testing.assert_allclose(bounded_scores(module, models, movements, x, y, **BOUNDS), whole, rtol=1e-5)


def test_without_similarity_or_movement_only_losses_count() -> None:
    module, models, movements, x, y = setting()
    losses = task_scores(module, models, movements, x, y, gradients=False)[0]
    free = {"loss_bound": 1e3, "slope_bound": 1.0}
    np.testing.assert_allclose(
        bounded_scores(module, models, movements, x, y, similarity_weight=0.0, **free), -losses, rtol=1e-5
    )
    np.testing.assert_allclose(
        bounded_scores(module, models, 0 * movements, x, y, similarity_weight=0.2, **free), -0.8 * losses, rtol=1e-5
    )
    np.testing.assert_array_equal(
        bounded_scores(module, models, 0 * movements, x, y, similarity_weight=1.0, **free), np.zeros(3)
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
def test_samples_that_are_not_finite_count_as_the_worst(value: float) -> None:
    module, models, movements, x, y = setting()
    x[:] = value
    found = bounded_scores(module, models, movements, x, y, **BOUNDS)
    assert np.isfinite(found).all()
    if value != 1e38:
        np.testing.assert_allclose(found, -0.8)


def test_models_that_are_not_finite_are_scored_as_the_worst() -> None:
    module, models, movements, x, y = setting()
    models[1] = np.nan
    found = bounded_scores(module, models, movements, x, y, **BOUNDS)
    assert found[1] == pytest.approx(-0.8)
    assert found[0] > -0.99


def linear() -> nn.Module:
    """Three classes on two features; its six weights and three biases come first and last."""
    return nn.Linear(2, 3)


#: Features of samples, some of which no honest user has.
HOSTILE = st.one_of(
    st.floats(-3, 3, width=32),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e38, -1e38, 3e38, 1e-38, 0.0, 1e6, -1e6]),
)
SAMPLE = st.tuples(HOSTILE, HOSTILE, st.integers(0, 2))


def scores_of(rows: list[tuple[float, float, int]], seed: int, weight: float, bound: float) -> np.ndarray:
    """(3,) bounded scores of these samples under models and movements drawn from the seed."""
    rng = np.random.default_rng(seed)
    models, movements = (rng.choice([0.1, 3.0]) * rng.standard_normal((2, 3, 9))).astype(np.float32)
    x = torch.tensor([row[:2] for row in rows], dtype=torch.float32)
    y = torch.tensor([row[2] for row in rows])
    given = {"similarity_weight": weight, "loss_bound": bound, "slope_bound": 0.7}
    return bounded_scores(linear(), models, movements, x, y, **given)


@settings(max_examples=150)
@given(
    st.lists(SAMPLE, min_size=1, max_size=6),
    SAMPLE,
    st.data(),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.sampled_from([0.5, 3.0]),
)
def test_replacing_a_sample_moves_no_score_by_more_than_its_width(
    rows: list[tuple[float, float, int]],
    other: tuple[float, float, int],
    data: st.DataObject,
    seed: int,
    weight: float,
    bound: float,
) -> None:
    changed = rows.copy()
    changed[data.draw(st.integers(0, len(rows) - 1))] = other
    here, there = (scores_of(r, seed, weight, bound) for r in (rows, changed))
    assert np.isfinite([here, there]).all()
    width = score_width(weight, bound, replaced=True)
    assert np.abs(here - there).max() <= width / len(rows) * (1 + 1e-9) + 1e-5


def worst_pair(samples: int, *, replaced: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Scores (2,) of neighbours that are as far apart as one sample can make them, and the width they are charged by.

    Sums are divided by the declared number of samples, whether or not one more is there.
    Samples have a loss of almost 0 that falls steeply along the movement; the hostile one is the opposite. The
    second model is the first with two classes swapped, so that its score moves the other way.
    """
    models, movements = np.zeros((2, 2, 9), np.float32)
    models[0, 0], models[1, 2] = 0.005, 0.005  # class 0 by the first feature, class 1 in the second model
    movements[0, 0], movements[1, 2] = 1.0, 1.0
    given = {"similarity_weight": 0.2, "loss_bound": 3.0, "slope_bound": 1.0}
    good, hostile = [[1000.0, 0.0], 0], [[1000.0, 0.0], 1]
    rows = [good] * samples
    found = []
    for data in (rows, [*rows[:-1], hostile] if replaced else [*rows, hostile]):
        x, y = torch.tensor([row[0] for row in data]), torch.tensor([row[1] for row in data])
        found.append(bounded_scores(linear(), models, movements, x, y, size=samples, **given))
    return found[0], found[1], score_width(0.2, 3.0, replaced=replaced)


@pytest.mark.parametrize("weight", [-0.1, 1.1, 3.0, float("nan")])
def test_a_weight_that_would_make_the_noise_too_small_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="must be between 0 and 1"):
        score_width(weight, 3.0, replaced=True)


def test_the_width_is_no_larger_than_it_has_to_be() -> None:
    here, there, width = worst_pair(60, replaced=True)
    assert width == pytest.approx(2.8)
    np.testing.assert_allclose(np.abs(here - there) * 60, width, rtol=0.01)


def test_adding_a_sample_moves_no_score_by_more_than_its_width() -> None:
    here, there, width = worst_pair(60, replaced=False)
    assert np.abs(here - there).max() <= width / 60 * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_announcements_on_neighbouring_data_are_told_apart_no_better_than_charged(epsilon: float) -> None:
    here, there, width = worst_pair(60, replaced=True)
    rng = np.random.default_rng(0)
    draws = 200_000
    # Scores of the two tasks are made equal at the middle, where one announcement tells most.
    middle = (here + there) / 2
    for factor, allowed in ((1.0, True), (0.4, False)):
        scale = np.full(draws, factor * identity_noise_scale(np.array([60]), width, epsilon**2 / 8)[0])
        shares = [
            np.bincount(
                noisy_identities(np.tile(scores - middle, (draws, 1)), scale, rng.standard_normal((draws, 2, 2))),
                minlength=2,
            )
            / draws
            for scores in (here, there)
        ]
        ratio = np.abs(np.log(shares[0]) - np.log(shares[1])).max()
        error = 5 * np.sqrt(2 / (draws * np.min(shares)))
        assert (ratio <= epsilon + error) is np.bool_(allowed), (factor, ratio)
    assert ratio > epsilon / 2
