"""Local computation of users, on arrays that may be shared with other processes.

Every result is a function of the arrays, the user, the round and the seed alone, whichever process
computes it and when.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from numbers import Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from covey.arrays import read_only
from covey.errors import ScenarioError
from covey.faults import Named, named_faults, unchanged
from covey.federated.clip import chunk_length
from covey.federated.losses import Loss, cross_entropy, use_loss
from covey.federated.models import load_flat
from covey.federated.personal import Personal, PersonalProblem
from covey.federated.steps import LocalUpdate, group_scores, sample_losses
from covey.federated.strategies import use_strategy
from covey.federated.training import LocalProblem, LocalTraining
from covey.parts import ANNOUNCEMENTS, LOCAL_TRAININGS, PERSONALS, RULES
from covey.privacy.noise_source import SecureNoise
from covey.seeding import generator

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class NoiseFunction(Protocol):
    """Draws `size` independent standard normal values for one user, round and purpose."""

    def __call__(self, user: int, round: int, purpose: str, size: int) -> Floats:
        """The values, (size,)."""
        ...


class Announcer(Protocol):
    """Computes users' announcements of their task; see `covey.identification.Announcement`."""

    @property
    def together(self) -> bool:
        """Whether users with equally many samples can be computed as one batch."""

    @property
    def batch(self) -> int:
        """Samples on which a user compares the models; 0 for all."""

    def tell(self, compute: UserCompute, users: list[int], round: int, together: int) -> npt.NDArray[Any]:
        """The announcements of these users, (n,) or (n, m)."""


