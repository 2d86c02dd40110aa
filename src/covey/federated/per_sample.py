"""Per-sample gradients by one backward pass per sample: correct for any module, but slow.

The reference for every other gradient strategy, and the fallback where that does not support the module.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from covey.federated.losses import loss_of


def looped_gradients(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient (n, D) and loss (n,) of each sample, by one backward pass for each."""
    parameters, loss_on = list(module.parameters()), loss_of(module)
    rows, losses = [], []
    for i in range(len(x)):
        with torch.enable_grad():
            loss = loss_on(module(x[i : i + 1]), y[i : i + 1])[0]
            found = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        rows.append(torch.cat([g.flatten() for g in found]))
        losses.append(loss.detach())
    return torch.stack(rows), torch.stack(losses)


def mapped_gradients(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The same as `looped_gradients` by `torch.func.vmap`: faster, but some modules do not support it."""
    weights = {name: p.detach() for name, p in module.named_parameters()}
    buffers, loss_on = dict(module.named_buffers()), loss_of(module)

    def loss(values: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return loss_on(functional_call(module, (values, buffers), (image[None],)), label[None])[0]

    found, losses = vmap(grad_and_value(loss), in_dims=(None, 0, 0))(weights, x, y)
    return torch.cat([found[name].flatten(1) for name in weights], 1), losses
