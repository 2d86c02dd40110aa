"""Hooks on linear and convolutional layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from covey.federated.hooks import LayerHook, few_samples
from covey.federated.strategies import Unsupported


class LinearLayerHook(LayerHook):
    """A `Linear` layer on inputs (n, d) or (n, ..., d)."""

    layer: nn.Linear

    def run(self, inputs: Tensor) -> Tensor:
        """Eq. y = Wx + b."""
        return functional.linear(inputs, self.layer.weight, self.layer.bias)

    def columns(self, inputs: Tensor) -> Tensor:
        """The inputs, with all positions flattened into one axis."""
        return inputs.reshape(inputs.shape[0], -1, inputs.shape[-1])

    def positions_last(self, gradients: Tensor) -> Tensor:
        """The gradients, with all positions flattened into one axis."""
        return gradients.reshape(gradients.shape[0], -1, gradients.shape[-1])

    def input_gradient(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        """Gradient with respect to the inputs."""
        return gradients @ self.layer.weight


class ConvLayerHook(LayerHook):
    """A `Conv2d` layer without groups, padded by zeros, on images (n, channels, height, width)."""

    layer: nn.Conv2d

    def __init__(self, layer: nn.Conv2d, starts: dict[int, int]) -> None:
        super().__init__(layer, starts)
        pads = []
        for axis in (0, 1):
            if layer.padding == "same":
                pad, odd = divmod(layer.dilation[axis] * (layer.kernel_size[axis] - 1), 2)
            else:
                pad, odd = (0 if isinstance(layer.padding, str) else int(layer.padding[axis])), 0
            if odd:
                raise Unsupported(f"{layer} is padded by more pixels on one side than on the other")
            pads.append(pad)
        self.padding = (pads[0], pads[1])
        self._channels_inside = True

    def run(self, inputs: Tensor) -> Tensor:
        """The convolution."""
        layer = self.layer
        return functional.conv2d(inputs, layer.weight, layer.bias, layer.stride, self.padding, layer.dilation)

    def input_gradient(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        """Gradient with respect to the images."""
        layer = self.layer
        found: tuple[Tensor, Any, Any] = torch.ops.aten.convolution_backward(
            gradients, inputs, layer.weight, [0], layer.stride, self.padding, layer.dilation,
            False, [0, 0], 1, [True, False, False],
        )  # fmt: skip
        return found[0]

    def positions_last(self, gradients: Tensor) -> Tensor:
        """The gradients with pixels flattened into one axis; a view, not a copy, for channels-last images."""
        return gradients.permute(0, 2, 3, 1).flatten(1, 2)

    def columns(self, inputs: Tensor) -> Tensor:
        """The patch under each output pixel, (n, T, kernel x channels), channels innermost."""
        top, left = self.padding
        images = functional.pad(inputs.permute(0, 2, 3, 1), (0, 0, left, left, top, top))
        sample, row, column, channel = images.stride()
        high, wide = self._output_size(images.shape[1], images.shape[2])
        (stride_y, stride_x), (step_y, step_x) = self.layer.stride, self.layer.dilation
        patches = images.as_strided(
            (images.shape[0], high, wide, *self.layer.kernel_size, images.shape[3]),
            (sample, row * stride_y, column * stride_x, row * step_y, column * step_x, channel),
        )
        return patches.reshape(images.shape[0], high * wide, -1)

    def form(self, inputs: Tensor, gradients: Tensor) -> Tensor:
        """The gradients of all samples, with the patch layout that copies longer contiguous runs."""
        layer, (top, left) = self.layer, self.padding
        high, wide = self._output_size(inputs.shape[2] + 2 * top, inputs.shape[3] + 2 * left)
        channel_run = inputs.shape[1] * (layer.kernel_size[1] if layer.dilation[1] == 1 else 1)
        self._channels_inside = layer.stride[1] != 1 or channel_run >= wide
        if self._channels_inside:
            return super().form(inputs, gradients)
        (stride_y, stride_x), (step_y, step_x) = layer.stride, layer.dilation
        formed = gradients.new_empty(len(inputs), layer.weight[0].numel(), layer.out_channels)
        for part in few_samples(high * wide * formed.shape[1], len(inputs)):
            images = functional.pad(inputs[part].contiguous(), (left, left, top, top))
            sample, channel, row, column = images.stride()
            patches = images.as_strided(
                (images.shape[0], images.shape[1], *layer.kernel_size, high, wide),
                (sample, channel, row * step_y, column * step_x, row * stride_y, column * stride_x),
            )
            torch.bmm(patches.reshape(images.shape[0], -1, high * wide), gradients[part], out=formed[part])
        return formed

    def place(self, matrix: Tensor) -> Tensor:
        """Matrices (..., p, kernel x channels) as (..., p, channels, kernel), flat."""
        return matrix.reshape(*matrix.shape[:-1], *self.layer.kernel_size, -1).movedim(-1, -3).flatten(-4)

    def place_formed(self, row: Tensor) -> Tensor:
        """One flat row of `form`, in either of its two layouts, as (p, channels, kernel), flat."""
        if self._channels_inside:
            return super().place_formed(row)
        return row.view(-1, self.layer.out_channels).t().flatten()

    def _output_size(self, height: int, width: int) -> tuple[int, int]:
        layer = self.layer
        return (
            (height - layer.dilation[0] * (layer.kernel_size[0] - 1) - 1) // layer.stride[0] + 1,
            (width - layer.dilation[1] * (layer.kernel_size[1] - 1) - 1) // layer.stride[1] + 1,
        )
