"""A gradient strategy in one file: every sample's gradient in float64, rounded only where the sum is used.

Name it in a scenario, `compute.gradients = "examples.parts.float64_gradients:Float64"`, from the folder that holds
`examples`. It is slow, but shows how much of a result is rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from covey.federated import loss_of
from covey.federated.strategies import Flags, Floats, GradientStrategy, Trial


class Float64(GradientStrategy):
    """Suits modules that `torch.func.vmap` can map over samples."""

    def __init__(self, module: nn.Module, trial: Trial) -> None:
        super().__init__(module)
        self.chunk = 64
        self.rows = torch.empty(0, dtype=torch.float64)

    def run(self, x: Tensor, y: Tensor) -> tuple[Floats, Tensor]:
        self.rows, losses = self._gradients(x, y)
        return self.rows.square().sum(1).numpy(), losses

    def add(self, factors: Tensor, rejected: Flags | None, total: Tensor) -> None:
        if rejected is not None:
            self.rows[torch.from_numpy(rejected)] = 0.0  # 0 x inf would be NaN
        total += factors.double() @ self.rows

    def group_rows(self, x: Tensor, y: Tensor, group: int) -> tuple[Tensor, Tensor]:
        rows, losses = self._gradients(x, y)
        return rows.view(-1, group, rows.shape[1]).mean(1), losses

    def _gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients (n, D) and losses (n,), both float64."""
        module = self.module
        weights = {name: value.detach().double() for name, value in module.named_parameters()}
        buffers = {name: value.double() for name, value in module.named_buffers()}
        loss_on = loss_of(module)

        def loss(values: dict[str, Tensor], sample: Tensor, label: Tensor) -> Tensor:
            return loss_on(functional_call(module, (values, buffers), (sample[None],)), label[None])[0]

        found, losses = vmap(grad_and_value(loss), in_dims=(None, 0, 0))(weights, x.double(), y)
        return torch.cat([found[name].flatten(1) for name in weights], 1), losses
