"""The passes through a chain of dense layers, by the operations that autograd would run, without its bookkeeping.

For small models the bookkeeping takes longer than the arithmetic. Losses and gradients are bit-identical.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from covey.federated.hooks import LayerHook
from covey.federated.losses import Loss, differentiated


class Chain:
    """`Flatten`, then `Linear` and `ReLU` in any order; `hooks` are those of the `Linear` layers, in order."""

    def __init__(self, module: nn.Sequential, hooks: Sequence[LayerHook]) -> None:
        self._layers = list(module)
        self._hooks: dict[nn.Module, LayerHook] = {hook.layer: hook for hook in hooks}

    @property
    def layers(self) -> list[nn.Module]:
        """The layers in order, the first of which flattens samples."""
        return list(self._layers)

    @classmethod
    def of(cls, module: nn.Module, hooks: Sequence[LayerHook]) -> Chain | None:
        """The chain that the module is, with a hook on each `Linear`; None for any other module."""
        if type(module) is not nn.Sequential:
            return None
        layers = list(module)
        flat = bool(layers) and type(layers[0]) is nn.Flatten and (layers[0].start_dim, layers[0].end_dim) == (1, -1)
        dense = all(type(layer) in (nn.Linear, nn.ReLU) for layer in layers[1:])
        once = len(set(layers)) == len(layers) and any(type(layer) is nn.Linear for layer in layers)
        return cls(module, hooks) if flat and dense and once else None

    def holds(self, module: nn.Module) -> bool:
        """Whether the module still has these layers, and nothing that watches or changes what goes through them."""
        own = list(module.children())
        return len(own) == len(self._layers) and all(
            layer is known and not _watched(layer) and ("forward" not in vars(layer) or layer in self._hooks)
            for layer, known in zip([module, *own], [module, *self._layers], strict=True)
        )

    def losses(self, x: Tensor, y: Tensor, loss: Loss) -> Tensor:
        """Losses (n,) of samples `x` of classes `y`; every hook sees its layer's gradients."""
        passed: list[tuple[nn.Module, Tensor, Tensor]] = []
        with torch.no_grad():
            for layer in self._layers:
                inputs, x = x, layer(x)
                passed.append((layer, inputs, x))
            losses, gradients = differentiated(loss, x, y)
            unseen = len(self._hooks)
            for layer, inputs, outputs in reversed(passed):
                hook = self._hooks.get(layer)
                if hook is None:
                    gradients = torch.ops.aten.threshold_backward(gradients, outputs, 0)
                    continue
                hook.see(inputs, gradients)
                unseen -= 1
                if unseen == 0:
                    break  # nobody needs the gradient of the samples
                gradients = hook.input_gradient(inputs, gradients)
        return losses


def _watched(layer: nn.Module) -> bool:
    """Whether a layer has hooks of PyTorch's."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks)
