"""Parts that others wrote, in a run: what they return is checked, and what they raise names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.association import Policy
from covey.data import UserData
from covey.errors import CoveyError, ScenarioError
from covey.faults import Named, named_faults
from covey.federated import Accepted, Upload
from covey.identification import Identification, Regrouped, ScoreRule
from covey.identification.rule import Memory
from covey.network import Plan
from covey.parts import (
    AGGREGATIONS,
    ANNOUNCEMENTS,
    CHANNELS,
    DATA_OVER_TIME,
    LOCAL_TRAININGS,
    MOBILITIES,
    PERSONALS,
    POLICIES,
    RULES,
    STARTS,
    UPLINKS,
    Registry,
)
from covey.privacy import GaussianReleases
from covey.simulation.world import LossyTransport, World
from covey.uplink.protocol import AirTime

#: No scenario names a transport: it is an argument of `simulate`, and what it raises is for the program that gave it.
TRANSPORT = Registry("transport", "transport", "transport", {}, protocol="covey.federated.intake")


def faults_named(world: World, when: str, policy: Policy | None = None) -> AbstractContextManager[None]:
    """Whatever a part of the run raises inside becomes one sentence that names it; `when` is as in "in round 3"."""
    return named_faults(lambda: _parts(world, policy), when)


def _parts(world: World, policy: Policy | None) -> Sequence[Named]:
    rule = world.rule
    pairs: list[tuple[Registry, Any]] = [
        (RULES, rule),
        (STARTS, world.start),
        (LOCAL_TRAININGS, world.local_training),
        (PERSONALS, world.personal),
        (AGGREGATIONS, world.aggregation),
        (DATA_OVER_TIME, world.over_time),
        (CHANNELS, world.channel),
        (MOBILITIES, world.mobility),
        (UPLINKS, world.limits.uplink),
        (POLICIES, policy),
    ]
    if isinstance(rule, ScoreRule):
        pairs.append((ANNOUNCEMENTS, rule.announcement))
    return [Named.of(registry, part, world.scenario) for registry, part in pairs if part is not None]


def checked_data(world: World, data: Any) -> UserData:
    """The users' data of a round."""
    if not isinstance(data, UserData):
        raise _refused(world, DATA_OVER_TIME, world.over_time, f"gave {_kind(data)}, not a covey.UserData")
    if data.groups.shape != world.groups.shape or data.groups.max() >= world.scenario.groups:
        raise _refused(
            world,
            DATA_OVER_TIME,
            world.over_time,
            f"gave groups of shape {data.groups.shape} numbered up to {data.groups.max()}; give one from 0 to"
            f" {world.scenario.groups - 1} for each of {world.users} users",
        )
    return data


def checked_gains(world: World, gains: Any) -> NDArray[np.float64]:
    """(U, B) gains of a round."""
    shape = (world.users, world.scenario.network.stations)
    if why := _not_numbers(gains, shape):
        raise _refused(world, CHANNELS, world.channel, f"gave gains that {why}")
    if not (np.isfinite(gains).all() and (gains >= 0).all()):
        raise _refused(world, CHANNELS, world.channel, "gave gains that are negative, infinite or not a number")
    return np.asarray(gains)


