"""Finds the layers of a module that the compiled kernels support; needs neither numba nor llvmlite."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

from covey.federated.hook_strategy import is_plain

#: The output channels must be a multiple of this: `PANEL` of the kernels, which cannot be imported without numba.
OUTPUTS = 16


def pooled_convolutions(module: nn.Module) -> dict[nn.Conv2d, list[nn.Module]]:
    """The convolutions directly followed by pooling and ReLU, in either order, and these two layers."""
    # A layer that is used twice cannot be skipped in one of its places.
    uses = Counter(layer for _, layer in module.named_modules(remove_duplicate=False))
    found: dict[nn.Conv2d, list[nn.Module]] = {}
    for sequence in module.modules():
        if type(sequence) is not nn.Sequential or not is_plain(sequence):
            continue
        layers = list(sequence)
        for three in zip(layers, layers[1:], layers[2:], strict=False):
            alone = all(is_plain(layer) and uses[layer] == 1 for layer in three)
            if alone and isinstance(three[0], nn.Conv2d) and suits(*three):
                found[three[0]] = list(three[1:])
    return found


def suits(layer: nn.Module, *followers: nn.Module) -> bool:
    """Whether three consecutive layers can be fused."""
    kinds = {type(follower) for follower in followers}
    if type(layer) is not nn.Conv2d or kinds != {nn.MaxPool2d, nn.ReLU}:
        return False
    pool = next(follower for follower in followers if isinstance(follower, nn.MaxPool2d))
    return (
        (layer.kernel_size, layer.stride, layer.dilation) == ((3, 3), (1, 1), (1, 1))
        and layer.padding in ("same", (1, 1))
        and (layer.groups, layer.padding_mode, layer.out_channels % OUTPUTS) == (1, "zeros", 0)
        and layer.weight.dtype == torch.float32
        and pool.kernel_size in (2, (2, 2))
        and pool.stride in (2, (2, 2))
        and pool.padding in (0, (0, 0))
        and pool.dilation in (1, (1, 1))
        and not (pool.ceil_mode or pool.return_indices)
    )
