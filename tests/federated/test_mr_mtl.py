"""MR-MTL: against plain PyTorch loops, what it charges, how far uploads may be, and the same bits everywhere."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.federated.users import Noise, draw_users
from torch import nn
from torch.nn import functional

from covey.environment.calibration import learning_hash
from covey.errors import ScenarioError
from covey.evaluation.bound_runs import play_and_measure
from covey.federated import Engine, Sgd, TrainResult, admit, build_model, build_training, flatten, load_flat
from covey.federated.personal.mr_mtl import FromOwnModel
from covey.federated.training.optimisers import Optimiser, Settings, remaining
from covey.identification import Identification
from covey.identification.evidence import Evidence
from covey.identification.rescue import hear
from covey.identification.rule import Trained
from covey.parts import PERSONALS
from covey.scenario import Scenario, load_scenario
from covey.scenario.schema import Model
from covey.seeding import generator
from covey.simulation import History, Simulation, simulate
from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint
from covey.simulation.round import begin_round, decide, rule_round

SHAPE, SIZES, WEIGHTS = (1, 6, 6), [30, 7, 52], 148
RATE = 0.1
#: Identities that no model changes, so that runs with other models serve the same users.
GIVEN = ["clustering.rule=oracle"]


def module() -> nn.Module:
    return build_model(Model(name="softmax"), SHAPE, 4)


def scenario(unit: str = "sample", pull: float = 0.5, rounds: int = 4, **training: Any) -> Scenario:
    given = {"learning_rate": RATE, "local": "sgd", "rounds": rounds, "personal": "mr_mtl", "personal_pull": pull}
    return Scenario(training=given | training, privacy={"unit": unit})


def local(unit: str = "sample", pull: float = 0.5, **training: Any) -> FromOwnModel:
    found, _ = build_training(scenario(unit, pull, **training))
    assert isinstance(found, FromOwnModel)
    return found


def weights_of(seed: int, rows: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, WEIGHTS)).astype(np.float32)


def train(
    training: Any, own: list[Any], clip: float = 1e6, noise: float = 0.0, *, workers: int = 1, round: int = 3
) -> tuple[TrainResult, np.ndarray]:
    """The result of all users, and the received model."""
    received, everyone = weights_of(4, 1), np.arange(len(SIZES))
    with Engine(module(), draw_users(SIZES, SHAPE, 4), tasks=1, workers=workers, seed=1, noise=Noise(1),
                training=training) as engine:  # fmt: skip
        engine.publish(received, np.zeros_like(received))
        found = engine.train(
            round, everyone, np.zeros(3, dtype=np.int64), np.full(3, clip), np.full(3, noise), learning_rate=RATE,
            batch=training.scenario.training.batch, own=own,
        )  # fmt: skip
    return found, received[0]


def plain_loop(
    net: nn.Module, own: np.ndarray, received: np.ndarray, batches: list[tuple[torch.Tensor, torch.Tensor]],
    pull: float, noise: list[np.ndarray] | None = None, **options: float,
) -> np.ndarray:  # fmt: skip
    """What torch's own optimiser makes of the loss, the pull as a term of it, and noise on mean gradients."""
    load_flat(net, own)
    optimiser = torch.optim.SGD(net.parameters(), **options)  # type: ignore[arg-type]
    anchor = torch.from_numpy(received.copy())
    for step, (x, y) in enumerate(batches):
        optimiser.zero_grad()
        flat = torch.cat([parameter.flatten() for parameter in net.parameters()])
        loss = functional.cross_entropy(net(x), y) + pull / 2 * (flat - anchor).square().sum()
        loss.backward()
        if noise is not None:
            values = torch.from_numpy(noise[step].astype(np.float32))
            parameters = list(net.parameters())
            for parameter, piece in zip(parameters, values.split([p.numel() for p in parameters]), strict=True):
                assert parameter.grad is not None
                parameter.grad += piece.view_as(parameter)
        optimiser.step()
    return flatten(net)


