"""The last step of a round: delay, energy, privacy, violations, losses and reward in one record."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from covey.association import Observation
from covey.learning import REASONS, Evaluation, Intake, adjusted_rand_index, clustering_accuracy
from covey.radio import compute_energies, compute_times, dbm_to_w, uplink_rates, uplink_times
from covey.simulation.identification import announces
from covey.simulation.record import VIOLATIONS, RoundRecord, UserRecord
from covey.simulation.stages import Aggregation, Decision, Identification, Uploads
from covey.simulation.state import State
from covey.simulation.world import World


def account(
    world: World,
    state: State,
    observation: Observation,
    selected: NDArray[np.bool_],
    broadcast_s: NDArray[np.float64],
    identification: Identification,
    decision: Decision,
    uploads: Uploads,
    aggregation: Aggregation,
    evaluation: Evaluation,
) -> RoundRecord:
    """The record of a round, from what its steps produced; changes nothing."""
    plan, identities = decision.plan, identification.identities
    served = plan.station >= 0
    rates = uplink_rates(
        observation.gains,
        plan.station,
        plan.block,
        power_w=world.power_w,
        noise_w=world.noise_w,
        bandwidth_hz=world.scenario.radio.block_bandwidth_hz,
    )
    uplink_s = uplink_times(rates, world.upload_bits + 8.0 * np.asarray(aggregation.protocol_sent_bytes, np.float64))
    announce_s, announce_total_s = _announcement_times(world, observation, identification)
    compute_s, compute_j = _computing(world, state, identification, served)
    transmit_j = (uplink_s + announce_s) * world.power_w
    station_j = float(broadcast_s.sum()) * dbm_to_w(world.scenario.radio.station_power_dbm)
    delay = [broadcast_s.sum(), compute_s.max(), announce_total_s + uplink_s.max(initial=0.0)]

    loss = evaluation.train_loss_sum / world.samples
    accuracy = evaluation.test_correct / world.test_samples
    leakage = _leakage(world, decision, served)
    violators = int(plan.violators.sum())
    cost = _summed(evaluation.train_loss_sum, world.samples) + world.scenario.reward.leakage_weight * leakage.sum()
    without_penalty = float(-cost / world.users)
    rho = decision.ledger.rho
    by_task = [identities == k for k in range(world.tasks)]
    by_group = [world.groups == g for g in range(world.tasks)]
    kinds = {name: plan.kinds[name] for name in VIOLATIONS}
    intake = uploads.intake

    return RoundRecord(
        round=state.round + 1,
        loss=_weighted(loss, world.samples),
        test_loss=_weighted(evaluation.test_loss_sum / world.test_samples, world.test_samples),
        accuracy=_weighted(accuracy, world.test_samples),
        clustering_accuracy=clustering_accuracy(identities, world.groups),
        adjusted_rand_index=adjusted_rand_index(identities, world.groups),
        selected=int(selected.any(axis=0).sum()),
        served=int(served.sum()),
        violators=violators,
        **{name: int(flags.sum()) for name, flags in kinds.items()},
        broadcasts=int(np.any(aggregation.models != state.models, axis=1).sum() if world.blind else plan.active.sum()),
        downlink_s=float(broadcast_s.sum()),
        uplink_s=float(announce_total_s + uplink_s.max(initial=0.0)),
        compute_s=float(compute_s.max()),
        delay_s=float(sum(delay)),
        transmit_energy_j=float(transmit_j.sum()),
        compute_energy_j=float(compute_j.sum()),
        station_energy_j=station_j,
        noise_infeasible_tasks=decision.infeasible_tasks,
        refused_releases=len(decision.refused) + len(identification.refused),
        rejected_uploads=intake.rejected,
        unexpected_uploads=len(intake.reasons.get("unexpected", [])),
        lost_uploads=len(intake.users) - len(_heard(intake)) + aggregation.unsent,
        closed_tasks=aggregation.closed_tasks,
        protocol_bytes=aggregation.protocol_bytes,
        mean_gradient_norm=_weighted(uploads.mean_norm, world.samples[intake.users]),
        clipped_fraction=_weighted(uploads.clipped_fraction, world.samples[intake.users]),
        leakage=float(leakage.sum()),
        rho_mean=float(rho.mean()),
        rho_max=float(rho.max()),
        epsilon_max=decision.ledger.largest_epsilon(),
        objective=float(cost / world.samples.sum()),
        reward=without_penalty - world.scenario.reward.penalty * violators**2,
        reward_without_penalty=without_penalty,
        task_users=[int(mask.sum()) for mask in by_task],
        task_served=[int((aggregation.joined & mask).sum()) for mask in by_task],
        task_loss=[_weighted(loss[mask], world.samples[mask]) for mask in by_task],
        task_accuracy=[_weighted(accuracy[mask], world.test_samples[mask]) for mask in by_task],
        group_loss=[_weighted(loss[mask], world.samples[mask]) for mask in by_group],
        group_accuracy=[_weighted(accuracy[mask], world.test_samples[mask]) for mask in by_group],
        users=UserRecord(
            x_m=state.positions_m[:, 0].copy(),
            y_m=state.positions_m[:, 1].copy(),
            identity=identities.copy(),
            selected=selected.sum(axis=0).astype(np.int64),
            station=plan.station.copy(),
            block=plan.block.copy(),
            violation=sum(
                (flags.astype(np.int64) << bit for bit, flags in enumerate(kinds.values())),
                start=np.zeros(world.users, np.int64),
            ),
            rejection=_rejections(intake, world.users),
            joined=aggregation.joined.astype(np.int64),
            rate_bps=rates,
            noise_std=decision.noise_std.copy(),
            rho=rho,
            rho_identity=decision.ledger.spent["identity"].copy(),
            loss=loss,
            test_loss=evaluation.test_loss_sum / world.test_samples,
            accuracy=accuracy,
            uplink_s=uplink_s + announce_s,
            energy_j=transmit_j + compute_j,
        ),
    )


def _leakage(world: World, decision: Decision, served: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(U,) 1 / (X_i std_i)^2 of the served users; not priced where noise is off."""
    if world.scenario.privacy.noise == "off":
        return np.zeros(world.users)
    return np.divide(1.0, (world.samples * decision.noise_std) ** 2, out=np.zeros(world.users), where=served)


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


