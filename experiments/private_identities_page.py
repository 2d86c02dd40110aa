"""A section of docs/identities.md and its picture, from the files in results/private_identities alone."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
from clustering_cells import DEVELOPMENT, Runs, share_interval
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from covey.figures.cells import cells_in
from covey.jobs import Record, versions_text
from covey.report.palette import INK, MARKERS, MUTED, OKABE_ITO, drawing_style

#: Verdicts are made from seeds from here on.
JUDGED = 5000
DATA = {"mixes": "label mixes", "rotation": "rotated digits"}
#: Not a line of the picture: these cost the same.
SELDOM = "noisy contrasts, seldom"
#: Modes of one line of the picture, in the order of their cost.
FAMILIES: dict[str, tuple[str, ...]] = {
    "noisy max": ("noisy_max_0.005", "noisy_max_0.02", "noisy_max_0.1"),
    "noisy losses": ("noisy_losses_0.005", "noisy_losses_0.02", "noisy_losses_0.1"),
    "noisy contrasts": ("noisy_contrasts_0.005", "noisy_contrasts_0.02", "noisy_contrasts_0.1"),
    SELDOM: ("noisy_contrasts_0.056_every_3", "noisy_contrasts_0.07_first_4"),
    "from release": ("from_release",),
    "FeSEM": ("fesem",),
    "debiased k-means": ("kmeans_debiased",),
}
NAMES = {
    "raw": "raw tasks",
    "raw_vectors": "raw loss vectors",
    **{mode: f"{name} {mode.split('_')[2]}" for name, modes in FAMILIES.items() for mode in modes if "_0." in mode},
    "noisy_contrasts_0.056_every_3": "noisy contrasts 0.056, every third round",
    "noisy_contrasts_0.07_first_4": "noisy contrasts 0.07, first four rounds",
    "from_release": "from release",
    "fesem": "FeSEM (stations compare uploads with models)",
    "kmeans_debiased": "debiased k-means (everybody uploads)",
    "oracle": "true groups",
}
#: Modes that no guarantee covers.
UNPROTECTED = ("raw", "raw_vectors")
#: By data and mode.
Found = dict[tuple[str, str], Runs]


def _records(out: Path) -> list[Record]:
    """Finished cells of judged seeds, or of development seeds if there are no others, of any version."""
    records = cells_in(out, any_version=True).records("private_identities")
    judged = any(record.job["seed"] >= JUDGED for record in records)
    return [record for record in records if (record.job["seed"] >= JUDGED) == judged]


def read_runs(out: Path) -> Found:
    """The runs by data and mode."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in _records(out):
        found.setdefault((record.job["data"], record.job["mode"]), []).append(record)
    return {key: Runs(mine, JUDGED) for key, mine in found.items()}


def draw(found: Found) -> Figure:
    """Clustering accuracy and test accuracy against the largest rho of a user, on both kinds of groups."""
    with drawing_style():
        figure = Figure(figsize=(10.4, 6.6), layout="constrained")
        grid = figure.subplots(2, len(DATA), sharex="col", squeeze=False)
        for column, (data, title) in enumerate(DATA.items()):
            for axes, name in zip(grid[:, column], ("clustering_accuracy", "accuracy"), strict=True):
                _draw_panel(axes, found, data, name)
            grid[0, column].set_title(title)
            grid[-1, column].set_xlabel("largest total rho of a user, uploads and identities")
        grid[0, 0].set_ylabel("clustering accuracy")
        grid[1, 0].set_ylabel("test accuracy")
        styles = zip(FAMILIES, OKABE_ITO, MARKERS, strict=False)
        handles = [Line2D([], [], color=colour, marker=mark, label=name) for name, colour, mark in styles]
        handles += [
            Line2D([], [], color=INK, linestyle="--", label="raw tasks, unprotected"),
            Line2D([], [], color=MUTED, linestyle="--", label="raw loss vectors, unprotected"),
            Line2D([], [], color=INK, linestyle=":", label="true groups"),
        ]
        figure.legend(handles=handles, loc="outside upper center", ncols=5, fontsize=8.5)
        return figure


def _draw_panel(axes: Axes, found: Found, data: str, name: str) -> None:
    for mode, colour, style in (("raw", INK, "--"), ("raw_vectors", MUTED, "--"), ("oracle", INK, ":")):
        if (data, mode) in found:
            axes.axhline(found[data, mode].mean(name).value, color=colour, linestyle=style, linewidth=1.1)
    for (family, modes), colour, mark in zip(FAMILIES.items(), OKABE_ITO, MARKERS, strict=False):
        runs = [found[data, mode] for mode in modes if (data, mode) in found]
        values = [one.mean(name) for one in runs]
        axes.errorbar(
            [one.mean("rho_max").value for one in runs], [value.value for value in values],
            yerr=[value.half_width for value in values], color=colour, marker=mark, markersize=4.5, linewidth=1.2,
            elinewidth=0.8, capsize=2.0, linestyle="none" if family == SELDOM else "-",
        )  # fmt: skip


