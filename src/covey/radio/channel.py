"""Channel gains between users and stations: path loss, shadowing and fading.

Two parts: a channel (`ChannelModel`, made by a factory with the arguments of `Channel`) gives the gains of a round; a
path loss (`PathLoss`, made by a factory from the radio section) is the distance-dependent part of `Channel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from covey.arrays import FloatArray, read_only
from covey.part_checks import why_not_callable
from covey.parts import CHANNELS, PATH_LOSSES
from covey.scenario.schema import Radio, Scenario
from covey.seeding import generator

#: Maps distances in metres to path loss in dB, elementwise.
PathLoss = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class LogDistance:
    """Path loss `at_one_metre_db + slope_db * log10(distance_m)` in dB."""

    at_one_metre_db: float
    slope_db: float

    def __call__(self, distance_m: FloatArray) -> FloatArray:
        """Path loss in dB of each distance in metres."""
        return self.at_one_metre_db + self.slope_db * np.log10(distance_m)


def macro_path_loss(radio: Radio) -> PathLoss:
    """Urban macro cell at 2 GHz, 128.1 + 37.6 log10(d_km) dB (3GPP TR 36.942)."""
    return LogDistance(128.1 - 3 * 37.6, 37.6)


def micro_path_loss(radio: Radio) -> PathLoss:
    """Urban micro cell without line of sight, 22.7 + 36.7 log10(d_m) + 26 log10(f_GHz) dB (3GPP TR 36.814, annex B)."""
    return LogDistance(22.7 + 26.0 * math.log10(radio.carrier_hz / 1e9), 36.7)


def inverse_square_path_loss(radio: Radio) -> PathLoss:
    """Gain d^-2 with d in metres and no loss at one metre."""
    return LogDistance(0.0, 20.0)


def register_path_loss(name: str, factory: Callable[[Radio], PathLoss]) -> None:
    """Make `radio.path_loss = name` use what `factory(radio)` returns."""
    PATH_LOSSES.register(name, factory)


def build_path_loss(radio: Radio) -> PathLoss:
    """The path loss that a scenario's radio section names: a part called with that section."""
    path_loss: PathLoss = PATH_LOSSES.build(radio.path_loss, radio)
    if radio.path_loss not in PATH_LOSSES.builtin:
        _check_path_loss(radio.path_loss, path_loss)
    return path_loss


def _check_path_loss(name: str, path_loss: PathLoss) -> None:
    """Refuse a path loss of others that does not answer for a table of distances."""
    if why := why_not_callable(path_loss, 1):
        raise PATH_LOSSES.refused(name, f"gives what {why}; give a function from metres to dB")
    tried = np.array([[1.0, 10.0, 100.0], [2.0, 20.0, 200.0]])
    try:
        found = np.asarray(path_loss(read_only(tried)), dtype=np.float64)
    except (Exception, SystemExit) as error:  # code of others, which can raise anything
        said = " ".join(str(error).split())
        raise PATH_LOSSES.refused(name, f"fails for distances in metres ({type(error).__name__}: {said})") from error
    if found.shape != tried.shape or not np.isfinite(found).all():
        why = f"shape {found.shape}" if found.shape != tried.shape else "infinity or NaN"
        raise PATH_LOSSES.refused(name, f"gives {why} for distances of shape {tried.shape}; give a finite dB for each")


def build_channel(scenario: Scenario, seed: int) -> ChannelModel:
    """The channel that `radio.channel` names: a part called with (radio section, smallest distance in m, seed)."""
    channel: ChannelModel = CHANNELS.build(
        scenario.radio.channel, scenario.radio, scenario.network.min_distance_m, seed
    )
    return channel


def distances(users_m: FloatArray, stations_m: FloatArray) -> FloatArray:
    """Distance of every user to every station in metres, (..., U, B), from positions (..., U, 2) and (..., B, 2)."""
    squared = (users_m[..., :, None, :] - stations_m[..., None, :, :]) ** 2
    return np.asarray(np.sqrt(squared[..., 0] + squared[..., 1]), dtype=np.float64)


class ChannelModel(Protocol):
    """The interface of a channel."""

    def gains(self, users_m: FloatArray, stations_m: FloatArray, round: int) -> FloatArray:
        """Linear power gains (U, B) in this round, from positions in metres, (U, 2) and (B, 2)."""
        ...


class Channel:
    """Path loss with optional log-normal shadowing (fixed per run) and Rayleigh fading (redrawn every round).

    Distances are clamped to at least `min_distance_m`, so that gains stay finite.
    """

    def __init__(self, radio: Radio, min_distance_m: float, seed: int) -> None:
        if not min_distance_m > 0:
            raise ValueError(f"min_distance_m is {min_distance_m}; it must be positive, or the gain is unbounded")
        self._radio = radio
        self._path_loss = build_path_loss(radio)
        self._min_distance_m = min_distance_m
        self._seed = seed

    @property
    def draws(self) -> bool:
        """Whether gains depend on the seed; otherwise they depend on distances alone, also for a batch."""
        return self._radio.fading != "none" or self._radio.shadowing_db > 0

    def gains(self, users_m: FloatArray, stations_m: FloatArray, round: int) -> FloatArray:
        """Linear power gains (U, B) in this round, from positions in metres, (U, 2) and (B, 2)."""
        return self.gains_over(distances(users_m, stations_m), round)

    def gains_over(self, distance_m: FloatArray, round: int) -> FloatArray:
        """Linear power gains (U, B) in this round over these distances in metres, (U, B)."""
        loss_db = self._path_loss(np.maximum(distance_m, self._min_distance_m))
        if self._radio.shadowing_db > 0:
            # Drawn afresh from the same stream: the same link keeps its value without any stored state.
            shadowing = generator(self._seed, "shadowing").standard_normal(distance_m.shape)
            loss_db = loss_db + self._radio.shadowing_db * shadowing
        gain = 10.0 ** (-loss_db / 10.0)
        if self._radio.fading == "rayleigh":
            gain = gain * generator(self._seed, "fading", round=round).exponential(size=distance_m.shape)
        return np.asarray(gain, dtype=np.float64)
