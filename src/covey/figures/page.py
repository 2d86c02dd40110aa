"""Generates the results page from a results folder: `python -m covey.figures.page results/figures`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from covey.figures.claims import RULES, Claim
from covey.figures.plans import FIGURES
from covey.figures.publish import CLAIMS, claims_of, file_of, read_about, shown
from covey.figures.scales import SCALES

#: Definitions of the terms in the claims that the paper leaves open.
DEFINITIONS = {
    "Convergence epoch": "the first epoch from which on the reward, averaged over the last ten epochs, stays within 5 %"
    " of its own span around its last value (errata E44).",
    "Reward": "accumulated over the rounds of an episode, with the progressive penalty, whatever a method learns from"
    " (errata E45).",
    "Loss": "training loss of every user on its task's model, averaged over samples, after the last round.",
    "Clustering accuracy": "share of users whose task is their group's, under the best matching of tasks to groups.",
    "Noise": "variance of the noise of all uploads of a run, added up, divided by the largest mean of the sweep.",
    "Energy and time": "computing takes `compute.cycles_per_weight` cycles per weight and sample at"
    " `compute.frequency_hz`, and `compute.capacitance` times the squared frequency joules per cycle; sending takes the"
    " bits of an upload over its rate, at `radio.user_power_dbm`. A round takes its slowest user.",
    "Alone, guarded": "stations decide by themselves, as in the paper, or exchange a few hundred bytes and admit users"
    " only while no rule is broken.",
    "Paper's loop": "one update per epoch from that epoch's own rounds, raw rewards, no target network, all subsets"
    " (`covey train --literal`); our loop is described on the [differences](differences.md) page.",
}

#: Path of the page, relative to the repository root.
PAGE = Path("docs/results.md")


def results_page(folder: Path, page: Path = PAGE) -> str:
    """The page; every number in it comes from the folder's CSV files, claims.json and about.json.

    Raises `ValueError` if claims.json does not match the CSV files.
    """
    about = read_about(folder)
    found = claims_of(folder, SCALES[about["scale"]])
    stored = json.loads((folder / CLAIMS).read_text(encoding="utf-8"))["claims"]
    if stored != json.loads(json.dumps([claim.to_dict() for claim in found])):
        raise ValueError(f"'{folder / CLAIMS}' is not what the CSV files beside it give; run covey figures --only-draw")
    there = [name for name in FIGURES if file_of(folder, name, "csv").is_file()]
    lines = [
        "# Results",
        "",
        "<!-- Made by python -m covey.figures.page; edit the experiments, not this page. -->",
        "",
        *_paragraph(
            "Every figure of the paper computed again, and a verdict on every claim. Numbers are means with 95 %"
            " intervals over seeds; definitions that the paper leaves open are those of the [errata](errata.md). All"
            f" files behind this page are in `{folder.as_posix()}`: a CSV file and a picture per figure, `claims.json`,"
            " and `about.json`. " + RULES
        ),
        "",
        *_unfinished(about["figures"]),
        "## Claims",
        "",
        "| figure | claim | paper | here | verdict |",
        "| --- | --- | --- | --- | --- |",
        *[f"| {c.figure} | {c.claim} | {c.paper} | {c.here} | **{c.said}** |" for c in found],
        "",
        *_counts(found),
    ]
    lines += ["", "## Definitions", ""]
    for word, meaning in DEFINITIONS.items():
        lines += _item(f"**{word}**: {meaning}")
    for name in there:
        picture = Path(os.path.relpath(file_of(folder, name, "png"), page.parent)).as_posix()
        heading = f"Figure {name}" if name.isdigit() else f"Ours: {name}"
        lines += ["", f"## {heading}. {shown(name).TITLE}", "", f"![{shown(name).TITLE}]({picture})", ""]
        lines += _paragraph(shown(name).CAPTION)
        data = claims_of_figure(found, folder, name, SCALES[about["scale"]].name)
        lines += [""] if data else []
        for claim in data:
            lines += _item(
                f"**{claim.claim}** Paper: {claim.paper}. Here: {claim.here} ({claim.quantity}; {claim.setting})."
                f" *{claim.said[:1].upper() + claim.said[1:]}.* {claim.reason}".rstrip()
            )
    lines += _how(about)
    return "\n".join(lines) + "\n"


def claims_of_figure(found: Sequence[Claim], folder: Path, name: str, scale: str) -> list[Claim]:
    """The claims derived from a figure's own CSV file."""
    from covey.figures.publish import setting_of
    from covey.figures.rows import read_rows

    own = shown(name).claims(read_rows(file_of(folder, name, "csv")), setting_of(name, SCALES[scale]))
    return [claim for claim in found if claim in own]


def _unfinished(figures: dict[str, dict[str, Any]]) -> list[str]:
    """Figures with fewer experiments than planned."""
    missing = [f"{name} ({f['missing_cells']} of {f['missing_cells'] + f['cells']})" for name, f in figures.items()
               if f["missing_cells"]]  # fmt: skip
    if not missing:
        return []
    text = (
        f"Not all planned experiments are finished, so that n is smaller in places; missing are: {', '.join(missing)}."
    )
    return [*_paragraph(text), ""]


