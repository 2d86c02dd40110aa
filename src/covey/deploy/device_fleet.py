"""The fleet of a deployed run: devices whose answers may be late, malformed or missing."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from covey.deploy.app.wire import Array, Packet, Scalar
from covey.deploy.hello import Hello
from covey.deploy.masked import MaskedRound
from covey.federated import Evaluation, Members, Releases, Steps, Upload
from covey.identification import ScoreRule, build_rule
from covey.privacy import Ledger
from covey.privacy.ledger import KINDS
from covey.privacy.sampled import SampledSums
from covey.scenario import Scenario
from covey.security import MaskedSums, Parameters
from covey.simulation.masking import threshold

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Weights = NDArray[np.float32]


#: The model arrays that each kind of request refers to.
_NEEDS = {
    "identify": ("weights", "movement"),
    "announce": ("weights", "movement"),
    "train": ("weights",),
    "upload": ("weights",),
    "evaluate": ("weights",),
}


class Courier(Protocol):
    """Transport of requests to devices; users that do not answer in time are left out."""

    def exchange(self, requests: Mapping[int, Packet]) -> dict[int, Packet]:
        """Answers by user."""


@dataclass(frozen=True)
class Incident:
    """A failed request of a user: in `round` (from 1), of this `kind`; `status` and `reason` say why."""

    round: int
    user: int
    kind: str
    status: str
    reason: str


@dataclass
class Traffic:
    """Packets and bytes since the start, to and from devices, by kind of request."""

    messages: dict[str, int]
    sent_bytes: dict[str, int]
    received_bytes: dict[str, int]

    def count(self, kind: str, requests: Mapping[int, Packet], answers: Mapping[int, Packet]) -> None:
        """Add an exchange."""
        self.messages[kind] = self.messages.get(kind, 0) + len(requests)
        for book, packets in ((self.sent_bytes, requests), (self.received_bytes, answers)):
            book[kind] = book.get(kind, 0) + sum(packet.size for packet in packets.values())

    def summary(self) -> dict[str, dict[str, int]]:
        """JSON-serialisable."""
        return asdict(self)


class DeviceFleet:
    """A fleet of devices behind a courier; see `covey.federated.Fleet`.

    `begin` sets the round and the server's ledger before a round is played. Answers are processed in order of
    users, so that their order of arrival does not matter.
    """

    def __init__(self, courier: Courier, scenario: Scenario, run: str, *, metrics: bool = False) -> None:
        self._courier, self.scenario, self.run, self.metrics = courier, scenario, run, metrics
        self.users, self.tasks = scenario.network.users, scenario.network.tasks
        self._rule = build_rule(scenario)
        self.incidents: list[Incident] = []
        self.traffic = Traffic({}, {}, {})
        self._round = 0
        self._spent = {kind: np.full(self.users, np.nan) for kind in KINDS}
        self._mirror = {kind: np.zeros(self.users) for kind in KINDS}
        #: Sampled sums that devices reported, and those of the server's ledger.
        self._sampled, self._sampled_mirror = SampledSums(), SampledSums()
        self._models: dict[str, Array] = {}
        self._digests: dict[str, str] = {}
        self._held: list[dict[str, str]] = [{} for _ in range(self.users)]
        self._masked_round: MaskedRound | None = None

    def begin(self, round: int, ledger: Ledger) -> None:
        """Start `round` (from 0) with the totals of the server's ledger."""
        self._round = round
        self._mirror = {kind: ledger.spent[kind].copy() for kind in KINDS}
        self._sampled_mirror = ledger.sampled

    def hear(self, hellos: Mapping[int, Packet]) -> None:
        """Process the devices' hellos."""
        for user, packet in hellos.items():
            self._learn(user, packet)

    @property
    def reports_metrics(self) -> bool:
        """Whether devices report losses and accuracies in this run."""
        return self.metrics

    def publish(self, models: Weights, movements: Weights) -> None:
        """Set models (K, D) and movements (K, D); each device gets those it lacks with its next request."""
        for task in range(self.tasks):
            self._models[f"model-{task}/weights"] = _array(models[task])
            self._models[f"model-{task}/movement"] = _array(movements[task])
        self._digests = {name: hashlib.sha256(data).hexdigest()[:24] for name, (_, _, data) in self._models.items()}

    @property
    def lacks(self) -> dict[str, str]:
        """Needs of parts that devices cannot meet, with the reason."""
        lacking = {
            "new_data": 'devices hold data of their own; set data.over_time = "constant"',
            "personal_models": 'devices do not keep models of their own yet; set training.personal = "none"',
        }
        if self.scenario.security.mode == "masked":
            lacking["released_steps"] = (
                "security.mode is 'masked', where devices keep their tasks and stations see no upload; use 'raw' or"
                " 'noisy_max', which stay on the device then"
            )
        return lacking

    def hold(self, data: object) -> None:
        """No effect: devices hold their own data."""

    def tell(self, round: int, users: Ints) -> NDArray[Any] | None:
        """Announcements of devices about their task, by their own scenario; -1 or NaN for devices without one."""
        if not isinstance(self._rule, ScoreRule) or not self._rule.announcement.request:
            raise ValueError("devices are asked for their task by rules that let users work it out")
        return self._identities(self._rule.announcement.request, users.tolist())

    def _identities(self, kind: str, users: Sequence[int]) -> NDArray[Any] | None:
        told = self._ask(kind, {user: ({}, {}) for user in users})
        if self.scenario.security.mode == "masked":
            return None
        answers = [self._told(user, kind, told.get(user)) for user in users]
        # What most devices told: a single one with more numbers must not silence the others.
        sizes = Counter(answer.size for answer in answers if answer is not None)
        width = sizes.most_common(1)[0][0] if sizes else 1
        if not any(answer is not None and answer.dtype == np.float64 for answer in answers):
            return np.array([-1 if answer is None else answer[0] for answer in answers], dtype=np.int64)
        found = np.full((len(users), width), np.nan)
        for row, answer in enumerate(answers):
            if answer is not None and answer.shape == (width,):
                found[row] = answer
        return found

    def _told(self, user: int, kind: str, answer: Packet | None) -> NDArray[Any] | None:
        """The announcement of a device: task (1,) int64 or vector (m,) float64; None where it is missing or invalid."""
        if answer is None:
            return None
        if "identity/told" in answer.arrays:
            dtype, shape, data = answer.arrays["identity/told"]
            numbers = np.frombuffer(data, dtype=np.float64) if dtype == "float64" else np.full(1, np.nan)
            if numbers.shape == shape and np.isfinite(numbers).all():
                return numbers
            self._note(user, kind, "garbage", "its announcement is not a vector of finite numbers")
            return None
        task = answer.header.get("identity", -1)
        if isinstance(task, int) and 0 <= task < self.tasks:
            return np.array([task], dtype=np.int64)
        self._note(user, kind, "garbage", f"the task {task!r} is not from 0 to {self.tasks - 1}")
        return None

    def release(self, round: int, steps: Steps) -> Releases:
        """The uploads that arrived, in order of users."""
        users, base = steps.users, steps.base
        nowhere = np.full(len(users), -1)
        task, station, block = (
            nowhere if given is None else given for given in (steps.tasks, steps.stations, steps.blocks)
        )
        extra = {} if base is None else {"base/weights": _array(base)}
        asked: dict[int, dict[str, Scalar]] = {
            int(user): {
                "task": int(task[row]),
                "station": int(station[row]),
                "block": int(block[row]),
                "clip": float(steps.clip[row]),
                "noise": float(steps.noise_std[row]),
                "learning_rate": steps.learning_rate,
                "batch": steps.batch,
                "purpose": steps.purpose,
                "metrics": self.metrics,
            }
            for row, user in enumerate(users)
        }
        before = len(self.incidents)
        if self.scenario.security.mode == "masked" and base is None:
            told = self._release_masked(users, station, asked)
            blank = np.zeros(self._models["model-0/weights"][1], np.float32)
            uploads = [Upload(user, round, blank) for user in sorted(told)]
        else:
            told = self._ask("train", {user: (step, extra) for user, step in asked.items()})
            uploads = [self._upload(user, told[user]) for user in sorted(told)]
        refused = [incident.user for incident in self.incidents[before:] if incident.status == "refused"]
        return Releases(
            uploads,
            np.array([_number(told, int(user), "mean_norm") for user in users]),
            np.array([_number(told, int(user), "clipped_fraction") for user in users]),
            np.array(sorted(refused), dtype=np.int64),
        )

    def _upload(self, user: int, packet: Packet) -> Upload:
        """The upload of a device, not validated; intake does that."""
        kind, shape, data = packet.arrays.get("upload/weights", ("uint8", (0,), b""))
        number = packet.header.get("round", -1)
        return Upload(user, number if isinstance(number, int) else -1, np.frombuffer(data, dtype=kind).reshape(shape))

    def _release_masked(self, users: Ints, station: Ints, steps: Mapping[int, dict[str, Scalar]]) -> dict[int, Packet]:
        security = self.scenario.security
        self._masked_round = None
        if len(users) < security.minimum:
            return {}
        length = self._models["model-0/weights"][1][0]
        limit = threshold(security, len(users))
        self._masked_round = MaskedRound(
            Parameters(len(users), limit, security.minimum, self.tasks, length), self.run, self._round,
            users.tolist(), station.tolist(), self._note,
        )  # fmt: skip
        return self._masked_round.collect(self._ask, steps)

    def open_masked_sums(self) -> MaskedSums | None:
        """The opened sums of this round's masked uploads; None without any."""
        return None if self._masked_round is None else self._masked_round.open(self._ask)

    def evaluate(self, tasks: Ints) -> Evaluation:
        """Losses and accuracies reported by devices; NaN for the others, and for all without metrics."""
        names = ("train_loss_sum", "train_correct", "test_loss_sum", "test_correct")
        if not self.metrics:
            return Evaluation(*(np.full(self.users, np.nan) for _ in names))
        told = self._ask("evaluate", {user: ({"task": int(tasks[user])}, {}) for user in range(self.users)})
        return Evaluation(*(np.array([_number(told, user, name) for user in range(self.users)]) for name in names))

    def device_ledgers(self) -> Mapping[str, NDArray[Any]]:
        """Total privacy cost reported by devices, over all runs."""
        return {str(kind): values for kind, values in self._spent.items()} | {"sampled": self._sampled.rows}

    def close(self) -> None:
        """No effect: devices keep waiting for the next run."""

    def _ask(self, kind: str, asked: Mapping[int, tuple[dict[str, Scalar], dict[str, Array]]]) -> dict[int, Packet]:
        """The successful answers, in order of users; everything else becomes an incident."""
        good: dict[int, Packet] = {}
        lacking = dict(asked)
        for attempt in range(2):
            requests = {user: self._request(kind, user, *lacking[user]) for user in sorted(lacking)}
            answers = self._courier.exchange(requests)
            self.traffic.count(kind, requests, answers)
            again = {}
            for user in sorted(requests):
                answer = answers.get(user)
                if answer is None:
                    self._held[user] = {}
                    self._note(user, kind, "silent", "no answer in time, or not connected")
                    continue
                status = str(answer.header.get("status", "garbage"))
                self._learn(user, answer)
                if status == "models" and attempt == 0:
                    self._held[user] = {}
                    again[user] = lacking[user]
                elif status == "ok":
                    good[user] = answer
                else:
                    self._note(user, kind, status, str(answer.header.get("reason", "")))
            lacking = again
            if not lacking:
                break
        return good

    def _request(self, kind: str, user: int, header: dict[str, Scalar], arrays: dict[str, Array]) -> Packet:
        parts = _NEEDS.get(kind, ())
        needed = {what: [f"model-{task}/{what}" for task in range(self.tasks)] for what in parts}
        common: dict[str, Scalar] = {
            "kind": kind,
            "run": self.run,
            "round": self._round,
            "user": user,
            **{what: " ".join(self._digests[name] for name in names) for what, names in needed.items()},
            "spent_gradient": float(self._mirror["gradient"][user]),
            "spent_identity": float(self._mirror["identity"][user]),
        }
        if self._sampled_mirror:
            common["spent_sampled"] = self._sampled_mirror.encoded(user)
        lacking = [
            name for names in needed.values() for name in names if self._held[user].get(name) != self._digests[name]
        ]
        return Packet(common | header, {name: self._models[name] for name in lacking} | arrays)

    def _learn(self, user: int, answer: Packet) -> None:
        """Update the record of a device's cached models and privacy cost, ignoring invalid values."""
        told = (pair.partition("=") for pair in str(answer.header.get("held", "")).split())
        self._held[user] = {name: digest for name, _, digest in told}
        for kind in KINDS:
            value = answer.header.get(f"spent_{kind}")
            if isinstance(value, float) and value >= 0 and math.isfinite(value):
                self._spent[kind][user] = np.fmax(self._spent[kind][user], value)
        with suppress(ValueError, OverflowError):
            told_sums = SampledSums.decoded(str(answer.header.get("spent_sampled", "")), user)
            if told_sums:
                self._sampled = self._sampled.raised_to(told_sums)

    def _note(self, user: int, kind: str, status: str, reason: str) -> None:
        self.incidents.append(Incident(self._round + 1, user, kind, status, reason[:300]))


def members_of(hellos: Mapping[int, Hello], groups: Ints) -> Members:
    """Public facts about all users; hellos: by user; groups: (U,)."""
    ordered = [hellos[user] for user in range(len(groups))]
    return Members(
        np.array([one.samples for one in ordered], dtype=np.int64),
        np.array([one.test_samples for one in ordered], dtype=np.int64),
        groups,
        ordered[0].shape,
        ordered[0].classes,
    )


def _array(values: Weights) -> Array:
    return "float32", values.shape, np.ascontiguousarray(values).tobytes()


def _number(told: Mapping[int, Packet], user: int, name: str) -> float:
    value = told[user].header.get(name, math.nan) if user in told else math.nan
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else math.nan
