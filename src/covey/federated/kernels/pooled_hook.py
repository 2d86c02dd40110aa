"""A hook on a convolution together with the pooling and ReLU that follow it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.profiler import record_function

from covey.federated.hook_strategy import HookBuilder, Hooked
from covey.federated.hooks import row_squares
from covey.federated.kernels import convolution
from covey.federated.kernels.convolution import LANES, PANEL
from covey.federated.layers import ConvLayerHook

#: Winograd's transform of a kernel, F(2 x 2, 3 x 3): (16, 9).
_SIDE = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]])
_WINOGRAD = torch.kron(_SIDE, _SIDE)


class CompiledHooks(Hooked):
    """`Hooked` with a `PooledHook` on every convolution of `found`, given with the two layers that follow it."""

    def __init__(self, module: nn.Module, found: Mapping[nn.Conv2d, list[nn.Module]]) -> None:
        special: dict[nn.Module, HookBuilder] = {}
        for layer, followers in found.items():
            special[layer] = partial(PooledHook, layer, followers)
        super().__init__(module, special=special)

    def outputs(self, x: Tensor) -> Tensor:
        """The module's outputs for samples `x`, through the hooks, which are faster than the layers."""
        for hook in self.hooks:
            hook.expect(len(x))
        with self:
            return super().outputs(x)


class PooledHook(ConvLayerHook):
    """A `Conv2d` of 3 x 3 kernels, with `followers`: `MaxPool2d` of 2 x 2 pixels and `ReLU`, in either order.

    ReLU is monotone, so max pooling and ReLU commute and the order does not matter.
    """

    def __init__(self, layer: nn.Conv2d, followers: list[nn.Module], starts: dict[int, int]) -> None:
        super().__init__(layer, starts)
        self._followers = followers
        self._codes: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._gradients: npt.NDArray[np.float32] = np.empty(0, np.float32)

    def forwards(self) -> list[tuple[nn.Module, Callable[[Tensor], Tensor]]]:
        """The three layers: the first computes everything, the others pass their input through."""
        return [*super().forwards(), *((follower, _unchanged) for follower in self._followers)]

    def forget(self) -> None:
        """Drop all state, so that a failed pass leaves none behind."""
        super().forget()
        self._codes, self._gradients = np.empty(0, np.uint8), np.empty(0, np.float32)

    def run(self, inputs: Tensor) -> Tensor:
        """Max pooling over 2 x 2 pixels and ReLU of the convolution."""
        weight, bias = self.layer.weight.detach(), self.layer.bias
        depth, channels = weight.shape[:2]
        images = _channels_last(inputs)
        shape = (len(images), images.shape[1] // 2, images.shape[2] // 2, depth)
        largest, self._codes = np.empty(shape, np.float32), np.empty(shape, np.uint8)
        shift = torch.zeros(depth) if bias is None else bias.detach()
        if channels % LANES:
            panels = weight.permute(2, 3, 1, 0).reshape(9 * channels, -1, PANEL).transpose(0, 1).contiguous()
            with record_function("pooled_direct"):
                convolution.pooled_direct(images, panels.numpy(), shift.numpy(), largest, self._codes)
        else:
            turned = _WINOGRAD @ weight.permute(2, 3, 1, 0).reshape(9, -1)
            panels = turned.view(16, channels, -1, PANEL).transpose(1, 2).contiguous()
            with record_function("pooled_winograd"):
                convolution.pooled_winograd(images, panels.numpy(), shift.numpy(), largest, self._codes)
        return torch.from_numpy(largest).permute(0, 3, 1, 2)

    def see(self, inputs: Tensor, gradients: Tensor) -> None:
        """Compute `squares` (n,) from the layer's `inputs` and the `gradients` of the pooled outputs."""
        depth, channels = self.layer.weight.shape[:2]
        formed, bias_rows = torch.empty(len(inputs), depth, 9 * channels), torch.empty(len(inputs), depth)
        self._gradients = _channels_last(gradients)
        images = _channels_last(inputs)
        with record_function("weight_gradients"):
            convolution.weight_gradients(images, self._gradients, self._codes, formed.numpy(), bias_rows.numpy())
        if self.group:
            formed, bias_rows = (rows.view(-1, self.group, *rows.shape[1:]).sum(1) for rows in (formed, bias_rows))
        else:
            self.squares = row_squares(formed.flatten(1))
        self._formed = formed
        if self.bias is not None:
            self._bias_rows = bias_rows
            if not self.group:
                self.squares += row_squares(bias_rows)

    def input_gradient(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        """Gradient with respect to the images, from the gradients of the last `see`."""
        depth, channels = self.layer.weight.shape[:2]
        weights = torch.zeros(depth, 3, 3, -(-channels // LANES) * LANES)
        weights[..., :channels] = self.layer.weight.detach().permute(0, 2, 3, 1)
        found = torch.empty(len(inputs), *inputs.shape[2:], channels)
        with record_function("image_gradients"):
            convolution.image_gradients(self._gradients, self._codes, weights.numpy(), found.numpy())
        return found.permute(0, 3, 1, 2)


def _channels_last(images: Tensor) -> npt.NDArray[np.float32]:
    """Images (n, c, h, w) as an array (n, h, w, c)."""
    found: npt.NDArray[np.float32] = images.permute(0, 2, 3, 1).contiguous().numpy()
    return found


def _unchanged(inputs: Tensor) -> Tensor:
    return inputs
