"""What a model could learn: the same network, trained centrally and without noise on the data of the user's true group.

No device could do this: it takes the group from the simulator and the samples from the users. It is the upper of the
two lines that accuracy is read against; the lower one is `covey.data.majority`.

The training is a plain loop of SGD with momentum. Step size and number of epochs are those with the lowest loss on a
fifth of the *training* samples, which is held out for that; then the model is trained again on all of them. Test
samples only judge the result.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from covey.data import UserData
from covey.errors import ScenarioError
from covey.federated import Loss, build_loss, build_model, count_weights, initial_weights, load_flat, one_thread
from covey.federated.losses import cross_entropy, use_loss
from covey.federated.steps import sample_losses
from covey.jobs import Store, Values, identity, key_of
from covey.parts import MODELS
from covey.scenario import Scenario
from covey.seeding import generator

Floats = NDArray[np.float64]

#: Where `covey run --reference` keeps finished groups, in the folder of the data sets.
STORE = "central.jsonl"
#: Step sizes that are tried.
RATES = (0.05, 0.01)
MOMENTUM, BATCH = 0.9, 32
#: Training ends after this many steps, or when the held-out loss has not fallen by `GAIN` for so many epochs and steps.
MOST_STEPS, PATIENCE, PATIENT_STEPS, GAIN = 3000, 3, 100, 0.005
#: One in this many training samples is held out to choose epochs and step size.
HELD_OUT = 5
#: Epochs at the first rate where there are too few samples to hold any out.
FEW_SAMPLES, FEW_EPOCHS = 2 * HELD_OUT, 30
#: Weights x training samples up to which the line costs about a second, so that `covey run` computes it unasked.
CHEAP = 10**8


@dataclass(frozen=True)
class CentralJob:
    """The central model of one group: x (n, *shape), y (n,) of all its users, and their test samples.

    test_offsets: (m + 1,) first test row of each user. model: what identifies the network in a store. loss: that of
    the scenario.
    """

    group: int
    module: nn.Module
    model: Any
    seed: int
    x: NDArray[np.float32]
    y: NDArray[np.int64]
    test_x: NDArray[np.float32]
    test_y: NDArray[np.int64]
    test_offsets: NDArray[np.int64]
    loss: Loss = cross_entropy

    @property
    def kind(self) -> str:
        """The kind of job in a store."""
        return "central"

    @property
    def label(self) -> str:
        """The group."""
        return f"group {self.group}, {len(self.y)} samples, seed {self.seed}"

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything that the result depends on, apart from versions."""
        arrays = hashlib.sha256()
        for array in (self.x, self.y, self.test_x, self.test_y, self.test_offsets):
            arrays.update(str((array.shape, array.dtype)).encode() + np.ascontiguousarray(array).tobytes())
        rule = [*RATES, MOMENTUM, BATCH, MOST_STEPS, PATIENCE, PATIENT_STEPS, GAIN, HELD_OUT, FEW_SAMPLES, FEW_EPOCHS]
        return {
            "data": arrays.hexdigest(), "model": self.model, "seed": self.seed, "group": self.group, "rule": rule,
            **({} if self.loss is cross_entropy else {"loss": identity(self.loss)}),
        }  # fmt: skip

    @cached_property
    def key(self) -> str:
        """The cache key of the result."""
        return key_of(self.kind, self.content)


