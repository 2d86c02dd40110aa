"""Hellos: the handshake of devices, and its validation against the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from covey.deploy.app.wire import Packet
from covey.errors import DeployError
from covey.federated import build_model, count_weights
from covey.scenario import Scenario
from covey.scenario.load import fingerprint

#: Limit on values of a sample x classes: a false claim must not make the server build a huge model.
_MOST_WEIGHTS = 500_000_000


@dataclass(frozen=True)
class Hello:
    """Public facts about a device: sample counts, shape of a sample, classes, model weights, and fingerprint."""

    samples: int
    test_samples: int
    classes: int
    shape: tuple[int, ...]
    weights: int
    fingerprint: str

    @classmethod
    def read(cls, user: int, packet: Packet, scenario: Scenario) -> Hello:
        """Decode the hello of a user's device; raises a `DeployError` if it is invalid."""
        header, data = packet.header, scenario.data
        limits = {
            "samples": (data.samples_max, "data.samples_max"),
            "test_samples": (data.test_samples, "data.test_samples"),
            "classes": (_MOST_WEIGHTS, ""),
            "weights": (_MOST_WEIGHTS, ""),
        }
        numbers: dict[str, int] = {}
        for name, (most, key) in limits.items():
            value = header.get(name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                where = f" ({key} of the scenario)" if key else ""
                raise DeployError(
                    f"the device of user {user} says that its number of {name.replace('_', ' ')} is {value!r}; it must"
                    f" be from 1 to {most}{where}"
                )
            numbers[name] = value
        try:
            shape = tuple(int(side) for side in str(header.get("shape", "")).split(","))
        except ValueError:
            shape = ()
        if not shape or min(shape) < 1 or math.prod(shape) * numbers["classes"] > _MOST_WEIGHTS:
            raise DeployError(
                f"the device of user {user} says that its samples have the shape {header.get('shape')!r}; it must be a"
                " few whole numbers from 1 with commas between them"
            )
        return cls(shape=shape, fingerprint=str(header.get("fingerprint")), **numbers)


class Enrolment:
    """Admission of devices to a run: they must be prepared for its scenario and seed, and repeat the same hello."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario, self._fingerprint = scenario, f"{fingerprint(scenario)}-{seed}"
        self._weights = 0
        self._first: dict[int, Hello] = {}

    def check(self, user: int, packet: Packet) -> Hello:
        """Validate the hello of a user's device, also after a reconnect; `DeployError` when it does not fit the run."""
        if packet.header.get("fingerprint") != self._fingerprint:
            raise DeployError(
                f"the device of user {user} was prepared for another scenario or seed; give it the folder of the same"
                " covey deploy prepare as the server"
            )
        hello = Hello.read(user, packet, self._scenario)
        before = self._first.get(user)
        if before is not None and hello != before:
            raise DeployError(
                f"the device of user {user} has other data than before; a run needs the same ones from its start to"
                " its end"
            )
        other, one = next(iter(self._first.items()), (user, hello))
        if (hello.shape, hello.classes) != (one.shape, one.classes):
            raise DeployError(
                f"the device of user {user} has samples of shape {hello.shape} and {hello.classes} classes, that of"
                f" user {other} {one.shape} and {one.classes}; all must have the same"
            )
        if not self._weights:
            self._weights = count_weights(build_model(self._scenario.model, hello.shape, hello.classes))
        if hello.weights != self._weights:
            raise DeployError(f"the model of user {user} has another number of weights; use the same version of covey")
        self._first[user] = hello
        return hello

    def check_all(self, hellos: Mapping[int, Packet]) -> dict[int, Hello]:
        """Validate the hellos of all devices, in order of users."""
        return {user: self.check(user, packet) for user, packet in sorted(hellos.items())}
