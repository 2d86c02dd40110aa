"""A run as its folder tells it, finished, interrupted or still running, for pages that show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from covey.data.dealing import draw_sizes, groups_of_users
from covey.errors import ResumeError
from covey.privacy import Ledger
from covey.radio import place
from covey.scenario import load_stored_scenario
from covey.simulation.checkpoint import CHECKPOINT, check_seal
from covey.simulation.history import History
from covey.simulation.record import USER_FIELDS, RoundRecord, UserRecord
from covey.simulation.world import clipping_norms


def read_history(folder: Path) -> History:
    """The history up to the last checkpoint, without the models.

    What a checkpoint does not hold follows from the scenario and the seed: the places of stations, and in
    checkpoints of older versions sample counts and groups. `start` is that of summary.json, empty where there
    is none. Raises `ResumeError` where the checkpoint cannot be read and `ScenarioError` where the scenario cannot.
    """
    scenario = load_stored_scenario(folder / "scenario.toml")
    header, columns, members = _checkpoint(folder)
    if scenario.privacy.target_epsilon is not None:  # the cap that followed from it
        privacy = scenario.privacy.model_copy(update={"v_max": float(header["v_max"])})
        scenario = scenario.model_copy(update={"privacy": privacy})
    seed, network = int(header["seed"]), scenario.network
    samples = members.get("samples", draw_sizes(scenario.data, network.users, seed))
    records = [
        RoundRecord(**scalars, users=UserRecord(**{name: column[index] for name, column in columns.items()}))
        for index, scalars in enumerate(header["records"])
    ]
    return History(
        scenario=scenario,
        seed=seed,
        policy=header["policy"],
        rounds=header["rounds"],
        samples=samples,
        groups=members.get("groups", groups_of_users(scenario, seed)),
        stations_m=place(network, seed)[0],
        clip=clipping_norms(scenario, samples),
        start=_start(folder),
        models=np.zeros((network.tasks, 0), dtype=np.float32),
        ledger=Ledger.from_dict(header["ledger"]),
        upload_bits=0.0,
        served_rounds=np.zeros(network.users, dtype=np.int64)
        if not records
        else (columns["station"] >= 0).sum(axis=0).astype(np.int64),
        records=records,
    )


def _checkpoint(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The header of a checkpoint, its columns of users, (T, U) each, and samples and groups (U,), from one file."""
    path = folder / CHECKPOINT
    try:
        with safe_open(path, framework="numpy") as file:
            header: dict[str, Any] = json.loads(file.metadata()["covey"])
            names = set(file.keys())
            columns = {name: file.get_tensor(f"users.{name}") for name in USER_FIELDS if f"users.{name}" in names}
            members = {name: file.get_tensor(name) for name in ("samples", "groups") if name in names}
        check_seal(path)
        if header["records"] and len(columns) < len(USER_FIELDS):
            raise KeyError("a column of users")
        return header, columns, members
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ResumeError(f"'{path.name}' cannot be read ({error}); run covey again to make a new one") from None


def _start(folder: Path) -> dict[str, Any]:
    try:
        start = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["start"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return start if isinstance(start, dict) else {}
