"""Writing the pictures and the page of a run into its folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from covey.report.html import build_page
from covey.report.pictures import draw_pictures
from covey.simulation import History


def write_report(
    history: History,
    folder: Path,
    versions: Mapping[str, str],
    write: Callable[[Path, bytes], object] = Path.write_bytes,
) -> list[Path]:
    """Write map.png, curves.png, blocks.png and report.html; the paths that were written.

    `write` puts bytes into a file; give an atomic writer where a half-written file would hurt.
    """
    pictures = draw_pictures(history)
    files = {f"{name}.png": image for name, image in pictures.items()}
    files["report.html"] = build_page(history, versions, pictures).encode("utf-8")
    for name, content in files.items():
        write(folder / name, content)
    return [folder / name for name in files]
