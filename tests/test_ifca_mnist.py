"""IFCA's setting on rotated MNIST: what is dealt, that rounds are IFCA, that runs go on, what was measured."""

from __future__ import annotations

import itertools
import json
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from covey.data import Dataset, UserData
from covey.errors import ScenarioError
from covey.federated import build_model, initial_weights
from covey.federated.models import flatten, load_flat
from covey.scenario import Scenario
from covey.simulation import Simulation

ROOT = Path(__file__).parents[1]
SMALL = ("network.users=8", "network.blocks=8", "model.hidden=[12]", "training.rounds=4")


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "experiments")
    return import_module("ifca_mnist")


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "experiments")
    return import_module("ifca_mnist_page")


def digits(count: int = 60, test: int = 20) -> Dataset:
    """Pictures that are bright in the row of their class and, at the left, spell their number."""
    rows = np.arange(count + test)
    x = np.zeros((len(rows), 1, 28, 28), np.uint8)
    x[rows, 0, rows % 10 + 9, 4:24] = 200
    x[rows, 0, 0, 13] = rows
    return Dataset("mnist", x, rows % 10, rows >= count, tuple("0123456789"))


def dealt(study: ModuleType, seed: int = 0, method: str = "ifca", *overrides: str) -> tuple[Scenario, UserData]:
    scenario = study.scenario_of(method, *SMALL, *overrides)
    return scenario, study.deal(digits(), scenario, seed)


def test_every_group_holds_all_images_in_an_order_of_its_own(study: ModuleType) -> None:
    _, data = dealt(study)
    assert data.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.samples.tolist() == [30] * 8
    assert np.diff(data.test_offsets).tolist() == [10] * 8
    orders = []
    for group in range(4):
        rows, held_out = slice(60 * group, 60 * group + 60), slice(20 * group, 20 * group + 20)
        # Turned back by their angle, images say which they are.
        numbers = np.rint(np.rot90(data.x[rows], -group, axes=(2, 3))[:, 0, 0, 13] * 255).astype(int)
        assert sorted(numbers) == list(range(60))
        assert data.y[rows].tolist() == (numbers % 10).tolist()
        orders.append(numbers.tolist())
        tested = np.rint(np.rot90(data.test_x[held_out], -group, axes=(2, 3))[:, 0, 0, 13] * 255).astype(int)
        assert tested.tolist() == list(range(60, 80))
        assert data.test_y[held_out].tolist() == (tested % 10).tolist()
    assert len({tuple(order) for order in orders}) == 4
    assert data.x.max() == np.float32(200) / np.float32(255)
    assert not np.array_equal(dealt(study, seed=1)[1].y, data.y)


def test_machines_that_cannot_share_images_equally_are_refused(study: ModuleType) -> None:
    with pytest.raises(ScenarioError, match="28 machines cannot share 60 images"):
        dealt(study, 0, "ifca", "network.users=28", "network.blocks=28")


def test_the_scenario_is_the_published_one(study: ModuleType, page: ModuleType) -> None:
    scenario = study.scenario_of("ifca")
    training = scenario.training
    assert (scenario.network.users, scenario.network.tasks, scenario.model.hidden) == (1200, 4, (200,))
    assert (training.rounds, training.steps, training.batch) == (page.ROUNDS, study.STEPS, 0)
    assert (training.learning_rate, training.schedule, training.momentum) == (0.1, "constant", 0.0)
    assert study.scenario_of("global").network.tasks == 1
    assert study.LOCAL_STEPS == 10 * study.STEPS


