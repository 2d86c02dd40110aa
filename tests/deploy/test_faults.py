"""Users who are gone, late, broken or lying: the round goes on, no model is spoiled, nobody is under-charged."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.deploy.near import NearCourier, deployed, make_devices, open_devices, run_folder, small

import covey
from covey.deploy import Device
from covey.deploy.app.wire import Packet, WireError, pack, unpack
from covey.errors import DeployError, ResumeError
from covey.simulation import Simulation


def site(tmp_path: Path, *overrides: str, **settings: object) -> tuple[dict[int, Device], Path]:
    scenario = small(*overrides)
    devices = make_devices(scenario, 0, tmp_path / "site", metrics=True)
    return devices, run_folder(scenario, tmp_path / "run", **settings)


def incidents(folder: Path) -> list[dict[str, str]]:
    with open(folder / "incidents.csv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def assert_sound(simulation: Simulation, devices: dict[int, Device]) -> None:
    """Models are finite, and no device has spent more than the server's ledger says, nor less than it sent."""
    history = simulation.history
    assert history.complete
    assert np.isfinite(history.models).all()
    own = np.array([devices[user].state.ledger.rho[0] for user in range(5)])
    assert (history.ledger.rho >= own * (1 - 1e-9)).all()


def test_a_user_that_disappears_for_a_round_is_missed_and_stays_charged(tmp_path: Path) -> None:
    devices, folder = site(tmp_path)

    def meddle(user: int, request: Packet, answer: Packet) -> Packet | None:
        return None if user == 1 and request.header["round"] == 1 else answer

    simulation = deployed(NearCourier(devices, meddle), folder)
    assert_sound(simulation, devices)
    second = simulation.history.records[1]
    assert second.lost_uploads == 1
    assert second.users.joined[1] == 0
    assert np.isnan(second.users.loss[1])
    assert np.isfinite([second.loss, second.reward, second.objective, second.accuracy]).all()
    assert {(row["user"], row["status"]) for row in incidents(folder)} == {("1", "silent")}
    # Its upload was lost on the way, so that it is charged on both sides.
    assert simulation.history.ledger.rho[1] == pytest.approx(devices[1].state.ledger.rho[0])


def test_a_user_that_is_gone_before_it_is_asked_is_charged_when_it_comes_back(tmp_path: Path) -> None:
    devices, folder = site(tmp_path)
    courier = NearCourier(devices)
    gone = devices[2]

    class Away(NearCourier):
        def exchange(self, requests):  # type: ignore[no-untyped-def]
            there = next(iter(requests.values())).header["round"] != 1
            self.devices = {**devices} if there else {user: d for user, d in devices.items() if user != 2}
            return super().exchange(requests)

    simulation = deployed(Away(devices), folder)
    assert_sound(simulation, devices)
    # It did not release anything in that round, but nobody can know: the larger total counts.
    assert gone.state.ledger.rho[0] == pytest.approx(simulation.history.ledger.rho[2])
    assert courier.devices[2] is gone


def test_garbage_is_turned_away_and_spoils_nothing(tmp_path: Path) -> None:
    devices, folder = site(tmp_path)

    def meddle(user: int, request: Packet, answer: Packet) -> Packet | None:
        if request.header["kind"] != "train" or user > 3:
            return answer
        shape = answer.arrays["upload/weights"][1]
        worse = {
            0: ("float32", shape, np.full(shape, np.nan, np.float32).tobytes()),
            1: ("float64", shape, np.zeros(shape).tobytes()),
            2: ("float32", (7,), bytes(28)),
            3: ("float32", shape, np.full(shape, 1e6, np.float32).tobytes()),
        }[user]
        return Packet(answer.header, {"upload/weights": worse})

    simulation = deployed(NearCourier(devices, meddle), folder)
    assert_sound(simulation, devices)
    history = simulation.history
    assert set(history.rejections()) == {"not_finite", "wrong_type", "wrong_shape", "too_far"}
    assert not history.user_column("joined")[:, :4].any()
    assert history.user_column("joined")[:, 4].any()