def batches_of(user: int, steps: int, batch: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    data = draw_users(SIZES, SHAPE, 4)
    rows = slice(data.offsets[user], data.offsets[user + 1])
    x, y = torch.from_numpy(data.x[rows]), torch.from_numpy(data.y[rows])
    rng, left, found = generator(1, "train_batch", user=user, round=3), np.zeros(0, dtype=np.int64), []
    for _ in range(steps):
        chosen = np.arange(len(y))
        if 0 < batch < len(y):
            if len(left) < batch:
                left = rng.permutation(len(y))
            chosen, left = left[:batch], left[batch:]
        found.append((x[chosen], y[chosen]))
    return found


@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize("noise", [0.0, 2.0])
@pytest.mark.parametrize("options", [{}, {"momentum": 0.8}, {"weight_decay": 0.2}])
def test_a_round_is_a_plain_loop_from_the_users_own_model(unit: str, noise: float, options: dict[str, float]) -> None:
    own, batch, steps = [weights_of(5, 1)[0], None, weights_of(6, 1)[0]], 10, 4
    found, received = train(local(unit, 0.5, steps=steps, batch=batch, **options), own, noise=noise)
    for user, model in enumerate(own):
        size = min(batch, SIZES[user])
        drawn = Noise(1)(user, 3, "noise", steps * WEIGHTS if unit == "sample" else WEIGHTS) * noise
        kept = plain_loop(
            module(), received if model is None else model, received, batches_of(user, steps, batch), 0.5,
            list(drawn.reshape(steps, WEIGHTS) / size) if unit == "sample" else None, lr=RATE, **options,
        )  # fmt: skip
        np.testing.assert_allclose(found.kept[user], kept, atol=2e-5)
        # Device: the kept model has no noise, what leaves has noise of one step's size.
        sent = kept if unit == "sample" else kept - RATE / SIZES[user] * drawn
        np.testing.assert_allclose(found.uploads[user], sent, atol=2e-5)


@pytest.mark.parametrize("unit", ["sample", "device"])
def test_a_run_is_a_plain_loop_over_rounds_and_users(unit: str) -> None:
    steps, pull, rate = 3, 0.7, 0.3
    played = load_scenario(
        "quick",
        ["training.personal=mr_mtl", f"training.personal_pull={pull}", f"training.steps={steps}", "training.clip=1e6",
         f"privacy.unit={unit}", "privacy.noise=off", "clustering.rescue=false"],
    )  # fmt: skip
    with Simulation(played, rounds=5) as simulation:
        models, data, own = simulation.state.models.copy(), simulation.data, dict[int, np.ndarray]()
        assert data is not None
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        while not simulation.done:
            record, totals, sums = simulation.play(), np.zeros(4), np.zeros(models.shape)
            for user in np.flatnonzero(record.users.station >= 0).tolist():
                task, rows = int(record.users.identity[user]), slice(data.offsets[user], data.offsets[user + 1])
                sample = (torch.from_numpy(data.x[rows].copy()), torch.from_numpy(data.y[rows].copy()))
                start = own.get(user, models[task])
                own[user] = plain_loop(net, start, models[task], [sample] * steps, pull, lr=rate)
                totals[task] += data.samples[user]
                sums[task] += data.samples[user] * own[user].astype(np.float64)
            trained = totals > 0
            models[trained] = (sums[trained] / totals[trained, None]).astype(np.float32)
            np.testing.assert_allclose(simulation.state.models, models, atol=2e-5)
        assert 4 < len(own) < 12 or len(own) == 12
        assert simulation.state.personal_begun.tolist() == [user in own for user in range(12)]
        for user, model in own.items():
            np.testing.assert_allclose(simulation.state.personal[user], model, atol=2e-5)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["training.steps=4", "training.batch=20"],
        ["training.steps=4", "training.batch=20", "training.sampling=poisson", "privacy.adjacency=add_remove"],
        ["training.epochs=2", "training.batch=20", "privacy.unit=device", "training.optimizer=adam"],
    ],
    ids=" ".join,
)
def test_the_ledger_charges_what_it_charges_without(options: list[str]) -> None:
    ours = simulate(load_scenario("quick", [*GIVEN, *options, "training.personal=mr_mtl"]), rounds=3)
    plain = simulate(load_scenario("quick", [*GIVEN, *options]), rounds=3)
    assert ours.ledger.to_dict() == plain.ledger.to_dict()
    assert ours.ledger.epsilon().max() > 0
    assert ours.models.tobytes() != plain.models.tobytes()
    for name in ("uplink_s", "energy_j", "noise_std"):
        assert ours.user_column(name).tobytes() == plain.user_column(name).tobytes(), name


