"""What the interactive pages draw, as one dictionary that is ready for JSON.

The report of a run holds `report_data(history)` as its only data, and a live page can send the same:
`site_data` once, then one `frame_data` per round. All values are text, true or false, null, numbers,
lists and dictionaries. A value that does not exist or is infinite is null; `privacy.unlimited` says
whether epsilon is infinite. Numbers are rounded to what can be seen.

`report_data(history)`:

| key | holds |
| --- | --- |
| `kind` | "run" |
| `name`, `policy`, `seed` | of the run |
| `rounds`, `planned` | rounds played and asked for |
| `site` | what does not change, see below |
| `start` | `loss`, `accuracy`, and lists by group `group_loss`, `group_accuracy`, before the first round |
| `series` | columns of rounds.csv by name: a list over rounds; `task_...`: K such lists, `group_...`: G |
| `frames` | one dictionary per round, see below; of long runs with many users only every n-th and the last |

`site_data(history)`:

| key | holds |
| --- | --- |
| `area_m` | [width, height] |
| `stations_m` | B pairs [x, y] |
| `station_tasks` | B lists of the tasks that a station can run |
| `cells_m` | B polygons of pairs [x, y]: where each station is the nearest |
| `users`, `tasks`, `blocks` | numbers of users U, tasks K, and blocks of a station |
| `group_count` | number of true groups, G |
| `groups` | (U) true group of every user, -1 where nobody knows it |
| `samples` | (U) training samples of every user |
| `matched` | (K) group of every task in the last round, whose colour is the task's; G and above: no group |
| `colours` | `light` and `dark`: max(K, G) colours by group for a light and a dark page |
| `kinds` | kinds of violations, in the order of the bits of `flags`: [column, short name, words] |
| `privacy` | `delta`, `method` ("exact" or "zcdp"), `budget` ((U) epsilons, or null), `unlimited` |

`frame_data(...)`:

| key | holds |
| --- | --- |
| `round` | number of the round, from 1 |
| `x_dm`, `y_dm` | (U) positions in decimetres; absent when nobody moved since the frame before |
| `identity` | (U) announced task, -1 where nobody knows it, as under the masks of real devices |
| `matched` | (K) group of every task in this round, -1 if none: u is right when matched[identity[u]] = groups[u] |
| `served` | users that are served, and of each of them `station`, `block` and `rate_bps` |
| `violators` | users that broke a rule, and of each of them `flags` (bits, see docs/metrics.md) |
| `epsilon` | (U) spent so far; absent when epsilon is infinite |
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.privacy.accounting import Method
from covey.report.curves import epsilons
from covey.report.map import cells
from covey.report.palette import group_colours, readable, slot_count, slot_of_task
from covey.report.words import VIOLATION_NAMES, VIOLATION_WORDS
from covey.simulation import History
from covey.simulation.record import RoundRecord

#: Positions of at most so many users x rounds are kept: about 25 bytes each.
FRAME_CELLS = 120_000
#: Backgrounds of the pages, which colours must stand out from.
PAGES: dict[str, str] = {"light": "#ffffff", "dark": "#15171a"}

Array = NDArray[np.float64]


def report_data(history: History) -> dict[str, Any]:
    """Everything that the report of a run draws; the module says what each key holds."""
    spent = spent_epsilons(history)
    shown = shown_rounds(len(history.records), len(history.samples))
    frames: list[dict[str, Any]] = []
    for position, index in enumerate(shown):
        before = history.records[shown[position - 1]] if position else None
        frames.append(frame_data(history, history.records[index], spent[index], before))
    return {
        "kind": "run",
        "name": history.scenario.name,
        "policy": history.policy,
        "seed": history.seed,
        "rounds": len(history.records),
        "planned": history.rounds,
        "site": site_data(history),
        "start": {key: rounded(value) for key, value in history.start.items()},
        "series": series_data(history),
        "frames": frames,
    }


def site_data(history: History) -> dict[str, Any]:
    """What all rounds share: the area, stations, users, colours and budgets."""
    network, privacy = history.scenario.network, history.scenario.privacy
    width_m, height_m = network.area_m
    colours = group_colours(slot_count(history))
    budget = history.ledger.budget_epsilon
    users = len(history.samples)
    return {
        "area_m": [width_m, height_m],
        "stations_m": np.round(history.stations_m, 1).tolist(),
        "station_tasks": [list(tasks) for tasks in network.station_tasks],
        "cells_m": [np.round(cell, 1).tolist() for cell in cells(history.stations_m, width_m, height_m)],
        "users": users,
        "tasks": network.tasks,
        "group_count": history.scenario.groups,
        "blocks": network.blocks,
        "groups": history.groups.tolist(),
        "samples": history.samples.tolist(),
        "matched": slot_of_task(history).tolist(),
        "colours": {page: [readable(colour, behind) for colour in colours] for page, behind in PAGES.items()},
        "kinds": [[name, VIOLATION_NAMES[name], words] for name, words in VIOLATION_WORDS.items()],
        "privacy": {
            "delta": privacy.delta,
            "method": epsilon_method(history),
            "budget": None if budget is None else rounded(np.broadcast_to(np.asarray(budget, float), users).tolist()),
            "unlimited": bool(np.isinf(history.ledger.rho).any()),
        },
    }


def series_data(history: History) -> dict[str, list[Any]]:
    """Columns of rounds.csv by name: (T) numbers, or (K, T) and (G, T) for columns by task and by group."""
    names = history.records[0].scalars() if history.records else {}
    return {name: rounded(history.column(name).T.tolist()) for name in names}


def frame_data(
    history: History, record: RoundRecord, spent: Array | None = None, before: RoundRecord | None = None
) -> dict[str, Any]:
    """One round of every user.

    `spent` (U,) are the epsilons after it, found here when not given; `before` is the round of the
    frame that the page already has, whose positions are not repeated when nobody moved.
    """
    users = record.users
    if spent is None:
        spent = epsilons(users.rho.astype(float), history.scenario.privacy.delta, epsilon_method(history))
    served, violators = np.flatnonzero(users.station >= 0), np.flatnonzero(users.violation > 0)
    frame: dict[str, Any] = {"round": record.round}
    places = _decimetres(record)
    if before is None or places != _decimetres(before):
        frame["x_dm"], frame["y_dm"] = places
    frame |= {
        "identity": users.identity.tolist(),
        "matched": history.matched(record).tolist(),
        "served": served.tolist(),
        "station": users.station[served].tolist(),
        "block": users.block[served].tolist(),
        "rate_bps": rounded(users.rate_bps[served].tolist(), 3),
        "violators": violators.tolist(),
        "flags": users.violation[violators].tolist(),
    }
    if np.isfinite(spent).all():
        frame["epsilon"] = rounded(spent.tolist(), 4)
    return frame


def shown_rounds(rounds: int, users: int) -> list[int]:
    """Which of the rounds 0 to `rounds` - 1 get a frame: all, or every n-th and the last to keep the page small."""
    step = -(-rounds * users // FRAME_CELLS) or 1
    return sorted({*range(0, rounds, step), rounds - 1}) if rounds else []


def epsilon_method(history: History) -> Method:
    """The formula of the epsilons shown.

    Exact for Gaussian releases alone. Budgets are kept by the zCDP formula, so that spent epsilons
    meet them only in that one.
    """
    announced = bool(history.ledger.spent["identity"].any())
    return "zcdp" if announced or history.ledger.budget_epsilon is not None else "exact"


def spent_epsilons(history: History) -> Array:
    """(T, U) epsilon that every user had spent after every round."""
    if not history.records:
        return np.zeros((0, len(history.samples)))
    return epsilons(history.user_column("rho").astype(float), history.scenario.privacy.delta, epsilon_method(history))


def rounded(value: Any, digits: int = 6) -> Any:
    """Numbers in nested lists to `digits` significant digits; null for undefined and infinite ones."""
    if isinstance(value, list):
        return [rounded(item, digits) for item in value]
    if not isinstance(value, float):
        return value
    if not np.isfinite(value):
        return None
    short = float(f"{value:.{digits - 1}e}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _decimetres(record: RoundRecord) -> tuple[list[int], list[int]]:
    places = (np.rint(10.0 * values).astype(np.int64).tolist() for values in (record.users.x_m, record.users.y_m))
    return next(places), next(places)