def _announcement_times(
    world: World, observation: Observation, identification: Identification
) -> tuple[NDArray[np.float64], float]:
    """(U,) air time of models uploaded for central clustering, and how long all of them take.

    Each user sends to its strongest station; the stations' blocks are used in turn and without
    reuse, so rates are free of interference and each station's queue is its total time over R.
    """
    seconds = np.zeros(world.users)
    users = identification.uploaders
    if len(users) == 0:
        return seconds, 0.0
    station = observation.gains[users].argmax(axis=1)
    snr = world.power_w * observation.gains[users, station] / world.noise_w
    seconds[users] = world.model_bits / (world.scenario.radio.block_bandwidth_hz * np.log2(1.0 + snr))
    queues = np.bincount(station, weights=seconds[users], minlength=observation.gains.shape[1])
    return seconds, float(queues.max() / observation.blocks)


def _computing(
    world: World, state: State, identification: Identification, served: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(U,) seconds and joules of identifying and training on the users' devices.

    A pass is one forward and backward of one sample; a forward alone counts a third. The first
    identities are drawn, not computed.
    """
    scenario = world.scenario
    train_batch = np.where(scenario.training.batch == 0, world.samples, scenario.training.batch)
    identity, batch = scenario.privacy.identity, scenario.clustering.batch
    per_model = {"oracle": 0.0, "kmeans": 0.0, "loss": 1.0 / 3.0}.get(scenario.clustering.rule, 1.0)
    if state.round == 0 or identity == "from_release" or not announces(world, state.round):
        per_model = 0.0
    # Private scores take all of a user's samples.
    scored = world.samples if batch == 0 or identity == "noisy_max" else np.minimum(batch, world.samples)
    passes = np.asarray(world.tasks * per_model * scored, dtype=np.float64)
    passes = passes + np.where(served, np.minimum(train_batch, world.samples), 0)
    passes[identification.uploaders] += np.minimum(train_batch, world.samples)[identification.uploaders]
    return (
        compute_times(passes, 1.0, world.weights, scenario.compute),
        compute_energies(passes, 1.0, world.weights, scenario.compute),
    )


def _weighted(values: NDArray[np.float64], weights: NDArray[np.int64]) -> float:
    """Weighted mean of what is known; not a number for nobody."""
    known = ~np.isnan(values)
    if not known.all():
        values, weights = values[known], weights[known]
    return float(np.average(values, weights=weights)) if len(values) else float("nan")


def _summed(sums: NDArray[np.float64], weights: NDArray[np.int64]) -> NDArray[np.float64] | float:
    """The total of `sums`, where those that are not known count, by weight, like the others."""
    known = ~np.isnan(sums)
    if known.all():
        return np.asarray(sums.sum())
    return float(sums[known].sum() * weights.sum() / weights[known].sum()) if known.any() else float("nan")
