"""Parts that others wrote, in a run: what they return is checked, and what they raise names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.association import Policy
from covey.data import UserData
from covey.errors import ScenarioError
from covey.faults import Named, named_faults
from covey.federated import Accepted, Upload
from covey.identification import ScoreRule
from covey.identification.rule import Memory
from covey.network import Observation, Plan
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
from covey.simulation.answers import check_memory, kind_of, not_models, not_numbers, refused
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
        raise refused(world, DATA_OVER_TIME, world.over_time, f"gave {kind_of(data)}, not a covey.UserData")
    if data.groups.shape != world.groups.shape or data.groups.max() >= world.scenario.groups:
        raise refused(
            world,
            DATA_OVER_TIME,
            world.over_time,
            f"gave groups of shape {data.groups.shape} numbered up to {data.groups.max()}; give one from 0 to"
            f" {world.scenario.groups - 1} for each of {world.users} users",
        )
    if world.data is not None and data.classes != world.data.classes:
        why = f"changed the classes from {world.data.classes!r:.60} to {data.classes!r:.60}; they stay those of round 1"
        raise refused(world, DATA_OVER_TIME, world.over_time, why)
    return data


def checked_gains(world: World, gains: Any) -> NDArray[np.float64]:
    """(U, B) gains of a round."""
    shape = (world.users, world.scenario.network.stations)
    if why := not_numbers(gains, shape):
        raise refused(world, CHANNELS, world.channel, f"gave gains that {why}")
    if not (np.isfinite(gains).all() and (gains >= 0).all()):
        raise refused(world, CHANNELS, world.channel, "gave gains that are negative, infinite or not a number")
    return np.asarray(gains)


def checked_positions(
    world: World, moved: Any, memory: Any, called: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(U, 2) positions and (U, m) memory that the mobility's method `called` gave."""
    why = not_numbers(moved, (world.users, 2))
    if why or not np.isfinite(moved).all():
        why = why or "are not finite"
        raise refused(world, MOBILITIES, world.mobility, f"gave positions in `{called}` that {why}")
    if why := not_numbers(memory, (world.users, None)):
        raise refused(world, MOBILITIES, world.mobility, f"gave a memory in `{called}` that {why}")
    return np.asarray(moved), np.asarray(memory)