class Central:
    """Test accuracy of every user on the central model of its true group, for `simulate(..., reference=...)`.

    `model` replaces the scenario's network, as in `simulate`. `kept` stores finished groups, which are not computed
    again while data, network, seed and versions are the same. `on_group(done, groups)` reports progress.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int = 0,
        *,
        model: nn.Module | None = None,
        kept: Store | None = None,
        on_group: Callable[[int, int], None] = lambda done, groups: None,
    ) -> None:
        self.scenario, self.seed, self.kept, self.on_group = scenario, seed, kept, on_group
        self._module = model
        self._known: dict[str, Values] = {}
        self._last: tuple[UserData, Floats] | None = None

    def __call__(self, data: UserData) -> Floats:
        """(U,) accuracies; data that were seen before cost nothing."""
        if self._last is None or self._last[0] is not data:
            self._last = data, self._accuracy(data)
        return self._last[1].copy()

    def cheap(self, data: UserData) -> bool:
        """Whether these data take about a second."""
        return count_weights(self._built(data)) * len(data.y) <= CHEAP

    def _accuracy(self, data: UserData) -> Floats:
        accuracy = np.full(data.users, np.nan)
        groups = np.unique(data.groups).tolist()
        module = self._built(data)
        model, loss = self._identity(module), build_loss(self.scenario.training.loss, len(data.classes))
        for done, group in enumerate(groups, start=1):
            members = np.flatnonzero(data.groups == group)
            job = _job(data, group, members, copy.deepcopy(module), model, self.seed, loss)
            accuracy[members] = self._values(job)["accuracy"]
            self.on_group(done, len(groups))
        return accuracy

    def _values(self, job: CentralJob) -> Values:
        kept = None if self.kept is None else self.kept.find(job)
        if kept is not None:
            return kept.values
        if job.key not in self._known:
            started = time.process_time()
            self._known[job.key] = train_centrally(job)
            if self.kept is not None:
                self.kept.keep(job, self._known[job.key], seconds=time.process_time() - started)
        return self._known[job.key]

    def _built(self, data: UserData) -> nn.Module:
        return build_model(self.scenario.model, data.shape, len(data.classes)) if self._module is None else self._module

    def _identity(self, module: nn.Module) -> Any:
        name = self.scenario.model.name
        if self._module is not None:
            return identity(module)
        code = None if name in MODELS.builtin else identity(MODELS.get(name))
        return [self.scenario.model.model_dump(mode="json"), code]


def train_centrally(job: CentralJob) -> Values:
    """Test accuracy of each user of the group, and how the model was trained: its step size, epochs and samples."""
    x, y = torch.from_numpy(np.array(job.x)), torch.from_numpy(np.array(job.y))
    use_loss(job.module, job.loss)
    with one_thread():
        order = torch.from_numpy(generator(job.seed, "central", user=job.group).permutation(len(y)))
        rate, epochs = _chosen(job, x[order], y[order])
        for _ in _epochs(job, x, y, rate, epochs):
            pass
        right = sample_losses(job.module, torch.from_numpy(np.array(job.test_x)), torch.from_numpy(job.test_y.copy()))[
            1
        ]
    if not all(bool(torch.isfinite(weights).all()) for weights in job.module.parameters()):
        raise ScenarioError(
            f"the central model of group {job.group} did not converge at step size {rate}: its weights are not finite;"
            " leave out --reference, or use another model"
        )
    accuracy = np.add.reduceat(right.astype(np.float64), job.test_offsets[:-1]) / np.diff(job.test_offsets)
    return {"accuracy": accuracy.tolist(), "rate": rate, "epochs": epochs, "samples": len(y)}


def _chosen(job: CentralJob, x: Tensor, y: Tensor) -> tuple[float, int]:
    """Step size and epochs with the lowest loss on held-out training samples; x, y: in random order."""
    if len(y) < FEW_SAMPLES:
        return RATES[0], FEW_EPOCHS
    held = len(y) // HELD_OUT
    best = (float("inf"), RATES[-1], 1)
    for rate in RATES:
        steps = -(-(len(y) - held) // BATCH)
        patience = max(PATIENCE, PATIENT_STEPS // steps)
        lowest, lowest_at = float("inf"), 0
        for epoch in _epochs(job, x[held:], y[held:], rate, max(1, MOST_STEPS // steps)):
            loss = float(sample_losses(job.module, x[:held], y[:held])[0].mean())
            if loss < lowest - GAIN:
                lowest, lowest_at = loss, epoch
            if epoch - lowest_at >= patience or not np.isfinite(loss):
                break
        best = min(best, (lowest, rate, max(lowest_at, 1)))
    return best[1], best[2]


def _epochs(job: CentralJob, x: Tensor, y: Tensor, rate: float, epochs: int) -> Iterator[int]:
    """Train the job's module from its first weights; the number of each epoch, from 1, after it."""
    load_flat(job.module, initial_weights(job.module, 1, job.seed)[0])
    optimizer = torch.optim.SGD(job.module.parameters(), lr=rate, momentum=MOMENTUM)
    for epoch in range(1, epochs + 1):
        order = generator(job.seed, "central", user=job.group, round=epoch).permutation(len(y))
        for rows in torch.split(torch.from_numpy(order), BATCH):
            optimizer.zero_grad()
            job.loss(job.module(x[rows]), y[rows]).mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        yield epoch


def _job(
    data: UserData,
    group: int,
    members: NDArray[np.int64],
    module: nn.Module,
    model: Any,
    seed: int,
    loss: Loss = cross_entropy,
) -> CentralJob:
    sizes = np.diff(data.test_offsets)[members]
    train, test = _rows(data.offsets, members), _rows(data.test_offsets, members)
    return CentralJob(
        group, module, model, seed, data.x[train], data.y[train], data.test_x[test], data.test_y[test],
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), loss,
    )  # fmt: skip


def _rows(offsets: NDArray[np.int64], users: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([np.arange(offsets[user], offsets[user + 1]) for user in users])
