"""Draws packages.svg and round.svg, the pictures of the page on architecture; run it after changing them.

Each picture brings its own background, light or dark as the reader's system asks, so that it can stand on any page.
`tests/test_docs.py` checks that the files are what this script draws, and that imports go down the picture.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

HERE = Path(__file__).parent
WIDTH = 480
EDGE = 12

#: Packages from the top to the bottom, row by row, each with what it holds. A package imports only from lower rows.
LAYERS: list[list[tuple[str, str]]] = [
    [("cli", "the commands")],
    [("dashboard", "runs in the browser"), ("deploy", "real devices")],
    [("figures", "figures and claims"), ("bench", "measurements")],
    [("report", "pages, pictures, tables")],
    [("evaluation", "policies and bounds, judged")],
    [("agents", "policies that learn")],
    [("environment", "the decision problem")],
    [("simulation", "the round, runs, results")],
    [("identification", "who has which task"), ("association", "who serves whom")],
    [("uplink", "who shares the air"), ("federated", "clip, step, average")],
    [("allocation", "blocks and noise"), ("privacy", "costs, ledger, noise")],
    [("network", "limits and views"), ("security", "masked sums"), ("jobs", "where work is done")],
    [("radio", "links"), ("data", "data sets"), ("theory", "bounds")],
    [("scenario", "what a run is made of"), ("faults", "which part failed")],
    [("parts", "found by name"), ("extras", "if installed"), ("files", "atomic writes")],
    [("compiled", "fast loops"), ("seeding", "randomness"), ("arrays", "array types")],
    [("errors", "one sentence each"), ("run_files", "names in a folder"), ("part_checks", "interfaces")],
]
#: Rows that belong together, by the last row of each group, and the group's name.
GROUPS = {3: "shown", 6: "decided by learning", 8: "simulated", 12: "subjects", 16: "basis"}

#: Number and name of a step, whose work it is (0: users, 1: stations), what is done there in up to two lines, and what
#: crosses the air before it: a direction (1: to the stations, -1: to the users, 0: nothing) and a word.
STEPS: list[tuple[str, int, list[str], int, str]] = [
    ("1 broadcast", 1, ["models that have", "changed: (K, D)"], 0, ""),
    ("2 identify", 0, ["loss and similarity", "at each model: (U, K)"], -1, "models"),
    ("3 associate", 1, ["a policy picks users:", "yes or no, (B, U)"], 1, "identities"),
    ("4 allocate", 1, ["blocks, noise levels;", "the ledger is charged"], 0, ""),
    ("5 train", 0, ["clip each sample, add", "noise, one step: (D,)"], -1, "block, noise"),
    ("6 aggregate", 1, ["check, average by", "samples: new models"], 1, "uploads"),
    ("7 account", 1, ["one record: loss, time,", "energy, privacy, rules"], 0, ""),
]

STYLE = """
  text { font: 16px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1c2733 }
  .page { fill: #fbfcfd; stroke: #d5dce4 }
  .small { font-size: 14px; fill: #4a5968 }
  .name { font-weight: 600 }
  .group { fill: #eef2f6; stroke: none }
  .box { fill: #ffffff; stroke: #8496a9 }
  .first { fill: #e3eefb; stroke: #3d74b5 }
  .second { fill: #e5f4ec; stroke: #35855c }
  .line { stroke: #5b6c7e; stroke-width: 1.6; fill: none }
  .tip { fill: #5b6c7e }
  .lane { stroke: #b9c4d0; stroke-dasharray: 4 5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6ebf0 }
    .page { fill: #171b20; stroke: #39424d }
    .small { fill: #b0bcc9 }
    .group { fill: #20262d }
    .box { fill: #2a323b; stroke: #76879a }
    .first { fill: #1f3550; stroke: #6ea3e0 }
    .second { fill: #1d3d2d; stroke: #62b58a }
    .line { stroke: #9fb0c2 }
    .tip { fill: #9fb0c2 }
    .lane { stroke: #4a5563 }
  }
"""


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """A rounded box."""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" class="{kind}"/>'


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    """A line with a tip at its end."""
    return f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" class="line" marker-end="url(#tip)"/>'


def picture(height: float, title: str, parts: list[str]) -> str:
    """A whole file."""
    tip = (
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
        ' orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" class="tip"/></marker></defs>'
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
        f' role="img" aria-label="{escape(title)}">'
    )
    page = f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:g}" rx="10" class="page"/>'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", tip, page, *parts, "</svg>\n"]
    )


def packages() -> str:
    """The packages in rows, grouped, with one arrow for all: down."""
    parts, y, gap, tall, side = [], float(EDGE), 8.0, 50.0, 100.0
    start, group_top = y, y
    inner = WIDTH - 2 * EDGE - side
    for number, row in enumerate(LAYERS):
        if number == 0 or number - 1 in GROUPS:
            group_top = y
            y += gap
        width = (inner - 2 * gap - gap * (len(row) - 1)) / len(row)
        for place, (name, about) in enumerate(row):
            x = EDGE + side + gap + place * (width + gap)
            parts += [
                f'<g id="{name}">',
                box(x, y, width, tall, "box"),
                text(x + width / 2, y + 21, name, "name"),
                text(x + width / 2, y + 40, about, "small"),
                "</g>",
            ]
        y += tall + gap
        if number in GROUPS:
            words = GROUPS[number].split(" ")
            middle = (group_top + y) / 2 - 8.5 * (len(words) - 1)
            labels = [text(EDGE + side / 2 + 10, middle + 5 + 17 * n, word, "small") for n, word in enumerate(words)]
            parts = [box(EDGE + 22, group_top, WIDTH - 2 * EDGE - 22, y - group_top, "group"), *labels, *parts]
            y += gap
    y -= gap
    parts += [arrow(EDGE + 8, start + 6, EDGE + 8, y - 6)]
    return picture(y + EDGE, "The packages of covey; a package imports only from rows below its own", parts)


def round_flow() -> str:
    """The steps between users and stations, from the top to the bottom."""
    wide, tall, gap, top = 172.0, 70.0, 20.0, 56.0
    left, right = EDGE + wide / 2, WIDTH - EDGE - wide / 2
    middle = [left, right]
    parts = [text(left, 34, "users", "name"), text(right, 34, "stations", "name")]
    height = top + len(STEPS) * (tall + gap) + 22
    parts += [f'<path d="M{x:g} 44V{height - 34:g}" class="lane"/>' for x in middle]
    for number, (name, side, lines, crossing, word) in enumerate(STEPS):
        y = top + number * (tall + gap)
        x = middle[side]
        parts += [
            f'<g id="{name.split(" ")[1]}">',
            box(x - wide / 2, y, wide, tall, "first" if side == 0 else "second"),
            text(x, y + 21, name, "name"),
            *(text(x, y + 41 + 18 * n, line, "small") for n, line in enumerate(lines)),
            "</g>",
        ]
        if crossing:
            # From the middle of the step before to the middle of this one, across the air.
            before = y - gap - tall / 2
            begin, end = (left + wide / 2, right - wide / 2) if crossing > 0 else (right - wide / 2, left + wide / 2)
            anchor = "start" if crossing > 0 else "end"
            label = text(WIDTH / 2 - 2 * crossing, (before + y + tall / 2) / 2 - 12, word, "small", anchor)
            parts += [arrow(begin, before, end, y + tall / 2), label]
        elif number:
            parts.append(arrow(x, y - gap, x, y))
    parts.append(text(WIDTH / 2, height - 14, "then users move, and the next round begins", "small"))
    return picture(height, "The data flow of a round between users and stations", parts)


PICTURES = {"packages.svg": packages, "round.svg": round_flow}

if __name__ == "__main__":
    for file, draw in PICTURES.items():
        (HERE / file).write_text(draw(), encoding="utf-8")