def test_nonsense_in_headers_is_noted(tmp_path: Path) -> None:
    devices, folder = site(tmp_path)

    def meddle(user: int, request: Packet, answer: Packet) -> Packet | None:
        if user == 0 and request.header["kind"] == "identify":
            return Packet({"status": "ok", "identity": 99, "spent_gradient": float("nan"), "spent_identity": -4.0})
        if user == 1 and request.header["kind"] == "evaluate":
            return Packet({"status": "ok", "train_loss_sum": float("inf"), "test_correct": "many"})
        return Packet({"hello": "world"}) if user == 2 and request.header["round"] == 2 else answer

    simulation = deployed(NearCourier(devices, meddle), folder)
    assert_sound(simulation, devices)
    assert {row["status"] for row in incidents(folder)} == {"garbage"}
    assert np.isfinite(simulation.history.column("loss")).all()
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["deployment"]["incidents"]["garbage"] > 0


def test_a_device_whose_own_budget_is_empty_sits_out(tmp_path: Path) -> None:
    devices, folder = site(tmp_path)
    full = covey.simulate(small(), rounds=4, seed=0)
    # The device of user 3 may spend as much as two rounds cost.
    limit = full.records[1].users.rho[3] * 1.01
    devices[3].state.ledger.budget_rho[0] = limit
    simulation = deployed(NearCourier(devices), folder)
    assert_sound(simulation, devices)
    history = simulation.history
    assert devices[3].state.ledger.rho[0] <= limit
    assert history.ledger.rho[3] == pytest.approx(devices[3].state.ledger.rho[0])
    assert history.ledger.refusals[3] == 1
    assert simulation.state.exhausted[3]
    assert {(row["user"], row["status"]) for row in incidents(folder)} == {("3", "refused")}
    assert history.user_column("station")[3, 3] == -1


