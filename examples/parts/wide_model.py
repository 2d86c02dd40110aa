"""A model in one file: one wide hidden layer with a tanh.

covey run quick --set model.name=examples.parts.wide_model:build
"""

from __future__ import annotations

import math

from torch import nn

from covey.scenario.schema import Model


def build(model: Model, sample_shape: tuple[int, ...], classes: int) -> nn.Module:
    """A module with `classes` outputs for samples of `sample_shape`; covey draws the weights of the tasks itself."""
    width = 4 * model.hidden[0]
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(sample_shape), width), nn.Tanh(), nn.Linear(width, classes))
