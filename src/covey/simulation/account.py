"""The last step of a round: delay, energy, privacy, violations, losses and reward in one record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.allocation import leakage as leakage_of
from covey.federated import REASONS, Evaluation, Intake
from covey.identification import Regrouped, adjusted_rand_index, clustering_accuracy
from covey.network import VIOLATION_KINDS
from covey.radio import compute_energies, compute_times, dbm_to_w
from covey.simulation.group_remarks import OFFER_REASONS
from covey.simulation.own_parts import air_time, checked_passes, unscheduled_time
from covey.simulation.record import RoundRecord, UserRecord
from covey.simulation.reference import reference_columns
from covey.simulation.stages import Decision, NewModels, PersonalModels, Turn, Uploads
from covey.simulation.world import World

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Spent:
    """What the round took: rates_bps, uplink_s, transmit_j, compute_s, compute_j: (U,); uplink_total_s: from the first
    to the last upload, announcements included."""

    rates_bps: Floats
    uplink_s: Floats
    uplink_total_s: float
    transmit_j: Floats
    compute_s: Floats
    compute_j: Floats


def account(
    world: World,
    turn: Turn,
    selected: NDArray[np.bool_],
    decision: Decision,
    uploads: Uploads,
    new: NewModels,
    evaluation: Evaluation,
    groups: Regrouped,
    personal: PersonalModels,
) -> RoundRecord:
    """The record of a round, from what its steps produced; changes nothing."""
    spent = _spent(world, turn, decision, new, personal)
    users = _users(world, turn, selected, decision, uploads, new, evaluation, spent, personal)
    return RoundRecord(
        round=turn.state.round + 1,
        **_learning(world, turn, new, users),
        **_grouping(world, turn, groups),
        **_choices(world, turn, selected, decision, new),
        **_delay_and_energy(world, turn, spent),
        **_releases(world, turn, decision, uploads, new),
        **_objective(world, decision, evaluation),
        users=users,
    )


def _spent(world: World, turn: Turn, decision: Decision, new: NewModels, personal: PersonalModels) -> _Spent:
    observation, uplink, uploaders = turn.observation, world.limits.uplink, turn.identification.uploaders
    rates = uplink.rates_of(observation.gains, decision.plan, observation.limits)
    bits = world.upload_bits + 8.0 * np.asarray(new.protocol_sent_bytes, np.float64)
    uploading = air_time(world, rates, decision.plan, bits)
    announcing = unscheduled_time(world, observation, uploaders)
    uplink_s = uploading.upload_s + announcing.upload_s
    compute_s, compute_j = _computing(world, turn.state.round, uploaders, decision.plan.station >= 0, personal.trained)
    total_s = announcing.total_s + uploading.total_s
    return _Spent(rates, uplink_s, total_s, uplink_s * observation.power_w, compute_s, compute_j)


def _users(
    world: World,
    turn: Turn,
    selected: NDArray[np.bool_],
    decision: Decision,
    uploads: Uploads,
    new: NewModels,
    evaluation: Evaluation,
    spent: _Spent,
    personal: PersonalModels,
) -> UserRecord:
    state, plan = turn.state, decision.plan
    violations = (plan.kinds[name].astype(np.int64) << bit for bit, name in enumerate(VIOLATION_KINDS))
    return UserRecord(
        group=turn.groups.copy(),
        x_m=state.positions_m[:, 0].copy(),
        y_m=state.positions_m[:, 1].copy(),
        identity=turn.identification.identities.copy(),
        selected=selected.sum(axis=0).astype(np.int64),
        station=plan.station.copy(),
        block=plan.block.copy(),
        violation=sum(violations, start=np.zeros(world.users, np.int64)),
        rejection=_rejections(uploads.intake, world.users),
        joined=new.joined.astype(np.int64),
        rate_bps=spent.rates_bps,
        noise_std=decision.noise_std.copy(),
        rho=decision.ledger.rho,
        rho_identity=decision.ledger.spent["identity"].copy(),
        loss=evaluation.train_loss_sum / world.samples,
        test_loss=evaluation.test_loss_sum / world.test_samples,
        accuracy=evaluation.test_correct / world.test_samples,
        majority=turn.majority.copy(),
        central=np.full(world.users, np.nan),
        personal_test_loss=personal.test_loss_sum / world.test_samples,
        personal_accuracy=personal.test_correct / world.test_samples,
        uplink_s=spent.uplink_s,
        energy_j=spent.transmit_j + spent.compute_j,
    )


def _learning(world: World, turn: Turn, new: NewModels, users: UserRecord) -> dict[str, Any]:
    """How well models and groups are doing, in all, by task and by true group."""
    identities, groups, loss, accuracy = turn.identification.identities, turn.groups, users.loss, users.accuracy
    by_task = [identities == k for k in range(world.tasks)]
    by_group = [groups == g for g in range(world.scenario.groups)]
    return {
        "loss": _weighted(loss, world.samples),
        "test_loss": _weighted(users.test_loss, world.test_samples),
        "accuracy": _weighted(accuracy, world.test_samples),
        "personal_test_loss": _weighted(users.personal_test_loss, world.test_samples),
        **reference_columns(
            "personal_accuracy", users.personal_accuracy, groups, world.test_samples, world.scenario.groups
        ),
        **reference_columns("majority", users.majority, groups, world.test_samples, world.scenario.groups),
        **reference_columns("central", users.central, groups, world.test_samples, world.scenario.groups),
        "clustering_accuracy": clustering_accuracy(identities, groups),
        "adjusted_rand_index": adjusted_rand_index(identities, groups),
        "task_users": [int(mask.sum()) for mask in by_task],
        "task_served": [int((new.joined & mask).sum()) for mask in by_task],
        "task_loss": [_weighted(loss[mask], world.samples[mask]) for mask in by_task],
        "task_accuracy": [_weighted(accuracy[mask], world.test_samples[mask]) for mask in by_task],
        "group_loss": [_weighted(loss[mask], world.samples[mask]) for mask in by_group],
        "group_accuracy": [_weighted(accuracy[mask], world.test_samples[mask]) for mask in by_group],
    }


def _grouping(world: World, turn: Turn, groups: Regrouped) -> dict[str, Any]:
    """What stations made of the groups after the round."""
    offer = groups.offers[0] if groups.offers else None
    return {
        "starting": int(world.start.under_way(turn.state.round, turn.state.memory)),
        "groups_estimate": groups.estimate,
        "groups_confirmed": groups.confirmed,
        "offered_task": -1 if offer is None else offer.task,
        "offered_source": -1 if offer is None else offer.source,
        "offered_users": 0 if offer is None else len(offer.users),
        "offered_reason": 0 if offer is None else OFFER_REASONS.index(offer.reason),
    }


def _choices(
    world: World, turn: Turn, selected: NDArray[np.bool_], decision: Decision, new: NewModels
) -> dict[str, Any]:
    """What the stations chose, and what of it broke a rule."""
    plan = decision.plan
    sent = np.any(new.models != turn.state.models, axis=1) if world.blind else plan.active
    return {
        "selected": int(selected.any(axis=0).sum()),
        "served": int((plan.station >= 0).sum()),
        "violators": int(plan.violators.sum()),
        **{name: int(plan.kinds[name].sum()) for name in VIOLATION_KINDS},
        "broadcasts": int(sent.sum()),
        "noise_infeasible_tasks": decision.infeasible_tasks,
    }


def _delay_and_energy(world: World, turn: Turn, spent: _Spent) -> dict[str, Any]:
    broadcast_s = turn.broadcast_s.sum()
    return {
        "downlink_s": float(broadcast_s),
        "uplink_s": float(spent.uplink_total_s),
        "compute_s": float(spent.compute_s.max()),
        "delay_s": float(sum([broadcast_s, spent.compute_s.max(), spent.uplink_total_s])),
        "transmit_energy_j": float(spent.transmit_j.sum()),
        "compute_energy_j": float(spent.compute_j.sum()),
        "station_energy_j": float(broadcast_s) * dbm_to_w(world.scenario.radio.station_power_dbm),
    }


def _releases(world: World, turn: Turn, decision: Decision, uploads: Uploads, new: NewModels) -> dict[str, Any]:
    """What left users, what became of it, and what it has cost them so far."""
    intake, rho = uploads.intake, decision.ledger.rho
    return {
        "refused_releases": len(decision.refused) + len(turn.identification.refused),
        "rejected_uploads": intake.rejected,
        "unexpected_uploads": len(intake.reasons.get("unexpected", [])),
        "lost_uploads": len(intake.users) - len(_heard(intake)) + new.unsent,
        "closed_tasks": new.closed_tasks,
        "protocol_bytes": new.protocol_bytes,
        "mean_gradient_norm": _weighted(uploads.mean_norm, world.samples[intake.users]),
        "clipped_fraction": _weighted(uploads.clipped_fraction, world.samples[intake.users]),
        "rho_mean": float(rho.mean()),
        "rho_max": float(rho.max()),
        "epsilon_max": decision.ledger.largest_epsilon(),
    }


def _objective(world: World, decision: Decision, evaluation: Evaluation) -> dict[str, Any]:
    """The objective (11) and the reward (27), on the models after aggregation."""
    weights, violators = world.scenario.reward, int(decision.plan.violators.sum())
    leakage = leakage_of(world.samples, decision.noise_std)
    cost = _summed(evaluation.train_loss_sum, world.samples) + weights.leakage_weight * leakage.sum()
    without_penalty = float(-cost / world.users)
    return {
        "leakage": float(leakage.sum()),
        "objective": float(cost / world.samples.sum()),
        "reward": without_penalty - weights.penalty * violators**2,
        "reward_without_penalty": without_penalty,
    }


def _heard(intake: Intake) -> set[int]:
    """Users of whom something arrived, good or bad."""
    bad = {user for users in intake.reasons.values() for user in users}
    return (set(intake.users[intake.accepted].tolist()) | bad) & set(intake.users.tolist())


def _rejections(intake: Intake, users: int) -> NDArray[np.int64]:
    """(U,) flags of the reasons for which uploads of each user were turned away."""
    flags = np.zeros(users, dtype=np.int64)
    for bit, reason in enumerate(REASONS):
        known = [user for user in intake.reasons.get(reason, []) if user >= 0]
        flags[known] |= 1 << bit
    return flags


def _computing(
    world: World, round: int, uploaders: NDArray[np.int64], served: NDArray[np.bool_], personal: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """(U,) seconds and joules of identifying and training on the users' devices.

    A pass is one forward and backward of one sample. The first identities are drawn, not computed.
    """
    compute, trained = world.scenario.compute, world.local_training.passes(world.samples)
    passes = checked_passes(world, round) + np.where(served, trained, 0)
    passes[uploaders] += trained[uploaders]
    if personal.any():
        passes = passes + np.where(personal, world.personal.passes(world.samples), 0)
    return (
        compute_times(passes, 1.0, world.weights, compute),
        compute_energies(passes, 1.0, world.weights, compute),
    )


def _weighted(values: NDArray[np.float64], weights: NDArray[np.int64]) -> float:
    """Weighted mean of what is known; not a number for nobody."""
    known = ~np.isnan(values)
    if not known.all():
        values, weights = values[known], weights[known]
    return float(np.average(values, weights=weights)) if len(values) else np.nan


def _summed(sums: NDArray[np.float64], weights: NDArray[np.int64]) -> NDArray[np.float64] | float:
    """The total of `sums`, where those that are not known count, by weight, like the others."""
    known = ~np.isnan(sums)
    if known.all():
        return np.asarray(sums.sum())
    return float(sums[known].sum() * weights.sum() / weights[known].sum()) if known.any() else float("nan")
