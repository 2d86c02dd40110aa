"""The folder of a run: results, a checkpoint after every round, and resuming from it."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from covey.association import Remembering, forgets, memory_of
from covey.errors import OutputError, PartWarning, ResumeError
from covey.files import csv_bytes, make_folder, plain, write_atomically
from covey.privacy import JOURNAL, Ledger, charge_lost, read_whole_journal
from covey.run_files import DEPLOYMENT, RUN_CHECKPOINT
from covey.scenario import Scenario, dump_scenario
from covey.scenario.load import fingerprint
from covey.simulation.history import History
from covey.simulation.record import USER_FIELDS, RoundRecord, UserRecord
from covey.simulation.run import Simulation
from covey.simulation.state import State

CHECKPOINT = RUN_CHECKPOINT
_STATE_ARRAYS = (
    "positions_m", "mobility_memory", "models", "movements", "active", "identities", "served_rounds", "exhausted",
    "personal", "personal_begun",
)  # fmt: skip

#: What the identification rule remembers is kept under names that begin with this.
_MEMORY = "memory."
#: What the aggregation remembers.
_AGGREGATION = "aggregation."
#: What the policy remembers.
_POLICY = "policy."
#: What stands in the place of the checksum while it is computed.
UNSEALED = "0" * 64
#: How the header begins: with the checksum, or as in checkpoints of earlier versions without one.
_BEGINS = re.compile(rb'{\\"(?:checksum\\": \\"(?P<sum>[0-9a-f]{64})\\"|version\\")')
#: What the header of a run needs to hold.
_HEADER = ("version", "scenario", "seed", "policy", "rounds", "round", "ledger", "records")


def prepare_folder(folder: Path, *, overwrite: bool) -> None:
    """Make the folder of a new run; refuses one that already holds a run unless told to overwrite."""
    if (folder / CHECKPOINT).exists() and not overwrite:
        raise OutputError(
            f"'{folder}' already holds a run; continue it with --resume, replace it with --overwrite,"
            " or choose another folder with --out"
        )
    make_folder(folder)


def write_results(history: History, folder: Path, extra: dict[str, Any]) -> None:
    """Write scenario.toml, rounds.csv, users.csv, models.safetensors and summary.json.

    `extra` is added to summary.json; the other files depend on scenario, seed, policy and version
    alone, so that equal runs give equal bytes.
    """
    write_atomically(folder / "scenario.toml", dump_scenario(history.scenario).encode())
    write_atomically(folder / "rounds.csv", csv_bytes(record.row() for record in history.records))
    write_atomically(folder / "users.csv", csv_bytes(_user_rows(history)))
    write_atomically(folder / "models.safetensors", save({"models": np.ascontiguousarray(history.models)}))
    summary = json.dumps(plain(history.summary() | extra), indent=2, allow_nan=False)
    write_atomically(folder / "summary.json", summary.encode() + b"\n")


def save_checkpoint(simulation: Simulation, folder: Path) -> None:
    """Save everything needed to continue the run, in one file that replaces the last one at once."""
    state, history = simulation.state, simulation.history
    arrays: dict[str, NDArray[Any]] = {name: np.ascontiguousarray(getattr(state, name)) for name in _STATE_ARRAYS}
    # Not needed to continue, but by whoever looks at the run: real devices bring their own samples.
    arrays |= {"samples": history.samples, "groups": history.groups}
    arrays |= {f"{_MEMORY}{name}": np.array(values, order="C") for name, values in state.memory.items()}
    arrays |= {f"{_AGGREGATION}{name}": np.array(values, order="C") for name, values in state.aggregation.items()}
    remembered = memory_of(simulation.policy)
    arrays |= {f"{_POLICY}{name}": values for name, values in remembered.items()}
    for name in USER_FIELDS:
        if history.records:
            arrays[f"users.{name}"] = np.ascontiguousarray(history.user_column(name))
    header = {
        "checksum": UNSEALED,
        "version": metadata.version("covey"),
        "scenario": fingerprint(history.scenario),
        "seed": history.seed,
        "policy": history.policy,
        "rounds": history.rounds,
        "round": state.round,
        "v_max": history.scenario.privacy.v_max,
        "ledger": state.ledger.to_dict(),
        "records": [record.scalars() for record in history.records],
    }
    write_atomically(folder / CHECKPOINT, sealed(save(arrays, metadata={"covey": json.dumps(header)})))


def sealed(content: bytes) -> bytes:
    """A checkpoint whose header begins with the key checksum, `UNSEALED` so far, with the SHA-256 of all its bytes."""
    return content.replace(UNSEALED.encode(), hashlib.sha256(content).hexdigest().encode(), 1)


def check_seal(path: Path) -> None:
    """Raise ValueError where a checkpoint is not, bit by bit, what was written; those without a checksum pass."""
    content = path.read_bytes()
    begins = _BEGINS.search(content)
    if begins is None:
        raise ValueError("its header does not begin as headers do")
    if begins["sum"] is not None:
        start, end = begins.span("sum")
        if hashlib.sha256(content[:start] + UNSEALED.encode() + content[end:]).hexdigest().encode() != begins["sum"]:
            raise ValueError("its checksum does not match")


def read_checkpoint_header(folder: Path, name: str = CHECKPOINT, *, checked: bool = False) -> dict[str, Any]:
    """What a checkpoint says about its work; of a run: version, scenario fingerprint, seed, policy, rounds, round.

    `checked` compares the whole file with its checksum, for whoever relies on it.
    """
    path = folder / name
    if not path.is_file():
        raise ResumeError(f"there is nothing to resume in '{folder}': it holds no {name}; start without --resume")
    try:
        with safe_open(path, framework="numpy") as file:
            header: dict[str, Any] = json.loads(file.metadata()["covey"])
        if checked:
            check_seal(path)
            missing = [key for key in _HEADER if name == CHECKPOINT and key not in header]
            if missing:
                raise ValueError(f"it lacks '{missing[0]}'")
        return header
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ResumeError(
            f"'{path}' is damaged and cannot be resumed ({error}); start again with --overwrite"
        ) from None


def check_rounds(scenario: Scenario, header: dict[str, Any], rounds: int, folder: Path) -> None:
    """Refuse another number of `rounds` than a run was saved with, where its noise was worked out for that number.

    Rounds played with less noise than a longer plan needs cannot be made up for.
    """
    target, planned = scenario.privacy.target_epsilon, header["rounds"]
    if target is not None and rounds != planned:
        raise ResumeError(
            f"'{folder}' holds a run whose noise was worked out for privacy.target_epsilon = {target:g} in {planned}"
            f" rounds, so it cannot be continued with {rounds}; resume it with {planned}, or start a new run of"
            f" {rounds} rounds in another folder"
        )


def restore_checkpoint(simulation: Simulation, folder: Path) -> None:
    """Put a fresh simulation of the same scenario, seed and policy where the saved run stopped.

    With `privacy.target_epsilon` the number of rounds must be the same too: the noise was worked out for it.
    """
    header = read_checkpoint_header(folder, checked=True)
    history = simulation.history
    expected = {
        "version": metadata.version("covey"),
        "scenario": fingerprint(history.scenario),
        "seed": history.seed,
        "policy": history.policy,
    }
    for key, value in expected.items():
        if header.get(key) != value:
            raise ResumeError(
                f"'{folder}' holds a run with another {key} ({header.get(key)!r}, not {value!r}), so it cannot be"
                " continued; resume with the same settings or start anew in another folder"
            )
    check_rounds(history.scenario, header, history.rounds, folder)
    try:
        state, records, remembered = _read_state(folder, header)
    except (SafetensorError, KeyError, TypeError, ValueError, IndexError) as error:  # one without a checksum
        raise ResumeError(
            f"'{folder / CHECKPOINT}' is damaged and cannot be resumed ({error}); start again with --overwrite"
        ) from None
    secure = history.scenario.privacy.noise == "secure"
    if secure or simulation.world.journal.path is not None:
        state = replace(state, ledger=_journalled(state, folder, secure=secure))
        simulation.world.journal.last = []  # charged by now
    simulation.continue_from(state, records)
    _restore_policy(simulation, remembered, len(records))


def _read_state(folder: Path, header: dict[str, Any]) -> tuple[State, list[RoundRecord], dict[str, NDArray[Any]]]:
    """The state that a checkpoint holds, the records that led to it, and what the policy remembered."""
    with safe_open(folder / CHECKPOINT, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    state = State(
        round=header["round"],
        ledger=Ledger.from_dict(header["ledger"]),
        memory=_under(_MEMORY, arrays),
        aggregation=_under(_AGGREGATION, arrays),
        **{name: arrays[name] for name in _STATE_ARRAYS},
    )
    records = [
        RoundRecord(**scalars, users=UserRecord(**{name: arrays[f"users.{name}"][index] for name in USER_FIELDS}))
        for index, scalars in enumerate(header["records"])
    ]
    return state, records, _under(_POLICY, arrays)


def _under(prefix: str, arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin with this, without it."""
    return {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}


