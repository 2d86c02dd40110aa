from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.learning.networks import cnn, make, samples
from torch import nn

from covey.learning import count_weights, evaluate, flatten, initial_weights, noised_step, task_scores
from covey.learning.per_sample import looped_gradients
from covey.learning.steps import group_scores, sample_losses

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
    losses, similarity = group_scores(module, models, movements, group_x, group_y, gradients=gradients)
    for user in range(2):
        alone = task_scores(module, models, movements, group_x[user], group_y[user], gradients=gradients)
        np.testing.assert_allclose(losses[user], alone[0], rtol=1e-5)
        np.testing.assert_allclose(similarity[user], alone[1], rtol=1e-3, atol=1e-5)


def test_evaluation_sums_losses_and_counts_right_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.learning.steps._FORWARD_ELEMENTS", 1)
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
