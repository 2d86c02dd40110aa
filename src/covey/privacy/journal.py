"""Write-ahead journal of privacy charges: each is on disk before its release may leave the device.

A crash can lose the checkpoint of a round but not its journal: a release that may have been sent
stays charged. The file is append-only; each line is flushed to disk before the round continues.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from covey.errors import OutputError
from covey.privacy.accounting import Adjacency, Unit
from covey.privacy.events import GaussianReleases
from covey.privacy.ledger import KINDS, Cost, Kind, Ledger

JOURNAL = "ledger.jsonl"
#: The mechanism of `GaussianReleases`, in journals.
MECHANISM = "gaussian"


@dataclass(frozen=True)
class Entry:
    """One charge: in `round` (from 0), `users` (n,) paid `rho` (n,) for a release of this kind.

    releases: what was released, where that is known; it then says what is charged. unit and adjacency are None in
    journals that do not say them.
    """

    round: int
    kind: Kind
    users: tuple[int, ...]
    rho: tuple[float, ...]
    releases: GaussianReleases | None = None
    unit: str | None = None
    adjacency: str | None = None

    @property
    def cost(self) -> Cost:
        """What a ledger is charged."""
        return np.array(self.rho) if self.releases is None else self.releases


class Journal:
    """Appends charges to the file at `path`; without one, for runs in memory, nothing is written.

    Every line says what neighbours differ in, where `unit` and `adjacency` are set; see `labelled`.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.unit: Unit | None = None
        self.adjacency: Adjacency | None = None
        #: Charges of the last round that had any.
        self.last: list[Entry] = []

    def record(self, round: int, kind: Kind, users: NDArray[np.int64], cost: Cost) -> None:
        """Write the charge of `cost` (n,), rho or releases, to `users` (n,); returns once it is on disk."""
        if len(users) == 0:
            return
        kept = self.last if self.last and self.last[0].round == round else []
        releases = cost if isinstance(cost, GaussianReleases) else None
        rho = np.asarray(cost.rho if isinstance(cost, GaussianReleases) else cost, dtype=np.float64)
        entry = Entry(
            round, kind, tuple(users.tolist()), tuple(rho.tolist()), releases, self.unit, self.adjacency
        )  # fmt: skip
        if self.path is None:
            self.last = [*kept, entry]
            return
        values: dict[str, Any] = {"round": round, "kind": kind, "users": users.tolist(), "rho": rho.tolist()}
        if releases is not None:
            values |= {
                "mechanism": MECHANISM,
                "noise_std": releases.noise_std.tolist(),
                "sensitivity": releases.sensitivity.tolist(),
                "rate": releases.rate.tolist(),
                "steps": releases.steps.tolist(),
            }
        values |= {"unit": self.unit, "adjacency": self.adjacency} if self.unit is not None else {}
        line = json.dumps(values)
        try:
            with open(self.path, "a+b") as file:
                file.write(self._break(file) + line.encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise OutputError(
                f"cannot write the charge of round {round + 1} to '{self.path}' ({error.strerror}), so nothing was"
                " sent; free some space or make the folder writable, then continue with --resume"
            ) from None
        self.last = [*kept, entry]

    def _break(self, file: BinaryIO) -> bytes:
        """The bytes that terminate a line truncated by a crash, so that the next entry starts a new line."""
        if file.seek(0, os.SEEK_END) == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) == b"\n" else b"\x18\n"


def labelled(journal: Journal, unit: Unit, adjacency: Adjacency) -> Journal:
    """The journal, whose lines say from now on what neighbours differ in."""
    journal.unit, journal.adjacency = unit, adjacency
    return journal


def read_journal(path: Path) -> list[Entry]:
    """All charges written to `path`, oldest first; none when there is no such file.

    A line truncated by a crash belongs to a release that was never sent, and does not count.
    Any other damage is an error: totals could not be trusted.
    """
    if not path.is_file():
        return []
    entries = []
    # Text after the last line break is truncated, and so is a line that was later terminated by a cancel mark.
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        if line.endswith(b"\x18"):
            continue
        try:
            entries.append(_entry(json.loads(line)))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"line {number} of '{path}' is damaged ({error})") from None
    return entries


