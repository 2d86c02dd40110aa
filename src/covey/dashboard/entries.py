"""List entries of runs and trainings, read from as few bytes of their folders as possible."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from covey.agents.training_files import CHECKPOINT as TRAINING_CHECKPOINT
from covey.agents.training_files import METRICS
from covey.dashboard.runs_folder import OUTPUT
from covey.errors import CoveyError
from covey.run_files import DEPLOYMENT
from covey.simulation.checkpoint import CHECKPOINT, read_checkpoint_header
from covey.simulation.progress import PROGRESS

Kind = Literal["run", "training"]
Status = Literal["running", "finished", "interrupted", "failed"]
Number = float | int | str | None

#: Columns of the last row that the list shows.
SHOWN: dict[Kind, tuple[str, ...]] = {
    "run": ("accuracy", "loss", "clustering_accuracy", "epsilon_max", "served"),
    "training": ("reward", "violating_rounds", "served", "guarded_reward"),
}
#: Bytes read from the end of a progress file; they hold its last row.
_TAIL = 64 * 1024
#: Size limit of JSON and TOML files, in bytes.
_LARGEST = 8 * 1024 * 1024


class Entry(BaseModel):
    """A run or training in the list."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="Its folder, relative to the folder of the dashboard.")
    kind: Kind
    status: Status
    scenario: str = Field(description="Name of the scenario.")
    policy: str = Field(description="Policy of a run, algorithm of a training.")
    seed: int | None
    done: int = Field(description="Finished rounds or epochs.")
    total: int | None = Field(description="Requested rounds or epochs.")
    updated: float = Field(description="Last change, in seconds since 1970.")
    message: str = Field(description="Error message, if it failed.")
    numbers: dict[str, Number] = Field(description="Some numbers of the last round or epoch.")
    resumable: bool = Field(description="Whether it can be resumed.")
    stoppable: bool = Field(description="Whether it runs on this machine and can be stopped.")


class Facts(BaseModel):
    """Facts derived from the files of an entry; whether it is running is not among them."""

    kind: Kind
    ended: Status
    scenario: str = ""
    policy: str = ""
    seed: int | None = None
    done: int = 0
    total: int | None = None
    message: str = ""
    numbers: dict[str, Number] = Field(default_factory=dict)
    resumable: bool = False


def facts_of(path: Path, files: Mapping[str, os.stat_result]) -> Facts:
    """The facts of the entry in a folder with these files."""
    kind: Kind = "training" if {TRAINING_CHECKPOINT, METRICS, "learner.json"} & files.keys() else "run"
    facts = None
    if PROGRESS in files:
        facts = _from_progress(path / PROGRESS, kind)
    if facts is None and "summary.json" in files:
        facts = _from_summary(path, kind)
    checkpoint = TRAINING_CHECKPOINT if kind == "training" else CHECKPOINT
    if facts is None and checkpoint in files:
        facts = _from_checkpoint(path, kind, checkpoint)
    if facts is None:
        facts = _without_results(path, files, kind)
    elif OUTPUT in files and files[OUTPUT].st_mtime_ns >= files.get(PROGRESS, files[OUTPUT]).st_mtime_ns:
        _add_last_words(facts, path)
    # A run with real devices is resumed with `covey deploy`, not from the dashboard.
    facts.resumable = checkpoint in files and "scenario.toml" in files and DEPLOYMENT not in files
    return facts


def _from_progress(path: Path, kind: Kind) -> Facts | None:
    first, events = _ends(path)
    if not first or not events:
        return None
    last = events[-1]
    rows = [event["row"] for event in events if isinstance(event.get("row"), dict)]
    ended = last.get("status", "interrupted") if last.get("event") == "ended" else "interrupted"
    try:
        return Facts(
            kind=kind if first.get("kind") is None else first["kind"],
            ended=ended,
            scenario=first.get("scenario", ""),
            policy=first.get("policy", ""),
            seed=first.get("seed"),
            done=last.get("done", 0),
            total=last.get("total"),
            message=str(last.get("message", ""))[:1000],
            numbers=_shown(rows[-1] if rows else {}, kind),
        )
    except ValueError:
        return None


