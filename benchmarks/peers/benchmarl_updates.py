"""Training of VDN by BenchMARL on covey's environment; one iteration is as much work as an epoch of covey."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from benchmarl.algorithms import VdnConfig
from benchmarl.environments.pettingzoo.common import PettingZooClass
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from torchrl.envs import EnvBase, PettingZooWrapper
from turns import Turns

from covey.environment.parallel import parallel_env

ROUNDS = 15
turns = Turns()


class AssociationTask(PettingZooClass):
    """The BenchMARL task of the environment."""

    def get_env_fun(
        self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any
    ) -> Callable[[], EnvBase]:
        return lambda: PettingZooWrapper(parallel_env("quick"), return_state=True, categorical_actions=True, seed=seed)

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


class NoMoreTurnsError(Exception):
    """Raised when the driver requests no more turns."""


class InTurn(Callback):  # type: ignore[misc]
    """Waits for the driver between iterations. Experiments pickle their callbacks, so it holds numbers only."""

    def __init__(self) -> None:
        super().__init__()
        self.started = self.collected = 0.0

    def on_setup(self) -> None:
        turns.ready()
        self.wait()

    def on_batch_collected(self, batch: Any) -> None:
        self.collected = time.perf_counter()

    def on_train_end(self, training_td: Any, group: str) -> None:
        now = time.perf_counter()
        turns.tell({"seconds": now - self.started, "learning": now - self.collected, "moved": 0.0})
        self.wait()

    def wait(self) -> None:
        if not turns.asked():
            raise NoMoreTurnsError
        self.started = time.perf_counter()


def main() -> None:
    work = turns.work
    torch.set_num_threads(1)
    settings = ExperimentConfig.get_from_yaml()
    settings.max_n_frames, settings.max_n_iters = None, 10**6
    settings.off_policy_collected_frames_per_batch = work["networks"] * ROUNDS
    settings.off_policy_n_envs_per_worker = work["networks"]
    settings.off_policy_n_optimizer_steps = work["updates"]
    settings.off_policy_train_batch_size = work["batch"]
    settings.off_policy_memory_size = 8192
    settings.share_policy_params = False
    settings.evaluation, settings.render, settings.create_json, settings.loggers = False, False, False, []
    model = MlpConfig.get_from_yaml()
    model.num_cells = [work["hidden"], work["hidden"]]
    with tempfile.TemporaryDirectory() as folder:
        settings.save_folder = folder
        try:
            Experiment(
                task=AssociationTask("QUICK", {}), algorithm_config=VdnConfig.get_from_yaml(), model_config=model,
                critic_model_config=model, seed=0, config=settings, callbacks=[InTurn()],
            ).run()  # fmt: skip
        except NoMoreTurnsError:
            return


if __name__ == "__main__":
    main()
