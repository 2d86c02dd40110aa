"""The learner: value networks of all stations, trained together through a mixer.

IQL, DPVD and QMIX are this one class with three mixers; everything else is the same.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covey.agents.admission_guard import admit, first_of_tasks
from covey.agents.exploration import explore, explore_utilities
from covey.agents.mixers import build_mixer
from covey.agents.networks import ALONE, FIRST, GUARDED, VIOLATION, AdditiveHead, Head, SubsetHead, initialise
from covey.agents.replay import Arrays
from covey.agents.settings import LearnerSettings
from covey.environment import Rewards, feature_names
from covey.network import NetworkLimits, Observation
from covey.seeding import generator

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

#: Clipping norm of a gradient step.
_MAX_NORM = 10.0


def parts_of(settings: LearnerSettings) -> int:
    """Number of parts of a value: gain alone, violations alone and gain behind the guard; or all in one."""
    return 3 if settings.split else 1


def build_head(settings: LearnerSettings, limits: NetworkLimits) -> nn.Module:
    """The value network of the settings, for a network of these limits; its weights are not initialised."""
    inputs = len(feature_names(settings.features, limits.tasks))
    parts = parts_of(settings)
    if settings.head == "additive":
        return AdditiveHead(inputs, settings.hidden, limits.radio.blocks, parts)
    return SubsetHead(
        inputs,
        settings.hidden,
        limits.radio.blocks,
        parts,
        stations=limits.stations,
        users=limits.users,
        dueling=settings.dueling,
        masked=settings.mask != "none",
    )


def choosable(observation: Observation, settings: LearnerSettings) -> Bools:
    """(..., B, U): the users that each station may select when it decides alone."""
    if settings.mask == "owned":
        return observation.owned
    if settings.mask == "able":
        return observation.eligible
    return np.repeat(observation.available[..., None, :], observation.limits.stations, axis=-2)


@dataclass
class Moments:
    """Running mean and variance of a stream of numbers (Welford)."""

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: Floats) -> None:
        """Update with more numbers."""
        count, mean = float(values.size), float(values.mean())
        delta, total = mean - self.mean, self.count + count
        self.squares += float(((values - mean) ** 2).sum()) + delta**2 * self.count * count / total
        self.mean += delta * count / total
        self.count = total

    @property
    def std(self) -> float:
        """Standard deviation, never 0."""
        return max(math.sqrt(self.squares / max(self.count, 1.0)), 1e-6)


@dataclass
class Learner:
    """Value networks, target network and optimiser. `act` selects, `rows` makes transitions, `update` learns."""

    limits: NetworkLimits
    settings: LearnerSettings
    seed: int
    state_size: int
    penalty_unit: float
    team: Moments = field(default_factory=Moments)
    own: Moments = field(default_factory=Moments)
    steps: int = 0

    def __post_init__(self) -> None:
        self.network = nn.ModuleDict(
            {
                "head": build_head(self.settings, self.limits),
                "mixers": nn.ModuleList(
                    build_mixer(self.settings.mixer, self.limits.stations, self.state_size)
                    for _ in range(parts_of(self.settings))
                ),
            }
        )
        initialise(self.network, generator(self.seed, "network"))
        self.target = copy.deepcopy(self.network)
        self.optimiser = torch.optim.Adam(self.network.parameters(), lr=self.settings.learning_rate)

    @property
    def head(self) -> Head:
        """The network that acts: the target network, whose slow updates keep the policy stable."""
        return self._head(self.target)

    def act(
        self,
        observation: Observation,
        features: NDArray[np.float32],
        eligible: Bools,
        choosable: Bools,
        epsilon: float,
        guarded: int,
        rng: np.random.Generator,
    ) -> tuple[Bools, Bools]:
        """Epsilon-greedy selections (N, B, U) of `choosable` users.

        The first `guarded` networks pass the admission guard, which admits any of the `eligible`; the second array
        marks the first user of each task among them.
        """
        with torch.no_grad():
            inputs = torch.from_numpy(features)
            selected = np.array(self.head.best(inputs, torch.from_numpy(choosable)).numpy(), dtype=bool)
            wanted = self.head.utilities(inputs[:guarded], torch.from_numpy(eligible[:guarded]))
            lead, further = (part.numpy().astype(np.float64) for part in wanted)
        selected = explore(
            selected, choosable, self.limits.radio.blocks, epsilon, rng, flip=self.settings.exploration == "flip"
        )
        first = np.zeros_like(selected)
        if guarded:
            lead, further = explore_utilities(lead, further, epsilon, rng)
            selected[:guarded] = admit(lead, further, observation[:guarded])
            first[:guarded] = first_of_tasks(selected[:guarded], lead, observation.identities[:guarded])
        return selected, first

    def rows(self, rewards: Rewards, next_cost: Floats, round: int, marginal: Floats | None = None) -> Arrays:
        """The reward columns of transitions: team (N,) and station (N, B) rewards without penalty, and violations.

        next_cost: (N,) cost before the next round, after users have announced their tasks again; marginal: (N, U)
        marginal gains of the users, where they are learned from.
        """
        if self.settings.shaping:
            # Loss saved in this round and in all rounds left: potential-based shaping with -(rounds left) x cost,
            # whose sum over an episode is the same for every policy, so that it does not change their ranking.
            left = self.limits.rounds - round - 1
            saved = rewards.cost_before - rewards.cost + left * (rewards.cost_before - next_cost)
            team = saved - rewards.leakage_cost
        else:
            team = rewards.without_penalty
        shares = rewards.station_violations / np.maximum(rewards.violators, 1.0)[:, None]
        own = rewards.stations + rewards.penalty[:, None] * shares
        if self.settings.shaping:
            own = own + rewards.cost_before[:, None] / self.limits.stations
        if marginal is None:
            self.team.add(team)
        else:
            self.team.add(marginal)
        self.own.add(own)
        return {
            "team": team,
            "own": own,
            "penalty": rewards.penalty / max(self.penalty_unit, 1e-12),
            "shares": shares,
        }

    def update(self, batch: Arrays, learning_rate: float) -> float:
        """One gradient step on a batch of transitions; returns the loss before it."""
        self.optimiser.param_groups[0]["lr"] = learning_rate
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}
        loss = self._loss(tensors)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.network.parameters(), _MAX_NORM)
        self.optimiser.step()
        self.steps += 1
        for network in (self.network, self.target):
            self._head(network).price.fill_(self._price())
        self._follow()
        return float(loss.detach())

    def _loss(self, tensors: dict[str, Tensor]) -> Tensor:
        """Mean squared TD error, each part of the value where it applies."""
        if "marginal" in tensors:
            return self._marginal_loss(tensors)
        values = self._head(self.network).value(tensors["features"], tensors["selected"], tensors["first"])
        error = (self._mix(self.network, values, tensors["state"]) - self._targets(tensors)) ** 2
        if not self.settings.split:
            return error.mean()
        violation = error[..., VIOLATION]
        if self.settings.charge == "station":
            violation = (values[..., VIOLATION] - self._charged(tensors)) ** 2
        # Guarded transitions carry no information about deciding alone, and vice versa.
        alone = tensors["alone"][:, None].float()
        return _mean(error[..., ALONE], alone) + _mean(violation, alone) + _mean(error[..., GUARDED], 1.0 - alone)

    def _marginal_loss(self, tensors: dict[str, Tensor]) -> Tensor:
        """Mean squared errors of every eligible user's gain against its marginal gain, and of violations.

        Alone, a user's gain does not depend on others; behind the guard, the first user of a task has a separate gain.
        """
        head = cast(AdditiveHead, self._head(self.network))
        values, base = head(tensors["features"])
        worth = (tensors["marginal"] / self.team.std).float()[:, None, :]
        eligible, sole = tensors["eligible"], tensors["sole"][:, None, :]
        lead = values[..., GUARDED] + values[..., FIRST]
        violation = base[..., VIOLATION] + (values[..., VIOLATION] * tensors["selected"]).sum(dim=-1)
        return (
            _mean((values[..., ALONE] - worth) ** 2, eligible)
            + _mean((lead - worth) ** 2, eligible & sole)
            + _mean((values[..., GUARDED] - worth) ** 2, eligible & ~sole)
            + _mean((violation - self._charged(tensors)) ** 2, tensors["alone"][:, None])
        )

    def _follow(self) -> None:
        """Soft update of the target network."""
        rate = self.settings.target_rate
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.network.parameters(), strict=True):
                old.lerp_(new, rate)

    def _mix(self, network: nn.ModuleDict, values: Tensor, state: Tensor) -> Tensor:
        """(N, 1, C), or (N, B, C) for independent stations: the team's value of the stations' values (N, B, C)."""
        mixers = cast(nn.ModuleList, network["mixers"])
        return torch.stack([mixer(values[..., part], state) for part, mixer in enumerate(mixers)], dim=-1)

    @staticmethod
    def _head(network: nn.ModuleDict) -> Head:
        return cast(Head, network["head"])

    def _targets(self, tensors: dict[str, Tensor]) -> Tensor:
        """Like `_mix`: reward plus discounted value of the next state, Eq. (34).

        Terminal states do not bootstrap, and there is a discount (errata E36).
        """
        rewards = self._scaled(tensors).float()
        if self.settings.discount == 0.0:
            return rewards
        target, following = self._head(self.target), tensors["next_features"]
        chooser = self._head(self.network) if self.settings.double else target
        with torch.no_grad():
            chosen = chooser.best(following, tensors["next_choosable"])
            value = self._mix(
                self.target, target.value(following, chosen, torch.zeros_like(chosen)), tensors["next_state"]
            )
        return rewards + self.settings.discount * value * (~tensors["done"]).float()[:, None, None]

    def _scaled(self, tensors: dict[str, Tensor]) -> Tensor:
        """The scaled reward, (N, 1 or B, C) (errata E39).

        With `split`, gains are the normalised reward without penalty and violations the square root of the penalty in
        units: for the progressive penalty, the number of violating users, which is additive over stations.
        """
        local = self._local
        rest = tensors["own"] if local else tensors["team"].unsqueeze(-1)
        penalty = tensors["penalty"].unsqueeze(-1) * (tensors["shares"] if local else 1.0)
        if self.settings.raw_reward:
            return (rest - self.penalty_unit * penalty).unsqueeze(-1)
        moments = self.own if local else self.team
        normal = (rest - moments.mean) / moments.std
        if self.settings.split:
            return torch.stack([normal, torch.sqrt(penalty), normal], dim=-1)
        return (normal - self.settings.penalty_weight * torch.log1p(penalty)).unsqueeze(-1)

    def _charged(self, tensors: dict[str, Tensor]) -> Tensor:
        """(N, B): square root of the penalty in units, each station's share of it."""
        return (torch.sqrt(tensors["penalty"]).unsqueeze(-1) * tensors["shares"]).float()

    @property
    def _local(self) -> bool:
        return self.settings.mixer == "none" and self.settings.iql_reward == "local"

    def _price(self) -> float:
        """Price of one violating user, in the network's units of reward."""
        moments = self.own if self._local else self.team
        return self.settings.penalty_weight * self.penalty_unit / moments.std


def _mean(errors: Tensor, where: Tensor) -> Tensor:
    """Mean of errors over the elements, or rows, where the mask is set; 0 when there is none."""
    weights = where.float().expand_as(errors)
    return (errors * weights).sum() / weights.sum().clamp_min(1.0)
