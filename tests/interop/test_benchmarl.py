"""The environment, unchanged, under TorchRL and BenchMARL; `make interop` runs this in an environment of its own."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("benchmarl", reason="BenchMARL is not installed here; `make interop` installs it and runs this")

import torch
from benchmarl.algorithms import IqlConfig, QmixConfig, VdnConfig
from benchmarl.environments.pettingzoo.common import PettingZooClass
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from tensordict import TensorDict
from torchrl.envs import EnvBase, PettingZooWrapper
from torchrl.envs.utils import check_env_specs

from covey.environment import subsets
from covey.environment.parallel import INFO_KEYS, parallel_env

pytestmark = pytest.mark.filterwarnings("ignore")
STATIONS, USERS, ROUNDS, ACTIONS = 4, 12, 15, 794


def wrapped(seed: int | None = None, **how: Any) -> EnvBase:
    return PettingZooWrapper(
        parallel_env("quick", **how), return_state=True, categorical_actions=True, seed=seed, device="cpu"
    )


class AssociationTask(PettingZooClass):
    """All that BenchMARL needs to know."""

    def get_env_fun(
        self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any
    ) -> Callable[[], EnvBase]:
        return lambda: wrapped(seed, **self.config)

    def supports_continuous_actions(self) -> bool:
        return False

    def supports_discrete_actions(self) -> bool:
        return True

    def has_state(self) -> bool:
        return True

    def has_render(self, env: EnvBase) -> bool:
        return False

    def max_steps(self, env: EnvBase) -> int:
        return ROUNDS

    @staticmethod
    def env_name() -> str:
        return "covey"


@pytest.mark.parametrize("mask_in", ["infos", "obs"])
def test_torchrl_accepts_the_environment_as_one_group(mask_in: str) -> None:
    env = wrapped(0, mask_in=mask_in)
    check_env_specs(env)
    assert env.group_map == {"bs": [f"bs_{b}" for b in range(STATIONS)]}
    assert env.full_action_spec["bs", "action"].space.n == ACTIONS
    assert env.observation_spec["state"].shape == (USERS * (STATIONS + 4) + 1,)
    assert set(env.observation_spec["bs", "info"].keys()) == set(INFO_KEYS)


@pytest.mark.parametrize("mask_in", ["infos", "obs"])
def test_a_rollout_takes_no_masked_action(mask_in: str) -> None:
    env = wrapped(0, mask_in=mask_in)
    rollout = env.rollout(3 * ROUNDS, break_when_any_done=False)
    taken = rollout["bs", "action"][..., None].long()
    masks = rollout["bs", "action_mask"]
    assert masks.shape == (3 * ROUNDS, STATIONS, ACTIONS)
    assert not masks.all()
    assert masks.gather(-1, taken).all()
    assert not rollout["next", "bs", "info", "unable"].any()
    assert not rollout["next", "bs", "info", "beyond_blocks"].any()
    assert rollout["next", "bs", "truncated"].any(dim=1).sum() == 3
    assert not rollout["next", "bs", "terminated"].any()


def test_torchrl_passes_on_what_the_environment_gives() -> None:
    env, plain = wrapped(5), parallel_env("quick")
    observations, _ = plain.reset(seed=5)
    step: TensorDict = env.reset(seed=5)
    rng = np.random.default_rng(0)
    for _ in range(ROUNDS):
        stacked = np.stack([observations[agent] for agent in plain.possible_agents])
        np.testing.assert_array_equal(step["bs", "observation"].numpy(), stacked)
        np.testing.assert_array_equal(step["state"].numpy(), plain.state())
        actions = rng.integers(len(subsets(USERS, 4)), size=STATIONS)
        observations, rewards, _, _, infos = plain.step(dict(zip(plain.agents, actions, strict=True)))
        step["bs", "action"] = torch.as_tensor(actions)
        step = env.step(step)["next"]
        np.testing.assert_allclose(step["bs", "reward"][:, 0].numpy(), list(rewards.values()), rtol=1e-6)
        team = [infos[agent]["team_reward"] for agent in infos]
        np.testing.assert_allclose(step["bs", "info", "team_reward"].flatten().numpy(), team, rtol=1e-6)
    assert step["done"].all()


@pytest.mark.parametrize("algorithm", [VdnConfig, QmixConfig, IqlConfig])
def test_benchmarl_trains_three_iterations(algorithm: Any, tmp_path: Path) -> None:
    settings = ExperimentConfig.get_from_yaml()
    settings.max_n_frames = None
    settings.max_n_iters = 3
    settings.off_policy_collected_frames_per_batch = 4 * ROUNDS
    settings.off_policy_n_envs_per_worker = 2
    settings.off_policy_n_optimizer_steps = 4
    settings.off_policy_train_batch_size = 32
    settings.evaluation_interval = 4 * ROUNDS
    settings.evaluation_episodes = 2
    settings.loggers = ["csv"]
    settings.create_json = False
    settings.save_folder = str(tmp_path)
    experiment = Experiment(
        task=AssociationTask("QUICK", {}),
        algorithm_config=algorithm.get_from_yaml(),
        model_config=MlpConfig.get_from_yaml(),
        critic_model_config=MlpConfig.get_from_yaml(),
        seed=0,
        config=settings,
    )
    assert list(experiment.group_map) == ["bs"]
    losses = experiment.losses["bs"]
    before = [weights.detach().clone() for weights in losses.parameters()]
    experiment.run()
    assert experiment.n_iters_performed == 3
    assert any(not torch.equal(old, new) for old, new in zip(before, losses.parameters(), strict=True))
    # Only allowed actions were collected, and losses are numbers.
    kept = experiment.replay_buffers["bs"][:]
    assert len(kept) == 3 * 4 * ROUNDS
    assert kept["bs", "action_mask"].gather(-1, kept["bs", "action"][..., None].long()).all()
    assert logged(tmp_path, "loss") != []
    assert np.isfinite(logged(tmp_path, "loss")).all()
    assert np.isfinite(logged(tmp_path, "eval_reward_episode_reward_mean")).all()


def logged(folder: Path, name: str) -> list[float]:
    """The values that BenchMARL wrote to the CSV files with `name` in their names."""
    values = []
    for path in sorted(folder.rglob(f"*{name}*.csv")):
        with path.open(encoding="utf-8") as lines:
            values += [float(row[1]) for row in csv.reader(lines)]
    return values
