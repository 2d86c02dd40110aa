"""Which tap each layer of a module gets."""

from __future__ import annotations

from collections import Counter

from torch import nn

from covey.learning.layers import ConvTap, LinearTap
from covey.learning.pooled import PooledTap
from covey.learning.taps import Tap, Unsupported


def place_taps(module: nn.Module, *, pooled: bool = True) -> list[Tap]:
    """A tap on every layer that has parameters; raises `Unsupported` when one cannot have a tap.

    With `pooled`, convolutions that pooling and ReLU follow are treated together with them where that is possible.
    """
    starts, position = {}, 0
    for parameter in module.parameters():
        starts[id(parameter)] = position
        position += parameter.numel()
    taps: list[Tap] = []
    followers = pooled_convolutions(module) if pooled else {}
    for layer in module.modules():
        own = list(layer.parameters(recurse=False))
        if not own:
            continue
        # Exact types only: a subclass, a hook or a patched forward pass may compute anything.
        plain = is_plain(layer)
        if isinstance(layer, nn.Conv2d) and layer in followers:
            taps.append(PooledTap(layer, followers[layer], starts))
        elif plain and type(layer) is nn.Linear:
            taps.append(LinearTap(layer, starts))
        elif plain and type(layer) is nn.Conv2d and layer.groups == 1 and layer.padding_mode == "zeros":
            taps.append(ConvTap(layer, starts))
        else:
            raise Unsupported
    if sum(len(list(tap.layer.parameters())) for tap in taps) != len(starts):
        raise Unsupported  # two layers share a parameter
    return taps


def is_plain(layer: nn.Module) -> bool:
    """Whether the layer computes what its class says, and nothing else."""
    return not (layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer))


def pooled_convolutions(module: nn.Module) -> dict[nn.Conv2d, list[nn.Module]]:
    """The convolutions that pooling and ReLU follow at once, in either order, with these two."""
    # A layer that stands in two places cannot be left out in one of them.
    uses = Counter(layer for _, layer in module.named_modules(remove_duplicate=False))
    found: dict[nn.Conv2d, list[nn.Module]] = {}
    for sequence in module.modules():
        if type(sequence) is not nn.Sequential or not is_plain(sequence):
            continue
        layers = list(sequence)
        for three in zip(layers, layers[1:], layers[2:], strict=False):
            alone = all(is_plain(layer) and uses[layer] == 1 for layer in three)
            if alone and isinstance(three[0], nn.Conv2d) and PooledTap.suits(*three):
                found[three[0]] = list(three[1:])
    return found
