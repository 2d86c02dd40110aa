"""Aggregation under masks: stations see sums per task over all stations, and no upload."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from covey.federated import Intake
from covey.scenario.schema import Security
from covey.simulation.stages import Decision, NewModels
from covey.simulation.state import State
from covey.simulation.world import World


def aggregate_masked(
    world: World, state: State, identities: NDArray[np.int64], decision: Decision, intake: Intake
) -> NewModels:
    """New models (K, D) from masked uploads of all stations together.

    Users whose upload did not arrive dropped out after the keys were agreed on; their masks are
    recovered from the others. A task with fewer uploads than the minimum, and all tasks where too many
    dropped out, keep their models.
    """
    # Imported here: only masked runs need cryptography, an extra that takes a while to load.
    from covey.security import Parameters, SeededEntropy, SystemEntropy, aggregate_masked

    security, users = world.scenario.security, intake.users
    joined = np.zeros(world.users, dtype=bool)
    task = identities[users]
    known = task >= 0
    wanted = len(np.unique(task[known & intake.accepted & np.isfinite(intake.weights).all(axis=1)]))
    unknown = np.full(world.tasks, -1)
    if len(users) < security.minimum:
        return NewModels(state.models.copy(), np.zeros(world.tasks), joined, closed_tasks=wanted, counts=unknown)
    found = world.fleet.open_masked_sums() or aggregate_masked(
        intake.weights,
        world.samples[users],
        task,
        decision.plan.station[users],
        parameters=Parameters(
            len(users), threshold(world.scenario.security, len(users)), security.minimum, world.tasks, world.weights
        ),
        dropped_before=np.flatnonzero(~intake.accepted).tolist(),
        entropy=SystemEntropy() if world.scenario.privacy.noise == "secure" else SeededEntropy(world.seed),
        run=f"{world.scenario.name}-{world.seed}",
        round=state.round,
    )
    models = state.models.copy()
    models[found.opened] = found.means()[found.opened]
    if not known.all():
        # Stations know nobody's task, only how many each has; an upload may be in a sum that stayed closed.
        wanted = int((found.counts > 0).sum())
    joined[users[found.uploaded & np.where(known, found.opened[task], found.opened.any())]] = True
    sent = np.zeros(world.users, dtype=np.int64)
    sent[users] = found.cost.total_up_bytes() - found.cost.up_bytes["upload"]
    for phase in found.cost.user_ms:
        for side, spent in (("users", found.cost.user_ms[phase].sum()), ("stations", found.cost.station_ms[phase])):
            world.meter[f"{side}_{phase}"] = world.meter.get(f"{side}_{phase}", 0.0) + float(spent)
    return NewModels(
        models,
        found.samples.astype(np.float64),
        joined,
        closed_tasks=wanted - int(found.opened.sum()),
        unsent=len(found.refused),
        protocol_bytes=int(sent.sum() + found.cost.total_down_bytes().sum() + sum(found.cost.backhaul_bytes.values())),
        protocol_sent_bytes=sent,
        counts=found.counts,
    )


def without_small_tasks(world: World, identities: NDArray[np.int64], intake: Intake) -> Intake:
    """The uploads that masked aggregation would have opened, in the clear: to see that masks change nothing."""
    users = intake.users[intake.accepted]
    counts = np.bincount(identities[users], minlength=world.tasks)
    enough = len(users) >= threshold(world.scenario.security, len(intake.users)) if len(intake.users) else False
    opened = intake.accepted & (counts[identities[intake.users]] >= world.scenario.security.minimum) & enough
    return replace(intake, accepted=opened)


def counts_of(world: World, identities: NDArray[np.int64], intake: Intake) -> NDArray[np.int64]:
    """(K,) uploads for each task, as masked aggregation would tell stations; -1 where it would tell nothing."""
    users, asked = intake.users[intake.accepted], len(intake.users)
    if asked < world.scenario.security.minimum or len(users) < threshold(world.scenario.security, asked):
        return np.full(world.tasks, -1)
    return np.bincount(identities[users], minlength=world.tasks)


def threshold(security: Security, users: int) -> int:
    """How many of a round's users must stay for its sums to be opened: the scenario's share, but more than half."""
    return min(users, max(users // 2 + 1, math.ceil(security.threshold * users)))


def totals_of(world: World, identities: NDArray[np.int64], users: NDArray[np.int64]) -> NDArray[np.float64]:
    """(K,) samples of these users by task."""
    totals = np.zeros(world.tasks)
    np.add.at(totals, identities[users], world.samples[users])
    return totals


def broadcasting(world: World, changed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(B, K) bool: each changed model (K,) is broadcast once, by the first station that runs its task."""
    active = np.zeros_like(world.capable)
    tasks = np.flatnonzero(changed)
    active[world.capable[:, tasks].argmax(axis=0), tasks] = True
    return active
