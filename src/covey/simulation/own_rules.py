"""Checks of what rules and starts of one's own give: tasks, charges, models, and what they remember."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.arrays import read_only
from covey.faults import Named, named_faults
from covey.identification import Identification, Regrouped
from covey.identification.rule import RESERVED, Memory
from covey.identification.start import IN_PLAY, Start
from covey.parts import STARTS, Registry
from covey.privacy import Ledger
from covey.scenario import Scenario
from covey.simulation.answers import check_memory, kind_of, not_models, not_numbers, not_users, refused
from covey.simulation.state import State
from covey.simulation.world import World


def checked_tasks(world: World, registry: Registry, part: Any, tasks: Any, called: str) -> NDArray[np.int64]:
    """(U,) tasks that `part` gave in its method `called`; -1 is for users whose task nobody here knows."""
    lowest = -1 if world.blind else 0
    array = isinstance(tasks, np.ndarray) and tasks.dtype.kind in "iu" and tasks.shape == (world.users,)
    if not array or tasks.min() < lowest or tasks.max() >= world.tasks:
        found = f"{tasks.dtype} of shape {tasks.shape}" if isinstance(tasks, np.ndarray) else kind_of(tasks)
        numbers = f" from {tasks.min()} to {tasks.max()}" if array else ""
        raise refused(
            world,
            registry,
            part,
            f"gave tasks in `{called}` that are {found}{numbers}; give a whole number from {lowest} to"
            f" {world.tasks - 1} for each of {world.users} users",
        )
    return np.asarray(tasks)


def checked_identification(world: World, registry: Registry, part: Any, found: Any, state: State) -> Identification:
    """The tasks of a round that begins with `state`, its charges and others, and what is remembered of finding them."""
    if not isinstance(found, Identification):
        why = f"gave {kind_of(found)}, not a covey.identification.Identification"
        raise refused(world, registry, part, why)
    checked_tasks(world, registry, part, found.identities, "find")
    ledger: Any = found.ledger
    if not isinstance(ledger, Ledger):
        why = f"gave {kind_of(ledger)} as ledger in `find`; give at.ledger, or a copy of it with charges"
        raise refused(world, registry, part, why)
    if why := ledger.why_not_after(state.ledger):
        raise refused(world, registry, part, f"gave a ledger in `find` that {why}")
    for name, users in (("uploaders", found.uploaders), ("refused", found.refused)):
        if why := not_users(users, world.users):
            raise refused(world, registry, part, f"gave `{name}` in `find` that {why}")
    return replace(found, memory=_remembered(world, registry, part, found.memory, state.memory))


def checked_groups(world: World, registry: Registry, part: Any, groups: Any, before: Memory) -> Regrouped:
    """What a round made of the groups; before: what was remembered when it began."""
    if not isinstance(groups, Regrouped):
        why = f"gave {kind_of(groups)} in `after_round`, not a covey.identification.Regrouped"
        raise refused(world, registry, part, why)
    checked_tasks(world, registry, part, groups.identities, "after_round")
    for name, weights in (("models", groups.models), ("movements", groups.movements)):
        if weights is not None and (why := not_models(world, weights)):
            raise refused(world, registry, part, f"gave {name} in `after_round` that {why}")
    if groups.fresh is not None and (why := not_numbers(groups.fresh, (world.tasks,), np.bool_)):
        raise refused(world, registry, part, f"gave `fresh` in `after_round` that {why}")
    return replace(groups, memory=_remembered(world, registry, part, groups.memory, before))


def first_models(scenario: Scenario, start: Start, drawn: NDArray[np.float32]) -> NDArray[np.float32]:
    """(K, D) models that the start makes of those that were drawn, (K, D)."""
    named = Named.of(STARTS, start, scenario)
    with named_faults(lambda: [named], "before round 1"):
        models: Any = start.models(read_only(drawn))
    if why := not_numbers(models, drawn.shape, np.float32):
        raise STARTS.refused(named.name, f"made models that {why}")
    if not np.isfinite(models).all():
        raise STARTS.refused(named.name, "made models that hold NaN or infinity")
    return np.asarray(models)


def started(world: World) -> tuple[NDArray[np.bool_], Memory]:
    """(B, K) broadcasts of the first round, and what the start remembers before it."""
    memory: Any = world.start.memory
    check_memory(world, STARTS, world.start, memory, "memory")
    _check_in_play(world, memory)
    active: Any = world.start.broadcasts(world.capable)
    if why := not_numbers(active, world.capable.shape, np.bool_):
        raise refused(world, STARTS, world.start, f"gave broadcasts that {why}")
    return np.asarray(active), memory


def _remembered(world: World, registry: Registry, part: Any, memory: Any, before: Memory) -> Memory:
    """What a rule or a start remembers, and under reserved names what there was `before`.

    A rule cannot change those; a start can, but for models in play that it leaves out.
    """
    check_memory(world, registry, part, memory)
    if registry is STARTS:
        _check_in_play(world, memory)
        return {IN_PLAY: before[IN_PLAY], **memory} if IN_PLAY in before and IN_PLAY not in memory else memory
    kept = {name: values for name, values in before.items() if name.startswith(RESERVED)}
    for name in memory:
        mine = name.startswith(RESERVED)
        if mine and not (name in kept and (memory[name] is kept[name] or np.array_equal(memory[name], kept[name]))):
            why = f"remembers '{name}', a name that covey keeps for itself ({', '.join(RESERVED)}); choose another"
            raise refused(world, registry, part, why)
    return dict(memory) | kept


def _check_in_play(world: World, memory: Memory) -> None:
    """Refuse a start whose models in play are no flags."""
    if IN_PLAY in memory and (why := not_numbers(memory[IN_PLAY], (world.tasks,), np.bool_)):
        raise refused(world, STARTS, world.start, f"remembers '{IN_PLAY}' that {why}")
