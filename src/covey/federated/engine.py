"""Computes for all users of a round, in this process or in workers, with bit-identical results."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from covey.errors import ScenarioError
from covey.federated.clip import chunk_length
from covey.federated.fleet import Evaluation, Releases, Steps
from covey.federated.intake import Upload
from covey.federated.losses import Loss, cross_entropy, use_loss
from covey.federated.models import check_module, count_weights
from covey.federated.personal import Personal
from covey.federated.processes import Call, Workers, pack
from covey.federated.shared import Handle, SharedArrays
from covey.federated.strategies import use_strategy
from covey.federated.threads import one_thread
from covey.federated.training import LocalTraining, Step
from covey.federated.user_compute import Announcer, NoiseFunction, UserCompute
from covey.scenario import Scenario

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float32]

#: Arrays of the users' data.
_DATA = ("x", "y", "offsets", "test_x", "test_y", "test_offsets")
#: Elements of the samples that one call evaluates.
_EVALUATION_ELEMENTS = 1 << 19
#: Elements of the gradients of users that are scored as one batch.
_GRADIENT_ELEMENTS = 1 << 22


class UserArrays(Protocol):
    """Samples of all users: user i holds rows offsets[i] to offsets[i + 1]; `test_*` are held out."""

    @property
    def x(self) -> npt.NDArray[np.float32]:
        """Samples, (N, *shape)."""

    @property
    def y(self) -> Ints:
        """Classes, (N,)."""

    @property
    def offsets(self) -> Ints:
        """First row of each user, and N, (U + 1,)."""

    @property
    def test_x(self) -> npt.NDArray[np.float32]:
        """Test samples."""

    @property
    def test_y(self) -> Ints:
        """Classes of the test samples."""

    @property
    def test_offsets(self) -> Ints:
        """First test row of each user, and their number, (U + 1,)."""


@dataclass(frozen=True)
class TrainResult:
    """Result of local training: `uploads` (n, D), and the clipping statistics of `LocalUpdate`, (n,) each.

    kept: (n, D) models of their own that users keep; empty where they have none.
    """

    uploads: Weights
    mean_norm: Floats
    clipped_fraction: Floats
    rejected: Ints
    kept: Weights = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float32))


class Engine:
    """Local computation of all users on one set of task models. A context manager; `close` ends it.

    `workers=1` computes in this process, on `module` itself, whose weights it overwrites; otherwise, that many
    worker processes compute on shared memory, and `module` and `noise` must be picklable. Results are
    bit-identical at any number of workers: each process computes with one thread, every user's RNG is seeded
    by `seed`, the user and the round, and the batching of users does not depend on the workers.

    `noise(user, round, purpose, size)` returns standard normal values, (size,) float64. `training` is the local
    training of `train`, one noised step by default; `announcer` makes the announcements of `tell`; `gradients` names
    the gradient strategy, and `loss` is what models are trained and compared by.
    """

    def __init__(
        self,
        module: nn.Module,
        data: UserArrays,
        *,
        tasks: int,
        workers: int = 1,
        seed: int,
        noise: NoiseFunction,
        training: LocalTraining | None = None,
        announcer: Announcer | None = None,
        gradients: str = "auto",
        loss: Loss = cross_entropy,
    ) -> None:
        if workers < 1:
            raise ScenarioError(
                f"workers is {workers}; use 1 to compute in this process, or more for as many processes"
            )
        check_module(module, data.x.shape[1:])
        if next(module.parameters()).dtype != torch.float32:
            raise ScenarioError("the module's weights are not float32; convert it with module.float()")
        self.users, self.tasks, self.weights = len(data.offsets) - 1, tasks, count_weights(module)
        self._sizes = np.diff(data.offsets)
        self._test_sizes = np.diff(data.test_offsets)
        self._sample_elements = max(1, int(np.prod(data.x.shape[1:])))
        given = {name: getattr(data, name) for name in _DATA}
        made: dict[str, tuple[tuple[int, ...], npt.DTypeLike]] = {
            "models": ((tasks, self.weights), np.float32),
            "movements": ((tasks, self.weights), np.float32),
            "base": ((self.weights,), np.float32),
        }
        self._resources = _Resources()
        # Also runs when the engine is garbage-collected or the interpreter exits.
        self._finalizer = weakref.finalize(self, self._resources.close)
        self._work: UserCompute | None = None
        self._data, self._announcer = data, announcer
        self._training = training = training or Step(Scenario())
        if workers == 1:
            self._arrays = given | {name: np.zeros(shape, kind) for name, (shape, kind) in made.items()}
            with one_thread():
                self._work = UserCompute(module, self._arrays, seed, noise, training, announcer, gradients, loss)
            self._chunk = self._work.chunk
            return
        given["package"] = pack(module, seed, noise, training, announcer, gradients, loss)
        use_loss(module, loss)
        use_strategy(module, gradients)
        with one_thread():
            self._chunk = chunk_length(module, torch.from_numpy(data.x[:3].copy()), torch.from_numpy(data.y[:3].copy()))
        try:
            shared = self._resources.make(made | {name: (array.shape, array.dtype) for name, array in given.items()})
            self._arrays = shared.arrays
            for name, array in given.items():
                self._arrays[name][...] = array
            self._resources.workers = Workers(workers, shared.handle)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all worker processes and free all shared memory; idempotent."""
        self._finalizer()
        self._arrays = {}
        self._work = None

    def publish(self, models: Weights, movements: Weights) -> None:
        """Give all users `models` and their last `movements`, (K, D) each."""
        for name, values in (("models", models), ("movements", movements)):
            if values.shape != (self.tasks, self.weights):
                raise ValueError(f"{name} have shape {values.shape}; they must be ({self.tasks}, {self.weights})")
            self._open()[name][...] = values

    def score(self, round: int, *, batch: int, gradients: bool) -> tuple[Floats, Floats]:
        """Mean losses and similarity of every user and task, (U, K) each, on `batch` samples drawn for the round.

        A `batch` of 0 takes all samples; without `gradients` the similarity is 0.
        """
        usual, together = self._together(batch)
        blocks = self._blocks(together)
        calls: list[Call] = [("score", (users, round, batch, gradients, together)) for users in blocks]
        found = self._run(calls, self._costs(blocks, usual))
        return np.concatenate([losses for losses, _ in found]), np.concatenate([similarity for _, similarity in found])

    def tell(self, round: int, users: Ints) -> npt.NDArray[Any]:
        """Announcements of `users` (n,) about their task, (n,) or (n, m)."""
        if self._announcer is None:
            raise ValueError("this engine has no announcer, so its users cannot announce a task; pass announcer")
        if self._announcer.together and len(users) == self.users:
            usual, together = self._together(self._announcer.batch)
            blocks = self._blocks(together)
        else:
            usual, together = int(self._sizes.max()), 1
            blocks = [range(int(user), int(user) + 1) for user in users]
        found = self._run([("tell", (block, round, together)) for block in blocks], self._costs(blocks, usual))
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def _together(self, batch: int) -> tuple[int, int]:
        """Samples per user, at most, and number of users scored as one batch."""
        usual = batch or int(self._sizes.max())
        return usual, max(1, min(self._chunk // usual, _GRADIENT_ELEMENTS // self.weights))

    def _blocks(self, together: int) -> list[range]:
        return [range(i, min(i + together, self.users)) for i in range(0, self.users, together)]

    def _costs(self, blocks: Sequence[range], usual: int) -> list[float]:
        return [float(np.minimum(self._sizes[users.start : users.stop], usual).sum()) for users in blocks]

    def hold(self, data: UserArrays) -> None:
        """Replace the users' data, with unchanged sample counts; passing the same object again costs nothing."""
        if data is self._data:
            return
        arrays = {name: getattr(data, name) for name in _DATA}
        for name in _DATA:
            old = self._open()[name]
            if arrays[name].shape != old.shape or (name.endswith("offsets") and not np.array_equal(arrays[name], old)):
                raise ScenarioError(
                    f"the users' data changed in size ({name} is {arrays[name].shape}, was {old.shape}); data may"
                    " change over time, but every user keeps its number of samples"
                )
        if self._work is not None:
            self._arrays |= arrays
            self._work.hold(arrays)
        else:
            for name, array in arrays.items():
                self._arrays[name][...] = array
        self._data = data

    @property
    def lacks(self) -> dict[str, str]:
        """Empty: the engine meets every need."""
        return {}

    def train(
        self,
        round: int,
        users: Ints,
        tasks: Ints | None,
        clip: Floats,
        noise_std: Floats,
        *,
        learning_rate: float,
        batch: int,
        purpose: str = "noise",
        base: Weights | None = None,
        sizes: Ints | None = None,
        own: Sequence[Weights | None] | None = None,
    ) -> TrainResult:
        """Local training of each of `users` (n,) from the models of `tasks` (n,), or of all from `base` (D,).

        `clip` (n,) are the clipping norms and `noise_std` (n,) the standard deviations of the noise on the
        sum of clipped gradients; where it is 0 no noise is drawn. A `batch` of 0 takes all samples. `sizes`
        (n,) are the public sample counts that sums are divided by, by default those of the data. `own` are models of
        the users' own, (D,) or None each, for local training that begins with them.
        """
        start = self._starting_tasks(users, tasks, base)
        public = self._sizes[users] if sizes is None else sizes
        if public.shape != users.shape:
            raise ValueError(f"sizes has shape {public.shape} for {len(users)} users; give one number for each")
        for name, values in (("clip", clip), ("noise_std", noise_std)):
            if np.shape(values) != users.shape:
                raise ValueError(
                    f"{name} has shape {np.shape(values)} for {len(users)} users; give one number for each"
                )
        calls: list[Call] = [
            ("train", (row, int(user), int(start[row]), round, float(clip[row]), float(noise_std[row])))
            for row, user in enumerate(users)
        ]
        calls = [
            (name, (*given, learning_rate, batch, purpose, int(samples), model))
            for (name, given), samples, model in zip(calls, public, own or [None] * len(users), strict=True)
        ]
        costs = self._training.passes(public).astype(np.float64).tolist()
        uploads, found = self._run_to_uploads(calls, costs)
        columns = np.array([row[:3] for row in found], dtype=np.float64).reshape(-1, 3)
        kept = [row[3] for row in found if row[3] is not None]
        models = np.stack(kept) if kept else np.zeros((0, self.weights), np.float32)
        return TrainResult(uploads, columns[:, 0], columns[:, 1], columns[:, 2].astype(np.int64), models)

    def release(self, round: int, steps: Steps) -> Releases:
        """The results of `train` as uploads; every user answers, and stations and blocks are not needed."""
        result = self.train(
            round, steps.users, steps.tasks, steps.clip, steps.noise_std, learning_rate=steps.learning_rate,
            batch=steps.batch, purpose=steps.purpose, base=steps.base, sizes=steps.sizes, own=steps.own,
        )  # fmt: skip
        sent = [Upload(int(user), round, row) for user, row in zip(steps.users, result.uploads, strict=True)]
        return Releases(sent, result.mean_norm, result.clipped_fraction, kept=result.kept)

    def evaluate(self, tasks: Ints) -> Evaluation:
        """Loss and accuracy of every user on the model of its task, `tasks` (U,), on all its samples."""
        if tasks.shape != (self.users,):
            raise ValueError(f"tasks has shape {tasks.shape} for {self.users} users; give one task for each")
        sizes = self._sizes + self._test_sizes
        # Users are batched into calls; the split depends on their sample counts alone.
        number = np.cumsum(sizes * self._sample_elements) // _EVALUATION_ELEMENTS
        blocks = np.split(np.arange(self.users), np.flatnonzero(np.diff(number)) + 1)
        calls: list[Call] = [("evaluate", (users.tolist(), tasks[users].tolist())) for users in blocks]
        found = self._run(calls, [float(sizes[users].sum()) for users in blocks])
        return Evaluation(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def personalise(
        self, part: Personal, round: int, users: Ints, tasks: Ints, own: Sequence[Weights | None]
    ) -> tuple[Weights, Floats, Ints]:
        """Personal models (n, D) of `users` (n,) after the round, and their test loss sums and correct predictions.

        `own` are their models so far, (D,) each, or None for those that begin with the model of their task.
        """
        calls: list[Call] = [
            ("personalise", (part, int(user), int(task), round, weights))
            for user, task, weights in zip(users, tasks, own, strict=True)
        ]
        found = self._run(calls, part.passes(self._sizes[users]).astype(float).tolist())
        weights = np.stack([row for row, _, _ in found]) if found else np.zeros((0, self.weights), np.float32)
        return weights, np.array([loss for _, loss, _ in found]), np.array([right for *_, right in found], np.int64)

    @property
    def reports_metrics(self) -> bool:
        """False: metrics measured here are seen by the experiment, not by stations."""
        return False

    def open_masked_sums(self) -> None:
        """None: here the simulation masks and sums the uploads itself."""

    def device_ledgers(self) -> None:
        """None: simulated users have no ledger but the run's."""

    def _open(self) -> dict[str, npt.NDArray[Any]]:
        if not self._finalizer.alive or (self._resources.workers is not None and not self._resources.workers.alive):
            self.close()
            raise ValueError("the engine is closed; make a new one")
        return self._arrays

    def _starting_tasks(self, users: Ints, tasks: Ints | None, base: Weights | None) -> Ints:
        if len(users) and not (users.min() >= 0 and users.max() < self.users):
            raise ValueError(f"users must be numbers from 0 to {self.users - 1}")
        if (tasks is None) == (base is None):
            raise ValueError("give either tasks or base: users start from the model of their task, or all from one")
        if base is not None:
            if base.shape != (self.weights,):
                raise ValueError(f"base has shape {base.shape}, but models have {self.weights} weights")
            self._open()["base"][...] = base
            return np.full(len(users), -1)
        assert tasks is not None
        if tasks.shape != users.shape or (len(users) and not (tasks.min() >= 0 and tasks.max() < self.tasks)):
            raise ValueError(f"tasks must be {len(users)} numbers from 0 to {self.tasks - 1}, one for each user")
        return tasks

    def _run(self, calls: Sequence[Call], costs: Sequence[float], uploads: Handle | None = None) -> list[Any]:
        self._open()
        if self._resources.workers is not None:
            return self._resources.workers.run(calls, costs, uploads)
        with one_thread():
            return [getattr(self._work, name)(*arguments) for name, arguments in calls]

    def _run_to_uploads(self, calls: Sequence[Call], costs: Sequence[float]) -> tuple[Weights, list[Any]]:
        if self._work is not None:
            self._work.uploads = np.empty((len(calls), self.weights), np.float32)
            found = self._run(calls, costs)
            return self._work.uploads, found
        block = self._resources.uploads_for(len(calls), self.weights)
        found = self._run(calls, costs, block.handle)
        # Copied, because the next round overwrites the buffer.
        return block.arrays["uploads"][: len(calls)].copy(), found


class _Resources:
    """Worker processes and shared memory to free."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.workers: Workers | None = None
        self._blocks: list[SharedArrays] = []
        self._uploads: SharedArrays | None = None

    def make(self, shapes: dict[str, tuple[tuple[int, ...], npt.DTypeLike]]) -> SharedArrays:
        """Shared arrays of these shapes and types."""
        self._blocks.append(SharedArrays.create(shapes))
        return self._blocks[-1]

    def uploads_for(self, rows: int, weights: int) -> SharedArrays:
        """A buffer for at least `rows` uploads, reused until a larger one is needed."""
        if self._uploads is None or len(self._uploads.arrays["uploads"]) < rows:
            if self._uploads is not None:
                self._blocks.remove(self._uploads)
                self._uploads.close()
            self._uploads = self.make({"uploads": ((rows, weights), np.float32)})
        return self._uploads

    def close(self) -> None:
        """End processes first, so that none of them accesses unmapped memory."""
        if os.getpid() != self._process:
            return  # in a forked child, which does not own them
        if self.workers is not None:
            self.workers.close()
        while self._blocks:
            self._blocks.pop().close()
