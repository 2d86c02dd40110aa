"""The report of a run as one self-contained web page that works offline."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from html import escape
from math import isfinite
from typing import Any

from covey.report import reading
from covey.report.alternatives import plot_texts
from covey.report.curves import draw_panel
from covey.report.elements import document, folded, picture, player, plot, plots, section, settings, table, tiles
from covey.report.page_data import epsilon_method, report_data
from covey.report.pictures import draw_pictures, png
from covey.report.sheets import (
    LISTED_USERS,
    accuracy_sheet,
    confusion_sheet,
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

#: Titles of the plots.
_TITLES: dict[str, str] = {
    "loss": "Training loss by true group",
    "accuracy": "Test accuracy by true group",
    "task_loss": "Training loss by task",
    "task_accuracy": "Test accuracy by task",
    "identities": "Right identities",
    "privacy": "Epsilon over rounds",
    "spent": "Epsilon of every user",
    "clipping": "Per-sample gradients cut by clipping",
    "service": "Users chosen, served and violating",
    "violations": "Violating users by kind",
    "delay": "Delay of a round",
    "energy": "Energy of a round",
}
#: Plots with a static image for print and for browsers without JavaScript.
_PICTURED = ("loss", "accuracy", "identities", "privacy", "clipping", "service", "delay", "energy")


def render_html(history: History, *, versions: Mapping[str, str]) -> str:
    """The whole report as HTML; `versions` maps software names to versions."""
    return build_page(history, versions, draw_pictures(history))


def build_page(history: History, versions: Mapping[str, str], pictures: Mapping[str, bytes]) -> str:
    """`render_html` with images already drawn by `draw_pictures`."""
    summary = history.summary()
    body = [_notes(summary), _head(history)]
    if history.records:
        body += [_tiles(summary), player("round"), _rounds(history, summary, pictures), *_results(history, summary)]
    else:
        body.append("<p>No round was played, so there are no results. The settings below are those of the run.</p>")
    body += [_repeat(history), settings(dump_scenario(history.scenario), versions)]
    return document(f"covey report: {history.scenario.name}", body, report_data(history))


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
    return tiles(
        (
            ("Test accuracy", percent(final["accuracy"]), _beside(summary)),
            ("Training loss", number(final["loss"]), f"{number(start['loss'])} before"),
            (
                "Right identities",
                percent(final["clustering_accuracy"]),
                f"{wrong:,} of {users:,} wrong" if judged else "not known",
            ),
            (
                "Largest epsilon",
                number(summary["privacy"]["epsilon_max"]["exact"]),
                f"at delta = {number(summary['privacy']['delta'], 1)}, {summary['privacy']['neighbours']}",
            ),
            ("Served in a round", f"{totals['served'] / summary['rounds']:.1f}", f"of {count(users, 'user')}"),
            ("Violating users", f"{totals['violators']:,}", f"in {count(totals['rounds_with_violations'], 'round')}"),
            ("Delay in all", seconds(totals["delay_s"]), "simulated time"),
            ("Users' energy in all", quantity(energy, "J"), "sending, computing"),
        )
    )


def _beside(summary: dict[str, Any]) -> str:
    """What accuracy is read against, under its tile."""
    final, start = summary["final"], summary["start"]
    lines = [(final["majority"], "most frequent class"), (final["central"], "central model")]
    told = [f"{percent(value)} {words}" for value, words in lines if isfinite(value)]
    return ", ".join([f"{percent(start['accuracy'])} before", *told])


def _rounds(history: History, summary: dict[str, Any], pictures: Mapping[str, bytes]) -> str:
    """Map, blocks and identities of the round on the slider; without JavaScript, of the last round."""
    rounds, network = history.records[-1].round, history.scenario.network
    the_map = (
        f"Map of round {rounds}: {count(network.stations, 'station')} and {count(network.users, 'user')}, of whom"
        f" {history.records[-1].served} are linked to a station that serves them."
    )
    grid = f"Grid of round {rounds}: which user holds which block of which station; below, the use over all rounds."
    moving = (
        '<div class="moving"><p id="facts" class="facts" aria-live="polite"></p>'
        '<div class="stage"><figure class="map"><h3>Map</h3><div id="map"></div></figure>'
        '<div><figure><h3>Signs</h3><ul id="legend" class="legend"></ul>'
        "<figcaption>Colours and shapes are announced tasks; lines lead to the station that serves the user."
        "</figcaption></figure>"
        '<figure><h3>Identities</h3><div id="confusion" class="scroll" tabindex="0"></div>'
        "<figcaption>Users by true group and announced task. Outlined: right under the matching of this round."
        "</figcaption></figure></div></div>"
        '<figure><h3>Blocks</h3><div id="blocks" class="scroll" tabindex="0"></div>'
        "<figcaption>Who holds which uplink block of which station; colours are tasks.</figcaption></figure></div>"
    )
    return section(
        "Round by round",
        reading.on_rounds(history, summary),
        moving,
        picture(pictures["map"], the_map, "The network in the last round. Colours and shapes are tasks."),
        picture(pictures["blocks"], grid, "The uplink blocks in the last round and over all rounds."),
        f'<div class="still">{table(confusion_sheet(history))}</div>',
    )


def _results(history: History, summary: dict[str, Any]) -> list[str]:
    texts = plot_texts(history)

    def shown(*names: str, **notes: str) -> str:
        return plots(
            *(
                plot(
                    name,
                    _TITLES[name],
                    texts[name],
                    png(draw_panel(history, name)) if name in _PICTURED else None,
                    notes.get(name, ""),
                )
                for name in names
            )
        )

    masked = history.scenario.security.mode == "masked"
    return [
        section(
            "Learning",
            reading.on_learning(history, summary),
            shown("loss", "accuracy", "task_loss", "task_accuracy"),
            table(accuracy_sheet(history)),
            table(task_sheet(summary)),
        ),
        section("Identities", reading.on_identities(history, summary), shown("identities"), _users(history, summary)),
        section(
            "Privacy",
            reading.on_privacy(history, summary),
            shown("privacy", "spent", "clipping", **_notes_on_spending(history)),
            table(privacy_sheet(summary)),
            table(security_sheet(history, summary)) if masked else "",
        ),
        section(
            "Service and violations",
            reading.on_network(history, summary),
            shown("service", "violations", violations="A user that broke two rules counts in both."),
        ),
        section(
            "Time and energy",
            reading.on_cost(history, summary),
            shown("delay", "energy"),
            table(total_sheet(history, summary)),
        ),
    ]  # fmt: skip


def _notes_on_spending(history: History) -> dict[str, str]:
    """Captions of the epsilon plots: formula and budget."""
    zcdp = epsilon_method(history) == "zcdp"
    formula = "By the zCDP formula, which holds for all releases and in which budgets are accounted." if zcdp else ""
    if history.ledger.sampled:
        formula += " These curves are without the gain from sampled batches; the totals in the tables have it."
    budget = "" if history.ledger.budget_epsilon is not None else " No budget was set."
    return {"privacy": formula, "spent": f"After the round chosen above.{budget}"}


def _users(history: History, summary: dict[str, Any]) -> str:
    if len(history.samples) <= LISTED_USERS:
        return table(user_sheet(summary, beside=True))
    everyone = table(user_sheet(summary, "All users", beside=True))
    return (
        table(spread_sheet(summary))
        + table(worst_sheet(summary))
        + folded(f"All {len(history.samples):,} users", everyone)
    )


def _repeat(history: History) -> str:
    command = " ".join([
        "covey run scenario.toml", "--policy", shlex.quote(history.policy), "--rounds", str(history.rounds),
        "--seed", str(history.seed), "--out", "again",
    ])  # fmt: skip
    exact = (
        "Noise came from the operating system, so a repetition gives different numbers from the same distribution."
        if history.scenario.privacy.noise == "secure"
        else "With the same versions it gives bit-identical numbers with any number of workers."
    )
    return (
        "<section><h2>Repeat this run</h2><p>The scenario is in <code>scenario.toml</code> next to this page and"
        f" below. {exact} A policy of your own goes to <code>covey.simulate</code> in Python.</p>"
        f"<pre>{escape(command)}</pre></section>"
    )
