"""One device: what it answers, what it charges, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.deploy.near import NearCourier, make_devices, open_devices, small

from covey.deploy import Device, DeviceFleet
from covey.deploy.app.wire import Packet
from covey.deploy.device_state import DeviceState
from covey.errors import DataError, OutputError, ScenarioError
from covey.federated.steps import bounded_scores
from covey.identification.noisy_max import identity_noise_scale, noisy_identities, score_width
from covey.privacy import GaussianReleases, Ledger, read_journal, release_rho
from covey.privacy.sampled import SampledSums


class Recorder(NearCourier):
    """Keeps the requests."""


def request_for(devices: dict[int, Device], **changes: object) -> Packet:
    """A training request of round 1 to user 0, as the fleet makes it."""
    scenario = devices[0].scenario
    courier = Recorder({})
    fleet = DeviceFleet(courier, scenario, "run")
    rng = np.random.default_rng(0)
    models = rng.normal(size=(scenario.network.tasks, devices[0].weights)).astype(np.float32)
    fleet.publish(models, np.zeros_like(models))
    header = {
        "task": 0, "station": 0, "block": 0, "clip": 1.0, "noise": 20.0, "learning_rate": 0.1, "batch": 0,
        "purpose": "noise", "metrics": False,
    }  # fmt: skip
    packet = fleet._request("train", 0, header, {})  # type: ignore[arg-type]
    return replace(packet, header=packet.header | changes)  # type: ignore[arg-type]


@pytest.fixture
def devices(tmp_path: Path) -> dict[int, Device]:
    return make_devices(small("privacy.noise=secure"), 0, tmp_path)


def again(tmp_path: Path, **settings: object) -> dict[int, Device]:
    """The same devices after a restart."""
    return open_devices(tmp_path, 5, **settings)


def test_the_same_request_gets_the_same_bytes_and_is_charged_once(devices: dict[int, Device], tmp_path: Path) -> None:
    request = request_for(devices)
    first = devices[0].answer(request)
    assert first.header["status"] == "ok"
    cost = float(release_rho(np.array([1.0]), np.array([20.0]), "replace_one")[0])
    assert devices[0].state.ledger.rho[0] == pytest.approx(cost)
    # Also after a restart, and when the server's mirror has grown in between.
    restarted = again(tmp_path)[0]
    second = restarted.answer(replace(request, header=request.header | {"spent_gradient": cost}))
    assert second.arrays == first.arrays
    assert restarted.state.ledger.rho[0] == pytest.approx(cost)


def test_another_request_of_an_answered_round_is_refused_and_costs_nothing(devices: dict[int, Device]) -> None:
    device = devices[0]
    device.answer(request_for(devices))
    spent = device.state.ledger.rho[0]
    for change in ({"noise": 30.0}, {"clip": 0.5}, {"task": 1}, {"learning_rate": 0.2}):
        answer = device.answer(request_for(devices, **change))
        assert answer.header["status"] == "answered"
        assert not answer.arrays
    assert device.state.ledger.rho[0] == spent


def test_a_round_that_is_over_is_refused(devices: dict[int, Device]) -> None:
    device = devices[0]
    assert device.answer(request_for(devices, round=4)).header["status"] == "ok"
    assert device.answer(request_for(devices, round=3)).header["status"] == "stale"
    assert device.answer(request_for(devices, round=3, run="another")).header["status"] == "ok"
    assert device.answer(request_for(devices, round=3)).header["status"] == "stale"


def test_a_charge_is_on_disk_before_anything_leaves(
    devices: dict[int, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = devices[0]
    journal = device.folder.private / "ledger.jsonl"
    work = device._work

    def crash(*given: object) -> object:
        assert len(read_journal(journal)) == 1
        raise RuntimeError("power cut")

    monkeypatch.setattr(work, "train", crash)
    assert device.answer(request_for(devices)).header["status"] == "failed"
    # What might have left is charged; the next attempt is a release of its own.
    monkeypatch.undo()
    assert device.answer(request_for(devices)).header["status"] == "ok"
    assert len(read_journal(journal)) == 2


def test_an_empty_budget_refuses_and_nothing_leaves(devices: dict[int, Device], tmp_path: Path) -> None:
    poor = again(tmp_path, budget_epsilon=0.01)[0]
    answer = poor.answer(request_for(devices, noise=5.0))
    assert answer.header["status"] == "refused"
    assert not answer.arrays
    assert poor.state.ledger.rho[0] == 0
    assert poor.state.ledger.refusals[0] == 1
    assert again(tmp_path, budget_epsilon=0.01)[0].state.ledger.refusals[0] == 1


def test_a_device_that_comes_back_with_an_older_state_takes_the_larger_total(
    devices: dict[int, Device], tmp_path: Path
) -> None:
    device = devices[0]
    answer = device.answer(request_for(devices, spent_gradient=0.7, spent_identity=0.1))
    cost = float(release_rho(np.array([1.0]), np.array([20.0]), "replace_one")[0])
    assert answer.header["spent_gradient"] == pytest.approx(0.7 + cost)
    assert answer.header["spent_identity"] == pytest.approx(0.1)
    assert again(tmp_path)[0].state.ledger.rho[0] == pytest.approx(0.8 + cost)
    # A server that knows less does not lower it.
    device.answer(request_for(devices, round=1))
    assert device.state.ledger.spent["gradient"][0] == pytest.approx(0.7 + 2 * cost)


def test_noise_below_the_devices_own_floor_is_refused(devices: dict[int, Device]) -> None:
    for noise in (0.0, 1e-3, float("nan"), -1.0):
        answer = devices[0].answer(request_for(devices, noise=noise))
        assert answer.header["status"] == "noise"
    assert devices[0].state.ledger.rho[0] == 0


def test_losses_leave_only_with_the_owners_consent(devices: dict[int, Device], tmp_path: Path) -> None:
    asked = {"kind": "evaluate", "metrics": True}
    assert devices[0].answer(request_for(devices, **asked)).header["status"] == "metrics"
    assert "mean_norm" not in devices[0].answer(request_for(devices, metrics=True)).header
    open_minded = again(tmp_path, metrics=True)[0]
    told = open_minded.answer(request_for(devices, **asked))
    assert told.header["status"] == "ok"
    assert open_minded.state.ledger.measured[0] == 1


def test_models_that_are_missing_are_asked_for(devices: dict[int, Device]) -> None:
    bare = replace(request_for(devices), arrays={})
    assert devices[0].answer(bare).header["status"] == "models"
    assert devices[0].answer(request_for(devices)).header["status"] == "ok"


def test_nonsense_gets_a_status_and_changes_nothing(devices: dict[int, Device]) -> None:
    good = request_for(devices)
    broken = {
        "stranger": replace(good, header=good.header | {"user": 3}),
        "unknown": replace(good, header=good.header | {"kind": "format the disk"}),
        "failed": replace(good, arrays=good.arrays | {"model-1/weights": ("float32", (3,), bytes(12))}),
    }
    for status, packet in broken.items():
        assert devices[0].answer(packet).header["status"] == status
    assert devices[0].answer(Packet({"kind": "train"})).header["status"] == "failed"
    assert devices[0].state.ledger.rho[0] == 0


def test_announced_identities_are_charged_and_raw_ones_are_labelled(tmp_path: Path) -> None:
    raw = make_devices(small(), 0, tmp_path / "raw")
    assert raw[0].answer(request_for(raw, kind="identify", round=1)).header["identity"] in (0, 1)
    assert raw[0].state.ledger.unprotected[0] == 1
    assert raw[0].state.ledger.rho[0] == 0
    masked = make_devices(small("security.mode=masked"), 0, tmp_path / "masked")
    assert "identity" not in masked[0].answer(request_for(masked, kind="identify", round=1)).header
    assert masked[0].state.ledger.unprotected[0] == 1
    noisy = make_devices(small("privacy.identity=noisy_max"), 0, tmp_path / "noisy")
    told = noisy[0].answer(request_for(noisy, kind="announce", round=1))
    assert told.header["identity"] in (0, 1)
    assert noisy[0].state.ledger.spent["identity"][0] == pytest.approx(0.02)


@pytest.mark.parametrize("identity", ["noisy_losses", "noisy_contrasts"])
def test_nothing_but_the_noised_vector_leaves_a_device(tmp_path: Path, identity: str) -> None:
    vectors = ["clustering.rule=loss_vectors", f"privacy.identity={identity}"]
    devices = make_devices(small(*vectors), 0, tmp_path)
    device, told = devices[0], []
    for rho in (1e-9, 1e9):  # what the server asks for changes nothing
        request = request_for(devices, kind="announce", round=1, identity_rho=rho)
        told.append(device.answer(request))
    assert device.state.ledger.spent["identity"][0] == pytest.approx(0.02)
    assert told[0].header["status"] == "ok"
    assert told[1].header["status"] == "answered"
    assert set(told[0].arrays) == {"identity/told"}
    assert set(told[0].header) == {"status", "user", "spent_gradient", "spent_identity", "held"}
    kind, shape, data = told[0].arrays["identity/told"]
    assert (kind, shape) == ("float64", (2,))
    # With so small a rho the same losses are hidden behind 1,000 times the noise.
    noisier = make_devices(small(*vectors, "privacy.identity_rho=2e-8"), 0, tmp_path / "noisier")
    _, _, hidden = noisier[0].answer(request_for(noisier, kind="announce", round=1)).arrays["identity/told"]
    assert np.abs(np.frombuffer(hidden)).max() > 10 * np.abs(np.frombuffer(data)).max()


def test_a_device_that_tells_more_numbers_silences_nobody_else(tmp_path: Path) -> None:
    scenario = small("clustering.rule=loss_vectors", "privacy.identity=noisy_contrasts")
    numbers = {user: np.arange(2.0) + user for user in range(scenario.network.users)}
    numbers[1] = np.arange(5.0)

    class Liars:
        def exchange(self, requests: Any) -> dict[int, Packet]:
            return {
                user: Packet({"status": "ok"}, {"identity/told": ("float64", told.shape, told.tobytes())})
                for user, told in numbers.items()
                if user in requests
            }

    fleet = DeviceFleet(Liars(), scenario, "run")
    fleet.publish(np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32))
    found = fleet.tell(1, np.arange(len(numbers)))
    assert found is not None
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(np.delete(found, 1, axis=0), [numbers[user] for user in numbers if user != 1])


@pytest.mark.parametrize(("rule", "weight"), [("gradient_loss", 0.2), ("loss", 0.0)])
def test_the_server_has_no_say_in_the_noise_of_an_announcement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rule: str, weight: float
) -> None:
    devices = make_devices(small("privacy.identity=noisy_max", f"clustering.rule={rule}"), 0, tmp_path)
    device, drawn = devices[0], []

    def scores(*given: Any, **bounds: Any) -> Any:
        drawn.append(bounds["similarity_weight"])
        return bounded_scores(*given, **bounds)

    def noisy(scores: Any, scale: Any, normals: Any) -> Any:
        drawn.append(float(scale[0]))
        return noisy_identities(scores, scale, normals)

    monkeypatch.setattr("covey.federated.steps.bounded_scores", scores)
    monkeypatch.setattr("covey.identification.noisy_max.noisy_identities", noisy)
    for number, asked in enumerate((weight, 3.0, -7.0, float("nan"))):
        request = request_for(devices, kind="announce", round=number + 1, similarity_weight=asked, rule="printed_sign")
        assert device.answer(request).header["status"] == "ok"
    privacy = device.scenario.privacy
    width = score_width(weight, privacy.loss_bound, replaced=True)
    scale = identity_noise_scale(np.array([device.samples]), width, privacy.identity_rho)[0]
    assert scale > 0
    assert drawn == [weight, pytest.approx(scale)] * 4


@pytest.mark.parametrize(
    ("overrides", "kind"),
    [
        (["privacy.identity=noisy_max"], "identify"),
        (["privacy.identity=from_release"], "identify"),
        (["privacy.identity=from_release"], "announce"),
        (["privacy.identity=noisy_max", "security.mode=masked"], "identify"),
        (["privacy.identity=raw"], "announce"),
        (["clustering.rule=kmeans"], "identify"),
    ],
)
def test_a_task_is_told_only_as_the_devices_own_scenario_says(tmp_path: Path, overrides: list[str], kind: str) -> None:
    devices = make_devices(small(*overrides), 0, tmp_path)
    request = request_for(devices, kind=kind, round=1, rule="loss", similarity_weight=0.2, batch=0)
    answer = devices[0].answer(request)
    assert answer.header["status"] == "identity"
    assert "identity" not in answer.header
    assert devices[0].state.ledger.rho[0] == 0
    assert not devices[0].state.identity


@pytest.mark.parametrize(
    "change",
    [
        {"task": 99},
        {"task": -1},  # without the weights to step from instead of a task's
        {"batch": -1},
        {"batch": 5},  # not that of the device's own scenario, which its charge is made for
        {"learning_rate": float("nan")},
        {"learning_rate": 0.0},
        {"clip": float("inf")},
        {"noise": float("inf")},
        {"spent_gradient": float("inf")},
        {"spent_identity": float("nan")},
        {"spent_gradient": -1.0},
    ],
    ids=str,
)
def test_a_request_that_cannot_be_fulfilled_costs_nothing(
    devices: dict[int, Device], change: dict[str, object]
) -> None:
    answer = devices[0].answer(request_for(devices, **change))
    assert answer.header["status"] in ("failed", "noise")
    assert not answer.arrays
    assert devices[0].state.ledger.rho[0] == 0
    assert devices[0].answer(request_for(devices)).header["status"] == "ok"


def test_a_disk_that_fails_is_an_answer_too(devices: dict[int, Device]) -> None:
    answers = devices[0].folder.private / "answers"
    answers.write_text("a file in the way", encoding="utf-8")
    answer = devices[0].answer(request_for(devices))
    assert answer.header["status"] == "failed"
    assert answer.header["reason"] == "FileExistsError; the log of this device says more"
    answers.unlink()
    assert devices[0].answer(request_for(devices)).header["status"] == "ok"


@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyError])
def test_what_a_computation_says_stays_on_the_device(
    devices: dict[int, Device],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: type[Exception],
) -> None:
    def fail(*given: object, **named: object) -> None:
        raise error("sample 3 is of class 7")

    monkeypatch.setattr("covey.federated.training.step.noised_step", fail)
    answer = devices[0].answer(request_for(devices))
    assert answer.header["status"] == "failed"
    assert answer.header["reason"] == f"{error.__name__}; the log of this device says more"
    assert "sample 3 is of class 7" in capsys.readouterr().err
    told = devices[0].answer(request_for(devices, round="first"))
    assert "first" in str(told.header["reason"])


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_is_a_number_above_0(devices: dict[int, Device], tmp_path: Path, budget: float) -> None:
    with pytest.raises(ScenarioError, match="it must be a number above 0"):
        again(tmp_path, budget_epsilon=budget)


def test_a_damaged_journal_stops_the_device(devices: dict[int, Device], tmp_path: Path) -> None:
    devices[0].answer(request_for(devices))
    journal = devices[0].folder.private / "ledger.jsonl"
    journal.write_bytes(b"rubbish\n" + journal.read_bytes())
    with pytest.raises(DataError, match="what this device has spent is not known"):
        again(tmp_path)


def test_wrong_data_are_named(tmp_path: Path) -> None:
    devices = make_devices(small(), 0, tmp_path)
    path = devices[0].folder.path / "data.npz"
    np.savez(path, x=np.zeros((2, 1, 8, 8)), y=np.zeros(2, int), test_x=np.zeros((1, 1, 8, 8)), test_y=np.zeros(1, int))
    with pytest.raises(DataError, match="x must be float32"):
        again(tmp_path)
    path.write_bytes(b"PK nonsense")
    with pytest.raises(DataError, match="cannot be read"):
        again(tmp_path)
    x, y = np.zeros((51, 1, 8, 8), np.float32), np.zeros(51, int)
    np.savez(path, x=x, y=y, test_x=x[:5], test_y=y[:5])
    with pytest.raises(DataError, match=r"51 samples, but the scenario allows 50.*data\.samples_max"):
        again(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        again(tmp_path)
    with pytest.raises(OutputError, match="already holds a deployment"):
        make_devices(small(), 0, tmp_path)


def test_mirror_of_the_server_is_raised_to_the_devices_total() -> None:
    ledger = Ledger(3)
    ledger.charge([0, 1, 2], 0.5)
    raised = ledger.raise_to({"gradient": np.array([np.nan, 0.2, 0.9])})
    np.testing.assert_allclose(raised.rho, [0.5, 0.5, 0.9])


def test_sampled_sums_of_a_device_survive_a_kill_and_older_backups(tmp_path: Path) -> None:
    privacy = small("privacy.adjacency=add_remove").privacy
    one = np.ones(1)
    sums = GaussianReleases(2.0 * one, one, 0.1 * one, np.array([5]))
    state = DeviceState(tmp_path / "device", privacy, 2.0, sums)
    for number in range(3):
        assert state.charge(number, "gradient", sums)
    # Nothing is saved but the journal: the process is gone.
    again = DeviceState(tmp_path / "device", privacy, 2.0, sums)
    assert again.ledger.to_dict() == state.ledger.to_dict()
    # A device whose folder is an old backup learns from the server what it lacks, once.
    old = DeviceState(tmp_path / "old", privacy, 2.0, sums)
    old.charge(0, "gradient", sums)
    told = SampledSums.decoded(state.ledger.sampled.encoded(0), 0)
    for _ in range(2):
        old.raise_to(3, {}, told)
    assert old.ledger.sampled == state.ledger.sampled
    assert DeviceState(tmp_path / "old", privacy, 2.0, sums).ledger.sampled == state.ledger.sampled
    # And the server raises its own to what devices say.
    server = Ledger(2, adjacency="add_remove").raise_to({"sampled": SampledSums.decoded(told.encoded(0), 1).rows})
    assert server.epsilon()[1] == pytest.approx(state.ledger.epsilon()[0])
    assert server.epsilon()[0] == 0
    # A charge for other neighbours is refused when the folder is opened.
    with pytest.raises(DataError, match="do not add up"):
        DeviceState(tmp_path / "device", small().privacy, 2.0)
    while state.charge(4, "gradient", sums):
        pass
    assert state.ledger.epsilon()[0] <= 2.0


def without_a_sample(folder: Path) -> None:
    """Take the last training sample out of a device's folder."""
    with np.load(folder / "data.npz") as file:
        held = dict(file)
    np.savez(folder / "data.npz", **(held | {"x": held["x"][:-1], "y": held["y"][:-1]}))


