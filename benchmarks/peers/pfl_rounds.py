"""FedAvg rounds by pfl-research: in one process with two threads, or under `torchrun` in two with one thread each."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

import numpy as np
import torch
from fedavg import LEARNING_RATE, fill, first_weights, flat, moved, network, tensors
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import nn
from turns import Turns

PROCESSES = int(os.environ.get("WORLD_SIZE", "1"))
FIRST = int(os.environ.get("RANK", "0")) == 0


class Network(nn.Module):
    """The CNN with the two methods that pfl requires."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layers(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict[str, Any]:
        return {}


class InTurn(TrainingProcessCallback):  # type: ignore[misc]
    """Waits for the driver between central iterations."""

    def __init__(self, turns: Turns | None) -> None:
        self.turns = turns
        self.started, self.old = 0.0, np.zeros(0)

    def on_train_begin(self, *, model: Any) -> Metrics:
        if self.turns:
            self.turns.ready()
        self.wait(model)
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        if self.turns:
            seconds = time.perf_counter() - self.started
            self.turns.tell({"seconds": seconds, "moved": moved(flat(model.pytorch_model), self.old)})
        return not self.wait(model), Metrics()

    def wait(self, model: Any) -> bool:
        """Whether there is another turn; broadcast from the first process, which starts the clock."""
        more = torch.tensor(1.0)
        if self.turns and not self.turns.asked():
            more.zero_()
        if PROCESSES > 1:
            torch.distributed.broadcast(more, 0)
        self.old = flat(model.pytorch_model)
        self.started = time.perf_counter()
        return bool(more)


def main() -> None:
    turns = Turns()
    torch.set_num_threads(1 if PROCESSES > 1 else 2)
    work = turns.work
    data = {str(number): tensors(number) for number in range(work["clients"])}
    # The cohort is every client, each once, in order.
    sampled = itertools.cycle(data)
    users = FederatedDataset(lambda name: Dataset(data[name], user_id=name), lambda: next(sampled))
    module = Network()
    fill(module, first_weights(1)[0])
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    # Only the first round is evaluated, and it is not timed.
    parameters = NNAlgorithmParams(10**6, 10**6, work["clients"], None)
    FederatedAveraging().run(
        parameters, SimulatedBackend(users, users), model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=work["batch"]),
        callbacks=[InTurn(turns if FIRST else None)],
    )  # fmt: skip


if __name__ == "__main__":
    main()
