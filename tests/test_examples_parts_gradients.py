"""The gradient strategy of the examples, used from outside the package by `module:attribute`."""

from __future__ import annotations

import math

import pytest
import torch
from examples.parts.float64_gradients import Float64
from tests.federated.networks import FAST, SLOW, Network, cnn, make, samples

from covey.federated.clip import clipped_gradient_sum, group_gradients
from covey.federated.per_sample import looped_gradients
from covey.federated.strategies import strategy_for, use_strategy
from covey.scenario.load import load_scenario

NAME = "examples.parts.float64_gradients:Float64"


@pytest.mark.parametrize("network", [FAST["cnn"], FAST["mlp"], FAST["tokens"], SLOW["twice"], SLOW["normed"]])
def test_the_sum_is_that_of_gradients_in_float64(network: Network) -> None:
    build, shape, classes = network
    module = make(build, torch.float32)
    x, y = samples(9, shape, classes, torch.float32)
    use_strategy(module, NAME)
    assert isinstance(strategy_for(module, x, y), Float64)
    found = clipped_gradient_sum(module, x, y, math.inf, chunk=4)
    rows, _ = group_gradients(module, x.view(3, 3, *shape), y.view(3, 3))
    exact = make(build)
    exact.load_state_dict(module.state_dict())
    truth = looped_gradients(exact, x.double(), y)[0]
    torch.testing.assert_close(found.total, truth.sum(0), rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(found.norms, truth.norm(dim=1), rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(rows, truth.view(3, 3, -1).mean(1), rtol=1e-11, atol=1e-14)


def test_a_sample_without_a_finite_gradient_is_left_out() -> None:
    module = make(cnn, torch.float32)
    use_strategy(module, NAME)
    x, y = samples(6, (2, 10, 10), 3, torch.float32)
    wanted = clipped_gradient_sum(module, x[1:], y[1:], 0.5).total
    x[0] = math.nan
    found = clipped_gradient_sum(module, x, y, 0.5)
    assert found.rejected == 1
    torch.testing.assert_close(found.total, wanted)


def test_a_scenario_names_it() -> None:
    assert load_scenario("quick", [f"compute.gradients={NAME}"]).compute.gradients == NAME
