"""How users find their task in a round, and what announcing it costs them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from covey.learning import (
    Intake,
    Steps,
    admit,
    identity_noise_scale,
    kmeans_identities,
    random_identities,
    reach,
    released_identities,
    score_width,
)
from covey.privacy import release_rho
from covey.seeding import generator
from covey.simulation.stages import Aggregation, Identification
from covey.simulation.state import State
from covey.simulation.world import World


def identify(world: World, state: State) -> Identification:
    """Each user works out its task, Eqs. (1) to (4) with errata E1, E2 and E4, and announces it.

    A raw announcement tells something about the user's data that nothing bounds, so that it is
    labelled as unprotected; where stations see only masked sums, nothing is announced.
    """
    clustering, privacy = world.scenario.clustering, world.scenario.privacy
    nobody = np.zeros(0, dtype=np.int64)
    if clustering.rule == "oracle":
        return Identification(world.groups.copy(), state.ledger, nobody, nobody)
    if state.round == 0:
        rng = generator(world.seed, "identity")
        return Identification(random_identities(world.users, world.tasks, rng), state.ledger, nobody, nobody)
    if privacy.identity == "from_release" or not announces(world, state.round):
        return Identification(state.identities, state.ledger, nobody, nobody)
    if clustering.rule == "kmeans":
        return _identify_centrally(world, state)
    if privacy.identity == "noisy_max":
        return _identify_privately(world, state)
    told = world.fleet.identify(state.round, clustering.rule, clustering.similarity_weight, clustering.batch)
    # Who does not answer keeps its task, but may have told it: it is labelled like the others.
    identities = np.full(world.users, -1) if told is None else np.where(told >= 0, told, state.identities)
    ledger = state.ledger
    if not world.masked:
        ledger = ledger.copy()
        ledger.label_unprotected(np.arange(world.users))
    return Identification(identities, ledger, nobody, nobody)


def announces(world: World, number: int) -> bool:
    """Whether users announce in round `number`, counted from 0; the first tasks are drawn, not announced."""
    clustering = world.scenario.clustering
    within = clustering.announce_rounds is None or number <= clustering.announce_rounds
    return within and (number - 1) % clustering.announce_every == 0


def _identify_privately(world: World, state: State) -> Identification:
    """Users announce the noisy maximum of bounded scores, paid for before it is drawn; who cannot pay keeps its task.

    Where uploads are masked the task stays on the device, and the noise costs accuracy for nothing but
    the counts per task that stations then see.
    """
    clustering, privacy = world.scenario.clustering, world.scenario.privacy
    weight = 0.0 if clustering.rule == "loss" else clustering.similarity_weight
    # Whoever sits out has nothing to announce.
    ledger, everyone = state.ledger.copy(), np.flatnonzero(~state.exhausted)
    paid = ledger.charge(everyone, privacy.identity_rho, "identity")
    users = everyone[paid]
    world.journal.record(state.round, "identity", users, np.full(len(users), privacy.identity_rho))
    width = score_width(weight, privacy.loss_bound, replaced=privacy.adjacency == "replace_one")
    identities = state.identities.copy()
    told = world.fleet.announce(
        state.round,
        users,
        identity_noise_scale(world.samples[users], width, privacy.identity_rho),
        similarity_weight=weight,
        loss_bound=privacy.loss_bound,
        slope_bound=world.scenario.training.clip,
        sizes=world.samples[users],
    )
    identities[users] = -1 if told is None else np.where(told >= 0, told, identities[users])
    return Identification(identities, ledger, np.zeros(0, dtype=np.int64), everyone[~paid])


def _identify_centrally(world: World, state: State) -> Identification:
    """Stations cluster local models that all users trained from one common model and uploaded.

    The common model is the mean of the task models: local models are comparable only when they
    started from the same weights. The uploads are clipped, noised and charged like any other;
    users who cannot pay keep their task.
    """
    privacy = world.scenario.privacy
    noise_std = np.zeros(world.users)
    if privacy.noise != "off":
        noise_std = np.maximum(privacy.n_min / world.samples, np.sqrt(privacy.v_max))
    ledger = state.ledger.copy()
    everyone = np.arange(world.users)
    rho = release_rho(world.clip, noise_std, privacy.adjacency)
    paid = ledger.charge(everyone, rho)
    users = everyone[paid]
    world.journal.record(state.round, "gradient", users, rho[users])
    identities = state.identities.copy()
    if len(users) >= world.tasks:
        start = state.models.mean(axis=0, dtype=np.float64).astype(np.float32)
        training = world.scenario.training
        steps = Steps(
            users, None, world.clip[users], noise_std[users], training.learning_rate, training.batch,
            world.samples[users], purpose="kmeans_noise", base=start,
        )  # fmt: skip
        result = world.fleet.release(state.round, steps)
        counted = np.minimum(world.samples[users], training.batch or world.samples[users])
        far = reach(world.clip[users], counted, noise_std[users], training.learning_rate, world.weights)
        intake = admit(result.uploads, state.round, users, start[None], np.zeros(len(users), dtype=np.int64), far)
        came = users[intake.accepted]
        rng = generator(world.seed, "kmeans", round=state.round)
        if len(came) >= world.tasks:
            identities[came] = kmeans_identities(intake.weights[intake.accepted], identities[came], world.tasks, rng)
    return Identification(identities, ledger, users, everyone[~paid])


def identities_from_releases(
    world: World, state: State, identities: NDArray[np.int64], intake: Intake, aggregation: Aggregation
) -> NDArray[np.int64]:
    """(U,) tasks for the next round: users who uploaded compare what they sent with how the models moved."""
    rows = np.flatnonzero(aggregation.joined[intake.users])
    users = intake.users[rows]
    found = identities.copy()
    if len(users) and announces(world, state.round + 1):
        task = identities[users]
        found[users] = released_identities(
            intake.weights[rows] - state.models[task],
            task,
            world.samples[users],
            aggregation.models - world.first_models,
            aggregation.totals,
        )
    return found
