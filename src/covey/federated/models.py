"""Models of the tasks: built-in networks, registered ones, and weights as flat vectors.

Weights are sent as one vector (D,) in the order of `module.parameters()`, each parameter flattened in
row-major order. Only `flatten` and `load_flat` depend on this layout.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from covey.errors import ScenarioError
from covey.parts import MODELS
from covey.scenario import schema
from covey.seeding import generator

Shape = tuple[int, ...]
Builder = Callable[[schema.Model, Shape, int], nn.Module]


def register_model(name: str, builder: Builder) -> None:
    """Make `builder(model, sample_shape, classes) -> nn.Module` available as `model.name` in scenarios."""
    MODELS.register(name, builder)


def build_model(model: schema.Model, sample_shape: Shape, classes: int) -> nn.Module:
    """The module of a scenario, with `classes` outputs for samples of `sample_shape`.

    The part that `model.name` names is called with (model section, sample_shape, classes). Its weights are arbitrary;
    `initial_weights` draws those of the tasks.
    """
    with torch.random.fork_rng(devices=[]):
        module = MODELS.build(model.name, model, tuple(sample_shape), classes)
    if not isinstance(module, nn.Module):
        raise MODELS.refused(model.name, f"returned {type(module).__name__}, not a torch.nn.Module")
    check_module(module, sample_shape, classes)
    return module


def check_module(module: nn.Module, sample_shape: Shape, classes: int | None = None) -> None:
    """Raise a `ScenarioError` for a module that mixes samples or is not deterministic."""
    for name, layer in module.named_modules():
        place = f"layer '{name}' ({type(layer).__name__})" if name else f"the module ({type(layer).__name__})"
        if isinstance(layer, _BatchNorm) or (isinstance(layer, _InstanceNorm) and layer.track_running_stats):
            raise ScenarioError(
                f"{place} mixes the samples of a batch, but per-sample clipping needs samples to be independent;"
                " use GroupNorm instead"
            )
        if (isinstance(layer, _DropoutNd) and layer.p > 0) or isinstance(layer, nn.RReLU):
            raise ScenarioError(
                f"{place} draws its own random numbers, so a run could not be repeated; remove it or set p to 0"
            )
    parameters = dict(module.named_parameters())
    if not parameters:
        raise ScenarioError("the module has no parameters, so there is nothing to train; add a layer with weights")
    kinds = {p.dtype for p in parameters.values() if not is_lazy(p)}
    for name, parameter in parameters.items():
        if is_lazy(parameter):
            raise ScenarioError(f"parameter '{name}' has no shape yet; call the module once before handing it over")
        if not parameter.requires_grad:
            raise ScenarioError(f"parameter '{name}' is frozen; make it a buffer, or set requires_grad to True")
        if not parameter.is_floating_point() or len(kinds) > 1:
            raise ScenarioError(f"parameter '{name}' is {parameter.dtype}; give all parameters one type, float32")
    _check_outputs(module, sample_shape, classes, kinds.pop())


def _check_outputs(module: nn.Module, sample_shape: Shape, classes: int | None, kind: torch.dtype) -> None:
    probe = torch.from_numpy(np.random.default_rng(0).random((3, *sample_shape))).to(kind)
    before = {name: value.clone() for name, value in module.named_buffers()}
    with torch.no_grad():
        try:
            together = module(probe)
            alone = torch.cat([module(probe[i : i + 1]) for i in range(3)])
        except (Exception, SystemExit) as error:  # code of others, which can raise anything
            raised = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
            raise ScenarioError(
                f"the module does not accept samples of shape {tuple(sample_shape)}: {raised}{error}"
            ) from error
    if together.dim() != 2 or (classes is not None and together.shape[1] != classes):
        wanted = "classes" if classes is None else classes
        raise ScenarioError(f"the module returns shape {tuple(together.shape)} for 3 samples; return (3, {wanted})")
    for name, value in module.named_buffers():
        if not torch.equal(value, before[name]):
            raise ScenarioError(
                f"buffer '{name}' changes when the module runs, but per-sample clipping needs samples to be"
                " independent; use layers without running statistics, such as GroupNorm"
            )
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise ScenarioError(
            "the module's output for a sample depends on the other samples of its batch, but per-sample clipping"
            " needs samples to be independent; remove what mixes them"
        )


def initial_weights(module: nn.Module, tasks: int, seed: int) -> npt.NDArray[np.float32]:
    """Initial weights of the tasks, (K, D): every layer's own initialisation, drawn independently for each task."""
    rows = []
    with torch.random.fork_rng(devices=[]):
        for task in range(tasks):
            fresh = copy.deepcopy(module)
            torch.default_generator.manual_seed(int(generator(seed, "model", user=task).integers(2**62)))
            for layer in fresh.modules():
                reset = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
                if callable(reset):
                    reset()
            rows.append(flatten(fresh))
    if any(np.array_equal(one, other) for one, other in pairwise(rows)):
        raise ScenarioError(
            f"{type(module).__name__} gives all tasks the same starting weights; give the layer that holds them a"
            " method reset_parameters that draws them with torch.nn.init"
        )
    return np.stack(rows)


def count_weights(module: nn.Module) -> int:
    """Number of weights, D."""
    return sum(p.numel() for p in module.parameters())


def flatten(module: nn.Module) -> npt.NDArray[np.float32]:
    """A copy of the module's weights, (D,)."""
    with torch.no_grad():
        return torch.cat([p.detach().flatten() for p in module.parameters()]).float().numpy()


def load_flat(module: nn.Module, weights: npt.NDArray[np.floating]) -> None:
    """Copy `weights` (D,) into the module's parameters in place."""
    parameters = list(module.parameters())
    if weights.shape != (sum(p.numel() for p in parameters),):
        raise ValueError(f"weights have shape {weights.shape}, but the module has {count_weights(module)} weights")
    source = torch.from_numpy(weights if weights.flags.writeable else weights.copy())
    start = 0
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(source[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()


def build_softmax(model: schema.Model, sample_shape: Shape, classes: int) -> nn.Module:
    """Multinomial logistic regression: one linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(sample_shape), classes))


def build_mlp(model: schema.Model, sample_shape: Shape, classes: int) -> nn.Module:
    """Fully connected layers of the widths `model.hidden`, with ReLU between them."""
    return nn.Sequential(nn.Flatten(), *_dense(prod(sample_shape), *model.hidden, classes))


def build_cnn(model: schema.Model, sample_shape: Shape, classes: int) -> nn.Module:
    """The paper's network: two convolutions with pooling, three dense layers; 552,714 weights on CIFAR-10."""
    if len(sample_shape) != 3 or min(sample_shape[1:]) < 4:
        raise ScenarioError(
            f"model 'cnn' needs images (channels, height, width) of at least 4 x 4 pixels, but samples have shape"
            f" {tuple(sample_shape)}; use 'mlp' or 'softmax'"
        )
    channels, height, width = sample_shape
    first, second = model.channels
    # Pooling before ReLU gives the same values, because ReLU is monotone, and leaves a quarter of the
    # pixels for ReLU.
    return nn.Sequential(
        nn.Conv2d(channels, first, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(first, second, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        *_dense(second * (height // 4) * (width // 4), 128, 64, classes),
    )


def _dense(*widths: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return layers[:-1]