def losses_of(module: torch.nn.Module, weights: np.ndarray, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    load_flat(module, weights)
    with torch.no_grad():
        return functional.cross_entropy(module(x), y, reduction="none")


def stepped(module: torch.nn.Module, weights: np.ndarray, x: torch.Tensor, y: torch.Tensor, steps: int) -> np.ndarray:
    load_flat(module, weights)
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(steps):
        optimiser.zero_grad()
        functional.cross_entropy(module(x), y).backward()
        optimiser.step()
    return flatten(module)


def machine(data: UserData, user: int) -> tuple[torch.Tensor, torch.Tensor]:
    rows = slice(data.offsets[user], data.offsets[user + 1])
    return torch.from_numpy(data.x[rows]), torch.from_numpy(data.y[rows])


@pytest.mark.parametrize("method", ["ifca", "global"])
def test_rounds_are_those_of_a_plain_loop(study: ModuleType, method: str) -> None:
    scenario, data = dealt(study, 2, method)
    module, tasks = build_model(scenario.model, data.shape, 10), scenario.network.tasks
    models, chosen = initial_weights(module, tasks, 2), []
    with Simulation(scenario, "greedy", seed=2, data=data) as simulation:
        for _ in range(3):
            record = simulation.play()
            losses = [[float(losses_of(module, w, *machine(data, user)).mean()) for w in models] for user in range(8)]
            chosen = np.argmin(losses, axis=1).tolist()
            assert record.users.identity.tolist() == chosen
            updates = [stepped(module, models[task], *machine(data, user), 10) for user, task in enumerate(chosen)]
            models = np.array(
                [
                    np.mean([u for u, task in zip(updates, chosen, strict=True) if task == k] or [models[k]], axis=0)
                    for k in range(tasks)
                ]
            )
            np.testing.assert_allclose(simulation.state.models, models, atol=3e-6)
    assert len(set(chosen)) > 1 or tasks == 1


def test_test_machines_choose_by_the_loss_on_their_own_images(study: ModuleType) -> None:
    scenario, data = dealt(study, 0, "ifca", "network.users=24", "network.blocks=24")
    module = build_model(scenario.model, data.shape, 10)
    models = np.stack(
        [
            stepped(module, initial_weights(module, 4, 0)[k], *(torch.from_numpy(a[60 * k : 60 * k + 60])
                    for a in (data.x, data.y)), 60)
            for k in range(4)
        ]
    )  # fmt: skip
    right, chosen = 0, []
    # 20 test images of a group in machines of 10, as many as a training machine has.
    for begin in range(0, 80, 10):
        x, y = (torch.from_numpy(a[begin : begin + 10]) for a in (data.test_x, data.test_y))
        chosen.append(int(np.argmin([losses_of(module, weights, x, y).mean() for weights in models])))
        load_flat(module, models[chosen[-1]])
        right += int((module(x).argmax(1) == y).sum())
    judged = study.Judges(data, scenario).judge(models)
    assert chosen == [0, 0, 1, 1, 2, 2, 3, 3]
    assert judged == study.Judged(right / 80, 1.0, 4)
    swapped = study.Judges(data, scenario).judge(models[[1, 0, 2, 2]])
    assert (swapped.used, swapped.right) == (3, 0.75)
    assert swapped.accuracy < judged.accuracy


def ticking(step: float) -> Any:
    """A clock that goes on by `step` whenever it is read."""
    ticks = itertools.count()
    return SimpleNamespace(perf_counter=lambda: step * next(ticks), process_time=lambda: 0.0)


def without_times(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{name: value for name, value in row.items() if not name.endswith("seconds")} for row in rows]


def test_a_run_that_is_stopped_goes_on(study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = study.scenario_of("ifca", *SMALL)

    def play(name: str, seconds: float) -> list[dict[str, float]]:
        return study.play(
            "ifca", digits(), scenario, 0, work=tmp_path / f"{name}-work", out=tmp_path / name, seconds=seconds
        )

    whole = play("whole", 1e9)
    assert [row["round"] for row in whole] == [0, 1, 2, 3, 4]
    monkeypatch.setattr(study, "time", ticking(1.0))
    first = play("parts", 3.0)
    assert 1 < len(first) < 4
    path = tmp_path / "parts/ifca-seed0.json"
    written = json.loads(path.read_text())
    # Killed between the results and the checkpoint: one row too many.
    path.write_text(json.dumps(written | {"rows": [*written["rows"], {"round": len(first), "accuracy": -1.0}]}))
    monkeypatch.undo()
    rest = play("parts", 1e9)
    assert without_times(rest) == without_times(whole) == without_times(json.loads(path.read_text())["rows"])
    assert play("parts", 1e9) == rest, "nothing is left to play"


def test_a_round_that_clips_or_leaves_machines_out_is_refused(study: ModuleType, tmp_path: Path) -> None:
    for override, text in (("network.blocks=5", "3 machines were not served"), ("training.clip=0.01", "100% of")):
        scenario = study.scenario_of("ifca", *SMALL, override)
        with pytest.raises(ScenarioError, match=text):
            study.play("ifca", digits(), scenario, 0, work=tmp_path / text, out=tmp_path, seconds=1e9)


def test_local_models_train_alone_and_once(study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, data = dealt(study)
    monkeypatch.setattr(study, "LONGER_SHARE", 3)
    study.alone(digits(), scenario, 0, out=tmp_path)
    found = json.loads((tmp_path / "local-seed0.json").read_text())["machines"]
    assert {user: len(values) for user, values in found.items()} == {
        str(user): 10 if user % 3 == 0 else 1 for user in range(8)
    }
    module = build_model(scenario.model, data.shape, 10)
    for user in (3, 5):
        weights = stepped(module, initial_weights(module, 8, 0)[user], *machine(data, user), 100)
        load_flat(module, weights)
        group = slice(20 * (user // 2), 20 * (user // 2) + 20)
        right = module(torch.from_numpy(data.test_x[group])).argmax(1).numpy() == data.test_y[group]
        assert found[str(user)][0] == pytest.approx(right.mean())
    monkeypatch.setattr(study, "_train_alone", lambda *given: [] if not given[3] else pytest.fail("trained again"))
    study.alone(digits(), scenario, 0, out=tmp_path)


def test_the_speed_of_three_ways_to_the_same_weights(study: ModuleType, tmp_path: Path) -> None:
    study.measure_speed(digits(), study.scenario_of("ifca", *SMALL), out=tmp_path, machines=4)
    found = json.loads((tmp_path / "speed.json").read_text())
    assert found["machines"] == 3
    assert set(found["milliseconds"]) == {"plain", "single", "together"}
    assert 0 < found["difference"] < 1e-5 < 0.01 < found["moved"]


def test_what_was_measured(page: ModuleType) -> None:
    found = page.read_results(ROOT / "results/ifca_mnist")
    assert set(found.runs) == set(page.METHODS)
    ifca, both = found.last("ifca"), min(found.last("ifca"), found.last("global"))
    assert found.at("ifca", ifca, "clustering_accuracy").min() == 1
    assert (found.at("ifca", both, "accuracy") > found.at("global", both, "accuracy")).all()
    # The authors' local models: no rounds are missing here.
    assert found.machines(0).mean() == pytest.approx(page.PUBLISHED["local"][0], abs=0.01)


def test_the_page_says_how_far_runs_are(page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"round": number, "accuracy": 0.1 * number, "loss": 1.0, "clustering_accuracy": 0.5 if number < 2 else 1.0,
         "models_used": 4, "test_machines_right": 1.0, "seconds": 36.0, "processor_seconds": 9.0}
        for number in range(4)
    ]  # fmt: skip
    run = {"method": "ifca", "seed": 3, "versions": {"covey": "1"}, "rows": rows}
    (tmp_path / "ifca-seed3.json").write_text(json.dumps(run))
    text = page.render_page(tmp_path)
    assert "| IFCA (`loss`), four models | 1 | 3 | 30.00 | - | 95.25 ± 0.40 | - |" in text
    assert "- IFCA, seed 3: all were right from round 2 on; no model was lost." in text
    # 297 rounds of 36 seconds, or of 9.
    assert "| 3 | 297 | 9.0 | 36.0 | 100 | 3.0 h | 0.7 h |" in text
    rows[3] |= {"clustering_accuracy": 0.75, "models_used": 3}
    (tmp_path / "ifca-seed3.json").write_text(json.dumps(run))
    text = page.render_page(tmp_path)
    assert "all were right in round 2, but not in all rounds after it; only 3 of 4 models were used" in text
    (tmp_path / "global-seed3.json").write_text(json.dumps(run | {"method": "global", "rows": rows[:3]}))
    assert "After 2 rounds, the last that both have played, IFCA is at 20.00, one model at 20.00." in (
        page.render_page(tmp_path)
    )
    monkeypatch.setattr(page, "ROUNDS", 3)
    text = page.render_page(tmp_path)
    assert "| 95.25 ± 0.40 | -65.25 |" in text
    assert "| 89.73 ± 0.13 | - |" in text, "one round is missing"
    (tmp_path / "ifca-seed4.json").write_text(json.dumps(run | {"seed": 4}))
    assert "| 2 | 3 | 30.00 | 30.00 to 30.00 |" in page.render_page(tmp_path)
