"""Plots as PNG bytes."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure

from covey.report.block_grid import draw_blocks
from covey.report.curves import draw_curves
from covey.report.map import draw_map
from covey.simulation import History

DPI = 160


def png(figure: Figure) -> bytes:
    """The figure as a PNG file; equal figures give equal bytes."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def draw_pictures(history: History) -> dict[str, bytes]:
    """The plots that are also saved as files: map, curves, blocks."""
    return {
        "map": png(draw_map(history)),
        "curves": png(draw_curves(history)),
        "blocks": png(draw_blocks(history)),
    }