def private_section(out: Path) -> list[str]:
    """Lines of the section; none if nothing has been computed."""
    found = read_runs(out)
    if not found:
        return []
    some = next(iter(found.values()))
    seeds = f"judged seeds ({JUDGED} and up)" if some.judged else f"development seeds ({DEVELOPMENT} and up)"
    text = f"""Everything above was computed by version 0.1.0. These runs have the paper's start too, without offers
        of unused models ([how groups are found](clustering.md)): `paper_digits`, policy `greedy`, 15 rounds,
        {len(some)}
        {seeds}, label mixes and rotated digits (`experiments/private_identities.py`; versions:
        {versions_text(_records(out))}). rho is that of the user who paid most, for uploads and identities together,
        because some rules ask for more uploads; identities: what of it announcements cost. From release and FeSEM are
        post-processing only: they announce nothing. Losses and contrasts are loss vectors with noise, which stations
        average over rounds."""
    head = ("data", "identities", "n", "clustering accuracy", "perfect runs", "test accuracy", "largest rho",
            "identities' part", "protected")  # fmt: skip
    lines = [
        "## Accuracy against rho, with more rules",
        "",
        "![Accuracy against privacy cost](images/private_identities.png)",
        "",
        *textwrap.wrap(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False),
        "",
        f"| {' | '.join(head)} |",
        "| --- " * len(head) + "|",
    ]
    for data, title in DATA.items():
        for mode, name in NAMES.items():
            if (data, mode) in found:
                lines.append(f"| {title} | {name} | {_row(found[data, mode], mode)} |")
    return [*lines, "", *_reading(found)]


def _row(runs: Runs, mode: str) -> str:
    right, accuracy, rho = (runs.mean(name) for name in ("clustering_accuracy", "accuracy", "rho_max"))
    perfect = share_interval(runs.perfect[:, -1])
    cells = (
        str(len(runs)), f"{right.value:.3f} ± {right.half_width:.3f}", f"{100 * perfect.value:.0f} %",
        f"{accuracy.value:.3f} ± {accuracy.half_width:.3f}", f"{rho.value:.2f}",
        f"{runs.last('rho_identity_max').mean():.2f}",
        "no" if mode in UNPROTECTED else "needs the truth" if mode == "oracle" else "yes",
    )  # fmt: skip
    return " | ".join(cells)


def _reading(found: Found) -> list[str]:
    """The protected mode of highest mean test accuracy on each kind of groups, and the best on the worse of both."""
    modes = [mode for mode in NAMES if mode not in (*UNPROTECTED, "oracle")]
    modes = [mode for mode in modes if all((data, mode) in found for data in DATA)]
    if not modes or any((data, "oracle") not in found for data in DATA):
        return []
    gaps = {
        mode: [found[d, mode].mean("accuracy").value - found[d, "oracle"].mean("accuracy").value for d in DATA]
        for mode in modes
    }
    best = [max(modes, key=lambda mode: gaps[mode][index]) for index in range(len(DATA))]
    overall = max(modes, key=lambda mode: min(gaps[mode]))
    free = [mode for mode in modes if all(not found[d, mode].last("rho_identity_max").any() for d in DATA)]
    free = [mode for mode in free if mode != "kmeans_debiased"]
    parts = [
        f"on {title} {NAMES[mode]} ({gaps[mode][index]:+.3f} against true groups)"
        for index, ((_, title), mode) in enumerate(zip(DATA.items(), best, strict=True))
    ]
    text = f"""Of the protected modes, the highest mean test accuracy has {" and ".join(parts)}; the smallest loss on
        the worse of the two has {NAMES[overall]} ({min(gaps[overall]):+.3f})."""
    if free:
        first = max(free, key=lambda mode: min(gaps[mode]))
        text += f""" Of those that cost nothing beyond the uploads it is {NAMES[first]} ({min(gaps[first]):+.3f})."""
    seeds = min(len(found[data, mode]) for data in DATA for mode in modes)
    if seeds < 20 or not np.all([runs.judged for runs in found.values()]):
        text += " With these seeds that is an indication, no verdict."
    return textwrap.wrap(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)