class UserCompute:
    """A module, and the data and settings for its users' local computation.

    `arrays` holds x, y, offsets, test_x, test_y, test_offsets as in `covey.data.types.UserData`, models
    and movements (K, D), and base (D,), and may hold samples (U,), the public numbers of samples where users declare
    others than they hold. `train` writes to `uploads` (n, D). `chunk` is the number of samples per gradient
    computation. `train` runs `training`, `tell` runs `announcer`; `gradients` names the gradient strategy. `loss` is
    that of the module from now on.
    """

    def __init__(
        self,
        module: nn.Module,
        arrays: Mapping[str, npt.NDArray[Any]],
        seed: int,
        noise: NoiseFunction,
        training: LocalTraining,
        announcer: Announcer | None = None,
        gradients: str = "auto",
        loss: Loss = cross_entropy,
    ) -> None:
        self.module = module
        use_loss(module, loss)
        use_strategy(module, gradients)
        self.seed = seed
        self.noise = noise
        self.training, self.announcer = training, announcer
        self.models, self.movements, self.base = arrays["models"], arrays["movements"], arrays["base"]
        self.uploads: npt.NDArray[np.float32] = np.empty((0, self.models.shape[1]), np.float32)
        self._declared = arrays.get("samples")
        self.hold(arrays)
        # Selects the gradient strategy, on the same samples and weights in every process.
        self.chunk = chunk_length(module, self._halves[0][0][:3].clone(), self._halves[0][1][:3])

    def hold(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace the samples."""
        self._halves = [
            (_tensor(arrays[f"{half}x"]), _tensor(arrays[f"{half}y"]), arrays[f"{half}offsets"])
            for half in ("", "test_")
        ]

    def samples_of(self, user: int) -> int:
        """The public number of samples X of a user, by which it divides and scales noise.

        Under `add_remove` it is declared: one sample more or less does not change it.
        """
        offsets = self._halves[0][2]
        return int(offsets[user + 1] - offsets[user] if self._declared is None else self._declared[user])

    def score(
        self, users: Sequence[int], round: int, batch: int, gradients: bool, together: int
    ) -> tuple[Floats, Floats]:
        """Losses and similarity of `users`, (n, K) each; up to `together` consecutive users of equal size per batch."""
        picked = [self.batch_of(user, round, batch, "identify_batch") for user in users]
        groups = []
        for _, run in groupby(picked, key=lambda pair: len(pair[1])):
            alike = list(run)
            for begin in range(0, len(alike), together):
                now = alike[begin : begin + together]
                if len(now) == 1:
                    groups.append((now[0][0][None], now[0][1][None]))
                else:
                    groups.append((torch.stack([x for x, _ in now]), torch.stack([y for _, y in now])))
        return group_scores(self.module, self.models, self.movements, groups, gradients=gradients)

    def toss(self, users: Sequence[int], round: int, told: Ints) -> Ints:
        """The tasks `told` (n,), each replaced by one of those with an equal model, by the user's own coin.

        Stations offer a model that nobody uses as a copy of another one; a rule cannot tell the two apart.
        """
        same = (self.models[:, None, :64] == self.models[None, :, :64]).all(axis=2)
        tossed = np.array(told, dtype=np.int64)
        for row, (user, task) in enumerate(zip(users, tossed, strict=True)):
            if task < 0 or same[task].sum() < 2:
                continue
            equal = [k for k in np.flatnonzero(same[task]) if np.array_equal(self.models[k], self.models[task])]
            if len(equal) > 1:
                tossed[row] = equal[generator(self.seed, "tie", user=user, round=round).integers(len(equal))]
        return tossed

    def tell(self, users: Sequence[int], round: int, together: int) -> npt.NDArray[Any]:
        """Announcements of `users` about their task, (n,) or (n, m); nothing else leaves, as on a device."""
        if self.announcer is None:
            raise ValueError("there is no announcer, so these users cannot announce a task")
        announcer = self.announcer
        with named_faults(lambda: _speakers(announcer), f"in round {round + 1}"):
            return announcer.tell(self, list(users), round, together)

    def train(
        self,
        row: int,
        user: int,
        task: int,
        round: int,
        clip: float,
        noise_std: float,
        learning_rate: float,
        batch: int,
        purpose: str,
        samples: int,
        own: npt.NDArray[np.float32] | None = None,
    ) -> tuple[float, float, int, npt.NDArray[np.float32] | None]:
        """Write a user's new weights to `uploads[row]`; returns mean norm, clipped fraction, rejected samples, kept.

        The user starts from the model of `task`, or from `base` when that is -1; `samples` is its public number of
        samples, by which, or by `batch` if that is less, it divides. `own` is the model (D,) that it kept, if any; what
        it keeps now is its own model, (D,), or None.
        """
        length, size = self.uploads.shape[1], min(samples, batch or samples)
        problem = LocalProblem(
            self.module,
            read_only(self.base if task < 0 else self.models[task]),
            clip,
            noise_std,
            learning_rate,
            samples,
            size,
            next_batch=self._batches(user, round, batch, "train_batch", samples),
            poisson_batch=self._poisson_batches(user, round, size / samples, purpose),
            normals=_once(lambda steps: self.noise(user, round, purpose, steps * length).reshape(steps, length)),
            own=None if own is None else read_only(own),
        )
        part = Named.of(LOCAL_TRAININGS, self.training, getattr(self.training, "scenario", None))
        with named_faults(lambda: [part], f"in round {round + 1}"), _stateless(part, round):
            update = self.training.run(problem)
        if why := _no_update(update, length):
            raise LOCAL_TRAININGS.refused(part.name, why)
        self.uploads[row] = update.weights
        return update.mean_norm, update.clipped_fraction, update.rejected, update.kept

    def personalise(
        self, part: Personal, user: int, task: int, round: int, own: npt.NDArray[np.float32] | None
    ) -> tuple[npt.NDArray[np.float32], float, int]:
        """A user's personal model after the round, and its loss sum and correct predictions on test samples.

        `own` (D,) is the model so far; without one it starts from the received model of `task`.
        """
        received = read_only(self.models[task])
        batch = part.scenario.training.personal_batch
        problem = PersonalProblem(
            self.module,
            received if own is None else read_only(own),
            received,
            next_batch=self._batches(user, round, batch, "personal_batch"),
        )
        named = Named.of(PERSONALS, part, part.scenario)
        with named_faults(lambda: [named], f"in round {round + 1}"), _stateless(named, round):
            found = part.run(problem)
        if why := _no_weights(found, len(received)):
            raise PERSONALS.refused(named.name, f"returned {why} for weights of shape {received.shape}")
        weights = np.asarray(found, dtype=np.float32)
        if not np.isfinite(weights).all():
            training = part.scenario.training
            raise ScenarioError(
                f"the personal model of user {user} is not finite after round {round + 1}; lower training.personal_rate"
                f" (now {training.personal_rate:g}) or training.personal_pull (now {training.personal_pull:g})"
            )
        load_flat(self.module, weights)
        x, y, offsets = self._halves[1]
        rows = slice(int(offsets[user]), int(offsets[user + 1]))
        losses, right = sample_losses(self.module, x[rows].clone(), y[rows])
        return weights, float(losses.sum()), int(right.sum())

    def evaluate(self, users: Sequence[int], tasks: Sequence[int]) -> tuple[Floats, Ints, Floats, Ints]:
        """Training and test loss sums and correct predictions of `users` on their `tasks`, (n,) each."""
        loss, right = np.zeros((2, len(users))), np.zeros((2, len(users)), np.int64)
        for task in sorted(set(tasks)):
            members = [i for i, k in enumerate(tasks) if k == task]
            load_flat(self.module, self.models[task])
            for half, (x, y, offsets) in enumerate(self._halves):
                rows = [slice(offsets[users[i]], offsets[users[i] + 1]) for i in members]
                found = sample_losses(self.module, torch.cat([x[r] for r in rows]), torch.cat([y[r] for r in rows]))
                owner = np.repeat(members, [r.stop - r.start for r in rows])
                loss[half] += np.bincount(owner, weights=found[0], minlength=len(users))
                right[half] += np.bincount(owner[found[1]], minlength=len(users))
        return loss[0], right[0], loss[1], right[1]

    def batch_of(self, user: int, round: int, batch: int, purpose: str) -> tuple[Tensor, Tensor]:
        """A copy of a user's samples, or of `batch` of them drawn without replacement."""
        return self._batches(user, round, batch, purpose)()

    def _batches(
        self, user: int, round: int, batch: int, purpose: str, samples: int | None = None
    ) -> Callable[[], tuple[Tensor, Tensor]]:
        """A function that draws the next batch of a user: those of one shuffled pass do not overlap.

        Places are shuffled, of the public number of `samples`: sample i has place i, and samples beyond are never
        drawn. If the last sample is missing, its place is empty and all others stay in their batches; if another one
        is, those behind it move up by a place, into other batches.
        """
        x, y = self._samples_of(user)
        places = len(y) if samples is None else samples
        if not 0 < batch < places:
            # Copied, because the last bits of a product may depend on memory alignment.
            return lambda: (x.clone(), y.clone())
        rng = generator(self.seed, purpose, user=user, round=round)
        left = np.zeros(0, dtype=np.int64)

        def draw() -> tuple[Tensor, Tensor]:
            nonlocal left
            if len(left) < batch:
                left = rng.permutation(places)
            chosen, left = left[:batch], left[batch:]
            rows = torch.from_numpy(chosen[chosen < len(y)])
            return x[rows], y[rows]

        return draw

    def _poisson_batches(self, user: int, round: int, rate: float, purpose: str) -> Callable[[], tuple[Tensor, Tensor]]:
        """A function that draws a batch in which each sample of a user is with probability `rate`, independently.

        Releases of other purposes in the round have their own draws, or they would not count as sampled anew. Where
        noise is cryptographic, so are the draws: who knew them would know what amplification takes for unknown.
        """
        x, y = self._samples_of(user)
        source = self.noise
        rng: np.random.Generator | None = None

        def draw() -> tuple[Tensor, Tensor]:
            nonlocal rng
            if isinstance(source, SecureNoise):
                values = source.uniform(len(y))
            else:
                rng = rng or generator(self.seed, f"{purpose}_batch", user=user, round=round)
                values = rng.random(len(y))
            rows = torch.from_numpy(np.flatnonzero(values < rate))
            return x[rows], y[rows]

        return draw

    def _samples_of(self, user: int) -> tuple[Tensor, Tensor]:
        """A user's samples and their classes, which share memory with all others'."""
        all_x, all_y, offsets = self._halves[0]
        rows = slice(int(offsets[user]), int(offsets[user + 1]))
        return all_x[rows], all_y[rows]


def _no_update(update: Any, length: int) -> str:
    """Why this is no update of `length` weights, D, as the end of a sentence."""
    if not isinstance(update, LocalUpdate):
        return f"returned {type(update).__name__} for weights of shape ({length},); return a LocalUpdate"
    for name, weights in (("weights", update.weights), ("kept", update.kept)):
        if (name != "kept" or weights is not None) and (why := _no_weights(weights, length)):
            return f"returned {why} for {name} of shape ({length},); return a LocalUpdate with arrays of float32"
    for name in ("mean_norm", "clipped_fraction", "rejected"):
        if not isinstance(getattr(update, name), Real):
            return f"returned {type(getattr(update, name)).__name__} as {name}; return a LocalUpdate with a number"
    return ""


def _no_weights(values: Any, length: int) -> str:
    """What this is instead of `length` weights, D; empty where it is these."""
    if isinstance(values, Tensor):
        if values.requires_grad:
            return "a tensor that requires gradients, not its .detach().numpy(),"
        values = values.numpy()
    if not isinstance(values, np.ndarray):
        return type(values).__name__
    if values.dtype.kind not in "fiu":
        return f"an array of {values.dtype}"
    return "" if values.shape == (length,) else str(values.shape)


def _speakers(announcer: Announcer) -> list[Named]:
    """The parts that work out what users tell: the announcement and, where it has one, its rule."""
    scenario = getattr(announcer, "scenario", None)
    rule = getattr(announcer, "rule", None)
    return [Named.of(ANNOUNCEMENTS, announcer, scenario), *([] if rule is None else [Named.of(RULES, rule, scenario)])]


def _stateless(named: Named, round: int) -> AbstractContextManager[None]:
    """Refuse a part whose `run` changes it; looked at in the first round only, because attributes may be large."""
    return unchanged(named, "run") if round == 0 else nullcontext()


def _once(draw: Callable[[int], Floats]) -> Callable[[int], Floats]:
    """A function that can be called once: it would give the same values again, and noise must not be used twice."""
    called = False

    def draw_once(steps: int) -> Floats:
        nonlocal called
        if called:
            raise ValueError(
                "LocalProblem.normals was called twice in one update; it gives the same noise again, which hides"
                " nothing: call it once, with the number of all steps"
            )
        called = True
        return draw(steps)

    return draw_once


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    """A tensor that shares the array's memory; it is only read, so the array may be read-only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)
