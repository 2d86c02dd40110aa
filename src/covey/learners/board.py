"""TensorBoard logs of a training."""

from __future__ import annotations

import math
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class Board:
    """Writes every epoch's numbers to FOLDER/tensorboard; a context manager."""

    def __init__(self, folder: Path, epoch: int) -> None:
        self._folder, self._epoch = folder / "tensorboard", epoch

    def __enter__(self) -> Self:
        # Imported here: the log writer takes a second to load, and only trainings need it.
        from torch.utils.tensorboard import SummaryWriter

        # Epochs after the resumed one are hidden: they will be written again.
        self._writer: Any = SummaryWriter(str(self._folder), purge_step=self._epoch + 1)
        return self

    def add(self, row: dict[str, Any]) -> None:
        """Log one epoch."""
        for name, value in row.items():
            if name != "epoch" and not math.isnan(value):
                group = "validation" if name.startswith(("alone", "guarded")) else "training"
                self._writer.add_scalar(f"{group}/{name}", value, row["epoch"])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.close()
