"""Parts from outside the package: each example is one file, used by module:attribute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from examples.parts.label_swap import SWAP_ROUND
from examples.parts.similarity_rule import Similarity
from examples.parts.squared_error import squared_error
from torch import nn
from typer.testing import CliRunner

import covey
from covey.cli.main import app
from covey.errors import CoveyError, ScenarioError
from covey.federated import noised_step, use_loss
from covey.federated.steps import loss_table
from covey.parts import RULES
from covey.scenario import dump_scenario

RULE = "clustering.rule=examples.parts.similarity_rule:Similarity"
MEDIAN = "training.aggregation=examples.parts.median_aggregation:Median"
TWO_STEPS = "training.local=examples.parts.two_steps:TwoSteps"
SWAP = "data.over_time=examples.parts.label_swap:LabelSwap"


def play(*overrides: str, rounds: int = 3, **given: Any) -> covey.History:
    return covey.simulate(covey.load_scenario("quick", list(overrides)), rounds=rounds, seed=1, **given)


def test_a_rule_from_a_scenario_file_from_python_and_from_the_command_line_is_the_same(tmp_path: Path) -> None:
    scenario = covey.load_scenario("quick", [RULE])
    file = tmp_path / "mine.toml"
    file.write_text(dump_scenario(scenario), encoding="utf-8")
    from_file = covey.simulate(covey.load_scenario(file), rounds=3, seed=1)
    with covey.Simulation(scenario, seed=1) as simulation:
        assert isinstance(simulation.world.rule, Similarity)
    out = tmp_path / "run"
    command = ["run", "quick", "--set", RULE, "--rounds", "3", "--seed", "1", "--out", str(out), "--quiet"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    losses = [line.split(",")[1] for line in (out / "rounds.csv").read_text(encoding="utf-8").splitlines()[1:]]
    assert losses == [repr(loss) for loss in from_file.column("loss").tolist()]
    # It is another rule than the built-in ones, which at 25 % would not show.
    assert from_file.user_column("identity").tolist() != play().user_column("identity").tolist()


def test_a_rule_that_needs_gradients_gets_them_and_chooses_by_them() -> None:
    with covey.Simulation(covey.load_scenario("quick", [RULE]), seed=1) as simulation:
        simulation.play()
        simulation.play()
        state, engine = simulation.state, simulation.world.engine
        engine.publish(state.models, state.movements)
        _, similarity = engine.score(state.round, batch=simulation.world.scenario.clustering.batch, gradients=True)
        assert np.abs(similarity).max() > 0
        assert simulation.play().users.identity.tolist() == similarity.argmax(axis=1).tolist()


def test_a_rule_can_be_registered_under_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RULES, "_registered", {})
    RULES.register("similarity", Similarity)
    named = play("clustering.rule=similarity")
    assert named.column("loss").tolist() == play(RULE).column("loss").tolist()
    with pytest.raises(CoveyError, match="did you mean 'similarity'"):
        covey.load_scenario("quick", ["clustering.rule=similarty"])


def test_parts_give_the_same_bits_in_worker_processes() -> None:
    for overrides in ((RULE, TWO_STEPS, "training.batch=20"), (MEDIAN, SWAP)):
        rounds = SWAP_ROUND + 2 if SWAP in overrides else 3
        alone, pair = (play(*overrides, rounds=rounds, workers=workers) for workers in (1, 2))
        assert alone.models.tobytes() == pair.models.tobytes()
        assert alone.column("loss").tolist() == pair.column("loss").tolist()


def test_data_change_in_the_round_they_should_and_a_resumed_run_has_them() -> None:
    swapped, kept = play(SWAP, rounds=SWAP_ROUND + 3), play(rounds=SWAP_ROUND + 3)
    before = slice(0, SWAP_ROUND)
    assert swapped.column("loss")[before].tolist() == kept.column("loss")[before].tolist()
    first = swapped.groups == 0
    jump = swapped.user_column("loss")[SWAP_ROUND] - kept.user_column("loss")[SWAP_ROUND]
    assert jump[first].min() > 0.2
    with covey.Simulation(covey.load_scenario("quick", [SWAP]), seed=1, rounds=SWAP_ROUND + 3) as simulation:
        for _ in range(SWAP_ROUND + 1):
            simulation.play()
        state, records = simulation.state, simulation.history.records
    with covey.Simulation(covey.load_scenario("quick", [SWAP]), seed=1, rounds=SWAP_ROUND + 3) as again:
        again.continue_from(state, records)
        while not again.done:
            again.play()
        assert again.history.column("loss").tolist() == swapped.column("loss").tolist()


def test_data_that_change_in_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from covey.data import UserData
    from covey.data.over_time import DataOverTime
    from covey.parts import DATA_OVER_TIME

    class Less(DataOverTime):
        def at(self, round: int, first: UserData) -> UserData:
            if round == 0:
                return first
            pairs = [
                (first.x[a : b - 1], first.y[a : b - 1]) for a, b in zip(first.offsets, first.offsets[1:], strict=False)
            ]
            tests = [
                (first.test_x[a:b], first.test_y[a:b])
                for a, b in zip(first.test_offsets, first.test_offsets[1:], strict=False)
            ]
            return UserData.from_users(pairs, test=tests, groups=first.groups, classes=first.classes)

    monkeypatch.setattr(DATA_OVER_TIME, "_registered", {"less": Less})
    with pytest.raises(ScenarioError, match="keeps its number of samples"):
        play("data.over_time=less")


def test_a_median_forgets_what_one_liar_sends() -> None:
    def lie(round: int, uploads: Any) -> Any:
        # The first upload of a round goes somewhere else, as far as stations let in.
        first, *others = uploads
        away = np.random.default_rng(round).choice(np.float32([-1.0, 1.0]), first.weights.shape)
        return [covey.federated.Upload(first.user, first.round, first.weights + away), *others]

    quiet = (
        "privacy.noise=off",
        "clustering.rule=oracle",
        "training.clip=100",
        "network.tasks=1",
        "data.mixes=default",
        "data.samples_max=65",
    )
    honest, robust, fooled = play(*quiet, MEDIAN), play(*quiet, MEDIAN, transport=lie), play(*quiet, transport=lie)
    assert abs(robust.column("loss")[-1] - honest.column("loss")[-1]) < 0.1
    assert fooled.column("loss")[-1] > robust.column("loss")[-1] + 0.1


def test_a_fine_tuned_model_forgets_and_a_personal_one_does_not() -> None:
    """fine_tuned.py begins with the received model each round, so that a single round tells all about it."""
    fine, ditto = "training.personal=examples.parts.fine_tuned:FineTuned", "training.personal=ditto"
    # In the first round both begin with the received model, and without a pull they are the same.
    first = [play(key, "training.personal_pull=0", rounds=1).user_column("personal_test_loss") for key in (fine, ditto)]
    np.testing.assert_allclose(first[0], first[1], rtol=1e-4)
    later = [play(key, "training.personal_pull=0").column("personal_test_loss")[-1] for key in (fine, ditto)]
    assert later[1] < 0.9 * later[0]


def test_two_steps_are_charged_twice_and_go_farther() -> None:
    one, two = play("privacy.noise=off"), play("privacy.noise=off", TWO_STEPS)
    assert two.column("loss")[-1] < one.column("loss")[-1]
    one, two = play(rounds=1), play(TWO_STEPS, rounds=1)
    np.testing.assert_allclose(two.ledger.rho, 2 * one.ledger.rho)
    assert two.records[0].compute_s == pytest.approx(2 * one.records[0].compute_s)
    assert two.records[0].rejected_uploads == 0


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            [MEDIAN, "security.mode=masked"],
            "needs stations that see every single upload, but security.mode is 'masked'",
        ),
        (["clustering.rule=kmeans", "security.mode=blind"], "clustering.rule is 'kmeans', which needs"),
        (["clustering.rule=nothing.here:Rule"], "cannot be imported"),
        (["clustering.rule=covey.errors:Nothing"], "cannot be imported"),
        ([RULE, "privacy.identity=noisy_max"], "does not go with clustering.rule"),
    ],
)
def test_what_cannot_be_given_is_refused_before_the_first_round(overrides: list[str], sentence: str) -> None:
    with pytest.raises(ScenarioError, match=r"^[^\n]*$") as refused:
        play(*overrides)
    assert sentence in str(refused.value)


def test_the_perturbed_start_draws_nearly_equal_models() -> None:
    key = "clustering.start=examples.parts.perturbed_start:PerturbedStart"
    with (
        covey.Simulation(covey.load_scenario("quick", [key]), seed=1) as near,
        covey.Simulation("quick", seed=1) as far,
    ):
        near_apart = np.linalg.norm(near.state.models[1:] - near.state.models[0], axis=1)
        far_apart = np.linalg.norm(far.state.models[1:] - far.state.models[0], axis=1)
        np.testing.assert_allclose(near_apart, 0.1 * far_apart, rtol=1e-4)
        near.play()


def test_a_step_on_squared_errors_is_that_of_linear_regression() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 5)), rng.integers(3, size=6)
    weights = rng.normal(size=18).astype(np.float32)
    module = nn.Linear(5, 3)
    use_loss(module, squared_error)
    samples = torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)
    found = noised_step(module, weights, *samples, clip=1e6, noise=None, learning_rate=0.1)
    errors = x @ weights[:15].reshape(3, 5).T + weights[15:] - np.eye(3)[y]
    gradient = np.concatenate([(2 * errors.T @ x).ravel(), 2 * errors.sum(0)]) / 6
    np.testing.assert_allclose(found.weights, weights - 0.1 * gradient, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss_table(module, weights[None], *samples)[:, 0], (errors**2).sum(1), rtol=1e-4)
