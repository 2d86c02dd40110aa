"""Measured positions and gains: from a CSV trace, or from a function that queries a real network.

They replace the mobility and channel models of a scenario, in simulations and deployments alike.
"""

from __future__ import annotations

import csv
import importlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from covey.arrays import FloatArray
from covey.errors import DataError, ScenarioError
from covey.radio.channel import ChannelModel, build_channel
from covey.radio.mobility import MobilityModel
from covey.scenario.schema import Scenario

#: Columns of the two kinds of trace.
POSITIONS, GAINS = ("round", "user", "x_m", "y_m"), ("round", "user", "station", "gain_db")
#: Maximum size of a trace, rounds x users x (2 or stations): 400 MB.
_MOST_NUMBERS = 50_000_000
#: Measures gains: takes the round (from 0), the number of users and of stations; returns (U, B) linear power gains.
Hook = Callable[[int, int, int], FloatArray]


@dataclass(frozen=True)
class TraceMobility:
    """Replays positions_m (T, U, 2); users stay in place after the last round."""

    positions_m: FloatArray

    @property
    def first_m(self) -> FloatArray:
        """Positions in the first round, (U, 2)."""
        return np.array(self.positions_m[0])

    def start(self, positions_m: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The round that each user is in, (U, 1)."""
        return np.zeros((len(positions_m), 1))

    def move(
        self, positions_m: FloatArray, memory: FloatArray, duration_s: float, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """The positions of the next round of the trace."""
        memory = memory + 1.0
        at = min(int(memory[0, 0]), len(self.positions_m) - 1)
        return self.positions_m[at].copy(), memory


@dataclass(frozen=True)
class TraceChannel:
    """Replays measured linear power gains (T, U, B); after the last round they stay constant."""

    measured: FloatArray

    def gains(self, users_m: FloatArray, stations_m: FloatArray, round: int) -> FloatArray:
        """The gains (U, B) of this round of the trace."""
        return np.array(self.measured[min(round, len(self.measured) - 1)])


@dataclass(frozen=True)
class HookChannel:
    """Gains from a function that measures them, or, where it returns None, from the scenario's channel."""

    name: str
    hook: Hook
    otherwise: ChannelModel

    def gains(self, users_m: FloatArray, stations_m: FloatArray, round: int) -> FloatArray:
        """The gains (U, B) that the function measures now."""
        shape = (len(users_m), len(stations_m))
        found = self.hook(round, *shape)
        if found is None:
            return self.otherwise.gains(users_m, stations_m, round)
        gains = np.asarray(found, dtype=np.float64)
        if gains.shape != shape or not np.isfinite(gains).all() or (gains <= 0).any():
            raise DataError(
                f"the measurement '{self.name}' returned {gains.shape} gains in round {round + 1}; it must return"
                f" {shape} positive, finite power gains, or None"
            )
        return gains


def channel_and_mobility(
    scenario: Scenario, seed: int, trace: str = "", hook: str = ""
) -> tuple[ChannelModel | None, MobilityModel | None]:
    """Replacements of the scenario's channel and mobility, or None: from a trace file or a function `module:name`."""
    channel: ChannelModel | None = None
    mobility: MobilityModel | None = None
    if trace:
        found = read_trace(Path(trace), scenario.network.users, scenario.network.stations)
        if isinstance(found, TraceMobility):
            mobility = found
        else:
            channel = found
    if hook:
        if channel is not None:
            raise ScenarioError("gains come from the trace and from a measurement; give only one of them")
        channel = HookChannel(hook, load_hook(hook), build_channel(scenario, seed))
    return channel, mobility


def load_hook(name: str) -> Hook:
    """The function that `module:function` names."""
    module, colon, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function) if colon and function else None
    except (Exception, SystemExit) as error:  # importing a module runs its code, which can raise anything
        what = f"{type(error).__name__}: {error}"
        raise ScenarioError(f"the measurement '{name}' cannot be loaded ({what}); give module:function") from None
    if not callable(found):
        raise ScenarioError(f"the measurement '{name}' is not a function; give module:function")
    hook: Hook = found
    return hook


def read_trace(path: Path, users: int, stations: int) -> TraceMobility | TraceChannel:
    """A trace of positions (round,user,x_m,y_m) or of gains (round,user,station,gain_db); rounds count from 1.

    Round 1 must name every user. Values that a later round omits carry over.
    """
    try:
        with open(path, encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            columns = tuple(table.fieldnames or ())
            rows = [(line, row) for line, row in enumerate(table, start=2)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"the trace '{path}' cannot be read ({error})") from None
    if set(columns) not in (set(POSITIONS), set(GAINS)):
        raise DataError(
            f"the trace '{path}' has the columns {', '.join(columns) or 'none'}; it needs {','.join(POSITIONS)} or"
            f" {','.join(GAINS)}"
        )
    positions = set(columns) == set(POSITIONS)
    parsed = [_parsed(path, line, row, positions, users, stations) for line, row in rows]
    rounds = max((entry[0] for entry in parsed), default=0)
    most = _MOST_NUMBERS // (users * (2 if positions else stations))
    if rounds > most:
        raise DataError(f"the trace '{path}' names round {rounds}; for {users} users it can have {most} rounds at most")
    values = np.full((max(rounds, 1), users, 2 if positions else stations), np.nan)
    for number, user, where, measured in parsed:
        target = values[number - 1, user]
        if np.isfinite(target[where]).any():
            raise DataError(f"the trace '{path}' names user {user} of round {number} twice; keep one of the two lines")
        target[where] = measured
    missing = np.argwhere(np.isnan(values[0]))
    if len(missing):
        what = "" if positions else f" and station {missing[0][1]}"
        raise DataError(
            f"the trace '{path}' does not name user {missing[0][0]}{what} in round 1; every user must be there"
        )
    for before, now in itertools.pairwise(values):
        now[...] = np.where(np.isnan(now), before, now)
    return TraceMobility(values) if positions else TraceChannel(10.0 ** (values / 10.0))


def _parsed(
    path: Path, line: int, row: dict[str, str], positions: bool, users: int, stations: int
) -> tuple[int, int, slice, list[float]]:
    """Round, user, target slice and numbers of one line."""
    try:
        number, user = int(row["round"]), int(row["user"])
        where = slice(0, 2) if positions else slice(int(row["station"]), int(row["station"]) + 1)
        numbers = [float(row[name]) for name in (("x_m", "y_m") if positions else ("gain_db",))]
    except (ValueError, TypeError):
        raise DataError(f"line {line} of the trace '{path}' holds a value that is not a number") from None
    if number < 1 or not 0 <= user < users or not (positions or 0 <= where.start < stations):
        raise DataError(
            f"line {line} of the trace '{path}' is out of range; rounds start at 1, users are 0 to {users - 1} and"
            f" stations 0 to {stations - 1}"
        )
    if not np.isfinite(numbers).all() or (not positions and abs(numbers[0]) > 400.0):
        raise DataError(f"line {line} of the trace '{path}' holds a number that is not finite or not a gain in dB")
    return number, user, where, numbers
