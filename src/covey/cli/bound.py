"""`covey bound`: the corrected convergence bound against a real run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional

from covey.association import Policy
from covey.cli.common import cores, progress_bar
from covey.data import UserData
from covey.errors import ScenarioError
from covey.learners.library import ALGORITHMS, learned_policy
from covey.learning import build_model, clipped_gradient_sum, evaluate, load_flat, matching
from covey.report.bound import bound_rows, bound_sentence, bound_tables, draw_bound, remarks
from covey.report.pictures import png
from covey.scenario import PRESETS, Scenario, load_scenario
from covey.seeding import generator
from covey.simulation import Simulation
from covey.simulation.storage import csv_bytes, prepare_folder, write_atomically
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


def bound(
    scenario: Annotated[str, typer.Argument(help=f"A preset ({', '.join(PRESETS)}) or a TOML file.")] = "quick",
    policy: Annotated[
        str,
        typer.Option(
            help="Who decides: random, nearest, coverage, greedy, local_search, exact, a learned one (dpvd, iql, qmix),"
            " or a policy file of `covey train`."
        ),
    ] = "greedy",
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Rounds to play; the scenario's own when not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random in the run.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for bound.json, bound.csv and bound.png.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a scenario key, e.g. training.clip=3. Repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> int:
    """Play a run and hold the corrected convergence bound against what it did.

    For every task and round: the loss, the bound on it, and how much of the bound missing users, wrong
    identities, clipping and noise make up. Constants are bounded exactly for softmax models and estimated
    along the path for others; the output says which. What it all means is in docs/theory.md.

    Examples:

      covey bound quick

      covey bound quick --policy random --seed 3 --out runs/bound

      covey bound quick --set clustering.rule=oracle --set privacy.noise=off
    """
    chosen = load_scenario(scenario, set_ or ())
    if out is not None:
        prepare_folder(out, overwrite=True)
    with (
        Simulation(
            chosen,
            _policy(policy, chosen),
            rounds=rounds,
            seed=seed,
            workers=min(cores(), chosen.network.users) if chosen.model.name == "cnn" else 1,
        ) as simulation,
        progress_bar(Console(stderr=True, quiet=quiet)) as progress,
    ):
        played, models = simulation.history.rounds, [simulation.state.models]
        playing = progress.add_task("playing", total=played, now="")
        measuring = progress.add_task("measuring", total=played * chosen.network.tasks, now="")
        while not simulation.done:
            record = simulation.play()
            models.append(simulation.state.models)
            progress.update(playing, advance=1, now=f"loss {record.loss:.2f}")
        result = _measure(simulation, models, lambda: progress.update(measuring, advance=1))
        progress.update(measuring, completed=played * chosen.network.tasks)
    sentence, notes = bound_sentence(result), remarks(result, chosen)
    about = {"scenario": chosen.name, "policy": policy, "seed": seed, "sentence": sentence, "remarks": notes}
    text = json.dumps(about | result.to_dict(), indent=2, allow_nan=False) + "\n"
    if out is not None:
        write_atomically(out / "bound.json", text.encode())
        write_atomically(out / "bound.csv", csv_bytes(bound_rows(result)))
        setting = f"scenario {chosen.name}, policy {policy}, seed {seed}"
        write_atomically(out / "bound.png", png(draw_bound(result, setting)))
    if as_json and not quiet:
        typer.echo(text, nl=False)
        return 0
    console = Console(quiet=quiet)
    console.print(sentence, style="bold", highlight=False)
    for table in bound_tables(result):
        console.print(table)
    for note in notes:
        console.print(f"- {note}", highlight=False)
    if out is not None:
        console.print(f"Results in [bold]{out}[/]", highlight=False, soft_wrap=True)
    return 0


def _policy(name: str, scenario: Scenario) -> str | Policy:
    """A reference policy's name, or the learned policy that is meant."""
    return learned_policy(name, scenario) if name in ALGORITHMS or name.endswith(".safetensors") else name


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
        """v (D,) to the Hessian of the mean loss of at most `_SAMPLES` of the users' samples at `weights`, times v."""
        load_flat(self.module, weights)
        parameters = list(self.module.parameters())
        x, y = (torch.cat(parts) for parts in zip(*map(self.samples, users), strict=True))
        every = -(-len(y) // _SAMPLES)
        loss = functional.cross_entropy(self.module(x[::every]), y[::every])
        slopes = torch.cat([s.flatten() for s in torch.autograd.grad(loss, parameters, create_graph=True)])

        def product(vector: Floats) -> Floats:
            along = slopes @ torch.from_numpy(vector).float()
            bends = torch.autograd.grad(along, parameters, retain_graph=True, materialize_grads=True)
            return torch.cat([bend.flatten() for bend in bends]).double().numpy()

        return product


def _measure(simulation: Simulation, models: list[Weights], advance: Callable[[], None]) -> RunBound:
    """The bounds of all tasks, each judged on the group that it stands for at the end."""
    world, data, records = simulation.world, simulation.data, simulation.history.records
    users = _Users(build_model(world.scenario.model, data.shape, len(data.classes)), data)
    groups = matching(records[-1].users.identity, world.groups, world.tasks)
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
    """What round `number` did to a task, with the gradients of everybody who matters to it."""
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
    """Bounded from the features for softmax models, else the largest of what is found at points of the path."""
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
