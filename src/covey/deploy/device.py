"""One user's device: its data, models, noise and ledger, and its answers to the server.

`Device.answer` is the whole interface: a packet in, a packet out. It computes with `UserCompute`, as the
simulator does; scores, losses and gradients do not leave the device.
"""

from __future__ import annotations

import hashlib
import math
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covey.deploy.app.wire import Packet, Scalar, pack
from covey.deploy.device_state import DeviceState
from covey.deploy.folders import DeviceFolder
from covey.deploy.masked import MaskedDevice
from covey.federated import (
    build_loss,
    build_model,
    build_training,
    count_weights,
    one_thread,
)
from covey.federated.training import least_noise
from covey.federated.user_compute import UserCompute
from covey.identification import ScoreRule, build_rule
from covey.privacy import build_noise
from covey.privacy.sampled import SampledSums
from covey.security import SecurityError

#: Header fields that may differ when a request is retried.
_NOT_ASKED = ("spent_gradient", "spent_identity", "spent_sampled")
#: The packages that decode requests: errors raised there concern the request, not the data.
_READERS = ("covey.deploy.", "covey.security.")
#: The array of a request for steps that start from it rather than from the model of a task.
_BASE = "base/weights"


class Refusal(Exception):  # noqa: N818
    """The device refuses a request; `status` is the reason in one word."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Device:
    """A device with the data and settings of its folder.

    `budget_epsilon` is the total privacy budget set by its owner; `metrics` allows losses and accuracies to leave
    it, unprotected.
    """

    def __init__(self, folder: DeviceFolder, *, budget_epsilon: float | None = None, metrics: bool = False) -> None:
        self.folder, self.user, self.metrics = folder, folder.user, metrics
        self.scenario = folder.scenario
        self._training, self._personal = build_training(self.scenario)
        data = folder.data()
        held, self.test_samples = len(data["y"]), len(data["test_y"])
        # Public: batches, weights and noise follow it, and the server is told it.
        self.samples = held if folder.declared is None else folder.declared
        privacy, clip = self.scenario.privacy, np.array([self.scenario.training.clip])
        planned = least_noise(privacy, self._training, clip, np.array([self.samples]))
        self.state = DeviceState(folder.private, privacy, budget_epsilon, planned)
        module = build_model(self.scenario.model, data["x"].shape[1:], folder.classes)
        self.weights, self.tasks = count_weights(module), self.scenario.network.tasks
        self.shape = data["x"].shape[1:]
        arrays: dict[str, NDArray[Any]] = dict(data)
        # The users before this one have no rows here: the user number selects rows and RNG streams.
        for half, count in (("", held), ("test_", self.test_samples)):
            arrays[f"{half}offsets"] = np.array([0] * (self.user + 1) + [count])
        arrays["samples"] = np.full(self.user + 1, self.samples)
        self._models = np.zeros((self.tasks, self.weights), np.float32)
        self._movements = np.zeros((self.tasks, self.weights), np.float32)
        self._base = np.zeros(self.weights, np.float32)
        arrays |= {"models": self._models, "movements": self._movements, "base": self._base}
        #: Digests of the cached model vectors, by name; requests refer to them.
        self._held: dict[str, str] = {}
        self._rule = build_rule(self.scenario)
        self._announcement = self._rule.announcement if isinstance(self._rule, ScoreRule) else None
        noise = build_noise(self.scenario.privacy.noise, folder.seed)
        with one_thread():
            self._work = UserCompute(
                module,
                arrays,
                folder.seed,
                noise,
                self._training,
                self._announcement,
                self.scenario.compute.gradients,
                build_loss(self.scenario.training.loss, folder.classes),
            )
        self._masked = MaskedDevice(self)
        self._does: dict[str, Callable[[Packet], Packet]] = {
            "hello": self._hello,
            "identify": self._tell,
            "announce": self._tell,
            "train": self._train,
            "evaluate": self._evaluate,
            **self._masked.does,
        }

    def answer(self, request: Packet) -> Packet:
        """The answer to a request; a bad request is answered with an error and does not change the device's state."""
        try:
            with one_thread():
                told = self._answered(request)
        except Refusal as refusal:
            told = Packet({"status": refusal.status, "reason": str(refusal)})
        except Exception as error:  # a bad request or a disk error must not stop the device
            told = Packet({"status": "failed", "reason": _reason(error)})
        told.header.update(self._totals())
        return told

    def _answered(self, request: Packet) -> Packet:
        header = request.header
        kind = str(header["kind"])
        if kind not in self._does:
            raise Refusal("unknown", f"this version of covey does not know requests of kind '{kind}'")
        if kind == "hello":
            return self._hello(request)
        if int(header["user"]) != self.user:
            raise Refusal("stranger", f"this is user {self.user}, not user {header['user']}")
        run, number = str(header["run"]), int(header["round"])
        if number < self.state.runs.get(run, -1):
            raise Refusal("stale", f"round {number + 1} is over: round {self.state.runs[run] + 1} has been answered")
        gradient, identity = float(header["spent_gradient"]), float(header["spent_identity"])
        # Without noise every release has infinite cost.
        if not (gradient >= 0 and identity >= 0) or (self._noised and math.isinf(gradient + identity)):
            raise ValueError(f"the totals {gradient} and {identity} are not valid privacy costs")
        sampled = SampledSums.decoded(str(header.get("spent_sampled", "")), 0)
        self.state.raise_to(number, {"gradient": gradient, "identity": identity}, sampled)
        self.state.begin(run, number)
        self._receive(request)
        return self._does[kind](request)

    def _totals(self) -> dict[str, Scalar]:
        ledger = self.state.ledger
        return {
            "user": self.user,
            "spent_gradient": float(ledger.spent["gradient"][0]),
            "spent_identity": float(ledger.spent["identity"][0]),
            "held": " ".join(f"{name}={digest}" for name, digest in self._held.items()),
            **({"spent_sampled": ledger.sampled.encoded(0)} if ledger.sampled else {}),
        }

    def _hello(self, request: Packet) -> Packet:
        """The public facts about this device."""
        return Packet(
            {
                "status": "ok",
                "samples": self.samples,
                "test_samples": self.test_samples,
                "classes": self.folder.classes,
                "shape": ",".join(str(side) for side in self.shape),
                "weights": self.weights,
                "fingerprint": self.folder.fingerprint,
            }
        )

    def _receive(self, request: Packet) -> None:
        """Cache the models and movements of a request; its header has the digests of those that it refers to."""
        for what, target in (("weights", self._models), ("movement", self._movements)):
            wanted = str(request.header.get(what, "")).split()
            for task, digest in enumerate(wanted[: self.tasks]):
                name = f"model-{task}/{what}"
                if self._held.get(name) == digest:
                    continue
                if name not in request.arrays:
                    raise Refusal("models", "these models have not been received; send them along")
                self._held.pop(name, None)
                target[task] = self._vector(request, name)
                self._held[name] = digest

    def _vector(self, request: Packet, name: str) -> NDArray[np.float32]:
        kind, shape, data = request.arrays[name]
        if kind != "float32" or shape != (self.weights,):
            raise ValueError(f"{name} is {kind} of shape {shape}; it must be float32 of shape ({self.weights},)")
        return np.frombuffer(data, dtype=np.float32)

    def once(self, request: Packet, make: Callable[[], Packet]) -> Packet:
        """The answer of `make`, computed once: a retry gets the stored answer, another request in the round an error.

        A second answer would be a second release; with seeded noise both would have the same noise, and their
        difference none.
        """
        header = request.header
        name = f"{header['run']} {header['round']} {header['kind']} {header.get('purpose', '')}"
        asked = request_digest(request)
        try:
            stored = self.state.stored(name, asked)
        except LookupError:
            raise Refusal(
                "answered", f"another request of round {int(header['round']) + 1} has been answered; a round has one"
            ) from None
        if stored is None:
            stored = make()
            self.state.store(name, asked, stored)
        return stored

    def _tell(self, request: Packet) -> Packet:
        """The device's announcement of its task, by its own rule; charged or labelled before it is computed.

        Also requested where masks hide the users' tasks: stations then see how many users and samples each task has,
        and the sums, so that a task found without noise is labelled there too.
        """
        kind, own = str(request.header["kind"]), self.scenario
        announcement = self._announcement
        if announcement is None or announcement.request != kind:
            raise Refusal(
                "identity",
                f"privacy.identity is '{own.privacy.identity}' and clustering.rule '{own.clustering.rule}' here, so"
                f" '{kind}' is not answered",
            )

        def make() -> Packet:
            number = int(request.header["round"])
            if announcement.rho > 0 and not self.state.charge(number, "identity", announcement.rho):
                raise Refusal("refused", "the privacy budget of this device does not cover announcing its task")
            told = self._work.tell([self.user], number, 1)[0]
            if not announcement.protected:
                self.state.ledger.label_unprotected([0])
            return self._told(request, told)

        return self.once(request, make)

    def _told(self, request: Packet, told: Any) -> Packet:
        """The packet with an announcement: a task, or a vector; with masked uploads a task stays on the device."""
        if np.ndim(told) > 0:
            if self.masked:
                raise Refusal("identity", "with masked uploads a device keeps its task; this rule announces a vector")
            numbers = np.asarray(told, dtype=np.float64)
            self.state.save()
            return Packet({"status": "ok"}, {"identity/told": ("float64", numbers.shape, numbers.tobytes())})
        task = int(told)
        self.state.identity[str(request.header["run"])] = task
        self.state.save()
        return Packet({"status": "ok"} if self.masked else {"status": "ok", "identity": task})

    @property
    def masked(self) -> bool:
        """Whether uploads leave this device only masked."""
        return self.scenario.security.mode == "masked"

    @property
    def _noised(self) -> bool:
        return self.scenario.privacy.noise != "off"

    def task_of(self, request: Packet) -> int:
        """The task to train: the server's, or, with masked uploads, the device's own."""
        given = int(request.header["task"])
        task = self.state.identity.get(str(request.header["run"]), given) if self.masked else given
        if not 0 <= task < self.tasks:
            raise ValueError(f"task {task} is not one of 0 to {self.tasks - 1}")
        return task

    def _train(self, request: Packet) -> Packet:
        if self.masked:
            raise Refusal("masked", "this device sends masked uploads only (security.mode = 'masked')")
        return self.once(request, lambda: self.release(request))

    def release(self, request: Packet) -> Packet:
        """Local training with noise, charged before it is computed; the packet holds the new weights.

        Where uploads are made from a model of the device's own, that is read and written here, and stays here.
        """
        header = request.header
        number, clip, noise_std = int(header["round"]), float(header["clip"]), float(header["noise"])
        batch, learning_rate, purpose = int(header["batch"]), float(header["learning_rate"]), str(header["purpose"])
        # Validate everything before charging.
        self._check_noise(clip, noise_std)
        own = self.scenario.training.batch
        if batch != own or not (math.isfinite(learning_rate) and learning_rate > 0):
            raise ValueError(
                f"a batch of {batch} samples at a learning rate of {learning_rate} cannot be trained; the batch here is"
                f" {own}, and learning rates are above 0"
            )
        # A rule may ask for steps from weights that it sends, instead of those of a task.
        task = -1 if _BASE in request.arrays else self.task_of(request)
        if task < 0:
            self._base[...] = self._vector(request, _BASE)
        run = str(header["run"])
        model = self.state.own_model(run, number, self.weights) if self._personal.uploads and task >= 0 else None
        releases = self._training.releases(np.array([clip]), np.array([noise_std]), np.array([self.samples]))
        if not self.state.charge(number, "gradient", releases):
            raise Refusal("refused", "the privacy budget of this device does not cover this upload")
        self._work.uploads = np.empty((1, self.weights), np.float32)
        norm, clipped, _, kept = self._work.train(
            0, self.user, task, number, clip, noise_std, learning_rate, batch, purpose, self.samples, model
        )
        if kept is not None and task >= 0:
            self.state.keep_model(run, number, model, kept)
        told: dict[str, Scalar] = {"status": "ok", "round": number}
        if self.metrics and header.get("metrics"):
            self._measured()
            told |= {"mean_norm": norm, "clipped_fraction": clipped}
        weights = self._work.uploads[0]
        return Packet(told, {"upload/weights": ("float32", weights.shape, weights.tobytes())})

    def _check_noise(self, clip: float, noise_std: float) -> None:
        """Refuse noise below the floor of the device's own scenario (11f), even if the budget would cover it."""
        privacy = self.scenario.privacy
        floor = privacy.n_min / self.samples if self._noised else 0.0
        enough = floor * (1 - 1e-9) <= noise_std < math.inf and (noise_std > 0 or not self._noised)
        if not (0 < clip < math.inf and enough):
            raise Refusal(
                "noise", f"noise of {noise_std:g} at clipping norm {clip:g} is below this device's floor of {floor:g}"
            )

    def _evaluate(self, request: Packet) -> Packet:
        if not self.metrics:
            raise Refusal("metrics", "this device does not report losses or accuracies; allow it with --metrics")
        task = self.task_of(request)
        self._measured()
        loss, right, test_loss, test_right = self._work.evaluate([self.user], [task])
        return Packet(
            {
                "status": "ok",
                "train_loss_sum": float(loss[0]),
                "train_correct": int(right[0]),
                "test_loss_sum": float(test_loss[0]),
                "test_correct": int(test_right[0]),
            }
        )

    def _measured(self) -> None:
        self.state.ledger.label_measured([0])
        self.state.save()


def _reason(error: Exception) -> str:
    """The error text for the server: in full if it concerns the request, otherwise only the exception type.

    Errors of the computation or the disk may reveal data or paths; they go to the device's own log only.
    """
    where = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)]
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, (KeyError, TypeError, ValueError, SecurityError)) and where[-1].startswith(_READERS):
        return text
    print(f"a request failed ({text})", file=sys.stderr, flush=True)
    return f"{type(error).__name__}; the log of this device says more"


def request_digest(request: Packet) -> str:
    """A digest of a request, without the fields that may differ in a retry."""
    header = {key: value for key, value in request.header.items() if key not in _NOT_ASKED}
    # Models are identified by their digests in the header.
    arrays = {name: array for name, array in request.arrays.items() if not name.startswith("model-")}
    return hashlib.sha256(pack(Packet(header, arrays))).hexdigest()
