"""What devices say about themselves: parsed once, with limits, and the same whenever they come back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.deploy.near import NearCourier, deployed, make_devices, open_devices, run_folder, small

from covey.deploy import Device
from covey.deploy.app.wire import Packet
from covey.deploy.hello import Enrolment
from covey.errors import DeployError

HELLO = Packet({"kind": "hello"})


@pytest.fixture(scope="module")
def devices(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Device]:
    return make_devices(small(), 0, tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"samples": "x"}, "number of samples is 'x'"),
        ({"samples": None}, "number of samples is None"),
        ({"samples": 0}, "from 1 to 50"),
        ({"samples": -3}, "from 1 to 50"),
        ({"samples": True}, "from 1 to 50"),
        ({"samples": 2.5}, "from 1 to 50"),
        ({"samples": 10**12}, r"from 1 to 50 \(data\.samples_max of the scenario\)"),
        ({"test_samples": 11}, r"from 1 to 10 \(data\.test_samples"),
        ({"classes": 10**12}, "number of classes"),
        ({"shape": None}, "shape None"),
        ({"shape": "1,x"}, "shape '1,x'"),
        ({"shape": "1,-8"}, "shape '1,-8'"),
        ({"shape": "1,100000,100000"}, "shape '1,100000,100000'"),
        ({"shape": "1,8,9"}, r"\(1, 8, 9\)"),
        ({"classes": 7}, "7 classes"),
        ({"weights": 651}, "another number of weights"),
        ({"fingerprint": "other"}, "prepared for another scenario or seed"),
        ({"fingerprint": None}, "prepared for another scenario or seed"),
    ],
    ids=str,
)
def test_nonsense_is_named_with_its_user(devices: dict[int, Device], change: dict[str, object], words: str) -> None:
    admission = Enrolment(devices[0].scenario, 0)
    admission.check(0, devices[0].answer(HELLO))
    good = devices[3].answer(HELLO)
    header = {name: value for name, value in (good.header | change).items() if value is not None}  # type: ignore[operator]
    with pytest.raises(DeployError, match=f"user 3.*{words}|user 3 has.*{words}"):
        admission.check(3, replace(good, header=header))
    assert admission.check(3, good).samples == devices[3].samples


def test_a_device_that_comes_back_says_the_same(devices: dict[int, Device]) -> None:
    admission = Enrolment(devices[0].scenario, 0)
    hello = devices[0].answer(HELLO)
    first = admission.check(0, hello)
    assert admission.check(0, devices[0].answer(HELLO)) == first
    fewer = replace(hello, header=hello.header | {"samples": first.samples - 1})
    with pytest.raises(DeployError, match="user 0 has other data than before"):
        admission.check(0, fewer)


def test_a_total_that_is_not_finite_is_passed_over(tmp_path: Path) -> None:
    scenario = small()
    devices = make_devices(scenario, 0, tmp_path / "site")
    folder = run_folder(scenario, tmp_path / "run", rounds=2, metrics=False)

    def meddle(user: int, request: Packet, answer: Packet) -> Packet:
        worse = {"spent_gradient": float("inf"), "spent_identity": float("inf")}
        return Packet(answer.header | worse, answer.arrays) if user == 2 else answer

    ledger = deployed(NearCourier(devices, meddle), folder).history.ledger
    assert np.isfinite(ledger.rho).all()


def test_a_run_that_goes_on_hears_what_devices_have_spent_meanwhile(tmp_path: Path) -> None:
    scenario = small()
    devices = make_devices(scenario, 0, tmp_path / "site")
    folder = run_folder(scenario, tmp_path / "run", rounds=2, metrics=False)
    first = deployed(NearCourier(devices), folder).history.ledger.rho
    # Meanwhile another run is played with the devices.
    deployed(NearCourier(devices), run_folder(scenario, tmp_path / "other", run="other", rounds=2, metrics=False))
    own = {user: device.state.ledger.rho[0] for user, device in devices.items()}
    np.testing.assert_allclose(list(own.values()), 2 * first)

    class Silent(NearCourier):
        """User 4 has said hello, and answers nothing after that."""

        def exchange(self, requests):  # type: ignore[no-untyped-def]
            return super().exchange({user: request for user, request in requests.items() if user != 4})

    run_folder(scenario, folder, rounds=3, metrics=False)
    simulation = deployed(Silent(open_devices(tmp_path / "site", 5)), folder)
    found = simulation.history.ledger.rho
    assert found[4] == pytest.approx(own[4]), "its hello counts though it was silent since"
    # Nothing counts twice: who answered has spent what its own ledger says.
    for user in range(4):
        assert found[user] == pytest.approx(open_devices(tmp_path / "site", 5)[user].state.ledger.rho[0])