def test_the_first_round_is_that_of_sgd() -> None:
    ours, received = train(local(steps=1, batch=10), [None] * 3, 0.4, 2.0)
    plain, _ = train(Sgd(scenario(personal="none", steps=1, batch=10, pull=0.1)), [None] * 3, 0.4, 2.0)
    assert ours.uploads.tobytes() == plain.uploads.tobytes()
    assert ours.kept.tobytes() == ours.uploads.tobytes()
    assert plain.kept.size == 0
    assert ours.uploads[0].tobytes() != received.tobytes()


def test_without_a_pull_a_model_is_trained_alone() -> None:
    own = list(weights_of(5, 3))
    found, received = train(local(pull=0.0, steps=3), own)
    for user, model in enumerate(own):
        alone = plain_loop(module(), model, np.zeros_like(received), batches_of(user, 3, 0), 0.0, lr=RATE)
        np.testing.assert_allclose(found.kept[user], alone, atol=2e-5)


def test_the_strongest_pull_ends_where_the_received_model_is() -> None:
    own, clip = list(weights_of(5, 3)), 0.01
    found, received = train(local(pull=1.0 / RATE, steps=3), own, clip)
    # What was there before is forgotten, and all that is left is the last clipped step.
    assert (np.linalg.norm(found.kept - received, axis=1) <= RATE * clip + 1e-5).all()
    weak, _ = train(local(pull=0.1 / RATE, steps=3), own, clip)
    left = np.linalg.norm(weak.kept - received, axis=1) / np.linalg.norm(np.array(own) - received, axis=1)
    np.testing.assert_allclose(left, 0.9**3, atol=0.01)


def test_a_pull_at_which_steps_diverge_is_refused_before_round_1() -> None:
    with pytest.raises(ScenarioError, match=r"must be below 2: set training.personal_pull to 10 or less$"):
        local(pull=2.0 / RATE)
    assert abs(remaining(Settings(RATE, proximal=1.99 / RATE), 5)[-1]) < 1
    local(pull=1.99 / RATE)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("pull", [0.0, 0.5, 4.0])
@pytest.mark.parametrize("steps", [1, 3])
def test_reach_is_the_way_of_all_rounds_around_a_model_that_stands_still(
    pull: float, steps: int, momentum: float
) -> None:
    rounds, clip = 6, 0.7
    training = local(pull=pull, steps=steps, momentum=momentum, rounds=rounds)
    settings, still = Settings(RATE, momentum=momentum, proximal=pull), torch.zeros(2, dtype=torch.float64)
    # Responses of the last upload to a unit gradient in each of all steps, each with optimisers that begin anew.
    responses = []
    for number in range(rounds * steps):
        where = still
        for begun in range(rounds):
            optimiser = Optimiser(settings, where, still)
            for step in range(steps):
                optimiser.step(torch.tensor([float(begun * steps + step == number), 0.0], dtype=torch.float64))
            where = optimiser.weights
        responses.append(float(where[0]))
    ones, samples, length = np.ones(1), np.array([20]), 50
    without_noise = training.reach(clip * ones, samples, 0 * ones, length)[0]
    assert without_noise >= 1.0009 * clip * np.abs(responses).sum()
    if momentum == 0:
        assert without_noise == pytest.approx(1.001 * clip * np.abs(responses).sum() + 1e-3)
    noise = training.reach(clip * ones, samples, 3.0 * ones, length)[0] - without_noise
    spread = 3.0 / 20 * math.sqrt(np.square(responses).sum())
    assert noise >= 1.0009 * spread * math.sqrt(length)
    if momentum == 0:
        assert noise == pytest.approx(1.001 * spread * (math.sqrt(length) + math.sqrt(2 * math.log(1e12))))


