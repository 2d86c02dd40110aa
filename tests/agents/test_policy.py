from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import covey
from covey.agents.policy import LearnedPolicy, load_policy
from covey.agents.settings import LearnerSettings
from covey.agents.training import Trainer
from covey.agents.training_files import trained_policy
from covey.environment import SurrogateRounds
from covey.errors import PolicyError
from covey.network import Observation
from covey.scenario import Scenario, load_scenario


def make(scenario: Scenario, **settings: object) -> LearnedPolicy:
    chosen = LearnerSettings.model_validate({"epochs": 1, "networks": 2, "validation": 2, "updates": 2} | settings)
    trainer = Trainer(scenario, chosen)
    trainer.run_epoch()
    return trained_policy(trainer)


@pytest.fixture(scope="module")
def policy() -> LearnedPolicy:
    return make(load_scenario("quick"))


def test_a_saved_policy_decides_the_same(
    policy: LearnedPolicy, tmp_path: Path, view: Observation, rounds: SurrogateRounds
) -> None:
    policy.save(tmp_path / "p.safetensors")
    for way in ("alone", "guarded"):
        loaded = load_policy(tmp_path / "p.safetensors", way=way)  # type: ignore[arg-type]
        assert np.array_equal(
            loaded.select(view),
            policy.with_way(way).select(view),  # type: ignore[arg-type]
        )
    assert loaded.trained_on == policy.scenario
    assert loaded.origin["epochs"] == 1


def test_saving_twice_gives_equal_bytes(policy: LearnedPolicy, tmp_path: Path) -> None:
    for name in ("a", "b"):
        policy.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("way", ["alone", "guarded"])
def test_one_observation_is_decided_as_in_a_batch(
    policy: LearnedPolicy, view: Observation, rounds: SurrogateRounds, way: str
) -> None:
    chosen = policy.with_way(way)  # type: ignore[arg-type]
    together = chosen.select(view)
    for n in range(6):
        alone = chosen(view[n], np.random.default_rng(0))
        assert np.array_equal(alone, together[n])


def test_a_guarded_run_has_no_violations_and_counts_its_messages(policy: LearnedPolicy) -> None:
    guarded = policy.with_way("guarded")
    history = covey.simulate("quick", guarded, rounds=3, seed=1)
    assert history.policy == "dpvd"
    assert history.column("violators").sum() == 0
    assert len(guarded.exchanged) == 3
    assert policy.with_way("alone").exchanged == []


def test_an_additive_policy_runs_at_other_sizes(policy: LearnedPolicy, tmp_path: Path) -> None:
    policy.save(tmp_path / "p.safetensors")
    changes = ["network.users=30", "network.stations=6", "network.blocks=5", "network.tasks=3", "data.name=synthetic"]
    other = load_scenario("quick", [*changes, "data.mixes=[{0=1},{1=1},{2=1}]"])
    history = covey.simulate(other, load_policy(tmp_path / "p.safetensors", other), rounds=2)
    assert history.column("violators").sum() == 0


def test_a_subset_policy_says_why_it_does_not_fit(tmp_path: Path) -> None:
    make(load_scenario("quick"), head="subset").save(tmp_path / "p.safetensors")
    other = load_scenario("quick", ["network.users=14", "network.blocks=3"])
    with pytest.raises(PolicyError, match=r"14 users instead of 12, 3 blocks instead of 4.*additive head"):
        load_policy(tmp_path / "p.safetensors", other)
    other = load_scenario("quick", ["network.tasks=3", "data.mixes=[{0=1},{1=1},{2=1}]"])
    with pytest.raises(PolicyError, match="3 tasks instead of 4"):
        load_policy(tmp_path / "p.safetensors", other)


def test_missing_damaged_and_foreign_files_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="there is no policy file"):
        load_policy(tmp_path / "none.safetensors")
    (tmp_path / "bad.safetensors").write_bytes(b"nonsense")
    with pytest.raises(PolicyError, match="not a policy file or is damaged"):
        load_policy(tmp_path / "bad.safetensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors", {"covey": '{"format": 99}'})
    with pytest.raises(PolicyError, match="policy format 99"):
        load_policy(tmp_path / "other.safetensors")
