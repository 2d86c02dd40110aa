"""TensorBoard logs of a training."""

from __future__ import annotations

import math
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from covey.errors import MissingExtraError
from covey.extras import require_extra


class Board:
    """Writes the metrics of every epoch to FOLDER/tensorboard; a context manager.

    Without TensorBoard nothing is written, and `missing` says how to install it.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        self._folder, self._epoch = folder / "tensorboard", epoch
        self._writer: Any = None
        self.missing = ""

    def __enter__(self) -> Self:
        try:
            require_extra("board", "No logs in the folder `tensorboard`: writing them")
        except MissingExtraError as error:
            self.missing = str(error)
            return self
        # Imported here: the log writer takes a second to import, and only trainings need it.
        from torch.utils.tensorboard import SummaryWriter

        # Purges the epochs after the resumed one: they will be written again.
        self._writer = SummaryWriter(str(self._folder), purge_step=self._epoch + 1)
        return self

    def add(self, row: dict[str, Any]) -> None:
        """Log one epoch."""
        if self._writer is None:
            return
        for name, value in row.items():
            if name != "epoch" and not math.isnan(value):
                group = "validation" if name.startswith(("alone", "guarded")) else "training"
                self._writer.add_scalar(f"{group}/{name}", value, row["epoch"])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()
