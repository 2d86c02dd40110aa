"""Compiled kernels of the block matching, for one network or for a batch of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from covey.arrays import BoolArray, FloatArray, IntArray
from covey.compiled import compiled

#: Bonus of the current block, as a share of the largest weight: decides ties and nothing else.
_KEEP_BONUS = 1e-9
#: Relative gain below which a matching counts as no better than the current one.
_MIN_GAIN = 1e-12


class Links(NamedTuple):
    """The links that may be granted.

    received_w: (U, B); bearable_w: (U,) interference that each user tolerates at its station; weights: (U,);
    keep_bonus: extra weight of a user on its current block; members: (B, U), where the first `counts` (B,)
    entries of a row are the users within reach of the station.
    """

    received_w: FloatArray
    bearable_w: FloatArray
    weights: FloatArray
    keep_bonus: float
    members: IntArray
    counts: IntArray


class Paths(NamedTuple):
    """Scratch memory for `assign`, (M,) each: M is the largest number of columns."""

    row_price: FloatArray
    column_price: FloatArray
    distance: FloatArray
    previous: IntArray
    row_of: IntArray
    column_of: IntArray
    open_columns: IntArray
    reached: IntArray


class Workspace(NamedTuple):
    """Scratch memory for matching one station at a time; M is the larger of its users and the blocks."""

    interference_w: FloatArray  # (R, B) at every station, from all others but this one
    slack_w: FloatArray  # (R, B) further interference that links elsewhere tolerate
    heard_w: FloatArray  # (R, B) power received here from each other station's user
    faintest: IntArray  # (R, B) the other stations with such power, weakest first; then -1
    value: FloatArray  # (M, R) weight that each pair of a user and a block adds in total
    breaks: BoolArray  # (M, R, B) links elsewhere that the pair displaces
    cost: FloatArray  # (R, M)
    paths: Paths


@compiled
def links_of(station: IntArray, received_w: FloatArray, weights: FloatArray, noise_w: float, floor: float) -> Links:
    """The links of users with these stations (U,), -1 for none, that reach `floor` without interference."""
    users, stations = received_w.shape
    bearable_w = np.full(users, -1.0)
    members = np.empty((stations, users), dtype=np.int64)
    counts = np.zeros(stations, dtype=np.int64)
    heaviest = 0.0
    for i in range(users):
        heaviest = max(heaviest, weights[i])
        b = station[i]
        if b >= 0 and received_w[i, b] / floor >= noise_w:
            bearable_w[i] = received_w[i, b] / floor - noise_w
            members[b, counts[b]] = i
            counts[b] += 1
    return Links(received_w, bearable_w, weights, _KEEP_BONUS * heaviest, members, counts)


@compiled
def paths_of(columns: int) -> Paths:
    """Scratch memory for assignments to this many columns."""
    prices = np.empty((3, columns))
    places = np.empty((5, columns), dtype=np.int64)
    return Paths(prices[0], prices[1], prices[2], places[0], places[1], places[2], places[3], places[4])


@compiled
def workspace_of(links: Links, blocks: int) -> Workspace:
    """Scratch memory for matching these links."""
    stations = len(links.counts)
    most = blocks
    for b in range(stations):
        most = max(most, links.counts[b])
    powers = np.empty((3, blocks, stations))
    return Workspace(
        powers[0],
        powers[1],
        powers[2],
        np.empty((blocks, stations), dtype=np.int64),
        np.empty((most, blocks)),
        np.empty((most, blocks, stations), dtype=np.bool_),
        np.empty((blocks, most)),
        paths_of(most),
    )


@compiled
def assign(cost: FloatArray, rows: int, columns: int, paths: Paths) -> None:
    """The column of every row with the least total cost, in `column_of`, and the row of every column, in `row_of`.

    Takes the first rows and columns of `cost`, rows <= columns. Shortest augmenting paths: rows enter one by one,
    each along the cheapest path of swaps to a free column, with dual prices that keep all reduced costs
    non-negative. Ties are broken in favour of free columns, in an order that gives the identity where all costs are
    equal.
    """
    row_price, column_price, distance, previous, row_of, column_of, open_columns, reached = paths
    for i in range(rows):
        row_price[i] = 0.0
        column_of[i] = -1
    for j in range(columns):
        column_price[j] = 0.0
        row_of[j] = -1
    for start in range(rows):
        for j in range(columns):
            open_columns[j] = columns - 1 - j
            distance[j] = np.inf
        row, sink, length, steps = start, -1, 0.0, 0
        while sink < 0:
            nearest, at = np.inf, -1
            for place in range(columns - steps):
                j = open_columns[place]
                through = length + cost[row, j] - row_price[row] - column_price[j]
                if through < distance[j]:
                    distance[j] = through
                    previous[j] = row
                if distance[j] < nearest or (distance[j] == nearest and row_of[j] < 0):
                    nearest, at = distance[j], place
            length = nearest
            j = open_columns[at]
            open_columns[at] = open_columns[columns - 1 - steps]
            reached[steps] = j
            steps += 1
            if row_of[j] < 0:
                sink = j
            else:
                row = row_of[j]
        row_price[start] += length
        for step in range(steps):
            j = reached[step]
            if row_of[j] >= 0:
                row_price[row_of[j]] += length - distance[j]
            column_price[j] -= length - distance[j]
        j, row = sink, -1
        while row != start:
            row = previous[j]
            row_of[j] = row
            j, column_of[row] = column_of[row], j


@compiled
def _listen(b: int, user: IntArray, links: Links, work: Workspace) -> None:
    """Interference and slack of every station in every block while station b is silent."""
    received_w, interference_w, slack_w, heard_w = links.received_w, work.interference_w, work.slack_w, work.heard_w
    stations, blocks = user.shape
    for n in range(blocks):
        for p in range(stations):
            interference_w[n, p] = heard_w[n, p] = 0.0
            slack_w[n, p] = np.inf
        for q in range(stations):
            i = user[q, n]
            if i >= 0 and q != b:
                heard_w[n, q] = received_w[i, b]
                for p in range(stations):
                    if p != q:
                        interference_w[n, p] += received_w[i, p]
        for p in range(stations):
            i = user[p, n]
            if i >= 0 and p != b:
                slack_w[n, p] = links.bearable_w[i] - interference_w[n, p]


@compiled
def _value_safely(b: int, links: Links, work: Workspace) -> None:
    """Value the pairs of station b; a pair that breaks the SINR floor of any link is worth 0."""
    received_w, interference_w, slack_w, value = links.received_w, work.interference_w, work.slack_w, work.value
    blocks, stations = slack_w.shape
    for m in range(links.counts[b]):
        i = links.members[b, m]
        weight, bearable_w = links.weights[i], links.bearable_w[i]
        for n in range(blocks):
            fine = interference_w[n, b] <= bearable_w
            for p in range(stations):
                fine &= received_w[i, p] <= slack_w[n, p]
            value[m, n] = weight if fine else 0.0


@compiled
def _rank(work: Workspace) -> None:
    """Sort the other stations in each block by received power, weakest first; ties by descending number."""
    heard_w, faintest = work.heard_w, work.faintest
    blocks, stations = heard_w.shape
    for n in range(blocks):
        audible = 0
        for p in range(stations):
            if heard_w[n, p] > 0.0:
                place = audible
                while place > 0 and heard_w[n, faintest[n, place - 1]] >= heard_w[n, p]:
                    faintest[n, place] = faintest[n, place - 1]
                    place -= 1
                faintest[n, place] = p
                audible += 1
        for place in range(audible, stations):
            faintest[n, place] = -1


@compiled
def _value_displacing(b: int, user: IntArray, links: Links, work: Workspace) -> None:
    """Value the pairs of station b where a user may displace links elsewhere, at the cost of their weight.

    Displaced are the links that do not tolerate the user, and as few of the strongest interferers as possible.
    """
    _rank(work)
    received_w, weights, slack_w, heard_w = links.received_w, links.weights, work.slack_w, work.heard_w
    faintest, value, breaks = work.faintest, work.value, work.breaks
    blocks, stations = slack_w.shape
    for m in range(links.counts[b]):
        i = links.members[b, m]
        bearable_w = links.bearable_w[i]
        for n in range(blocks):
            total_w = 0.0
            for p in range(stations):
                breaks[m, n, p] = received_w[i, p] > slack_w[n, p]
                total_w += 0.0 if breaks[m, n, p] else heard_w[n, p]
            if total_w > bearable_w:
                rest_w = 0.0
                for place in range(stations):
                    p = faintest[n, place]
                    if p >= 0 and not breaks[m, n, p]:
                        rest_w += heard_w[n, p]
                        breaks[m, n, p] = rest_w > bearable_w
            price = 0.0
            for p in range(stations):
                if breaks[m, n, p]:
                    price += weights[user[p, n]]
            value[m, n] = weights[i] - price


@compiled
def _rematch(b: int, displace: bool, user: IntArray, links: Links, work: Workspace) -> bool:
    """Rematch the users of station b to blocks; True if that serves more weight in total."""
    members, value, breaks, cost = links.members, work.value, work.breaks, work.cost
    stations, blocks = user.shape
    count = links.counts[b]
    _listen(b, user, links, work)
    if displace:
        _value_displacing(b, user, links, work)
    else:
        _value_safely(b, links, work)
    wide = count <= blocks
    bound, current = 0.0, 0.0
    for m in range(count):
        best = 0.0
        for n in range(blocks):
            bonus = 0.0
            if user[b, n] == members[b, m]:  # ties keep the current block, which displaces no link
                bonus = links.keep_bonus
                value[m, n] = links.weights[members[b, m]]
                current += value[m, n]
                for p in range(stations):
                    breaks[m, n, p] = False
            best = max(best, value[m, n])
            row, column = (m, n) if wide else (n, m)
            cost[row, column] = -max(value[m, n], 0.0) - bonus
        bound += best
    if bound <= current * (1.0 + _MIN_GAIN):
        return False

    assign(cost, min(count, blocks), max(count, blocks), work.paths)
    member_of = work.paths.row_of if wide else work.paths.column_of
    total = 0.0
    for n in range(blocks):
        if member_of[n] >= 0 and value[member_of[n], n] > 0.0:
            total += value[member_of[n], n]
        else:
            member_of[n] = -1
    if total <= current * (1.0 + _MIN_GAIN):
        return False
    for n in range(blocks):
        m = member_of[n]
        if displace and m >= 0:
            for p in range(stations):
                if breaks[m, n, p]:
                    user[p, n] = -1
        user[b, n] = members[b, m] if m >= 0 else -1
    return True


@compiled
def improve(turn: IntArray, max_sweeps: int, displace: bool, user: IntArray, links: Links, work: Workspace) -> int:
    """Rematch stations in the order `turn` (B,) until none improves; returns the sweeps, modifies `user` (B, R)."""
    changes = 0
    seen = np.full(len(turn), -1)
    for sweep in range(max_sweeps):
        before = changes
        for b in turn:
            served = 0
            for n in range(user.shape[1]):
                served += user[b, n] >= 0
            # Nothing to gain where all users are served, or where nothing changed since the last visit.
            if seen[b] != changes and served != links.counts[b]:
                if _rematch(b, displace, user, links, work):
                    changes += 1
                seen[b] = changes
        if changes == before:
            return sweep + 1
    return max_sweeps


@compiled
def match(first_station: int, max_sweeps: int, holder: IntArray, links: Links) -> int:
    """Grant blocks in `holder` (B, R), -1 for none, by the best matching over starting stations; returns the sweeps."""
    stations, blocks = holder.shape
    goal = 0.0
    for b in range(stations):
        for m in range(links.counts[b]):
            goal += links.weights[links.members[b, m]]
    goal *= 1.0 - _MIN_GAIN
    work = workspace_of(links, blocks)
    turn = np.empty(stations, dtype=np.int64)
    user = np.empty((stations, blocks), dtype=np.int64)
    holder[:] = -1
    served_weight, sweeps = 0.0, 0
    for start in range(stations):
        user[:] = -1
        for b in range(stations):
            turn[b] = (first_station + start + b) % stations
        weight = 0.0
        for displace in (False, True):
            if not displace or weight < goal:
                sweeps += improve(turn, max_sweeps, displace, user, links, work)
                weight = _weight(user, links)
        if weight > served_weight * (1.0 + _MIN_GAIN):
            served_weight = weight
            for b in range(stations):
                for n in range(blocks):
                    holder[b, n] = user[b, n]
        if served_weight >= goal:
            break
    return sweeps


@compiled
def _weight(user: IntArray, links: Links) -> float:
    """Total weight of the granted links."""
    total = 0.0
    for i in user.flat:
        if i >= 0:
            total += links.weights[i]
    return total


@compiled
def match_all(
    station: IntArray,
    received_w: FloatArray,
    weights: FloatArray,
    first_station: IntArray,
    max_sweeps: int,
    blocks: int,
    noise_w: float,
    floor: float,
) -> tuple[IntArray, IntArray]:
    """The block of every user of N networks, (N, U), -1 for none, and the sweeps of each network, (N,).

    station, weights: (N, U); received_w: (N, U, B); first_station: (N,).
    """
    networks, _, stations = received_w.shape
    block, sweeps = np.full(station.shape, -1), np.zeros(networks, dtype=np.int64)
    holder = np.empty((stations, blocks), dtype=np.int64)
    for network in range(networks):
        links = links_of(station[network], received_w[network], weights[network], noise_w, floor)
        sweeps[network] = match(first_station[network], max_sweeps, holder, links)
        for b in range(stations):
            for n in range(blocks):
                if holder[b, n] >= 0:
                    block[network, holder[b, n]] = n
    return block, sweeps
