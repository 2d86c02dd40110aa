"""The report of a run as one self-contained web page: no scripts, no network, nothing beside it."""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

from covey.report import reading
from covey.report.curves import draw_panel
from covey.report.pictures import draw_pictures, png
from covey.report.sheets import (
    LISTED_USERS,
    Sheet,
    privacy_sheet,
    security_sheet,
    spread_sheet,
    task_sheet,
    total_sheet,
    user_sheet,
    worst_sheet,
)
from covey.report.words import count, number, percent, quantity, seconds
from covey.scenario import dump_scenario
from covey.simulation import History

#: Alternative texts of the panels; what they show in numbers stands in the text beside them.
_PANELS: dict[str, str] = {
    "loss": "Line chart: training loss of every true group over the rounds.",
    "accuracy": "Line chart: test accuracy of every true group and of all users over the rounds.",
    "identities": "Line chart: share of users with the right identity, and adjusted Rand index, over the rounds.",
    "clipping": "Line chart: share of per-sample gradients cut by clipping over the rounds.",
    "privacy": "Line chart: epsilon spent by every user, largest and mean, over the rounds.",
    "service": "Bar and line chart: users chosen, served and violating in every round.",
    "delay": "Stacked bar chart: uplink, computing and downlink delay of every round.",
    "energy": "Stacked bar chart: energy of users sending, users computing and stations in every round.",
}


def render_html(history: History, *, versions: Mapping[str, str]) -> str:
    """The whole report as HTML; `versions` maps software names to versions."""
    return build_page(history, versions, draw_pictures(history))


def build_page(history: History, versions: Mapping[str, str], pictures: Mapping[str, bytes]) -> str:
    """`render_html` from pictures that were drawn already, by `draw_pictures`."""
    summary = history.summary()
    name = escape(history.scenario.name)
    style = resources.files("covey.report").joinpath("report.css").read_text(encoding="utf-8")
    body = [_notes(summary), _head(history)]
    if history.records:
        body += [_tiles(summary), *_results(history, summary, pictures)]
    else:
        body.append("<p>No round was played, so there are no results. The settings below are those of the run.</p>")
    body += [_repeat(history), _settings(history, versions)]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:;'
        " style-src 'unsafe-inline'\">\n"
        f"<title>covey report: {name}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _notes(summary: dict[str, Any]) -> str:
    notes = "".join(f"<p>{escape(note)}</p>" for note in summary["notes"])
    head = "<p><strong>Privacy of this run</strong></p>"
    return f'<aside class="notes" aria-label="Privacy of this run">{head}{notes}</aside>'


def _head(history: History) -> str:
    played, planned = len(history.records), history.rounds
    state = count(played, "round") if history.complete else f"{played} of {count(planned, 'round')}"
    parts = [
        f"<h1>covey report: {escape(history.scenario.name)}</h1>",
        f"<p>{escape(history.scenario.description)}</p>" if history.scenario.description else "",
        f'<p class="muted">Policy {escape(history.policy)}, seed {history.seed}, {state}.</p>',
    ]
    if not history.complete:
        parts.append(
            f"<p><strong>This run was interrupted after {state}.</strong>"
            " Continue it with <code>covey run --resume --out FOLDER</code>, where FOLDER is that of this page.</p>"
        )
    return "".join(parts)


def _tiles(summary: dict[str, Any]) -> str:
    final, totals, start = summary["final"], summary["totals"], summary["start"]
    users = len(summary["users"])
    wrong = sum(user["identity_right"] is False for user in summary["users"])
    judged = sum(user["identity_right"] is not None for user in summary["users"])
    energy = totals["transmit_energy_j"] + totals["compute_energy_j"]
    tiles = (
        ("Test accuracy", percent(final["accuracy"]), f"{percent(start['accuracy'])} before"),
        ("Training loss", number(final["loss"]), f"{number(start['loss'])} before"),
        (
            "Right identities",
            percent(final["clustering_accuracy"]),
            f"{wrong} of {users} wrong" if judged else "not known",
        ),
        (
            "Largest epsilon",
            number(summary["privacy"]["epsilon_max"]["exact"]),
            f"at delta = {number(summary['privacy']['delta'], 1)}",
        ),
        ("Served in a round", f"{totals['served'] / summary['rounds']:.1f}", f"of {count(users, 'user')}"),
        ("Violating users", f"{totals['violators']:,}", f"in {count(totals['rounds_with_violations'], 'round')}"),
        ("Delay in all", seconds(totals["delay_s"]), "simulated time"),
        ("Users' energy in all", quantity(energy, "J"), "sending, computing"),
    )
    items = "".join(
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for label, value, more in tiles
    )
    return f'<dl class="tiles">{items}</dl>'