def checked_positions(
    world: World, moved: Any, memory: Any, called: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(U, 2) positions and (U, m) memory that the mobility's method `called` gave."""
    why = _not_numbers(moved, (world.users, 2))
    if why or not np.isfinite(moved).all():
        why = why or "are not finite"
        raise _refused(world, MOBILITIES, world.mobility, f"gave positions in `{called}` that {why}")
    if why := _not_numbers(memory, (world.users, None)):
        raise _refused(world, MOBILITIES, world.mobility, f"gave a memory in `{called}` that {why}")
    return np.asarray(moved), np.asarray(memory)


def moved(world: World, answer: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions and memory from the answer of `move`."""
    if not (isinstance(answer, tuple) and len(answer) == 2):
        why = f"gave {_kind(answer)} in `move`; return the pair (positions, memory)"
        raise _refused(world, MOBILITIES, world.mobility, why)
    return checked_positions(world, *answer, called="move")


def checked_tasks(world: World, registry: Registry, part: Any, tasks: Any, called: str) -> NDArray[np.int64]:
    """(U,) tasks that `part` gave in its method `called`; -1 is for users whose task nobody here knows."""
    lowest = -1 if world.blind else 0
    array = isinstance(tasks, np.ndarray) and tasks.dtype.kind in "iu" and tasks.shape == (world.users,)
    if not array or tasks.min() < lowest or tasks.max() >= world.tasks:
        found = f"{tasks.dtype} of shape {tasks.shape}" if isinstance(tasks, np.ndarray) else _kind(tasks)
        numbers = f" from {tasks.min()} to {tasks.max()}" if array else ""
        raise _refused(
            world,
            registry,
            part,
            f"gave tasks in `{called}` that are {found}{numbers}; give a whole number from {lowest} to"
            f" {world.tasks - 1} for each of {world.users} users",
        )
    return np.asarray(tasks)


def checked_identification(world: World, registry: Registry, part: Any, found: Any) -> Identification:
    """The tasks of a round, and what is remembered of finding them."""
    if not isinstance(found, Identification):
        why = f"gave {_kind(found)}, not a covey.identification.Identification"
        raise _refused(world, registry, part, why)
    checked_tasks(world, registry, part, found.identities, "find")
    _check_memory(world, registry, part, found.memory)
    return found


def checked_groups(world: World, registry: Registry, part: Any, groups: Any) -> Regrouped:
    """What a round made of the groups."""
    if not isinstance(groups, Regrouped):
        why = f"gave {_kind(groups)} in `after_round`, not a covey.identification.Regrouped"
        raise _refused(world, registry, part, why)
    checked_tasks(world, registry, part, groups.identities, "after_round")
    _check_memory(world, registry, part, groups.memory)
    for name, weights in (("models", groups.models), ("movements", groups.movements)):
        if weights is not None and (why := _not_numbers(weights, (world.tasks, world.weights), np.float32)):
            raise _refused(world, registry, part, f"gave {name} in `after_round` that {why}")
    return groups


def checked_models(world: World, accepted: Accepted, models: Any) -> NDArray[np.float32]:
    """(K, D) models that the aggregation made; those of tasks without uploads are as before."""
    why = _not_numbers(models, accepted.models.shape, np.float32)
    if not why and not np.isfinite(models).all():
        why = "hold NaN or infinity"
    if not why:
        idle = np.setdiff1d(np.arange(world.tasks), accepted.task)
        if not np.array_equal(models[idle], accepted.models[idle]):
            why = "are new for a task without uploads, which keeps its model bit for bit"
    if why:
        raise _refused(world, AGGREGATIONS, world.aggregation, f"made models that {why}")
    return np.asarray(models)


def checked_advance(
    world: World, before: NDArray[np.float32], trained: NDArray[np.bool_], found: Any
) -> tuple[NDArray[np.float32], Memory]:
    """(K, D) models and memory from the answer of `advance`."""
    part, registry = world.aggregation, AGGREGATIONS
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
        raise _refused(world, registry, part, "gave no pair (models, memory) in `advance`")
    models, memory = found
    why = _not_numbers(models, before.shape, np.float32)
    if not why and not np.isfinite(models).all():
        why = "hold NaN or infinity"
    if not why and not np.array_equal(models[~trained], before[~trained]):
        why = "are new for a task without uploads, which keeps its model bit for bit"
    if why:
        raise _refused(world, registry, part, f"gave models in `advance` that {why}")
    _check_memory(world, registry, part, memory)
    return np.asarray(models), memory


def checked_costs(world: World, costs: Any, users: int) -> NDArray[np.float64]:
    """(n,) rho of the releases of `users` users."""
    why = _not_numbers(costs, (users,))
    if not why and not (costs >= 0).all():
        why = "are negative or not a number"
    if why:
        raise _refused(world, LOCAL_TRAININGS, world.local_training, f"gave costs in `rho` that {why}")
    return np.asarray(costs)


def checked_releases(world: World, releases: Any, users: int) -> GaussianReleases:
    """What `users` users release in an upload."""
    if not isinstance(releases, GaussianReleases):
        why = f"gave {_kind(releases)} in `releases`, not a covey.privacy.GaussianReleases"
        raise _refused(world, LOCAL_TRAININGS, world.local_training, why)
    std, most, rate, steps = releases.noise_std, releases.sensitivity, releases.rate, releases.steps
    for name, values in (("noise_std", std), ("sensitivity", most), ("rate", rate), ("steps", steps)):
        if why := _not_numbers(values, (users,)):
            raise _refused(world, LOCAL_TRAININGS, world.local_training, f"gave `releases` whose {name} {why}")
    if not ((std >= 0).all() and (most > 0).all() and ((rate > 0) & (rate <= 1)).all() and (steps >= 1).all()):
        why = "gave `releases` with noise below 0, a sensitivity of 0, a rate outside 0 to 1 or no steps"
        raise _refused(world, LOCAL_TRAININGS, world.local_training, why)
    if releases.sampled.any() and world.scenario.privacy.adjacency != "add_remove":
        raise ScenarioError(
            "a gain from Poisson sampling is accounted for adding or removing a sample only, but privacy.adjacency is"
            f" '{world.scenario.privacy.adjacency}'; set privacy.adjacency = \"add_remove\", or train on batches that"
            " are not sampled"
        )
    return releases


def checked_reach(world: World, reach: Any, users: int) -> NDArray[np.float64]:
    """(n,) largest lengths of the updates of `users` users."""
    why = _not_numbers(reach, (users,))
    if not why and not (reach >= 0).all():
        why = "are negative or not a number"
    if why:
        raise _refused(world, LOCAL_TRAININGS, world.local_training, f"gave lengths in `reach` that {why}")
    return np.asarray(reach)


def checked_kept(world: World, kept: NDArray[np.float32], users: int) -> NDArray[np.float32]:
    """(n, D) models of their own that `users` users keep, where uploads are made from them."""
    if kept.shape != (users, world.weights):
        why = f"has `uploads`, but its local training kept models of shape {kept.shape}; return a LocalUpdate with kept"
        raise _refused(world, PERSONALS, world.personal, why)
    return kept


def check_training(world: World) -> None:
    """Refuse local training whose public answers are no arrays, on two users before round 1."""
    some = slice(0, 2)
    clip, samples, noise_std = world.clip[some], world.samples[some], np.ones(len(world.samples[some]))
    training, shape = world.local_training, (len(samples),)
    unit = world.scenario.privacy.unit
    if unit not in training.units:
        able = " or ".join(f'"{name}"' for name in sorted(training.units))
        raise _refused(
            world,
            LOCAL_TRAININGS,
            training,
            f'protects the unit {able}, but privacy.unit is "{unit}"; change privacy.unit or training.local',
        )
    rho = checked_costs(world, training.rho(clip, noise_std, samples), len(samples))
    releases = checked_releases(world, training.releases(clip, noise_std, samples), len(samples))
    if not np.allclose(rho, releases.rho, rtol=1e-12, atol=0.0):
        raise _refused(
            world, LOCAL_TRAININGS, training, "gave another cost in `rho` than its `releases` have; leave `rho` out"
        )
    checked_reach(world, training.reach(clip, samples, noise_std, world.weights), len(samples))
    for name, found in (
        ("upload_noise", training.upload_noise(noise_std, samples)),
        ("passes", training.passes(samples)),
    ):
        why = _not_numbers(found, shape)
        if not why and not (np.isfinite(found).all() and (found >= 0).all()):
            why = "are negative, infinite or not a number"
        if why:
            raise _refused(world, LOCAL_TRAININGS, training, f"gave numbers in `{name}` that {why}")


def check_personal(world: World) -> None:
    """Refuse personal models whose number of passes is no array, on two users before round 1."""
    samples = world.samples[:2]
    found = world.personal.passes(samples)
    why = _not_numbers(found, (len(samples),))
    if not why and not (np.isfinite(found).all() and (found >= 0).all()):
        why = "are negative, infinite or not a number"
    if why:
        raise _refused(world, PERSONALS, world.personal, f"gave numbers in `passes` that {why}")


def air_time(world: World, rates: NDArray[np.float64], plan: Plan, bits: float | NDArray[np.float64]) -> AirTime:
    """How long the uplink takes for the uploads of a plan."""
    uplink = world.limits.uplink
    found: Any = uplink.air_time(rates, plan, bits)
    if not isinstance(found, AirTime) or _not_numbers(found.upload_s, (world.users,)):
        why = f"gave {_kind(found)} in `air_time`; return a covey.uplink.AirTime with an upload_s for each user"
        raise _refused(world, UPLINKS, uplink, why)
    return found


def arrived(world: World, round: int, sent: Sequence[Upload]) -> Sequence[Upload]:
    """The uploads that arrive of those that were sent."""
    found: Any = world.transport(round, sent)
    if not isinstance(found, Sequence) or not all(isinstance(one, Upload) for one in found):
        what = _kind(found) if not isinstance(found, Sequence) else "what is no upload"
        part = world.transport.after if isinstance(world.transport, LossyTransport) else world.transport
        raise _refused(world, TRANSPORT, part, f"gave {what}; return a list of covey.federated.Upload")
    return found


def _check_memory(world: World, registry: Registry, part: Any, memory: Any) -> None:
    """Whatever is remembered is saved with the run, as arrays of numbers."""
    for name, values in dict(memory).items():
        if not (isinstance(values, np.ndarray) and values.dtype.kind in "biuf"):
            what = f"an array of {values.dtype}" if isinstance(values, np.ndarray) else _kind(values)
            why = f"remembers {what} as '{name}', which cannot be saved with the run; remember arrays of numbers"
            raise _refused(world, registry, part, why)


def _refused(world: World, registry: Registry, part: Any, why: str) -> CoveyError:
    return registry.refused(Named.of(registry, part, world.scenario).name, why)


def _not_numbers(values: Any, shape: tuple[int | None, ...], kind: type[np.generic] | None = None) -> str:
    """Why this is no array of numbers of this shape (None for any length) and type, as the end of a sentence."""
    if not isinstance(values, np.ndarray):
        return f"are {_kind(values)}, not an array"
    if values.ndim != len(shape) or any(
        want not in (None, have) for want, have in zip(shape, values.shape, strict=True)
    ):
        wanted = ", ".join("m" if want is None else str(want) for want in shape)
        return f"have shape {values.shape}; they must be ({wanted}{',' if len(shape) == 1 else ''})"
    if values.dtype.kind not in "biuf" or (kind is not None and values.dtype != kind):
        return f"have type {values.dtype}; they must be {np.dtype(kind or np.float64)}"
    return ""


def _kind(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"
