"""Mobility models: pure functions on arrays of positions, applied between two rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeGuard

import numpy as np

from covey.arrays import FloatArray
from covey.parts import MOBILITIES
from covey.scenario.schema import Mobility

Area = tuple[float, float]


class MobilityModel(Protocol):
    """The interface of a mobility model; it is stateless, so that a run can be saved and resumed."""

    def start(self, positions_m: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The model's memory at the start, (U, m); m may be 0."""
        ...

    def move(
        self, positions_m: FloatArray, memory: FloatArray, duration_s: float, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Positions (U, 2) in metres and memory (U, m) after `duration_s` seconds."""
        ...


class DrawnMobility(ABC):
    """A mobility model that separates random draws from movement, so that a batch moves in one vectorised call."""

    @abstractmethod
    def start(self, positions_m: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The model's memory at the start, (U, m); m may be 0."""

    @abstractmethod
    def draw(self, users: int, rng: np.random.Generator) -> FloatArray:
        """All random numbers of one network's move, (U, d); d may be 0."""

    @abstractmethod
    def moved(
        self, positions_m: FloatArray, memory: FloatArray, drawn: FloatArray, duration_s: float
    ) -> tuple[FloatArray, FloatArray]:
        """Positions (..., U, 2) and memory (..., U, m) after `duration_s` seconds; drawn: (..., U, d), by `draw`."""

    def move(
        self, positions_m: FloatArray, memory: FloatArray, duration_s: float, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Positions (U, 2) in metres and memory (U, m) after `duration_s` seconds."""
        return self.moved(positions_m, memory, self.draw(len(positions_m), rng), duration_s)


def moves_in_arrays(model: MobilityModel) -> TypeGuard[DrawnMobility]:
    """Whether the model can move a batch in one call: it is a `DrawnMobility` that does not override `move`."""
    return isinstance(model, DrawnMobility) and type(model).move is DrawnMobility.move


def reflect(positions_m: FloatArray, area_m: Area) -> FloatArray:
    """Positions (..., U, 2) reflected at the borders of the area."""
    size = np.asarray(area_m, dtype=np.float64)
    folded = size - np.abs(size - np.mod(positions_m, 2 * size))
    return np.asarray(np.minimum(np.maximum(folded, 0.0), size))


@dataclass(frozen=True)
class Static(DrawnMobility):
    """Users stay where they are."""

    def start(self, positions_m: FloatArray, rng: np.random.Generator) -> FloatArray:
        """No memory: (U, 0)."""
        return np.empty((len(positions_m), 0))

    def draw(self, users: int, rng: np.random.Generator) -> FloatArray:
        """Nothing: (U, 0)."""
        return np.empty((users, 0))

    def moved(
        self, positions_m: FloatArray, memory: FloatArray, drawn: FloatArray, duration_s: float
    ) -> tuple[FloatArray, FloatArray]:
        """The same positions."""
        return positions_m.copy(), memory


@dataclass(frozen=True)
class RandomWalk(DrawnMobility):
    """Every round a new random heading at constant speed, reflected at the borders of the area."""

    speed_m_s: float
    area_m: Area

    def start(self, positions_m: FloatArray, rng: np.random.Generator) -> FloatArray:
        """No memory: (U, 0)."""
        return np.empty((len(positions_m), 0))

    def draw(self, users: int, rng: np.random.Generator) -> FloatArray:
        """The headings in radians, (U, 1)."""
        return rng.uniform(0.0, 2 * np.pi, (users, 1))

    def moved(
        self, positions_m: FloatArray, memory: FloatArray, drawn: FloatArray, duration_s: float
    ) -> tuple[FloatArray, FloatArray]:
        """Positions after one straight step of `speed * duration_s` metres."""
        step_m = self.speed_m_s * duration_s * np.concatenate((np.cos(drawn), np.sin(drawn)), axis=-1)
        return reflect(positions_m + step_m, self.area_m), memory


@dataclass(frozen=True)
class RandomWaypoint(DrawnMobility):
    """Users head for a random point; on arrival they wait there until the round ends, then pick the next one."""

    speed_m_s: float
    area_m: Area

    def start(self, positions_m: FloatArray, rng: np.random.Generator) -> FloatArray:
        """The first targets, (U, 2) in metres."""
        return rng.uniform(0.0, self.area_m, (len(positions_m), 2))

    def draw(self, users: int, rng: np.random.Generator) -> FloatArray:
        """New targets, (U, 2) in metres; for all users, so that one arrival does not shift the random stream."""
        return rng.uniform(0.0, self.area_m, (users, 2))

    def moved(
        self, positions_m: FloatArray, memory: FloatArray, drawn: FloatArray, duration_s: float
    ) -> tuple[FloatArray, FloatArray]:
        """Positions on the way to the targets, and the targets of the next round."""
        way_m = memory - positions_m
        left_m = np.linalg.norm(way_m, axis=-1, keepdims=True)
        reach_m = self.speed_m_s * duration_s
        arrived = left_m <= reach_m
        share = np.divide(reach_m, left_m, out=np.ones_like(left_m), where=~arrived)
        positions = np.where(arrived, memory, positions_m + share * way_m)
        return np.clip(positions, 0.0, self.area_m), np.where(arrived, drawn, memory)


def build_static(mobility: Mobility, area_m: Area) -> Static:
    """Users stay where they are."""
    return Static()


def build_random_walk(mobility: Mobility, area_m: Area) -> RandomWalk:
    """A new random heading in every round, at constant speed."""
    return RandomWalk(mobility.speed_m_s, area_m)


def build_random_waypoint(mobility: Mobility, area_m: Area) -> RandomWaypoint:
    """Straight paths to random points, at constant speed."""
    return RandomWaypoint(mobility.speed_m_s, area_m)


def register_mobility(name: str, factory: Callable[[Mobility, Area], MobilityModel]) -> None:
    """Make `mobility.model = name` use what `factory(mobility, area_m)` returns."""
    MOBILITIES.register(name, factory)


def build_mobility(mobility: Mobility, area_m: Area) -> MobilityModel:
    """The model that a scenario's mobility section names: a part called with that section and the area in metres."""
    model: MobilityModel = MOBILITIES.build(mobility.model, mobility, area_m)
    return model