def read_whole_journal(path: Path, ledger: Ledger, last_round: int, *, costs: bool = True) -> list[Entry]:
    """All charges written to `path`, after a check that they cover a saved ledger of the rounds up to `last_round`.

    More than the ledger holds is no error: rounds are played again after a crash. Raises ValueError where charges of
    the ledger are missing. Without `costs` only their numbers are compared, for ledgers raised to users' own totals.
    """
    entries = read_journal(path)
    found = Ledger(ledger.users, adjacency=ledger.adjacency, unit=ledger.unit)
    for entry in entries:
        strangers = [user for user in entry.users if not 0 <= user < ledger.users]
        if strangers:
            raise ValueError(f"'{path}' names user {strangers[0]}, but there are users 0 to {ledger.users - 1} only")
        if entry.round <= last_round:
            _check_meaning(entry, ledger)
            found.add_lost(entry.users, entry.cost, entry.kind)
    totals: list[tuple[NDArray[Any], NDArray[Any], str]] = [
        (found.releases, ledger.releases, "uploads"),
        (found.announcements, ledger.announcements, "announcements"),
    ]
    if costs:
        # Both add the same numbers, perhaps in another order.
        totals += [(found.spent[kind], ledger.spent[kind] * (1 - 1e-9), f"rho for {kind}") for kind in KINDS]
    for have, need, what in totals:
        short = np.flatnonzero(have < need)
        if len(short):
            user = int(short[0])
            raise ValueError(
                f"'{path}' lacks charges of user {user}: it holds {what} {have[user]:g}, the checkpoint {need[user]:g}"
            )
    if costs and not found.sampled.covers(ledger.sampled):
        raise ValueError(f"'{path}' lacks charges: the checkpoint holds sampled sums that it does not")
    return entries


def charge_lost(ledger: Ledger, entries: Sequence[Entry], first_round: int) -> Ledger:
    """The ledger plus the charges of all rounds from `first_round` on, which its checkpoint lacks."""
    full = ledger.copy()
    for entry in entries:
        if entry.round >= first_round:
            strangers = [user for user in entry.users if not 0 <= user < ledger.users]
            if strangers:
                raise ValueError(
                    f"a charge names user {strangers[0]}, but there are users 0 to {ledger.users - 1} only"
                )
            _check_meaning(entry, ledger)
            full.add_lost(entry.users, entry.cost, entry.kind)
    return full


def _check_meaning(entry: Entry, ledger: Ledger) -> None:
    """Refuse a charge that was made for another unit or adjacency: costs of different meaning do not add up."""
    for what, said, meant in (("unit", entry.unit, ledger.unit), ("adjacency", entry.adjacency, ledger.adjacency)):
        if said is not None and said != meant:
            raise ValueError(
                f"a charge of round {entry.round + 1} was made for privacy.{what} '{said}', but it is '{meant}' now, so"
                " that they do not add up; put the old value back"
            )


def _entry(values: dict[str, object]) -> Entry:
    users, rho, kind, number = values["users"], values["rho"], values["kind"], values["round"]
    if not (isinstance(users, list) and isinstance(rho, list) and len(users) == len(rho) and isinstance(number, int)):
        raise ValueError("it does not list users and costs")
    if kind not in KINDS:
        raise ValueError(f"'{kind}' is not a kind of release")
    costs = tuple(float(cost) for cost in rho)
    if any(not cost >= 0 for cost in costs):
        raise ValueError("it holds a negative or undefined cost")
    releases = None
    if "mechanism" in values:
        releases = _releases(values, len(users))
        if not np.allclose(costs, releases.rho, rtol=1e-9, atol=0.0):
            raise ValueError("the rho that it says is not that of the releases that it says")
    unit, adjacency = (None if values.get(name) is None else str(values[name]) for name in ("unit", "adjacency"))
    return Entry(number, kind, tuple(int(user) for user in users), costs, releases, unit, adjacency)


def _releases(values: dict[str, object], users: int) -> GaussianReleases:
    if values["mechanism"] != MECHANISM:
        raise ValueError(f"'{values['mechanism']}' is not a mechanism that this version knows")
    columns = [np.array(values[name], dtype=np.float64) for name in ("noise_std", "sensitivity", "rate", "steps")]
    std, most, rate, steps = columns
    sound = all(column.shape == (users,) for column in columns)
    if not sound or not (
        np.all(std >= 0) and np.all(most > 0) and np.all((rate > 0) & (rate <= 1)) and np.all(steps >= 1)
    ):
        raise ValueError("it holds releases without noise, sensitivity, sampling rate or steps for each user")
    return GaussianReleases(std, most, rate, steps.astype(np.int64))
