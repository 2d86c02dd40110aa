"""Losses: what a model's outputs for single samples cost, given their classes.

A loss is a part (`covey.parts.LOSSES`, the key `training.loss`): a function of a model's outputs (n, classes) and the
samples' classes y (n,), int64, that returns their losses (n,) by differentiable operations of PyTorch. The loss of a
sample depends on that sample alone, because gradients are clipped sample by sample; `build_loss` checks it. Everything
that differentiates or compares losses takes that of the module (`loss_of`): local and personal training,
identification, announcements, and the losses in the results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from covey.faults import Named
from covey.part_checks import why_not_callable
from covey.parts import LOSSES

#: A function of outputs (n, classes) and classes (n,) that returns the losses of the samples, (n,).
Loss = Callable[[Tensor, Tensor], Tensor]

#: Share of the target that `label_smoothing` spreads evenly over all classes.
SMOOTHING: Final = 0.1
#: Attribute of a module that holds its loss. A copy of the module has it too.
_ATTRIBUTE: Final = "_covey_loss"
#: Classes of the samples on which a loss is checked, modulo the number of classes; unequally frequent.
_PROBE: Final = (0, 0, 0, 0, 1, 1, 2, 3)
#: Standard deviations of the outputs on which a loss is checked.
_SPREADS: Final = (1.0, 10.0)
#: `reduction="none"`, and the default `ignore_index` of cross-entropy, as PyTorch's own operations take them.
_EACH, _IGNORED = 0, -100


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    """Minus the logarithm of the probability, by softmax, of each sample's class, (n,)."""
    return functional.cross_entropy(outputs, y, reduction="none")


def label_smoothing(outputs: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy (n,) with a target of 0.9 for the sample's class and 0.1 spread evenly over all classes."""
    return functional.cross_entropy(outputs, y, reduction="none", label_smoothing=SMOOTHING)


def focal(outputs: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy times (1 - p)^2, (n,), with p the probability of the sample's class: easy samples count less."""
    losses = cross_entropy(outputs, y)
    return torch.expm1(-losses).square() * losses


def differentiated(loss: Loss, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Losses (n,), and the gradient of each with respect to its `outputs` (n, classes), which require no gradient.

    For `cross_entropy` by the operations that autograd would run, with the same bits, without its bookkeeping.
    """
    if loss is not cross_entropy:
        with torch.enable_grad():
            leaves = outputs.detach().requires_grad_()
            losses = loss(leaves, y)
            return losses.detach(), torch.autograd.grad(losses.sum(), leaves)[0]
    scores = functional.log_softmax(outputs, 1)
    losses = functional.nll_loss(scores, y, reduction="none")
    ones, nothing = torch.ones_like(losses), losses.new_zeros(())
    slopes: Tensor = torch.ops.aten.nll_loss_backward(ones, scores, y, None, _EACH, _IGNORED, nothing)
    return losses, torch.ops.aten._log_softmax_backward_data(slopes, scores, 1, scores.dtype)


def use_loss(module: nn.Module, loss: Loss) -> None:
    """Give a module its loss, `cross_entropy` where none was given; copies of the module have it too."""
    vars(module).pop(_ATTRIBUTE, None)
    if loss is not cross_entropy:
        vars(module)[_ATTRIBUTE] = loss


def loss_of(module: nn.Module) -> Loss:
    """The loss of a module."""
    loss: Loss = vars(module).get(_ATTRIBUTE, cross_entropy)
    return loss


@dataclass(frozen=True)
class OwnLoss:
    """A loss that others wrote: what it raises names it, and what it returns is checked.

    It gets a copy of the classes: predictions are judged by the samples' own, and tensors cannot be made read-only.
    """

    name: str
    function: Loss

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The losses (n,)."""
        try:
            found: Any = self.function(outputs, y.clone())
        except (Exception, SystemExit) as error:  # code of others, which can raise anything
            raise Named(LOSSES, self.name, self.function).failed(f"on {len(y)} samples", error) from error
        if not isinstance(found, Tensor):
            raise self._refused(f"returned an object of type {type(found).__name__}, not a tensor")
        if found.shape != y.shape or not found.is_floating_point():
            raise self._refused(
                f"returned {found.dtype} of shape {tuple(found.shape)} for {len(y)} samples; return the loss of each"
                f" sample, floating point of shape {tuple(y.shape)}, without a mean or sum"
            )
        return found

    def check(self, classes: int) -> None:
        """Refuse a loss that mixes samples, is not finite, or has no gradient, on outputs for so many `classes`."""
        y = torch.tensor(_PROBE) % classes
        drawn = torch.randn(len(y), classes, generator=torch.Generator().manual_seed(0))
        for spread in _SPREADS:
            outputs = drawn * spread
            losses, slopes = self._tried(outputs, y)
            if not (torch.isfinite(losses).all() and torch.isfinite(slopes).all()):
                raise self._refused(
                    f"is not finite, or its gradient is not, at outputs of standard deviation {spread:g}; compute it"
                    " from torch.log_softmax rather than the logarithm of a softmax"
                )
            if not all(map(torch.equal, self._tried(outputs, y), (losses, slopes))):
                raise self._refused("gives the same samples other losses when called again; leave out what changes")
            alone = [self._tried(outputs[i : i + 1], y[i : i + 1]) for i in range(len(y))]
            for together, single in zip((losses, slopes), map(torch.cat, zip(*alone, strict=True)), strict=True):
                if not torch.allclose(together, single, rtol=1e-4, atol=1e-5):
                    raise self._refused(
                        "gives a sample another loss or gradient among other samples than alone, but per-sample"
                        " clipping needs each to depend on its own sample only; leave out means, weights and ranks"
                        " over the batch"
                    )

    def _tried(self, outputs: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        leaves = outputs.clone().requires_grad_()
        with torch.enable_grad():
            losses = self(leaves.clone(), y)
        if not losses.requires_grad:
            raise self._refused(
                "has no gradient with respect to the outputs; compute it with differentiable operations of PyTorch"
            )
        return losses.detach(), torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)[0]

    def _refused(self, why: str) -> Exception:
        return LOSSES.refused(self.name, why)


def build_loss(name: str, classes: int) -> Loss:
    """The loss of this name for models with `classes` outputs; one of others is checked on a few samples."""
    part = LOSSES.get(name)
    if name in LOSSES.builtin:
        loss: Loss = part
        return loss
    why = "is a class; give a function, or an object of the class" if isinstance(part, type) else ""
    if why := why or why_not_callable(part, 2):
        raise LOSSES.refused(name, why)
    own = OwnLoss(name, part)
    own.check(classes)
    return own
