"""Compares the corrected convergence bound with a real run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covey.data import UserData
from covey.errors import ScenarioError
from covey.federated import build_model, clipped_gradient_sum, evaluate, load_flat
from covey.federated.losses import cross_entropy
from covey.scenario import Scenario
from covey.scenario.schema import LOCAL_OPTIONS
from covey.seeding import generator
from covey.simulation import Simulation
from covey.simulation.record import RoundRecord
from covey.theory import (
    Curvature,
    RunBound,
    StepMeasures,
    TaskBound,
    estimated_curvature,
    largest_of,
    measure_users,
    softmax_curvature,
)

Weights = NDArray[np.float32]
Floats = NDArray[np.float64]

#: Points of the path, and samples of a group, on which curvature is estimated where it cannot be bounded.
_POINTS, _SAMPLES = 3, 256


def play_and_measure(
    simulation: Simulation,
    on_round: Callable[[RoundRecord], None] = lambda _: None,
    advance: Callable[[], None] = lambda: None,
) -> RunBound:
    """Play a run to its end and measure its bounds; `advance` is called after every task and round measured.

    Refuses growth, and a start or offers that replace models, because a bound follows a model from one step to the
    next.
    """
    refuse_growth(simulation.world.scenario)
    refuse_other_steps(simulation)
    models = [simulation.state.models]
    while not simulation.done:
        on_round(simulation.play())
        models.append(simulation.state.models)
    return measure_bound(simulation, models, advance)


def refuse_growth(scenario: Scenario) -> None:
    """Refuse a scenario whose models become more: one that is taken into use later has no step that leads to it."""
    if scenario.first_tasks < scenario.network.tasks:
        raise ScenarioError(
            "a bound follows each model from step to step, but models of this scenario are added later, up to"
            f" {scenario.network.tasks}; leave out clustering.max_tasks and clustering.first_tasks (or set them to"
            " default), and set network.tasks to the number of models"
        )


def refuse_other_steps(simulation: Simulation) -> None:
    """Refuse a run whose models do not go one step of a fixed learning rate from round to round."""
    world = simulation.world
    keys = [("training", key) for key in ("schedule", "server", "server_rate")]
    if ":" not in world.scenario.training.local:
        # What chose the local training comes before it: putting back `local` alone would not help.
        chosen_by = (*(("training", key) for key in LOCAL_OPTIONS), ("privacy", "unit"))
        keys = [*chosen_by, ("training", "local"), *keys]
    for name, key in keys:
        section = getattr(world.scenario, name)
        chosen = getattr(section, key)
        if chosen != type(section).model_fields[key].default:
            raise ScenarioError(
                f"a bound is for one step of a fixed learning rate in each round, but {name}.{key} is '{chosen}'; put"
                f" it back with {name}.{key}=default"
            )
    if world.personal.uploads:
        raise ScenarioError(
            "a bound is for one step from the model of a task, but training.personal is"
            f" '{world.scenario.training.personal}', whose steps start from users' own models; put it back with"
            " training.personal=default"
        )
    loss = world.scenario.training.loss
    if loss != "cross_entropy":
        raise ScenarioError(
            f"a bound is for cross-entropy, whose curvature and lower bound are known, but training.loss is '{loss}';"
            " put it back with training.loss=default"
        )
    rescue = world.scenario.clustering.rescue and world.rule.guided
    if rescue or world.start.under_way(0, {}):
        raise ScenarioError(
            "a bound follows each model from step to step, but clustering.start and clustering.rescue may replace"
            ' models; set clustering.start = "random" and clustering.rescue = false, the paper\'s start'
        )


@dataclass(frozen=True)
class _Users:
    """Losses and gradients of users' whole data at any weights."""

    module: nn.Module
    data: UserData

    def samples(self, user: int) -> tuple[Tensor, Tensor]:
        """All samples of one user and their classes."""
        rows = slice(int(self.data.offsets[user]), int(self.data.offsets[user + 1]))
        return torch.from_numpy(self.data.x[rows].copy()), torch.from_numpy(self.data.y[rows].copy())

    def loss_sum(self, weights: Weights, user: int) -> float:
        """Loss of one user, summed over its samples."""
        return evaluate(self.module, weights, *self.samples(user))[0]

    def gradients(self, weights: Weights, users: list[int], clip: Floats) -> tuple[Floats, float]:
        """(n, D) summed gradients of the users' samples clipped to `clip` (n,), and the largest norm among them."""
        load_flat(self.module, weights)
        found = [clipped_gradient_sum(self.module, *self.samples(u), c) for u, c in zip(users, clip, strict=True)]
        norms = [min(float(one.norms.max()), float(c)) for one, c in zip(found, clip, strict=True)]
        return np.stack([one.total.numpy() for one in found]), max(norms)

    def hessian_product(self, weights: Weights, users: list[int]) -> Callable[[Floats], Floats]:
        """Hessian-vector product, (D,) to (D,), of the mean loss on at most `_SAMPLES` of the users' samples."""
        load_flat(self.module, weights)
        parameters = list(self.module.parameters())
        x, y = (torch.cat(parts) for parts in zip(*map(self.samples, users), strict=True))
        every = -(-len(y) // _SAMPLES)
        loss = cross_entropy(self.module(x[::every]), y[::every]).mean()
        slopes = torch.cat([s.flatten() for s in torch.autograd.grad(loss, parameters, create_graph=True)])

        def product(vector: Floats) -> Floats:
            along = slopes @ torch.from_numpy(vector).float()
            bends = torch.autograd.grad(along, parameters, retain_graph=True, materialize_grads=True)
            return torch.cat([bend.flatten() for bend in bends]).double().numpy()

        return product


def measure_bound(simulation: Simulation, models: list[Weights], advance: Callable[[], None]) -> RunBound:
    """The bounds of all tasks that stand for a group at the end, each judged on this group.

    models: (K, D) before the first round and after every round; `advance` is called after every task and round.
    """
    world, data, records = simulation.world, simulation.data, simulation.history.records
    if data is None:
        raise ScenarioError("the data of this run are on devices; bounds are measured on simulated runs")
    users = _Users(build_model(world.scenario.model, data.shape, len(data.classes)), data)
    groups = simulation.history.matched(records[-1])
    found = []
    for task, group in enumerate(groups.tolist()):
        members = np.flatnonzero(world.groups == group).tolist()
        if not members:
            continue
        samples = int(world.samples[members].sum())
        losses = [sum(users.loss_sum(model[task], user) for user in members) / samples for model in models]
        if not np.isfinite(losses).all():
            raise ScenarioError(
                f"the loss of task {task} stopped being a finite number; lower training.learning_rate, which is"
                f" {world.scenario.training.learning_rate}"
            )
        rounds = []
        for number in range(len(records)):
            rounds.append(_step(simulation, users, models, number, task, group, losses))
            advance()
        curvature = _curvature(users, world.scenario, [model[task] for model in models], members, world.seed)
        rate = world.scenario.training.learning_rate
        found.append(TaskBound(task, group, samples, rate, 0.0, curvature, StepMeasures.stack(rounds)))
    return RunBound(found)


def _step(
    simulation: Simulation,
    users: _Users,
    models: list[Weights],
    number: int,
    task: int,
    group: int,
    losses: list[float],
) -> StepMeasures:
    """Measures of a task in round `number`, with the gradients of its served users and its group."""
    world, training = simulation.world, simulation.world.scenario.training
    record, before = simulation.history.records[number].users, models[number]
    served, member = (record.joined == 1) & (record.identity == task), world.groups == group
    who, took = np.flatnonzero(served | member), np.flatnonzero(served)
    world.engine.publish(before, np.zeros_like(before))
    clean = world.engine.train(
        number,
        took,
        np.full(len(took), task),
        world.clip[took],
        np.zeros(len(took)),
        learning_rate=training.learning_rate,
        batch=training.batch,
        sizes=world.samples[took],
    )
    sums, _ = users.gradients(before[task], who.tolist(), np.full(len(who), math.inf))
    clipped_sums, largest = users.gradients(before[task], who.tolist(), world.clip[who])
    divisor = np.minimum(world.samples, training.batch or world.samples)
    return measure_users(
        loss=losses[number],
        next_loss=losses[number + 1],
        samples=world.samples[who].astype(np.float64),
        member=member[who],
        served=served[who],
        sums=sums,
        clipped_sums=clipped_sums,
        before=before[task].astype(np.float64),
        clean=clean.uploads.astype(np.float64),
        after=models[number + 1][task].astype(np.float64),
        learning_rate=training.learning_rate,
        noise_std=(record.noise_std / divisor)[who],
        largest=largest,
    )


def _curvature(users: _Users, scenario: Scenario, path: list[Weights], members: list[int], seed: int) -> Curvature:
    """An upper bound from the features for softmax models, else the largest estimate at points of the path."""
    if scenario.model.name == "softmax":
        features = np.concatenate([users.samples(user)[0].flatten(1).numpy() for user in members])
        return softmax_curvature(features, len(users.data.classes))
    vector: Floats = np.zeros(len(path[0]))
    found = []
    for point in sorted({round(share * (len(path) - 1)) for share in np.linspace(0.0, 1.0, _POINTS)}):
        product = users.hessian_product(path[point], members)
        curvature, vector = estimated_curvature(
            product, vector, generator(seed, "bootstrap", round=point), iterations=12
        )
        found.append(curvature)
    return largest_of(found)
