"""The gradient strategy `hooks`: a hook on every layer with parameters; one forward and one backward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from covey.federated.chain import Chain
from covey.federated.hooks import LayerHook
from covey.federated.layers import ConvLayerHook, LinearLayerHook
from covey.federated.losses import loss_of
from covey.federated.strategies import Flags, Floats, GradientStrategy, Trial, Unsupported

#: Builds the hook on a layer from the offsets of all parameters, by id, in the flat gradient.
HookBuilder = Callable[[dict[int, int]], LayerHook]

#: Elements of a chunk's layer inputs and outputs: few enough for the cache, many enough to amortise the call.
_CHUNK_ELEMENTS = 1 << 22
_LARGEST_CHUNK = 4096


class Hooked(GradientStrategy):
    """Supports modules whose layers with parameters are all `Linear` or `Conv2d`, each called once with all samples.

    `special` overrides the hooks of single layers.
    """

    def __init__(
        self, module: nn.Module, trial: Trial | None = None, *, special: Mapping[nn.Module, HookBuilder] | None = None
    ) -> None:
        super().__init__(module)
        self.chunk = 0
        self.parameters = list(module.parameters())
        self.hooks = choose_hooks(module, special)
        self.chain = None if special else Chain.of(module, self.hooks)

    def __enter__(self) -> Self:
        for hook in self.hooks:
            for layer, forward in hook.forwards():
                layer.forward = forward
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Restore the layers' own forward pass."""
        for hook in self.hooks:
            for layer, _ in hook.forwards():
                del layer.forward
            hook.forget()

    def run(self, x: Tensor, y: Tensor) -> tuple[Floats, Tensor]:
        """Squared gradient norms (n,) and losses (n,) of a chunk."""
        losses = self._differentiate(x, y, group=0)
        if not self.chunk:
            elements = max(1, sum(hook.elements for hook in self.hooks))
            self.chunk = max(8, min(_LARGEST_CHUNK, _CHUNK_ELEMENTS // elements))
        return np.sum([hook.squares for hook in self.hooks], axis=0), losses

    def add(self, factors: Tensor, rejected: Flags | None, total: Tensor) -> None:
        """Add the chunk's gradients times `factors` (n,) to `total` (D,), leaving out `rejected` samples (n,)."""
        for hook in self.hooks:
            hook.add(factors, rejected, total)

    def finish(self, total: Tensor) -> None:
        """Add the gradients that the hooks deferred to `total` (D,)."""
        for hook in self.hooks:
            hook.finish(total)

    def group_rows(self, x: Tensor, y: Tensor, group: int) -> tuple[Tensor, Tensor]:
        """Gradients of the mean loss of every `group` consecutive samples, (n / group, D), and losses (n,)."""
        losses = self._differentiate(x, y, group)
        rows = x.new_zeros(len(x) // group, self.weights)
        for hook in self.hooks:
            hook.write_rows(rows)
        return rows.div_(group), losses

    def _differentiate(self, x: Tensor, y: Tensor, group: int) -> Tensor:
        for hook in self.hooks:
            hook.expect(len(x), group)
        if self.chain is not None and self.chain.holds(self.module):
            return self.chain.losses(x, y, loss_of(self.module))
        with torch.enable_grad():
            losses = loss_of(self.module)(self.module(x), y)
            # Hooks consume their parameters' gradients: one that arrives here bypassed its hook.
            found = torch.autograd.grad(losses, self.parameters, torch.ones_like(losses), allow_unused=True)
        if any(gradient is not None for gradient in found):
            raise Unsupported("it uses a parameter outside of its layer")
        return losses.detach()


def choose_hooks(module: nn.Module, special: Mapping[nn.Module, HookBuilder] | None = None) -> list[LayerHook]:
    """A hook on every layer that has parameters; raises `Unsupported` when there is none for a layer.

    `special` overrides the hooks of single layers.
    """
    special = special or {}
    starts, position = {}, 0
    for parameter in module.parameters():
        starts[id(parameter)] = position
        position += parameter.numel()
    hooks: list[LayerHook] = []
    for name, layer in module.named_modules():
        if not list(layer.parameters(recurse=False)):
            continue
        # Exact types only: a subclass, a hook or a patched forward pass may compute anything.
        plain = is_plain(layer)
        if layer in special:
            hooks.append(special[layer](starts))
        elif plain and type(layer) is nn.Linear:
            hooks.append(LinearLayerHook(layer, starts))
        elif plain and type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros":
            hooks.append(ConvLayerHook(layer, starts))
        else:
            place = f"layer '{name}' ({type(layer).__name__})" if name else f"the module ({type(layer).__name__})"
            raise Unsupported(f"{place} is not a plain Linear, or Conv2d without groups and padded by zeros")
    if sum(len(list(hook.layer.parameters())) for hook in hooks) != len(starts):
        raise Unsupported("two layers share a parameter")
    return hooks


def is_plain(layer: nn.Module) -> bool:
    """Whether the layer has neither forward hooks nor a patched forward pass."""
    return not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))
