"""The gradient strategy `one_by_one`: materialises every per-sample gradient; correct for any module, but slow."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar

import torch
from torch import Tensor, nn

from covey.federated.hooks import row_squares
from covey.federated.models import count_weights
from covey.federated.per_sample import looped_gradients, mapped_gradients
from covey.federated.strategies import Flags, Floats, GradientStrategy, Trial, close

#: Elements of the per-sample gradients in memory at once.
_ROW_ELEMENTS = 1 << 24


class OneByOne(GradientStrategy):
    """Supports every module: uses `torch.func.vmap` where it agrees with single backward passes, else the latter."""

    plain: ClassVar[bool] = True

    def __init__(self, module: nn.Module, trial: Trial) -> None:
        super().__init__(module)
        self.chunk = max(1, min(256, _ROW_ELEMENTS // count_weights(module)))
        self.gradients = mapped_gradients if _supports_vmap(module, trial) else looped_gradients
        self.rows = torch.empty(0)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Release the gradients."""
        self.rows = torch.empty(0)

    def run(self, x: Tensor, y: Tensor) -> tuple[Floats, Tensor]:
        """Squared gradient norms (n,) and losses (n,) of a chunk."""
        self.rows, losses = self.gradients(self.module, x, y)
        return row_squares(self.rows), losses

    def add(self, factors: Tensor, rejected: Flags | None, total: Tensor) -> None:
        """Add the chunk's gradients times `factors` (n,) to `total` (D,), leaving out `rejected` samples (n,)."""
        if rejected is not None:
            self.rows[torch.from_numpy(rejected)] = 0.0
        total += factors @ self.rows

    def group_rows(self, x: Tensor, y: Tensor, group: int) -> tuple[Tensor, Tensor]:
        """Gradients of the mean loss of every `group` samples in a row, (n / group, D), and losses (n,)."""
        rows, losses = self.gradients(self.module, x, y)
        return rows.view(-1, group, rows.shape[1]).mean(1), losses


def _supports_vmap(module: nn.Module, trial: Trial) -> bool:
    try:
        return close(mapped_gradients(module, trial.x, trial.y)[0], trial.truth)
    except Exception:  # the module uses an operation that vmap does not support
        return False
