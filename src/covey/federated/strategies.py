"""Gradient strategies: algorithms for per-sample gradient norms and weighted sums of per-sample gradients.

A gradient strategy is a part (`covey.parts.GRADIENT_STRATEGIES`, the key `compute.gradients`): a class or function that
is called with a module and a `Trial` and returns a `GradientStrategy`, or raises `Unsupported` with the reason why it
does not support the module. `strategy_for` builds the one that `use_strategy` selected, `auto` by default, and checks
it against plain differentiation before it is used. Gradients are those of `covey.federated.losses.loss_of(module)`.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from covey.errors import ScenarioError
from covey.federated.losses import loss_of
from covey.federated.models import count_weights
from covey.federated.per_sample import looped_gradients
from covey.parts import GRADIENT_STRATEGIES

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
T = TypeVar("T")

#: The candidates of `auto`, fastest first; the last supports every module.
AUTOMATIC: Final = ("compiled", "hooks", "one_by_one")
#: Relative tolerance when gradients of two strategies are compared.
_AGREEMENT = 1e-2


class Unsupported(Exception):  # noqa: N818 - a signal to fall back to a slower strategy, not an error
    """The strategy does not support the module; the message gives the reason, as the end of a sentence."""


class GradientStrategy(ABC):
    """Per-sample gradients of one module. Use in a `with` block: `run` and `add` for each chunk, then `finish`.

    `chunk` is the best number of samples per chunk; it is read after the first `run`. A strategy may raise
    `Unsupported` at any time, when the module takes a code path that it did not take in the trial.
    """

    chunk: int
    #: True for plain differentiation itself, which is the reference and needs no check.
    plain: ClassVar[bool] = False

    def __init__(self, module: nn.Module) -> None:
        # Weak, because strategies are cached by module: a strong reference would keep the module alive.
        self._module = weakref.ref(module)
        #: Number of weights, D; a module whose parameters are replaced gets another strategy.
        self.weights = count_weights(module)

    @property
    def module(self) -> nn.Module:
        """The module, which the caller keeps alive."""
        module = self._module()
        assert module is not None
        return module

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027 - some hold no state
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Release the state of the last chunk."""

    @abstractmethod
    def run(self, x: Tensor, y: Tensor) -> tuple[Floats, Tensor]:
        """Squared gradient norms (n,) and losses (n,) of a chunk `x` (n, *shape) of classes `y` (n,)."""

    @abstractmethod
    def add(self, factors: Tensor, rejected: Flags | None, total: Tensor) -> None:
        """Add the chunk's gradients times `factors` (n,) to `total` (D,), leaving out `rejected` samples (n,)."""

    def finish(self, total: Tensor) -> None:  # noqa: B027 - some defer nothing
        """Add to `total` (D,) whatever `add` deferred."""

    @abstractmethod
    def group_rows(self, x: Tensor, y: Tensor, group: int) -> tuple[Tensor, Tensor]:
        """Gradients of the mean loss of every `group` consecutive samples, (n / group, D), and losses (n,)."""

    def outputs(self, x: Tensor) -> Tensor:
        """The module's outputs for samples `x`, without gradients."""
        outputs: Tensor = self.module(x)
        return outputs


@dataclass(frozen=True)
class Trial:
    """Three finite samples `x` (3, *shape) of classes `y` (3,), and their reference gradients `truth` (3, D)."""

    x: Tensor
    y: Tensor
    truth: Tensor

    @classmethod
    def of(cls, module: nn.Module, x: Tensor, y: Tensor) -> Self:
        """The trial of a module on its first samples."""
        # Three distinct finite samples, even if only one is given.
        some_x, some_y = x[:3].nan_to_num(0.0, 0.0, 0.0), y[:3]
        some_x, some_y = torch.cat([some_x, some_x / 2, some_x / 4])[:3], some_y.repeat(3)[:3]
        # One at a time: a module that mixes samples fails the comparison with this.
        return cls(some_x, some_y, looped_gradients(module, some_x, some_y)[0])

    @property
    def conclusive(self) -> bool:
        """False where all gradients are 0 or one is not finite, which makes the check vacuous."""
        return bool(torch.isfinite(self.truth).all() and self.truth.any())

    def check(self, strategy: GradientStrategy) -> GradientStrategy:
        """The strategy, if its norms and a weighted sum match the truth; else `Unsupported`."""
        if strategy.plain:
            return strategy
        weights = torch.linspace(1.0, 2.0, len(self.x), dtype=self.x.dtype)
        total = torch.zeros(self.truth.shape[1], dtype=torch.float64)
        with strategy:
            squares, _ = strategy.run(self.x, self.y)
            strategy.add(weights, None, total)
            strategy.finish(total)
        wanted = self.truth.double().square().sum(1)
        if close(total, weights @ self.truth) and close(torch.from_numpy(squares), wanted):
            return strategy
        raise Unsupported("its gradients differ from those of plain differentiation")