@pytest.mark.parametrize("options", [{}, {"optimizer": "adam"}, {"weight_decay": 0.3, "steps": 3}])
def test_a_model_far_away_is_uploaded_as_near_as_stations_let_it_in_and_kept_as_it_is(options: dict[str, Any]) -> None:
    training, clip, noise = local(pull=0.0, rounds=2, **options), 0.1, 0.1
    found, received = train(training, list(50 + weights_of(5, 3)), clip, noise)
    ones, samples = np.ones(3), np.array(SIZES)
    reach = training.at(3).reach(clip * ones, samples, noise * ones, WEIGHTS)
    away = found.uploads.astype(np.float64) - received
    assert (np.linalg.norm(away, axis=1) <= reach).all()
    np.testing.assert_allclose(np.linalg.norm(away, axis=1), reach, atol=1e-3)
    assert (np.linalg.norm(found.kept - received, axis=1) > 100).all()
    direction = found.kept - received
    np.testing.assert_allclose(
        away / np.linalg.norm(away, axis=1)[:, None], direction / np.linalg.norm(direction, axis=1)[:, None], atol=1e-4
    )


def test_no_honest_upload_is_turned_away_in_more_rounds_than_were_planned() -> None:
    for pull, more in (("0", "training.steps=3"), ("0.5", "training.optimizer=adam"), ("3", "training.momentum=0.9")):
        options = ["training.personal=mr_mtl", f"training.personal_pull={pull}", more, "training.rounds=1"]
        history = simulate(load_scenario("quick", [*options, "privacy.n_min=300", "privacy.v_max=60"]), rounds=6)
        assert history.column("rejected_uploads").sum() == 0


def test_in_the_unit_device_what_leaves_is_clipped_as_a_whole_wherever_the_model_is() -> None:
    own, clip = list(50 + weights_of(5, 3)), 0.3
    found, received = train(local("device", steps=2), own, clip)
    np.testing.assert_allclose(np.linalg.norm(found.uploads - received, axis=1), RATE * clip, rtol=1e-3)
    assert (np.linalg.norm(found.kept - received, axis=1) > 100).all()
    # The reach is that of the clipped update, as without models of users' own.
    ones, samples, plain = np.ones(3), np.array(SIZES), Sgd(scenario("device", personal="none", pull=0.1, steps=2))
    assert (
        local("device", steps=2).reach(ones, samples, ones, 9).tolist() == plain.reach(ones, samples, ones, 9).tolist()
    )


def test_a_model_that_is_not_finite_is_not_kept() -> None:
    own = [np.full(WEIGHTS, np.float32(3e38)), None, weights_of(6, 1)[0]]
    with np.errstate(over="ignore"):
        found, received = train(local("device", pull=1.9 / RATE, momentum=0.9, steps=6), own)
    assert np.isfinite(found.kept).all()
    assert np.isfinite(found.uploads).all()
    assert found.kept[0].tobytes() == own[0].tobytes()
    assert found.uploads[0].tobytes() == received.tobytes()


def test_noise_of_an_upload_is_that_of_its_round() -> None:
    training, draws = local(steps=3, batch=10), 40
    own = list(weights_of(5, 3))
    silent, _ = train(training, own, 1e-9)
    found = [train(training, own, 1e-9, 5.0, round=number)[0].kept - silent.kept for number in range(draws)]
    wanted = training.upload_noise(np.full(3, 5.0), np.array(SIZES))
    np.testing.assert_allclose(np.std(found, axis=(0, 2)), wanted, rtol=0.05)


@pytest.mark.parametrize("unit", ["sample", "device"])
def test_two_workers_have_the_bits_of_one(unit: str) -> None:
    own = [weights_of(5, 1)[0], None, weights_of(6, 1)[0]]
    training = local(unit, steps=3, batch=10, momentum=0.5)
    one, two = (train(training, own, 0.5, 1.0, workers=workers)[0] for workers in (1, 2))
    for name, values in vars(one).items():
        assert getattr(two, name).tobytes() == values.tobytes(), name


def run(*more: str) -> Scenario:
    return load_scenario("quick", ["training.personal=mr_mtl", "training.steps=3", "training.batch=20", *more])


@pytest.fixture(scope="module", params=["sample", "device"])
def unit(request: pytest.FixtureRequest) -> str:
    return f"privacy.unit={request.param}"