@pytest.mark.parametrize("noise", ["replay", "secure"])
def test_a_run_that_was_killed_goes_on_from_its_checkpoint(tmp_path: Path, noise: str) -> None:
    devices, folder = site(tmp_path, f"privacy.noise={noise}")

    class Killed(NearCourier):
        def exchange(self, requests):  # type: ignore[no-untyped-def]
            answers = super().exchange(requests)
            first = next(iter(requests.values())).header
            if first["round"] == 2 and first["kind"] == "train":
                raise KeyboardInterrupt  # answers of round 3 have left the devices and are lost
            return answers

    with pytest.raises(KeyboardInterrupt):
        deployed(Killed(devices), folder)
    spent = {user: device.state.ledger.rho[0] for user, device in devices.items()}
    restarted = open_devices(tmp_path / "site", 5, metrics=True)
    courier = NearCourier(restarted)
    simulation = deployed(courier, folder)
    assert_sound(simulation, restarted)
    assert len(simulation.history.records) == 4
    if noise == "replay":
        expected = covey.simulate(small(), rounds=4, seed=0)
        np.testing.assert_array_equal(simulation.history.models, expected.models)
        np.testing.assert_allclose(simulation.history.ledger.rho, expected.ledger.rho)
        np.testing.assert_allclose([d.state.ledger.rho[0] for d in restarted.values()], expected.ledger.rho)
    else:
        own = np.array([d.state.ledger.rho[0] for d in restarted.values()])
        assert (own >= np.array(list(spent.values()))).all()
    (folder / "deploy.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ResumeError, match="missing or damaged"):
        deployed(courier, folder)


def test_a_device_restored_from_a_backup_is_not_under_charged(tmp_path: Path) -> None:
    devices, folder = site(tmp_path, rounds=2)
    backup = tmp_path / "backup"
    shutil.copytree(tmp_path / "site" / "user-000", backup)
    first = deployed(NearCourier(devices), folder).history.ledger.rho[0]
    shutil.rmtree(tmp_path / "site" / "user-000")
    shutil.copytree(backup, tmp_path / "site" / "user-000")
    restored = open_devices(tmp_path / "site", 5, metrics=True)
    assert restored[0].state.ledger.rho[0] == 0
    settings = json.loads((folder / "deploy.json").read_text(encoding="utf-8"))
    run_folder(small(), folder, **(settings | {"rounds": 4}))
    simulation = deployed(NearCourier(restored), folder)
    assert_sound(simulation, restored)
    assert restored[0].state.ledger.rho[0] >= first
    assert restored[0].state.ledger.rho[0] == pytest.approx(simulation.history.ledger.rho[0])


def test_a_second_run_counts_what_the_first_one_spent(tmp_path: Path) -> None:
    devices, folder = site(tmp_path, rounds=2)
    first = deployed(NearCourier(devices), folder).history.ledger.rho
    again = run_folder(small(), tmp_path / "again", run="second", rounds=2)
    second = deployed(NearCourier(devices), again).history.ledger.rho
    np.testing.assert_allclose(second, 2 * first, rtol=1e-9)


def test_a_budget_of_the_scenario_counts_earlier_runs(tmp_path: Path) -> None:
    spent = covey.simulate(small(), rounds=2, seed=0).ledger.epsilon("zcdp").max()
    budget = f"privacy.budget_epsilon={spent * 1.001}"
    devices, folder = site(tmp_path, budget, rounds=2)
    assert deployed(NearCourier(devices), folder).history.column("refused_releases").sum() == 0
    again = run_folder(small(budget), tmp_path / "again", run="second", rounds=2)
    courier = NearCourier(devices)
    history = deployed(courier, again).history
    assert history.column("refused_releases").sum() > 0
    assert (history.ledger.rho <= history.ledger.budget_rho).all()


def test_a_run_without_metrics_and_groups_has_results_and_a_report(tmp_path: Path) -> None:
    devices, folder = site(tmp_path, metrics=False)
    courier = NearCourier(devices)
    simulation = deployed(courier, folder)
    assert not any(request.header["kind"] == "evaluate" for _, request, _ in courier.seen)
    expected = covey.simulate(small(), rounds=4, seed=0)
    np.testing.assert_array_equal(simulation.history.models, expected.models)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["final"]["loss"] is None
    assert summary["final"]["clustering_accuracy"] is None
    assert summary["privacy"]["unprotected_measurements"] == 0
    assert "nan" not in (folder / "rounds.csv").read_text(encoding="utf-8").lower()
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "nan" not in page.lower().replace("finance", "").split("base64")[0]


def test_metrics_are_labelled_in_summary_and_report(tmp_path: Path) -> None:
    devices, folder = site(tmp_path)
    simulation = deployed(NearCourier(devices), folder)
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["privacy"]["unprotected_measurements"] == 5 * 4
    assert any("accuracies" in note and "NOT protected" in note for note in summary["notes"])
    assert simulation.history.ledger.measured.sum() == 20


def test_devices_of_another_preparation_are_refused(tmp_path: Path) -> None:
    devices, _ = site(tmp_path)
    other = run_folder(small("privacy.v_max=13"), tmp_path / "other")
    with pytest.raises(DeployError, match="prepared for another scenario or seed"):
        deployed(NearCourier(devices), other)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (["security.mode=blind"], "use 'none' or 'masked'"),
        (["security.mode=masked", "privacy.identity=from_release"], "stations see no upload"),
        (["radio.loss_probability=0.1"], "set it"),
        (["clustering.rule=oracle"], "true groups are not known"),
    ],
)
def test_what_devices_cannot_do_is_refused(tmp_path: Path, override: list[str], words: str) -> None:
    devices, folder = site(tmp_path, *override)
    with pytest.raises(covey.CoveyError, match=words):
        deployed(NearCourier(devices), folder)


def test_masked_rounds_survive_users_who_drop_out_in_every_phase(tmp_path: Path) -> None:
    devices, folder = site(tmp_path, "security.mode=masked", "security.threshold=0.6")
    phases = ["keys", "shares", "upload", "counts"]

    def meddle(user: int, request: Packet, answer: Packet) -> Packet | None:
        gone = user == 1 and request.header["kind"] == phases[int(request.header["round"])]
        return None if gone else answer

    simulation = deployed(NearCourier(devices, meddle), folder)
    assert_sound(simulation, devices)
    assert simulation.history.column("served").sum() > 0
    assert (simulation.history.models != simulation.world.first_models).any()
    told = {(row["kind"], row["status"]) for row in incidents(folder)}
    assert ("keys", "silent") in told
    # Nobody's task is known to the server after the first round.
    assert (simulation.history.user_column("identity")[1:] == -1).all()


def test_packets_survive_the_wire_and_damage_is_noticed() -> None:
    packet = Packet({"a": 1, "b": 0.1, "c": "x", "d": True}, {"n/w": ("float32", (2,), bytes(8))})
    content = pack(packet)
    assert unpack(content) == packet
    for broken in (b"", content[:3], content[:-1], content + b"x", b"\xff" * 40, content.replace(b"[2]", b"[3]")):
        with pytest.raises(WireError):
            unpack(broken)