def test_a_sample_less_shows_neither_in_what_a_device_declares_nor_in_what_it_pays(tmp_path: Path) -> None:
    told = []
    settings = ["privacy.adjacency=add_remove", "clustering.rule=loss_vectors", "privacy.identity=noisy_losses"]
    for name in ("all", "fewer"):
        devices = make_devices(small(*settings), 0, tmp_path / name)
        if name == "fewer":
            declared = devices[0].samples
            without_a_sample(tmp_path / name / "user-000")
            devices = open_devices(tmp_path / name, 5)
            assert devices[0].samples == declared
        hello = devices[0].answer(Packet({"kind": "hello"})).header
        vector = devices[0].answer(request_for(devices, kind="announce", round=1))
        upload = devices[0].answer(request_for(devices, round=1))
        assert vector.header["status"] == upload.header["status"] == "ok"
        told.append((hello, devices[0].state.ledger.rho[0], vector.arrays["identity/told"]))
    assert told[0][:2] == told[1][:2]
    assert told[0][2] != told[1][2]
    # The noise is that of the same seed, so that what is left is what the sample moved.
    moved = np.linalg.norm(np.frombuffer(told[0][2][2]) - np.frombuffer(told[1][2][2]))
    privacy = small(*settings).privacy
    assert moved <= np.sqrt(2) * privacy.loss_bound / 2 / told[0][0]["samples"] * (1 + 1e-9)


def test_a_device_under_add_remove_has_to_declare_its_samples(tmp_path: Path) -> None:
    make_devices(small("privacy.adjacency=add_remove"), 0, tmp_path)
    about = tmp_path / "user-000" / "device.json"
    given = json.loads(about.read_text())
    for samples in (0, 10**9, None):
        about.write_text(json.dumps(given | {"samples": samples}))
        with pytest.raises(DataError, match="declare" if samples is not None else "chosen without looking at the data"):
            open_devices(tmp_path, 5)
    plain = make_devices(small(), 0, tmp_path / "plain")
    assert "samples" not in json.loads((tmp_path / "plain" / "user-000" / "device.json").read_text())
    without_a_sample(tmp_path / "plain" / "user-000")
    assert open_devices(tmp_path / "plain", 5)[0].samples == plain[0].samples - 1