def _restore_policy(simulation: Simulation, remembered: dict[str, NDArray[Any]], played: int) -> None:
    """Give the policy what it remembered after `played` rounds, or warn that it may have forgotten something."""
    if isinstance(simulation.policy, Remembering):
        simulation.policy.restore(remembered)
    elif forgets(simulation.policy) and played:
        warnings.warn(
            f"the policy {simulation.history.policy} is an object with attributes, which are not saved with a run and"
            " start anew: if it keeps state from round to round, the result is not that of an uninterrupted run; give"
            " it `memory` and `restore`",
            PartWarning,
            stacklevel=3,
        )


def _journalled(state: State, folder: Path, *, secure: bool) -> Ledger:
    """The ledger of a saved state with all charges of the folder's journal, which must hold at least the saved ones.

    With secure noise, what may have left before a crash was noised with bits that are gone, so that it is a release of
    its own. Seeded noise is the same when a round is played again: the same bytes are sent twice, which costs nothing.
    """
    ledger, path = state.ledger, folder / JOURNAL
    if (ledger.releases.any() or ledger.announcements.any()) and not path.is_file():
        raise ResumeError(
            f"'{folder}' has lost its {JOURNAL}, so what users have spent is not known and the run cannot be continued;"
            " put the file back, or start anew in another folder"
        )
    try:
        # A round that failed under secure noise is charged in the state before it.
        last_round = state.round if secure else state.round - 1
        # Ledgers of real devices count other runs too.
        entries = read_whole_journal(path, ledger, last_round, costs=not (folder / DEPLOYMENT).exists())
    except (OSError, ValueError) as error:
        raise ResumeError(
            f"{error}, so what users have spent is not known and the run cannot be continued; put the whole file back,"
            " or start anew in another folder"
        ) from None
    return charge_lost(ledger, entries, state.round) if secure else ledger


def _user_rows(history: History) -> Iterable[dict[str, Any]]:
    for record in history.records:
        for user in range(len(history.samples)):
            row: dict[str, Any] = {"round": record.round, "user": user}
            row.update({name: getattr(record.users, name)[user].item() for name in USER_FIELDS})
            yield row