def _ends(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first event of a progress file, and the complete events in its tail."""
    try:
        with open(path, "rb") as file:
            first = _event(file.readline(_TAIL))
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL))
            lines = file.read(_TAIL).split(b"\n")
    except OSError:
        return {}, []
    # The text after the last newline is still being written; the first line of the tail may be truncated.
    events = [_event(line) for line in lines[:-1]]
    return first, [event for event in events if event]


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _from_summary(path: Path, kind: Kind) -> Facts | None:
    summary = read_json(path / "summary.json")
    try:
        if kind == "training":
            total = read_json(path / "learner.json").get("epochs")
            done, ended = summary["epochs"], "finished" if summary["epochs"] == total else "interrupted"
            policy, numbers = summary["algorithm"], summary.get("last_epoch", {})
        else:
            done, total = summary["rounds"], summary["rounds_planned"]
            ended = "finished" if summary["complete"] else "interrupted"
            policy, numbers = summary["policy"], dict(summary.get("final", {}))
            numbers["epsilon_max"] = summary.get("privacy", {}).get("epsilon_max", {}).get("exact")
        return Facts(
            kind=kind,
            ended=ended,
            scenario=summary["scenario"],
            policy=policy,
            seed=summary["seed"],
            done=done,
            total=total,
            numbers=_shown(numbers, kind),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _from_checkpoint(path: Path, kind: Kind, checkpoint: str) -> Facts | None:
    try:
        header = read_checkpoint_header(path, checkpoint)
        if kind == "training":
            settings, rows = header["settings"], header["rows"]
            policy, done, total = settings["algorithm"], header["epoch"], settings["epochs"]
        else:
            policy, done, total, rows = header["policy"], header["round"], header["rounds"], header["records"]
        return Facts(
            kind=kind,
            ended="finished" if done >= total else "interrupted",
            scenario=_scenario_name(path),
            policy=policy,
            seed=header["seed"],
            done=done,
            total=total,
            numbers=_shown(rows[-1] if rows else {}, kind),
        )
    except (CoveyError, KeyError, TypeError, ValueError):
        return None


def _without_results(path: Path, files: Mapping[str, os.stat_result], kind: Kind) -> Facts:
    """Facts of an entry without a checkpoint: the error in its output, if there is one."""
    message = last_words(path / OUTPUT) if OUTPUT in files else ""
    stopped = not message or _stopped(message)
    return Facts(
        kind=kind,
        ended="interrupted" if stopped else "failed",
        scenario=_scenario_name(path),
        message="" if stopped else message,
    )


def _add_last_words(facts: Facts, path: Path) -> None:
    """Add an error that the progress file does not contain, e.g. of a failed resume."""
    words = last_words(path / OUTPUT)
    if words and not facts.message and not _stopped(words):
        facts.message = words
        facts.ended = "failed" if facts.ended == "interrupted" else facts.ended


def _stopped(words: str) -> bool:
    return words.startswith("KeyboardInterrupt") or "Interrupted" in words


def last_words(path: Path) -> str:
    """The last paragraph of a job's output, on one line: its error, if it failed."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4096))
            text = file.read(4096).decode(errors="replace")
    except OSError:
        return ""
    words = " ".join(text.split())
    marks = [words.rfind(mark) for mark in ("Error: ", "Unexpected error: ", "KeyboardInterrupt")]
    return words[max(0, *marks) :][:1000].removeprefix("Error: ")


def _scenario_name(path: Path) -> str:
    return str(read_toml(path / "scenario.toml").get("name", ""))[:100]


def _shown(row: Mapping[str, Any], kind: Kind) -> dict[str, Number]:
    return {name: number(row[name]) for name in SHOWN[kind] if row.get(name) is not None}


def number(value: Any) -> Number:
    """A number for strict JSON: NaN becomes None, infinity "infinite"."""
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "infinite"
    return value if isinstance(value, (int, float, str)) else None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if the file is missing or invalid."""
    return _read(path, json.loads)


def read_toml(path: Path) -> dict[str, Any]:
    """The table in a TOML file; empty if the file is missing or invalid."""
    return _read(path, tomllib.loads)


def _read(path: Path, parse: Any) -> dict[str, Any]:
    try:
        if path.is_symlink() or path.stat().st_size > _LARGEST:
            return {}
        content = parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