def _counts(found: Sequence[Claim]) -> list[str]:
    kinds = ("reproduced", "direction only", "not reproduced", "not testable")
    of_paper = [claim for claim in found if claim.figure.isdigit()]
    numbers = ", ".join(f"{sum(c.verdict == kind for c in of_paper)} {kind}" for kind in kinds)
    return _paragraph(f"Of the paper's {len(of_paper)} claims: {numbers}. The rest are our own.")


def _how(about: dict[str, Any]) -> list[str]:
    """Commands, times, tuning, versions and machine."""
    tuning, machine = about["tuning"], about["machine"]
    lines = [
        "",
        "## How this was made",
        "",
        "| figure | command | seeds | experiments | missing | processor minutes |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {name} | `{f['command']}` | {f['seeds']} | {f['cells']} | {f['missing_cells']} |"
        f" {f['processor_seconds'] / 60:.1f} |"
        for name, f in about["figures"].items()
    ]
    lines += [
        "",
        *_paragraph(
            "Experiments that several figures share are counted in each of them."
            + _taken_over(about["figures"])
            + " Machine:"
            f" {machine['processor']}, {machine['cores']} cores, {machine['system']}. Versions: "
            + _versions(about["figures"])
            + "."
        ),
        "",
        "### Tuning",
        "",
        *_paragraph(
            f"Every learner in a comparison had the same budget: {len(tuning['rates'])} step sizes, {tuning['epochs']}"
            f" epochs each, with seed {tuning['seed']}, which nothing else uses. The step size with the highest greedy"
            " reward on validation layouts, stations deciding alone, was kept. All other settings are the same for all,"
            " and were not tuned here. The paper's own loop has the paper's step size."
        ),
    ]
    for scenario, methods in tuning["methods"].items():
        rates = [f"{rate:g}" for rate in tuning["rates"]]
        lines += ["", f"| `{scenario}` | " + " | ".join(rates) + " | kept |", "| --- " * (len(rates) + 2) + "|"]
        for method, one in methods.items():
            scores = " | ".join(f"{one['scores'][r]:,.0f}" if r in one["scores"] else "" for r in rates)
            kept = "" if one["chosen"] is None else f"{one['chosen']:g}"
            lines.append(f"| {method.replace('_', ' ')} | {scores} | {kept} |")
    return [*lines, *_surrogates(about["surrogates"])]


def _versions(figures: dict[str, dict[str, Any]]) -> str:
    """Versions the figures were computed with; by figure if they differ."""
    sets: dict[str, dict[str, int]] = {}
    for name, figure in figures.items():
        for one in figure["made_with"]:
            text = ", ".join(f"{package} {version}" for package, version in one["versions"].items())
            sets.setdefault(text, {})[name] = one["cells"]
    if len(sets) == 1:
        return next(iter(sets))
    parts = (
        f"{text} (figures {', '.join(f'{name}: {cells} experiments' for name, cells in numbers.items())})"
        for text, numbers in sets.items()
    )
    return "; ".join(parts)


def _taken_over(figures: dict[str, dict[str, Any]]) -> str:
    """Experiments reused from elsewhere in the repository."""
    return "".join(
        f" {number} experiments of figure {name} are those of `{origin}`, which were computed before with the same"
        " settings; tests compare them with what was computed again."
        for name, figure in figures.items()
        for origin, number in figure["taken_over"].items()
    )


def _surrogates(errors: dict[str, dict[str, float]]) -> list[str]:
    """Accuracy of the surrogates, on which policies are trained, on held-out real runs."""
    lines = [
        "",
        "### Surrogates",
        "",
        *_paragraph(
            "Policies are trained on a surrogate that was fitted to real runs (`covey calibrate`) and judged on real"
            " rounds unless a figure says otherwise. How well it predicts runs that were kept out of the fit:"
        ),
        "",
        "| scenario | runs fitted | kept out | one-step R2 | correlation of runs' losses |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| `{name}` | {e['runs_fitted']} | {e['runs_kept_out']} | {e['one_step_r2']:.2f} |"
        f" {e['rollout_correlation']:.2f} |"
        for name, e in errors.items()
    ]
    return lines


def _paragraph(text: str, width: int = 120, indent: str = "") -> list[str]:
    """Text wrapped at `width` characters."""
    lines, line = [], ""
    for word in text.split():
        if line and len(indent) + len(line) + 1 + len(word) > width:
            lines.append(indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, indent + line]


def _item(text: str) -> list[str]:
    first, *rest = _paragraph(text, 118)
    return ["* " + first, *["  " + line for line in rest]]


def main(arguments: Sequence[str]) -> None:
    """Write the page of a results folder."""
    folder = Path(arguments[0]) if arguments else Path("results/figures")
    PAGE.write_text(results_page(folder), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
