from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from covey.agents.learner import Learner, Moments
from covey.agents.settings import LITERAL, LearnerSettings
from covey.agents.training import TRAINING_SEEDS, VALIDATION_SEEDS, Trainer
from covey.agents.training_files import METRICS, restore_training, save_training, trained_policy
from covey.environment import SurrogateRounds, calibration_for
from covey.errors import ResumeError
from covey.scenario import Scenario, load_scenario

SMALL = {"epochs": 4, "networks": 3, "validation": 2, "validate_every": 2, "updates": 3, "batch": 16, "replay": 100}


def trainer(scenario: Scenario, seed: int = 0, **changes: object) -> Trainer:
    return Trainer(scenario, LearnerSettings.model_validate({**SMALL, **changes}), seed=seed)


def weights(trained: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trained.learner.network.parameters()])


def run(trained: Trainer) -> Trainer:
    while not trained.done:
        trained.run_epoch()
    return trained


@pytest.mark.parametrize("algorithm", ["dpvd", "iql", "qmix"])
@pytest.mark.parametrize("head", ["additive", "subset"])
def test_every_algorithm_learns_with_every_head(quick: Scenario, algorithm: str, head: str) -> None:
    trained = trainer(quick, algorithm=algorithm, head=head)
    before = weights(trained).clone()
    run(trained)
    assert not torch.equal(weights(trained), before)
    assert [row["epoch"] for row in trained.rows] == [1, 2, 3, 4]
    assert np.isnan(trained.rows[0]["guarded_reward"])
    assert trained.rows[1]["guarded_violators"] == 0.0
    assert trained.rows[-1]["epsilon"] < trained.rows[0]["epsilon"]


def test_equal_seeds_give_equal_bits_and_others_do_not(quick: Scenario) -> None:
    first, second, other = run(trainer(quick)), run(trainer(quick)), run(trainer(quick, seed=1))
    assert torch.equal(weights(first), weights(second))
    assert first.rows[-1] == second.rows[-1]
    assert not torch.equal(weights(first), weights(other))


@pytest.mark.parametrize("changes", [{}, {"discount": 0.9}, {"replay": 0}, {"algorithm": "qmix", "head": "subset"}])
def test_a_resumed_training_is_the_uninterrupted_one(
    quick: Scenario, tmp_path: Path, changes: dict[str, object]
) -> None:
    whole = run(trainer(quick, **changes))
    half = trainer(quick, **changes)
    half.run_epoch()
    half.run_epoch()
    save_training(half, tmp_path)
    again = trainer(quick, **changes)
    restore_training(again, tmp_path)
    assert again.epoch == 2
    run(again)
    assert torch.equal(weights(again), weights(whole))
    for name, folder in (("whole", whole), ("again", again)):
        (tmp_path / name).mkdir()
        save_training(folder, tmp_path / name)
        trained_policy(folder).save(tmp_path / name / "policy.safetensors")
    for file in (METRICS, "policy.safetensors", "training.safetensors"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_another_training_is_not_continued(quick: Scenario, tmp_path: Path) -> None:
    save_training(trainer(quick), tmp_path)
    with pytest.raises(ResumeError, match="another seed"):
        restore_training(trainer(quick, seed=5), tmp_path)
    with pytest.raises(ResumeError, match="another settings"):
        restore_training(trainer(quick, hidden=8), tmp_path)
    with pytest.raises(ResumeError, match="nothing to resume"):
        restore_training(trainer(quick), tmp_path / "nowhere")
    content = bytearray((tmp_path / "training.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "training.safetensors").write_bytes(content)
    with pytest.raises(ResumeError, match="its checksum does not match"):
        restore_training(trainer(quick), tmp_path)
    (tmp_path / "training.safetensors").write_bytes(b"half")
    with pytest.raises(ResumeError, match="damaged"):
        restore_training(trainer(quick), tmp_path)


def test_one_station_makes_dpvd_and_iql_equal() -> None:
    scenario = load_scenario("quick", ["network.stations=1", "network.tasks_per_station=4"])
    together, alone = (run(trainer(scenario, algorithm=name, credit="team")) for name in ("dpvd", "iql"))
    assert torch.equal(weights(together), weights(alone))


def test_marginal_credit_is_the_default_only_where_it_is_possible() -> None:
    assert LearnerSettings().marginal
    for changes in (
        {"algorithm": "iql"},
        {"head": "subset"},
        {"discount": 0.9},
        {"charge": "team"},
        {"credit": "team"},
    ):
        assert not LearnerSettings.model_validate(changes).marginal
    with pytest.raises(ValueError, match="needs head=additive"):
        LearnerSettings.model_validate({"credit": "marginal", "discount": 0.5})


def test_the_literal_loop_runs_as_printed(quick: Scenario) -> None:
    trained = trainer(quick, **{**LITERAL, "networks": 2})
    run(trained)
    assert trained.learner.steps == 4  # one gradient step per epoch
    assert trained.settings.target_rate == 1.0
    assert all(row["violators"] > 0 for row in trained.rows)


def test_real_rounds_can_be_trained_on(quick: Scenario) -> None:
    settings = LearnerSettings.model_validate({**SMALL, "epochs": 1, "networks": 1, "validation": 1})
    short = quick.model_copy(update={"training": quick.training.model_copy(update={"rounds": 2})})
    trained = Trainer(short, settings, learning="real")
    row = trained.run_epoch()
    assert row["reward"] < 0


def test_training_and_validation_seeds_are_not_those_of_evaluation() -> None:
    assert min(TRAINING_SEEDS, VALIDATION_SEEDS) > 2**31


def test_shaped_rewards_rank_policies_as_rewards_do(quick: Scenario) -> None:
    """Over an episode shaped rewards sum to the reward plus rounds times the first cost, which no choice changes."""
    rounds = SurrogateRounds(quick, calibration_for(quick), 4)
    view = rounds.reset(range(4))
    learner = Learner(rounds.limits, LearnerSettings(), 0, 97, quick.reward.penalty)
    from covey.environment import rewards as rewarded

    rng = np.random.default_rng(0)
    earned = []
    while not rounds.done:
        chosen = view.eligible & (rng.random((4, rounds.limits.stations, rounds.limits.users)) < 0.2)
        earned.append(rewarded(rounds.step(chosen), view.samples, quick.reward))
        view = rounds.observation
    following = [gained.cost_before for gained in earned[1:]] + [earned[-1].cost]
    shaped = sum(
        learner.rows(gained, cost, t)["team"] for t, (gained, cost) in enumerate(zip(earned, following, strict=True))
    )
    plain = sum(gained.without_penalty for gained in earned)
    np.testing.assert_allclose(shaped, plain + rounds.limits.rounds * earned[0].cost_before, rtol=1e-9)


def test_running_moments_are_exact() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 1000)
    moments = Moments()
    for part in np.split(values, [1, 10, 500]):
        moments.add(part)
    assert moments.mean == pytest.approx(values.mean())
    assert moments.std == pytest.approx(values.std())