def test_a_resumed_run_and_two_workers_have_the_bits_of_a_whole_run(unit: str, tmp_path: Path) -> None:
    with Simulation(run(unit), rounds=5) as whole:
        while not whole.done:
            whole.play()
            if whole.state.round == 2:
                save_checkpoint(whole, tmp_path)
        for workers in (1, 2):
            with Simulation(run(unit), rounds=5, workers=workers) as again:
                restore_checkpoint(again, tmp_path)
                assert again.state.round == 2
                while not again.done:
                    again.play()
                assert again.state.personal.tobytes() == whole.state.personal.tobytes()
                assert again.state.models.tobytes() == whole.state.models.tobytes()
                for name in ("personal_accuracy", "personal_test_loss"):
                    assert again.history.user_column(name).tobytes() == whole.history.user_column(name).tobytes()
                assert again.history.ledger.to_dict() == whole.history.ledger.to_dict()


def test_a_user_that_is_not_served_keeps_its_model_and_is_measured_on_it() -> None:
    with Simulation(run(), rounds=6) as simulation:
        waited = 0
        while not simulation.done:
            before = simulation.state
            record = simulation.play()
            after, served = simulation.state, record.users.station >= 0
            assert after.personal_begun.tolist() == (before.personal_begun | served).tolist()
            assert after.personal[~served].tobytes() == before.personal[~served].tobytes()
            changed = (after.personal != before.personal).any(axis=1)
            assert changed[served].all()
            waited += int((~served & before.personal_begun).sum())
            assert np.isfinite(record.users.personal_accuracy).all()
        assert waited > 0
        data, net = simulation.data, nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        assert data is not None
        for user in np.flatnonzero(after.personal_begun).tolist():
            rows = slice(int(data.test_offsets[user]), int(data.test_offsets[user + 1]))
            load_flat(net, after.personal[user])
            right = net(torch.from_numpy(data.test_x[rows].copy())).argmax(1).numpy() == data.test_y[rows]
            assert record.users.personal_accuracy[user] == pytest.approx(right.mean())


def test_a_lost_upload_leaves_the_users_model_as_it_trained_it() -> None:
    with (
        Simulation(run(), rounds=1, transport=lambda _, sent: sent[:0]) as lost,
        Simulation(run(), rounds=1) as whole,
    ):
        record = lost.play()
        whole.play()
        assert lost.state.personal.tobytes() == whole.state.personal.tobytes()
        assert lost.state.personal_begun.tolist() == (record.users.station >= 0).tolist()
        assert lost.state.models.tobytes() != whole.state.models.tobytes()


def test_masked_uploads_give_the_models_of_blind_ones(unit: str) -> None:
    blind, masked = (simulate(run(unit, f"security.mode={mode}"), rounds=4) for mode in ("blind", "masked"))
    np.testing.assert_allclose(masked.models, blind.models, atol=1e-4)
    np.testing.assert_allclose(masked.column("personal_test_loss"), blind.column("personal_test_loss"), rtol=1e-3)
    assert (masked.column("rejected_uploads") == 0).all()


def test_one_upload_counts_as_all_so_far_where_it_holds_them() -> None:
    one = ["security.mode=masked", "training.steps=1", "training.batch=0"]
    sample = simulate(run(*one), rounds=4).summary()["privacy"]
    assert sample["single_upload"]["epsilon_max"] == sample["epsilon_max"]["exact"]
    assert "earlier rounds" in sample["single_upload"]["assumption"]
    assert sample["under_aggregation"] is None
    device = simulate(run(*one, "privacy.unit=device"), rounds=4).summary()["privacy"]
    assert device["single_upload"]["epsilon_max"] < device["epsilon_max"]["exact"]
    assert device["under_aggregation"]["epsilon_max"] < device["epsilon_max"]["exact"]
    plain = simulate(load_scenario("quick", ["security.mode=masked"]), rounds=4).summary()["privacy"]
    assert plain["single_upload"]["epsilon_max"] < plain["epsilon_max"]["exact"]
    assert plain["under_aggregation"] is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["clustering.rule=fesem"], "clustering.rule is 'fesem', which needs uploads that are the model of a task"),
        (["clustering.rule=mixture"], "clustering.rule is 'mixture', which needs uploads that are"),
        (["clustering.rule=bipartition"], "clustering.rule is 'bipartition', which needs uploads that are"),
        (["clustering.start=release"], "clustering.start is 'release', which needs uploads that are"),
        (["privacy.identity=from_release"], "privacy.identity is 'from_release', which needs uploads that are"),
        (["training.proximal=0.1"], "put it back with training.proximal=default"),
        (["training.personal_steps=3"], "training.personal_steps is 3, but training.personal is 'mr_mtl'"),
        (["training.personal_rate=0.2"], "put it back with training.personal_rate=default"),
        (["training.local=examples.parts.two_steps:TwoSteps"], 'set training.local = "sgd"'),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_what_it_cannot_do_is_refused_in_a_sentence(options: list[str], words: str) -> None:
    with pytest.raises(ScenarioError, match=r"^[^\n]*$") as refused:
        simulate(load_scenario("quick", ["training.personal=mr_mtl", *options]), rounds=1)
    assert words in str(refused.value)


