"""Pieces of a comparison: one policy on a few layouts, computed anywhere, kept in a file, and not computed again."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.association import Policy
from covey.environment import Calibration, Learning, Rounds, View, rewards, vector_env
from covey.learners.policy import LearnedPolicy
from covey.learning import one_thread
from covey.pools import Pool, in_order, results
from covey.scenario import Scenario
from covey.scenario.load import fingerprint
from covey.seeding import generator
from covey.simulation.storage import make_folder, write_atomically

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Played:
    """What a policy earned: `values` by name, one per layout each; bytes of every decision; seconds of one decision."""

    values: dict[str, list[float]]
    exchanged: list[int]
    seconds: float


@dataclass(frozen=True)
class Piece:
    """A policy on a few layouts; `together` networks are played side by side, the surplus is dropped."""

    name: str
    policy: Policy
    seeds: tuple[int, ...]
    scenario: Scenario
    learning: Learning
    calibration: Calibration | None
    together: int

    @property
    def key(self) -> str:
        """A name for the file of the result, which holds a hash of everything it depends on."""
        content = [
            metadata.version("covey"),
            fingerprint(self.scenario),
            self.learning,
            None if self.calibration is None else self.calibration.constants.to_dict(),
            self.seeds,
            self.together,
            _identity(self.policy),
        ]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
        # A policy may be named by its file.
        name = re.sub(r"[^\w.-]+", "_", self.name)[-60:]
        return f"{name}-{self.seeds[0]}-{digest}"


class Player:
    """Plays pieces that differ in policy and layouts only; to be closed."""

    def __init__(self, piece: Piece) -> None:
        self._rounds: Rounds = vector_env(
            piece.scenario, piece.together, learning=piece.learning, calibration=piece.calibration
        )

    def play(self, piece: Piece) -> Played:
        """The result of a piece."""
        rounds, policy = self._rounds, piece.policy
        before = len(policy.exchanged) if isinstance(policy, LearnedPolicy) else 0
        seeds = [*piece.seeds, *piece.seeds[:1] * (piece.together - len(piece.seeds))]
        totals, seconds = _play(rounds, piece.scenario, policy, seeds)
        values = {
            name: np.asarray(total, dtype=np.float64)[: len(piece.seeds)].tolist() for name, total in totals.items()
        }
        exchanged = policy.exchanged[before:] if isinstance(policy, LearnedPolicy) else []
        return Played(values, [int(size) for size in exchanged], seconds)

    def close(self) -> None:
        """Free what real rounds hold."""
        if hasattr(self._rounds, "close"):
            self._rounds.close()


def play_piece(piece: Piece) -> Played:
    """The result of a piece, with everything that it needs made for it."""
    player = Player(piece)
    try:
        return player.play(piece)
    finally:
        player.close()


def play_pieces(pieces: Sequence[Piece], pool: Pool | None, kept: Path | None) -> Iterator[tuple[int, Played]]:
    """Index and result of every piece, in the order in which they are finished; those in `kept` first."""
    waiting = []
    for index, piece in enumerate(pieces):
        found = None if kept is None else _read(kept / f"{piece.key}.json")
        if found is None:
            waiting.append(index)
        else:
            yield index, found
    for index, played in _computed(pieces, waiting, pool):
        if kept is not None:
            make_folder(kept)
            write_atomically(kept / f"{pieces[index].key}.json", json.dumps(asdict(played)).encode() + b"\n")
        yield index, played


def _computed(pieces: Sequence[Piece], indices: list[int], pool: Pool | None) -> Iterator[tuple[int, Played]]:
    if not indices:
        return
    if pool is not None:
        yield from results(pool, in_order((index, play_piece, (pieces[index],)) for index in indices))
        return
    player = Player(pieces[indices[0]])
    try:
        for index in indices:
            with one_thread():  # as in a pool
                played = player.play(pieces[index])
            yield index, played
    finally:
        player.close()


def _read(path: Path) -> Played | None:
    """A result that was kept; none if there is none or it is damaged."""
    try:
        return Played(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _identity(policy: Policy) -> Any:
    """What tells a policy from others: the weights and settings of a learned one, the name of a reference."""
    if not isinstance(policy, LearnedPolicy):
        return getattr(policy, "__qualname__", type(policy).__qualname__)
    digest = hashlib.sha256()
    for name, tensor in sorted(policy.weights[policy.way].items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return [policy.way, policy.settings.model_dump(mode="json"), digest.hexdigest()]


def _play(rounds: Rounds, scenario: Scenario, policy: Policy, seeds: list[int]) -> tuple[dict[str, Any], float]:
    """Values of an episode by name, one per layout, and the seconds of one decision."""
    view = rounds.reset(seeds)
    totals: dict[str, Any] = {}
    seconds = 0.0
    while not rounds.done:
        started = time.perf_counter()
        selected = _choose(policy, view, rounds, seeds)
        seconds += time.perf_counter() - started
        outcome = rounds.step(selected)
        gained = rewards(outcome, view.samples, scenario.reward)
        values = {
            "reward": gained.team,
            "without_penalty": gained.without_penalty,
            "violators": gained.violators,
            "served": outcome.served / rounds.site.rounds,
            **{f"kind.{kind}": flags.sum(axis=1).astype(np.float64) for kind, flags in outcome.kinds.items()},
        }
        totals = {key: totals.get(key, 0.0) + value for key, value in values.items()}
        final_loss = (view.samples * outcome.loss).sum(axis=1) / view.samples.sum(axis=1)
        view = rounds.view
    return totals | {"final_loss": final_loss}, seconds / (rounds.site.rounds * len(seeds))


def _choose(policy: Policy, view: View, rounds: Rounds, seeds: list[int]) -> NDArray[np.bool_]:
    if isinstance(policy, LearnedPolicy):
        return policy.select(view, rounds.site)
    chosen = [
        policy(view.observation(rounds.site, index), generator(seed, "policy", round=view.round))
        for index, seed in enumerate(seeds)
    ]
    return np.stack(chosen)