def _results(history: History, summary: dict[str, Any], pictures: Mapping[str, bytes]) -> list[str]:
    if len(history.samples) <= LISTED_USERS:
        users = _table(user_sheet(summary))
    else:
        everyone = _table(user_sheet(summary, "All users"))
        users = (
            _table(spread_sheet(summary))
            + _table(worst_sheet(summary))
            + f"<details><summary>All {len(history.samples):,} users</summary>{everyone}</details>"
        )
    rounds = history.records[-1].round
    network = history.scenario.network
    the_map = (
        f"Map of round {rounds}: {count(network.stations, 'station')} and {count(network.users, 'user')}, of whom"
        f" {history.records[-1].served} are linked to a station that serves them."
    )
    grid = f"Grid of round {rounds}: which user holds which block of which station; below, the use over all rounds."
    return [
        _section(
            "Learning",
            reading.on_learning(history, summary),
            _panels(history, "loss", "accuracy"),
            _table(task_sheet(summary)),
        ),
        _section(
            "Identities",
            reading.on_identities(history, summary),
            _panels(history, "identities"),
            users,
        ),
        _section(
            "Privacy",
            reading.on_privacy(history, summary),
            _panels(history, "privacy", "clipping"),
            _table(privacy_sheet(summary)),
            _table(security_sheet(history, summary)) if history.scenario.security.mode == "masked" else "",
        ),
        _section(
            "Network",
            reading.on_network(history, summary),
            _picture(pictures["map"], the_map, "The network in the last round. Colours and shapes are tasks."),
            _picture(pictures["blocks"], grid, "The uplink blocks in the last round and over all rounds."),
            _panels(history, "service"),
        ),
        _section(
            "Time and energy",
            reading.on_cost(history, summary),
            _panels(history, "delay", "energy"),
            _table(total_sheet(history, summary)),
        ),
    ]


def _section(title: str, sentences: list[str], *parts: str) -> str:
    text = " ".join(escape(sentence) for sentence in sentences)
    return f"<section><h2>{escape(title)}</h2><p>{text}</p>{''.join(parts)}</section>"


def _panels(history: History, *names: str) -> str:
    figures = []
    for name in names:
        source = _source(png(draw_panel(history, name)))
        figures.append(f'<figure><img src="{source}" alt="{escape(_PANELS[name])}"></figure>')
    return f'<div class="panels">{"".join(figures)}</div>'


def _picture(image: bytes, alternative: str, caption: str) -> str:
    return (
        f'<figure class="wide"><div class="scroll" tabindex="0"><img src="{_source(image)}"'
        f' alt="{escape(alternative)}"></div><figcaption>{escape(caption)}'
        '<span class="narrow"> Scroll the picture sideways to see all of it.</span></figcaption></figure>'
    )


def _source(image: bytes) -> str:
    return f"data:image/png;base64,{b64encode(image).decode('ascii')}"


def _table(sheet: Sheet) -> str:
    def cell(tag: str, index: int, text: str) -> str:
        kinds = [] if index < sheet.words or "right" in text or "wrong" in text or text == "identity" else ["n"]
        kinds += ["wrong"] if "wrong" in text else []
        kinds += ["sub"] if text.startswith("  ") else []
        attributes = f' class="{" ".join(kinds)}"' if kinds else ""
        scope = ' scope="col"' if tag == "th" else ""
        return f"<{tag}{scope}{attributes}>{escape(text.strip())}</{tag}>"

    pairs = len(sheet.heads) == 2
    head = "".join(cell("th", index, text) for index, text in enumerate(sheet.heads))
    rows = "".join(
        f"<tr>{''.join(cell('td', index, text) for index, text in enumerate(row))}</tr>" for row in sheet.rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table{" class=pairs" if pairs else ""}>'
        f"<caption>{escape(sheet.title)}</caption>"
        f"{'' if pairs else f'<thead><tr>{head}</tr></thead>'}<tbody>{rows}</tbody></table></div>"
    )


def _repeat(history: History) -> str:
    command = " ".join([
        "covey run scenario.toml", "--policy", shlex.quote(history.policy), "--rounds", str(history.rounds),
        "--seed", str(history.seed), "--out", "again",
    ])  # fmt: skip
    exact = (
        "Noise came from the operating system, so a repetition gives other numbers of the same kind."
        if history.scenario.privacy.noise == "secure"
        else "With the same versions it gives the same numbers, bit by bit, with any number of workers."
    )
    return (
        "<section><h2>Repeat this run</h2><p>The scenario stands in <code>scenario.toml</code> beside this page and"
        f" below. {exact} A policy of your own goes to <code>covey.simulate</code> in Python.</p>"
        f"<pre>{escape(command)}</pre></section>"
    )


def _settings(history: History, versions: Mapping[str, str]) -> str:
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(version)}</td></tr>" for name, version in versions.items())
    return (
        "<details><summary>Scenario</summary>"
        f"<pre>{escape(dump_scenario(history.scenario))}</pre></details>"
        f"<details><summary>Versions</summary><table><tbody>{rows}</tbody></table></details>"
    )