@pytest.mark.parametrize("rule", ["kmeans", "kmeans_debiased", "loss_vectors", "soft", "loss"])
def test_rules_that_compare_no_uploads_of_the_round_work(rule: str) -> None:
    history = simulate(load_scenario("quick", ["training.personal=mr_mtl", f"clustering.rule={rule}"]), rounds=2)
    assert np.isfinite(history.column("personal_accuracy")).all()
    assert history.column("rejected_uploads").sum() == 0


def test_offers_of_free_models_go_by_no_upload() -> None:
    with Simulation(run(), rounds=1) as simulation:
        world, state = simulation.world, simulation.state
        turn = begin_round(world, state)
        served = decide(world, turn, simulation.policy).any(axis=0)
        simulation.play()
        users = np.flatnonzero(served)
        intake = admit([], 0, users, state.models, turn.identification.identities[users], np.ones(len(users)))
        intake = replace(intake, accepted=np.ones(len(users), dtype=bool))
        trained = Trained(intake, served, np.ones(12), state.models, state.movements, np.ones(4), state.models)
        at = rule_round(world, state, turn.groups)
        found = Identification(turn.identification.identities, state.ledger)
        assert len(hear(at, found, trained).heard_users) == 0
        plain = replace(at, training=Sgd(load_scenario("quick", ["training.local=sgd"])))
        evidence: Evidence = hear(plain, found, trained)
        assert len(evidence.heard_users) == len(users) > 0


def test_bounds_on_steps_from_the_task_model_are_refused() -> None:
    fixed = load_scenario("quick", ["training.personal=mr_mtl", "clustering.rescue=false"])
    with (
        Simulation(fixed, rounds=1) as simulation,
        pytest.raises(ScenarioError, match="whose steps start from users' own models"),
    ):
        play_and_measure(simulation)


def test_calibrations_depend_on_it() -> None:
    plain, ours = load_scenario("quick"), load_scenario("quick", ["training.personal=mr_mtl"])
    stronger = load_scenario("quick", ["training.personal=mr_mtl", "training.personal_pull=0.3"])
    assert len({learning_hash(one) for one in (plain, ours, stronger)}) == 3


class Keepless(PERSONALS.get("mr_mtl")):  # type: ignore[misc]
    """Says that it uploads, and leaves local training as it is."""

    def training(self, local: Any) -> Any:
        return local


def test_a_part_of_ones_own_whose_training_keeps_nothing_is_named() -> None:
    PERSONALS.register("keepless", Keepless)
    with pytest.raises(ScenarioError, match="'keepless' has `uploads`, but its local training kept models of shape"):
        simulate(load_scenario("quick", ["training.personal=keepless"]), rounds=1)


def test_both_models_are_measured(unit: str) -> None:
    history: History = simulate(run(unit), rounds=4)
    last = history.records[-1]
    assert last.personal_accuracy == pytest.approx(last.users.personal_accuracy.mean())
    assert last.personal_accuracy != last.accuracy
    assert history.summary()["final"]["personal_accuracy"] == last.personal_accuracy
    # Training it is what the upload takes, and nothing more.
    plain = simulate(load_scenario("quick", ["training.steps=3", "training.batch=20", unit]), rounds=1)
    assert history.records[0].compute_s == plain.records[0].compute_s
