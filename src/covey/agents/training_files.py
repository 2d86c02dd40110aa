"""The folder of a training: a checkpoint for bit-exact resume, the metrics, and the trained policy."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from covey import run_files
from covey.agents.learner import Moments
from covey.agents.policy import LearnedPolicy
from covey.agents.replay import Replay
from covey.agents.training import Trainer
from covey.environment import Calibration
from covey.errors import ResumeError
from covey.files import csv_bytes, write_atomically
from covey.scenario import dump_scenario
from covey.scenario.load import fingerprint
from covey.simulation.checkpoint import UNSEALED, read_checkpoint_header, sealed

CHECKPOINT = run_files.TRAINING_CHECKPOINT
POLICY = run_files.POLICY
METRICS = run_files.METRICS


def save_training(trainer: Trainer, folder: Path) -> None:
    """Save a checkpoint, atomically replacing the last one, and the metrics so far."""
    learner = trainer.learner
    tensors: dict[str, Tensor] = {}
    for part, module in (("network", learner.network), ("target", learner.target)):
        tensors |= {f"{part}.{name}": tensor for name, tensor in module.state_dict().items()}
    for index, state in learner.optimiser.state_dict()["state"].items():
        tensors |= {f"optimiser.{index}.{name}": value for name, value in state.items()}
    for way, weights in trainer.best.items():
        tensors |= {f"best.{way}.{name}": tensor for name, tensor in weights.items()}
    if trainer.replay is not None:
        kept = len(trainer.replay)
        tensors |= {f"replay.{name}": torch.from_numpy(array[:kept]) for name, array in trainer.replay.arrays.items()}
    header = (
        {"checksum": UNSEALED}
        | _identity(trainer)
        | {
            "epoch": trainer.epoch,
            "rows": trainer.rows,
            "best_score": {way: score for way, score in trainer.best_score.items() if np.isfinite(score)},
            "steps": learner.steps,
            "team": vars(learner.team),
            "own": vars(learner.own),
            "replay": None if trainer.replay is None else [trainer.replay.capacity, trainer.replay.added],
        }
    )
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"covey": json.dumps(header)})
    write_atomically(folder / CHECKPOINT, sealed(content))
    write_metrics(trainer, folder)


def _identity(trainer: Trainer) -> dict[str, Any]:
    return {
        "version": metadata.version("covey"),
        "scenario": fingerprint(trainer.scenario),
        "settings": trainer.settings.model_dump(mode="json"),
        "learning": trainer.learning,
        "calibration": calibration_digest(trainer.calibration),
        "seed": trainer.seed,
    }


def calibration_digest(calibration: Calibration | None) -> str | None:
    """A digest of the constants of a surrogate; None for real rounds."""
    if calibration is None:
        return None
    return hashlib.sha256(json.dumps(calibration.constants.to_dict(), sort_keys=True).encode()).hexdigest()[:16]


def read_training_header(folder: Path) -> dict[str, Any]:
    """The header of a training's checkpoint: its inputs and its epoch."""
    return read_checkpoint_header(folder, CHECKPOINT, checked=True)


def restore_training(trainer: Trainer, folder: Path) -> None:
    """Restore the checkpoint of `folder` into a fresh trainer of the same scenario, settings and seed."""
    header = read_training_header(folder)
    for key, value in _identity(trainer).items():
        if header.get(key) != value:
            raise ResumeError(
                f"'{folder}' holds a training with another {key}, so it cannot be continued; resume with the same"
                " settings or start anew in another folder"
            )
    with safe_open(folder / CHECKPOINT, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    learner = trainer.learner
    learner.network.load_state_dict(_below(tensors, "network"))
    learner.target.load_state_dict(_below(tensors, "target"))
    optimiser = learner.optimiser.state_dict()
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _below(tensors, "optimiser").items():
        index, _, key = name.partition(".")
        state.setdefault(int(index), {})[key] = tensor
    learner.optimiser.load_state_dict({"state": state, "param_groups": optimiser["param_groups"]})
    learner.steps = header["steps"]
    learner.team, learner.own = Moments(**header["team"]), Moments(**header["own"])
    trainer.epoch, trainer.rows = header["epoch"], header["rows"]
    trainer.best_score |= header["best_score"]
    trainer.best = {way: _below(tensors, f"best.{way}") for way in header["best_score"]}
    if header["replay"] is not None:
        capacity, added = header["replay"]
        arrays = {name: tensor.numpy() for name, tensor in _below(tensors, "replay").items()}
        trainer.replay = Replay(capacity, arrays)
        for name, array in arrays.items():
            trainer.replay.arrays[name][: len(array)] = array
        trainer.replay.added = added


def _below(tensors: dict[str, Tensor], part: str) -> dict[str, Tensor]:
    return {name.removeprefix(part + "."): tensor for name, tensor in tensors.items() if name.startswith(part + ".")}


def write_metrics(trainer: Trainer, folder: Path) -> None:
    """Write metrics.csv: one row per finished epoch."""
    write_atomically(folder / METRICS, csv_bytes(trainer.rows))


def write_inputs(trainer: Trainer, folder: Path) -> None:
    """Write the inputs of the training: scenario.toml and learner.json."""
    write_atomically(folder / "scenario.toml", dump_scenario(trainer.scenario).encode())
    text = json.dumps(trainer.settings.model_dump(mode="json"), indent=2) + "\n"
    write_atomically(folder / "learner.json", text.encode())


def trained_policy(trainer: Trainer) -> LearnedPolicy:
    """The policy of the best validations so far; of the current weights if there was none."""
    now = trainer.learner.target["head"].state_dict()
    weights = {
        way: {name: tensor.clone() for name, tensor in trainer.best.get(way, now).items()} for way in trainer.best_score
    }
    origin = {"seed": trainer.seed, "epochs": trainer.epoch, "learning": trainer.learning}
    return LearnedPolicy(trainer.settings, weights, trainer.scenario, origin=origin)
