"""Write the images and the report page of a run or training into its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.agents.settings import LearnerSettings
from covey.report.html import build_page
from covey.report.pictures import draw_pictures, png
from covey.report.training_curves import draw_training
from covey.report.training_page import build_training_page
from covey.scenario import Scenario
from covey.simulation import History

Write = Callable[[Path, bytes], object]


def write_report(
    history: History, folder: Path, versions: Mapping[str, str], write: Write = Path.write_bytes
) -> list[Path]:
    """Write map.png, curves.png, blocks.png and report.html; return their paths.

    `write` stores bytes in a file; pass an atomic writer to rule out partial files.
    """
    pictures = draw_pictures(history)
    files = {f"{name}.png": image for name, image in pictures.items()}
    files["report.html"] = build_page(history, versions, pictures).encode("utf-8")
    return _write_all(files, folder, write)


def write_training_report(
    rows: Sequence[dict[str, Any]],
    settings: LearnerSettings,
    scenario: Scenario,
    folder: Path,
    *,
    seed: int,
    learning: str,
    versions: Mapping[str, str],
    write: Write = Path.write_bytes,
) -> list[Path]:
    """Write report.html of a training, and training.png if an epoch is finished; return their paths."""
    image = png(draw_training(rows, settings)) if rows else None
    page = build_training_page(
        rows, settings, scenario, seed=seed, learning=learning, versions=versions, image=image
    )  # fmt: skip
    files = {} if image is None else {"training.png": image}
    return _write_all({**files, "report.html": page.encode("utf-8")}, folder, write)


def _write_all(files: Mapping[str, bytes], folder: Path, write: Write) -> list[Path]:
    for name, content in files.items():
        write(folder / name, content)
    return [folder / name for name in files]