def moved(world: World, answer: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions and memory from the answer of `move`."""
    if not (isinstance(answer, tuple) and len(answer) == 2):
        why = f"gave {kind_of(answer)} in `move`; return the pair (positions, memory)"
        raise refused(world, MOBILITIES, world.mobility, why)
    return checked_positions(world, *answer, called="move")


def checked_models(world: World, accepted: Accepted, models: Any) -> NDArray[np.float32]:
    """(K, D) models that the aggregation made; those of tasks without uploads are as before."""
    why = not_models(world, models)
    if not why:
        idle = np.setdiff1d(np.arange(world.tasks), accepted.task)
        if not np.array_equal(models[idle], accepted.models[idle]):
            why = "are new for a task without uploads, which keeps its model bit for bit"
    if why:
        raise refused(world, AGGREGATIONS, world.aggregation, f"made models that {why}")
    return np.asarray(models)


def checked_advance(
    world: World, before: NDArray[np.float32], trained: NDArray[np.bool_], found: Any
) -> tuple[NDArray[np.float32], Memory]:
    """(K, D) models and memory from the answer of `advance`."""
    part, registry = world.aggregation, AGGREGATIONS
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping)):
        raise refused(world, registry, part, "gave no pair (models, memory) in `advance`")
    models, memory = found
    why = not_models(world, models)
    if not why and not np.array_equal(models[~trained], before[~trained]):
        why = "are new for a task without uploads, which keeps its model bit for bit"
    if why:
        raise refused(world, registry, part, f"gave models in `advance` that {why}")
    check_memory(world, registry, part, memory)
    return np.asarray(models), memory


def checked_forgotten(world: World, memory: Any) -> Memory:
    """What the aggregation remembers after `forget`."""
    check_memory(world, AGGREGATIONS, world.aggregation, memory, "forget")
    return dict(memory)


def checked_costs(world: World, costs: Any, users: int) -> NDArray[np.float64]:
    """(n,) rho of the releases of `users` users."""
    why = not_numbers(costs, (users,))
    if not why and not (costs >= 0).all():
        why = "are negative or not a number"
    if why:
        raise refused(world, LOCAL_TRAININGS, world.local_training, f"gave costs in `rho` that {why}")
    return np.asarray(costs)


def checked_releases(world: World, releases: Any, users: int) -> GaussianReleases:
    """What `users` users release in an upload."""
    if not isinstance(releases, GaussianReleases):
        why = f"gave {kind_of(releases)} in `releases`, not a covey.privacy.GaussianReleases"
        raise refused(world, LOCAL_TRAININGS, world.local_training, why)
    std, most, rate, steps = releases.noise_std, releases.sensitivity, releases.rate, releases.steps
    for name, values in (("noise_std", std), ("sensitivity", most), ("rate", rate), ("steps", steps)):
        if why := not_numbers(values, (users,)):
            raise refused(world, LOCAL_TRAININGS, world.local_training, f"gave `releases` whose {name} {why}")
    if not ((std >= 0).all() and (most > 0).all() and ((rate > 0) & (rate <= 1)).all() and (steps >= 1).all()):
        why = "gave `releases` with noise below 0, a sensitivity of 0, a rate outside 0 to 1 or no steps"
        raise refused(world, LOCAL_TRAININGS, world.local_training, why)
    if releases.sampled.any() and world.scenario.privacy.adjacency != "add_remove":
        raise ScenarioError(
            "a gain from Poisson sampling is accounted for adding or removing a sample only, but privacy.adjacency is"
            f" '{world.scenario.privacy.adjacency}'; set privacy.adjacency = \"add_remove\", or train on batches that"
            " are not sampled"
        )
    return releases


def checked_reach(world: World, reach: Any, users: int) -> NDArray[np.float64]:
    """(n,) largest lengths of the updates of `users` users."""
    return _amounts(world, LOCAL_TRAININGS, world.local_training, reach, "reach", users)


def checked_passes(world: World, round: int) -> NDArray[np.float64]:
    """(U,) passes that the identification rule takes each user in a round."""
    return _amounts(world, RULES, world.rule, world.rule.passes(round, world.samples), "passes", world.users)


def checked_kept(world: World, kept: NDArray[np.float32], users: int) -> NDArray[np.float32]:
    """(n, D) models of their own that `users` users keep, where uploads are made from them."""
    if kept.shape != (users, world.weights):
        why = f"has `uploads`, but its local training kept models of shape {kept.shape}; return a LocalUpdate with kept"
        raise refused(world, PERSONALS, world.personal, why)
    return kept


def check_training(world: World) -> None:
    """Refuse local training whose public answers are no arrays, on two users before round 1."""
    some = slice(0, 2)
    clip, samples, noise_std = world.clip[some], world.samples[some], np.ones(len(world.samples[some]))
    training = world.local_training
    unit = world.scenario.privacy.unit
    if unit not in training.units:
        able = " or ".join(f'"{name}"' for name in sorted(training.units))
        raise refused(
            world,
            LOCAL_TRAININGS,
            training,
            f'protects the unit {able}, but privacy.unit is "{unit}"; change privacy.unit or training.local',
        )
    rho = checked_costs(world, training.rho(clip, noise_std, samples), len(samples))
    releases = checked_releases(world, training.releases(clip, noise_std, samples), len(samples))
    if not np.allclose(rho, releases.rho, rtol=1e-12, atol=0.0):
        raise refused(
            world, LOCAL_TRAININGS, training, "gave another cost in `rho` than its `releases` have; leave `rho` out"
        )
    checked_reach(world, training.reach(clip, samples, noise_std, world.weights), len(samples))
    # Documented as 0 without noise, so that both are asked for.
    noise = training.upload_noise(np.arange(len(samples), dtype=np.float64), samples)
    _amounts(world, LOCAL_TRAININGS, training, noise, "upload_noise", len(samples))
    _amounts(world, LOCAL_TRAININGS, training, training.passes(samples), "passes", len(samples))


def check_personal(world: World) -> None:
    """Refuse personal models whose number of passes is no array, on two users before round 1."""
    samples = world.samples[:2]
    _amounts(world, PERSONALS, world.personal, world.personal.passes(samples), "passes", len(samples))


def air_time(world: World, rates: NDArray[np.float64], plan: Plan, bits: float | NDArray[np.float64]) -> AirTime:
    """How long the uplink takes for the uploads of a plan."""
    return _checked_time(world, world.limits.uplink.air_time(rates, plan, bits), "air_time")


def unscheduled_time(world: World, observation: Observation, users: NDArray[np.int64]) -> AirTime:
    """How long the uplink takes for models that `users` (n,) upload to be grouped."""
    found = observation.uplink.unscheduled(observation.gains, users, world.model_bits, observation.limits)
    return _checked_time(world, found, "unscheduled")


def _checked_time(world: World, found: Any, called: str) -> AirTime:
    """The air time that the uplink's method `called` gave."""
    uplink = world.limits.uplink
    if not isinstance(found, AirTime) or not_numbers(found.upload_s, (world.users,)):
        why = f"gave {kind_of(found)} in `{called}`; return a covey.uplink.AirTime with an upload_s for each user"
        raise refused(world, UPLINKS, uplink, why)
    _amounts(world, UPLINKS, uplink, found.upload_s, called, world.users)
    if not (isinstance(found.total_s, Real) and 0 <= found.total_s < np.inf):
        raise refused(world, UPLINKS, uplink, f"gave {found.total_s!r:.40} as total_s in `{called}`; give seconds")
    return found


def projected(world: World, observation: Observation, selected: NDArray[np.bool_]) -> Plan:
    """The plan that the uplink makes of a selection (B, U)."""
    plan = observation.project(selected)
    for name, values, most in (
        ("stations", plan.station, world.scenario.network.stations),
        ("blocks", plan.block, np.inf),
    ):
        why = not_numbers(values, (world.users,), np.int64)
        if not why and not ((values >= -1) & (values < most)).all():
            why = f"go from {values.min()} to {values.max()}; they are numbers from 0, and -1 for none"
        if why:
            raise refused(world, UPLINKS, world.limits.uplink, f"gave {name} in `project` that {why}")
    return plan


def arrived(world: World, round: int, sent: Sequence[Upload]) -> Sequence[Upload]:
    """The uploads that arrive of those that were sent."""
    found: Any = world.transport(round, sent)
    if not isinstance(found, Sequence) or not all(isinstance(one, Upload) for one in found):
        what = kind_of(found) if not isinstance(found, Sequence) else "what is no upload"
        part = world.transport.after if isinstance(world.transport, LossyTransport) else world.transport
        raise refused(world, TRANSPORT, part, f"gave {what}; return a list of covey.federated.Upload")
    return found


def _amounts(world: World, registry: Registry, part: Any, found: Any, called: str, users: int) -> NDArray[np.float64]:
    """(n,) numbers that the part's method `called` gave for n = `users`: finite, and 0 or more."""
    why = not_numbers(found, (users,))
    if not why and not (np.isfinite(found).all() and (found >= 0).all()):
        why = "are negative, infinite or not a number"
    if why:
        raise refused(world, registry, part, f"gave numbers in `{called}` that {why}")
    return np.asarray(found)
