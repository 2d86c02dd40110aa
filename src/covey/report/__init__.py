"""Reports: tables for the terminal, pictures, and one self-contained web page per run or training."""

from covey.report.block_grid import draw_blocks
from covey.report.curves import draw_curves
from covey.report.files import write_report, write_training_report
from covey.report.html import render_html
from covey.report.map import draw_map
from covey.report.page_data import report_data
from covey.report.tables import summary_table

__all__ = [
    "draw_blocks",
    "draw_curves",
    "draw_map",
    "render_html",
    "report_data",
    "summary_table",
    "write_report",
    "write_training_report",
]