def close(found: Tensor, truth: Tensor) -> bool:
    """Whether two tensors agree within the tolerance for gradients; NaN counts as agreement."""
    difference = torch.linalg.vector_norm(found.double() - truth.double())
    return not difference > _AGREEMENT * torch.linalg.vector_norm(truth.double())


def auto(module: nn.Module, trial: Trial) -> GradientStrategy:
    """The first strategy of `AUTOMATIC` that supports the module and agrees with plain differentiation."""
    for name in AUTOMATIC[:-1]:
        try:
            return trial.check(_built(name, module, trial))
        except Unsupported:
            pass
    return _built(AUTOMATIC[-1], module, trial)


@dataclass
class _Choice:
    """The name of the selected strategy, and the cached strategy for samples and parameters of this `key`."""

    name: str = "auto"
    key: tuple[object, ...] = ()
    strategy: GradientStrategy | None = None


_choices: weakref.WeakKeyDictionary[nn.Module, _Choice] = weakref.WeakKeyDictionary()


def use_strategy(module: nn.Module, name: str) -> None:
    """Select the gradient strategy of a module from now on: a registered name or `module:attribute`.

    Holds for this object in this process: a copy of the module, or the same module in another process, starts with
    `auto` again.
    """
    GRADIENT_STRATEGIES.check(name)
    known = _choices.get(module)
    if known is None or known.name != name:
        _choices[module] = _Choice(name)


def strategy_for(module: nn.Module, x: Tensor, y: Tensor) -> GradientStrategy:
    """The strategy for the module and samples like `x`, cached until its parameters are replaced.

    Raises a `ScenarioError` where a strategy that was selected by name does not support the module.
    """
    choice, key = _choices.setdefault(module, _Choice()), _key(module, x)
    if choice.strategy is not None and choice.key == key:
        return choice.strategy
    trial = Trial.of(module, x, y)
    try:
        strategy = trial.check(_built(choice.name, module, trial))
    except Unsupported as error:
        raise _refusal(choice.name, module, error) from error
    if trial.conclusive:
        choice.key, choice.strategy = key, strategy
    return strategy


def with_strategy(module: nn.Module, x: Tensor, y: Tensor, compute: Callable[[GradientStrategy], T]) -> T:
    """The result of `compute(strategy)` with the module's strategy.

    When `auto` chose a strategy that then raises `Unsupported`, because the module takes another code path than in the
    trial, `compute` is restarted with the slowest strategy, which stays selected.
    """
    try:
        return compute(strategy_for(module, x, y))
    except Unsupported as error:
        choice = _choices[module]
        if choice.name != "auto":
            raise _refusal(choice.name, module, error) from error
        choice.key, choice.strategy = _key(module, x), _built(AUTOMATIC[-1], module, Trial.of(module, x, y))
        return compute(choice.strategy)


def outputs_of(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The module's outputs for samples `x` of classes `y`, without gradients, by its strategy."""
    return with_strategy(module, x, y, lambda strategy: strategy.outputs(x))


def _key(module: nn.Module, x: Tensor) -> tuple[object, ...]:
    return (x.shape[1:], x.dtype, module.training, loss_of(module), *(id(p) for p in module.parameters()))


def _built(name: str, module: nn.Module, trial: Trial) -> GradientStrategy:
    strategy = GRADIENT_STRATEGIES.build(name, module, trial, passing=(Unsupported,))
    if not isinstance(strategy, GradientStrategy):
        raise ScenarioError(
            f"{GRADIENT_STRATEGIES.key} is '{name}', which made {strategy!r}; it must make a"
            f" {GRADIENT_STRATEGIES.protocol}.GradientStrategy"
        )
    return strategy


def _refusal(name: str, module: nn.Module, reason: Unsupported) -> ScenarioError:
    return ScenarioError(
        f"{GRADIENT_STRATEGIES.key} is '{name}', which does not support the module ({type(module).__name__}):"
        f" {reason}; use 'auto'"
    )
