"""Whole runs under masks: the same models as in the clear, with stations that know less."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest

from covey.association import get_policy
from covey.federated import Intake, Upload
from covey.files import csv_bytes
from covey.identification.from_release import FromRelease
from covey.identification.noisy_max import NoisyMax
from covey.network import Observation
from covey.report.reading import on_privacy
from covey.report.sheets import privacy_sheet
from covey.scenario import Scenario, load_scenario
from covey.security import Parameters, SeededEntropy, aggregate_masked
from covey.simulation import History, Simulation, masking, simulate
from covey.simulation.history import BLIND_NOTE, MASKED_NOTE

ROUNDS = 3


def scenario(mode: str = "masked", *overrides: str) -> Scenario:
    return load_scenario("quick", [f"security.mode={mode}", *overrides])


def first_users_lost(number: int):
    """A transport on which the first so many uploads of every round never arrive."""
    return lambda _, sent: list(sent)[number:]


def table(history: History) -> bytes:
    """rounds.csv."""
    return csv_bytes(record.row() for record in history.records)


def rows_but_for_masks(history: History) -> list[dict[str, object]]:
    """The rows of rounds.csv without what masks cost: bytes, and time and energy of sending them."""
    costs = {"protocol_bytes", "uplink_s", "delay_s", "transmit_energy_j"}
    return [{key: value for key, value in record.row().items() if key not in costs} for record in history.records]


@pytest.fixture(scope="module")
def masked() -> History:
    return simulate(scenario(), rounds=ROUNDS)


@pytest.fixture(scope="module")
def blind() -> History:
    return simulate(scenario("blind"), rounds=ROUNDS)


def test_models_are_those_of_sums_in_the_clear(masked: History, blind: History) -> None:
    np.testing.assert_allclose(masked.models, blind.models, rtol=1e-6, atol=1e-7)
    assert np.abs(masked.models - simulate(scenario(), rounds=1).models).max() > 1e-3
    for ours, theirs in zip(rows_but_for_masks(masked), rows_but_for_masks(blind), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5, nan_ok=True)
    np.testing.assert_array_equal(masked.ledger.rho, blind.ledger.rho)


@pytest.mark.parametrize("probability", [0.1, 0.3])
def test_models_are_those_in_the_clear_when_uploads_are_lost(probability: float) -> None:
    lossy = f"radio.loss_probability={probability}"
    ours, theirs = (simulate(scenario(mode, lossy), rounds=ROUNDS) for mode in ("masked", "blind"))
    np.testing.assert_allclose(ours.models, theirs.models, rtol=1e-6, atol=1e-7)
    assert ours.column("lost_uploads").sum() > 0
    for name in ("lost_uploads", "closed_tasks", "task_served", "served"):
        np.testing.assert_array_equal(ours.column(name), theirs.column(name))


def test_as_many_may_be_lost_as_the_threshold_allows_and_not_one_more() -> None:
    with Simulation(scenario(), rounds=1) as simulation:
        before = simulation.state.models.copy()
        served = simulation.play().served
    threshold = int(np.ceil(2 / 3 * served))
    most = served - threshold
    kept = {mode: simulate(scenario(mode), rounds=1, transport=first_users_lost(most)) for mode in ("masked", "blind")}
    assert kept["masked"].records[0].lost_uploads == most > 0
    assert sum(kept["masked"].records[0].task_served) > 0
    np.testing.assert_allclose(kept["masked"].models, kept["blind"].models, rtol=1e-6, atol=1e-7)
    for mode in ("masked", "blind"):
        lost = simulate(scenario(mode), rounds=1, transport=first_users_lost(most + 1))
        np.testing.assert_array_equal(lost.models, before)
        assert lost.records[0].task_served == [0, 0, 0, 0]
        assert lost.records[0].closed_tasks > 0


def test_a_round_that_cannot_be_opened_does_not_end_the_run() -> None:
    def deaf_in_the_second(round: int, sent: list[Upload]) -> list[Upload]:
        return sent[:1] if round == 1 else list(sent)

    with Simulation(scenario(), rounds=3, transport=deaf_in_the_second) as simulation:
        simulation.play()
        after_first = simulation.state.models.copy()
        record = simulation.play()
        np.testing.assert_array_equal(simulation.state.models, after_first)
        assert (record.lost_uploads, sum(record.task_served)) == (record.served - 1, 0)
        simulation.play()
        assert not np.array_equal(simulation.state.models, after_first)
        assert simulation.state.ledger.releases.sum() == sum(r.served for r in simulation.history.records)


@pytest.mark.parametrize("mode", ["masked", "blind"])
def test_a_task_with_too_few_uploads_keeps_its_model_bit_for_bit(mode: str) -> None:
    closed = 0
    with Simulation(scenario(mode, "security.minimum=3"), rounds=ROUNDS) as simulation:
        for _ in range(ROUNDS):
            before = simulation.state.models.copy()
            record = simulation.play()
            served = np.bincount(record.users.identity[record.users.station >= 0], minlength=4)
            small = (served > 0) & (served < 3)
            closed += record.closed_tasks
            assert record.closed_tasks == small.sum()
            assert record.task_served == np.where(served >= 3, served, 0).tolist()
            np.testing.assert_array_equal(simulation.state.models[small], before[small])
            assert (simulation.state.models[served >= 3] != before[served >= 3]).any(axis=1).all()
            np.testing.assert_array_equal(
                record.users.joined, (record.users.station >= 0) & (served[record.users.identity] >= 3)
            )
    assert closed > 0


def test_fewer_users_than_the_minimum_close_everything() -> None:
    def nobody_else(observation: Observation, rng: np.random.Generator) -> np.ndarray:
        chosen = np.zeros((4, 12), bool)
        chosen[0, 5] = True
        return chosen

    reachable = scenario("masked", "radio.min_rate_bps=1000")
    with Simulation(reachable, nobody_else, rounds=1) as simulation:
        before = simulation.state.models.copy()
        record = simulation.play()
        assert (record.served, record.closed_tasks, record.protocol_bytes) == (1, 1, 0)
        np.testing.assert_array_equal(simulation.state.models, before)
    nobody = simulate(reachable, lambda observation, rng: np.zeros((4, 12), bool), rounds=2)
    assert (nobody.column("closed_tasks").sum(), nobody.column("served").sum()) == (0, 0)


def test_equal_bits_again_and_at_two_workers_with_masks_losses_and_announcements() -> None:
    chosen = scenario("masked", "radio.loss_probability=0.1", "privacy.identity=noisy_max")
    first, second, split = (simulate(chosen, rounds=ROUNDS, workers=workers) for workers in (1, 1, 2))
    for other in (second, split):
        np.testing.assert_array_equal(first.models, other.models)
        assert table(first) == table(other)
        np.testing.assert_array_equal(first.user_column("identity"), other.user_column("identity"))
    assert not np.array_equal(first.models, simulate(chosen, rounds=ROUNDS, seed=1).models)


def test_policies_see_nothing_that_depends_on_the_tasks() -> None:
    seen: dict[str, list[Observation]] = {}
    identities = []
    for rule in ("gradient_loss", "oracle"):
        observations = seen.setdefault(rule, [])

        def watch(observation: Observation, rng: np.random.Generator, keep: list[Observation] = observations):
            keep.append(observation)
            return get_policy("greedy")(observation, rng)

        identities.append(simulate(scenario("masked", f"clustering.rule={rule}"), watch, rounds=ROUNDS))
    tasks = [history.user_column("identity") for history in identities]
    assert (tasks[0] != tasks[1]).any(axis=1).all()
    for ours, theirs in zip(*seen.values(), strict=True):
        for field in fields(Observation):
            if field.name != "limits":
                np.testing.assert_array_equal(getattr(ours, field.name), getattr(theirs, field.name))
        for name, value in vars(ours.limits).items():
            np.testing.assert_array_equal(value, getattr(theirs.limits, name))
        assert not ours.identities.any()
        assert ours.capable.shape == (4, 1)
        assert ours.capable.all()
        assert not ours.kept.any()


def test_uplink_time_is_that_of_all_slots_and_of_the_protocol(masked: History, blind: History) -> None:
    weights = masked.models.shape[1]
    slots = 4 * (weights + 1) * 64
    assert masked.upload_bits == slots
    assert blind.upload_bits == 32 * weights
    for ours, theirs in zip(masked.records, blind.records, strict=True):
        served = np.flatnonzero(ours.users.station >= 0)
        np.testing.assert_array_equal(ours.users.rate_bps, theirs.users.rate_bps)
        bits = ours.users.uplink_s[served] * ours.users.rate_bps[served]
        # The sizes of messages do not depend on what is in them.
        users, task = len(served), ours.users.identity[served]
        cost = aggregate_masked(
            np.zeros((users, weights)),
            np.ones(users),
            task,
            ours.users.station[served],
            parameters=Parameters(users, int(np.ceil(2 / 3 * users)), 2, 4, weights),
            entropy=SeededEntropy(7),
            round=ours.round,
        ).cost
        protocol = cost.total_up_bytes() - cost.up_bytes["upload"]
        assert (protocol > 0).all()
        np.testing.assert_allclose(bits, slots + 8 * protocol)
        np.testing.assert_allclose(
            ours.users.uplink_s[served] / theirs.users.uplink_s[served], (slots + 8 * protocol) / (32 * weights)
        )
        elsewhere = int(cost.total_down_bytes().sum()) + sum(cost.backhaul_bytes.values())
        assert ours.protocol_bytes == int(protocol.sum()) + elsewhere
        assert theirs.protocol_bytes == 0
        assert ours.transmit_energy_j == pytest.approx(float(ours.users.uplink_s.sum()))  # 30 dBm is 1 W


def test_secure_noise_works_under_masks() -> None:
    a, b = (simulate(scenario("masked", "privacy.noise=secure"), rounds=2) for _ in range(2))
    assert np.isfinite(a.models).all()
    assert not np.array_equal(a.models, b.models)
    np.testing.assert_array_equal(a.ledger.rho, b.ledger.rho)
    assert "cryptographic" in a.notes[0]


def test_raw_tasks_are_labelled_under_masks_too_because_they_decide_what_is_in_which_sum(masked: History) -> None:
    assert (masked.ledger.unprotected == ROUNDS - 1).all()
    privacy = masked.summary()["privacy"]
    assert privacy["identities_protected"] is False
    assert privacy["security"] == "masked"
    assert masked.notes[1] == MASKED_NOTE
    for words in ("no single upload", "nobody's task", "not covered"):
        assert words in MASKED_NOTE
    for words in ("Identities are NOT protected", "numbers of users and samples", "sum of every opened task"):
        assert words in masked.notes[2]
    assert privacy["under_aggregation"]["assumption"].endswith("that is not covered.")
    assert any("Which sum an upload is in is not covered" in line for line in on_privacy(masked, masked.summary()))
    told = dict(row[:2] for row in privacy_sheet(masked.summary()).rows)["Identities"]
    assert told == "kept on devices, where they decide which sum an upload is in, not protected"


def test_a_blind_run_protects_nothing_and_says_so(blind: History) -> None:
    assert (blind.ledger.unprotected == ROUNDS - 1).all()
    assert blind.summary()["privacy"]["identities_protected"] is False
    assert blind.notes[1] == BLIND_NOTE
    assert "Identities are NOT protected" in blind.notes[2]
    assert "nothing hides tasks or uploads" in BLIND_NOTE


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_an_upload_that_cannot_be_summed_drops_its_user_only(value: float) -> None:
    def spoil(round: int, sent: list[Upload]) -> list[Upload]:
        return [replace(sent[0], weights=np.full_like(sent[0].weights, value)), *sent[1:]]

    bad = simulate(scenario(), rounds=2, transport=spoil)
    lost = simulate(scenario(), rounds=2, transport=first_users_lost(1))
    np.testing.assert_array_equal(bad.models, lost.models)
    np.testing.assert_array_equal(bad.user_column("joined"), lost.user_column("joined"))
    assert bad.column("rejected_uploads").tolist() == [0, 0]  # the device cannot mask it, and sends nothing
    assert bad.column("lost_uploads").tolist() == lost.column("lost_uploads").tolist() == [1, 1]
    assert bad.column("task_served").sum() > 0


@pytest.mark.parametrize("value", [np.nan, 1e9])
def test_a_device_that_cannot_encode_its_update_leaves_the_sum_of_the_others(value: float) -> None:
    with Simulation(scenario(), rounds=1) as simulation:
        world, state = simulation.world, simulation.state
        users, tasks = np.arange(8), np.array([0, 0, 0, 1, 1, 2, 2, 2])
        weights = np.random.default_rng(0).standard_normal((8, world.weights)).astype(np.float32)
        weights[1] = value
        identities = np.concatenate([tasks, np.zeros(4, np.int64)])
        decision = SimpleNamespace(plan=SimpleNamespace(station=np.arange(12) % 4))
        found = masking.aggregate_masked(
            world, state, identities, decision, Intake(users, weights, np.ones(8, bool), {})
        )
        assert np.flatnonzero(found.joined).tolist() == [0, 2, 3, 4, 5, 6, 7]
        assert found.closed_tasks == 0
        for task, members in ((0, [0, 2]), (1, [3, 4]), (2, [5, 6, 7])):
            mean = np.average(weights[members].astype(np.float64), axis=0, weights=world.samples[members])
            np.testing.assert_allclose(found.models[task], mean, rtol=1e-6, atol=1e-7)
            assert found.totals[task] == world.samples[members].sum()
        np.testing.assert_array_equal(found.models[3], state.models[3])
        assert found.totals[3] == 0


@pytest.mark.parametrize("identity", ["noisy_max", "from_release"])
def test_private_identities_work_under_masks(identity: str) -> None:
    history = simulate(scenario("masked", f"privacy.identity={identity}"), rounds=ROUNDS)
    assert history.complete
    expected = ROUNDS - 1 if identity == "noisy_max" else 0
    assert (history.ledger.announcements == expected).all()
    assert not history.ledger.unprotected.any()
    assert history.summary()["privacy"]["identities_protected"] is True
    assert any(note in history.notes for note in (NoisyMax.note, FromRelease.note))
    # Tasks that follow from single uploads show in the sums what a single upload has, with its own noise alone.
    assert (history.summary()["privacy"]["under_aggregation"] is None) == (identity == "from_release")
