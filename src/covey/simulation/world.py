"""The fixed side of a run: everything that is known before the first round and never changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from covey.arrays import make_read_only, read_only
from covey.data import UserData
from covey.data.over_time import DataOverTime
from covey.federated import Aggregation, Engine, Fleet, LocalTraining, Personal, Transport, Upload
from covey.identification import Rule
from covey.identification.start import Start
from covey.network import NetworkLimits, model_bits
from covey.privacy import Journal
from covey.radio import ChannelModel, MobilityModel
from covey.scenario import Scenario
from covey.security.parameters import WORD_BITS
from covey.seeding import generator


@dataclass(frozen=True)
class World:
    """What a round needs and does not change.

    stations_m: (B, 2) station coordinates. samples: (U,) training samples X_i. groups: (U,) true groups, for
    measurement only; -1 where unknown. clip: (U,) per-sample clipping norms C_i. weights: model weights D.
    first_models: (K, D) models before the first round. data: of all users at the start; None where users are
    elsewhere. meter: milliseconds that secure aggregation took here, by side and phase; no result depends on it.
    """

    scenario: Scenario
    seed: int
    stations_m: NDArray[np.float64]
    samples: NDArray[np.int64]
    test_samples: NDArray[np.int64]
    groups: NDArray[np.int64]
    clip: NDArray[np.float64]
    weights: int
    first_models: NDArray[np.float32]
    rule: Rule
    start: Start
    local_training: LocalTraining
    aggregation: Aggregation
    personal: Personal
    over_time: DataOverTime
    data: UserData | None
    channel: ChannelModel
    mobility: MobilityModel
    fleet: Fleet
    transport: Transport
    journal: Journal
    meter: dict[str, float]

    def __post_init__(self) -> None:
        make_read_only(self)

    @property
    def engine(self) -> Engine:
        """The fleet, where it is an engine: all users compute here."""
        if not isinstance(self.fleet, Engine):
            raise TypeError("the users of this run are elsewhere; only a simulated run has an engine")
        return self.fleet

    @property
    def has_personal(self) -> bool:
        """Whether users here keep models of their own; devices elsewhere keep theirs to themselves."""
        return self.personal.trains and self.data is not None

    @property
    def masked(self) -> bool:
        """Whether stations see masked sums only."""
        return self.scenario.security.mode == "masked"

    @property
    def blind(self) -> bool:
        """Whether stations do not know the users' tasks."""
        return self.scenario.security.mode != "none"

    @property
    def users(self) -> int:
        """Number of users, U."""
        return len(self.samples)

    @property
    def tasks(self) -> int:
        """Number of tasks, K."""
        return self.scenario.network.tasks

    @cached_property
    def limits(self) -> NetworkLimits:
        """What limits every round: the radio's numbers, and which station runs which task."""
        limits = NetworkLimits.of(self.scenario, self.weights)
        return replace(limits, capable=read_only(limits.capable))

    @property
    def capable(self) -> NDArray[np.bool_]:
        """(B, K): which station runs which task."""
        return self.limits.capable

    @property
    def model_bits(self) -> float:
        """Bits of one model on the air."""
        return model_bits(self.scenario.radio, self.weights)

    @property
    def upload_bits(self) -> float:
        """Bits of one upload on the air: a model, or the words of all tasks' slots where uploads are masked."""
        return self.tasks * (self.weights + 1) * WORD_BITS if self.masked else self.model_bits


@dataclass(frozen=True)
class LossyTransport:
    """Loses each upload with a probability, drawn anew for every user and round; the rest goes through `after`."""

    probability: float
    seed: int
    after: Transport | None = None

    def __call__(self, round: int, sent: Sequence[Upload]) -> Sequence[Upload]:
        """The uploads that arrive."""
        if self.probability > 0:
            drawn = (generator(self.seed, "loss", user=upload.user, round=round).random() for upload in sent)
            sent = [upload for upload, luck in zip(sent, drawn, strict=True) if luck >= self.probability]
        return sent if self.after is None else self.after(round, sent)


def clipping_norms(scenario: Scenario, samples: NDArray[np.int64]) -> NDArray[np.float64]:
    """(U,) per-sample clipping norms C_i = M / X_i with M = clip x mean(X) (errata E12)."""
    return np.asarray(scenario.training.clip * samples.mean() / samples, dtype=np.float64)
