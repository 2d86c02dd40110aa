"""Forms: the same sentences as on the command line, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.conftest import Client, write_run

from covey.cli.main import main
from covey.errors import ScenarioError
from covey.parts import ALGORITHMS, DATASETS, POLICIES
from covey.scenario import load_scenario


def check(client: Client, **form: Any) -> dict[str, Any]:
    answer = client.post("/api/check", json=form)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_the_default_form_may_be_started(client: Client) -> None:
    answer = check(client)
    assert answer["ok"] is True
    assert answer["command"] == "covey run quick --policy greedy --seed 0"


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("network.userss=3", "network.userss"),
        ("network.tasks=20", "network"),
        ("privacy.v_max=-1", "privacy.v_max"),
        ("privacy.n_min=1e9", ""),
        ("network.users=1.5", "network.users"),
        ("users", None),
        ("name.x=3", None),
        ("data.name=folder", "data"),
    ],
)
def test_wrong_values_get_the_sentence_of_the_command_line(client: Client, override: str, key: str | None) -> None:
    answer = check(client, preset="quick", overrides=["network.blocks=3", override])
    with pytest.raises(ScenarioError) as error:
        load_scenario("quick", ["network.blocks=3", override])
    assert answer["ok"] is False
    assert answer["sentence"] == str(error.value)
    if key is not None:
        assert answer["problems"][0]["key"] == key
        assert answer["problems"][0]["sentence"] in answer["sentence"]


def test_all_problems_are_told_by_key(client: Client) -> None:
    answer = check(client, overrides=["privacy.v_max=-1", "training.rounds=0", "radio.fading=rain"])
    assert [problem["key"] for problem in answer["problems"]] == ["radio.fading", "training.rounds", "privacy.v_max"]
    assert "(and 2 more problems)" in answer["sentence"]
    assert "(and 1 more problem)" in check(client, overrides=["privacy.v_max=-1", "training.rounds=0"])["sentence"]


def test_a_key_goes_back_to_its_default(client: Client) -> None:
    assert load_scenario("campus", ["network.station_positions_m=default"]).network.station_positions_m is None
    assert check(client, preset="campus", overrides=["network.stations=3", "network.station_positions_m=default"])["ok"]
    assert not check(client, preset="campus", overrides=["network.stations=3"])["ok"]


def test_the_command_does_the_same(client: Client) -> None:
    form = {
        "overrides": ["data.name=synthetic", "network.task_sets=[[0, 1], [1, 2], [2, 3], [3, 0]]"],
        "policy": "random", "rounds": 2, "seed": 5, "name": "mine",
    }  # fmt: skip
    assert check(client, **form)["command"] == (
        "covey run quick --set data.name=synthetic --set 'network.task_sets=[[0, 1], [1, 2], [2, 3], [3, 0]]'"
        " --policy random --rounds 2 --seed 5 --out mine"
    )
    training = {"kind": "training", "learner": ["algorithm=iql", "epochs=3"], "learning": "real"}
    assert check(client, **training)["command"] == (
        "covey train quick --learner algorithm=iql --learner epochs=3 --learning real --seed 0"
    )


def test_policies(client: Client, folder: Path) -> None:
    assert "local_search" in check(client, policy="best")["sentence"]
    assert "tasks" in check(client, policy="dpvd", overrides=["security.mode=masked"])["sentence"]
    assert check(client, policy="dpvd")["ok"]
    assert "no run or training" in check(client, policy_of="nothing")["sentence"]
    path = write_run(folder, "learned")
    assert "policy.safetensors" in check(client, policy_of="learned")["sentence"]
    (path / "policy.safetensors").write_bytes(b"")
    answer = check(client, policy_of="learned")
    assert answer["ok"]
    assert "--policy learned/policy.safetensors" in answer["command"]


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (["epochs=0"], "greater than or equal to 1"),
        (["speed=3"], "no learner setting 'speed'"),
        (["epochs"], "not of the form key=value"),
        (["epochs= "], "valid integer"),
        (["epochs=default"], None),
        (["raw_reward=true"], "exclude each other"),
    ],
)
def test_learner_settings_get_the_sentence_of_the_command_line(
    client: Client, learner: list[str], words: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = check(client, kind="training", learner=learner)
    assert answer["ok"] is (words is None)
    if words is not None:
        assert words in answer["sentence"]
        with pytest.raises(SystemExit):
            main(["train", "quick", "--learner", learner[0]])
        assert answer["sentence"] in " ".join(capsys.readouterr().err.split())


def test_a_training_needs_a_calibration_or_real_rounds(client: Client) -> None:
    changed = ["training.learning_rate=0.123"]
    assert "covey calibrate" in check(client, kind="training", overrides=changed)["sentence"]
    assert check(client, kind="training", overrides=changed, learning="real")["ok"]


def test_a_scenario_can_come_from_an_entry(client: Client, folder: Path) -> None:
    write_run(folder, "group/a", overrides=("network.users=9",))
    assert check(client, entry="group/a")["ok"]
    answer = check(client, entry="group/a", overrides=["network.tasks=10", "network.tasks_per_station=9"])
    assert "more tasks (10) than users (9)" in answer["sentence"]
    assert str(folder) not in answer["sentence"]


@pytest.mark.parametrize(
    "form",
    [
        {"preset": "/etc/passwd"},
        {"preset": "../quick"},
        {"overrides": ["network.stations=1000000000"]},
        {"overrides": ["network.users=1e18"]},
        {"overrides": ["network.task_sets=" + "[" * 1900]},
        {"overrides": ["data.path=/etc", "data.name=folder"]},
        {"overrides": ["data.path=../x", "data.name=folder"]},
        {"overrides": ["data.path=~/x", "data.name=folder"]},
        {"overrides": ['data.path="a\\u0000b"', "data.name=folder"]},
        {"name": "../a"},
        {"name": "taken"},
    ],
)
def test_what_would_leave_the_folder_or_cost_too_much_is_refused(
    client: Client, folder: Path, form: dict[str, Any]
) -> None:
    write_run(folder, "taken")
    answer = check(client, **form)
    assert answer["ok"] is False
    assert answer["sentence"].count("\n") == 0
    assert client.post("/api/start", json=form).status_code in (409, 422)
    assert [path.name for path in folder.iterdir()] == ["taken"]


def test_data_inside_the_folder_may_be_used(client: Client, folder: Path) -> None:
    assert check(client, overrides=["data.name=folder", "data.path=mine"])["ok"]


@pytest.mark.parametrize(
    "form",
    [
        {"unknown": 1}, {"seed": -1}, {"seed": 1.5}, {"rounds": 0}, {"kind": "other"}, {"overrides": "x"},
        {"overrides": ["x" * 3000]}, {"overrides": ["a=1"] * 500}, {"name": "x" * 100}, [], "x",
    ],
)  # fmt: skip
def test_forms_of_the_wrong_shape_are_refused(client: Client, form: Any) -> None:
    answer = client.post("/api/check", json=form)
    assert answer.status_code == 422
    assert set(answer.json()) == {"error"}
    broken = client.post("/api/check", content=b"{", headers={"content-type": "application/json"})
    assert broken.status_code == 422


@pytest.mark.parametrize("key", ["data.name", "model.name", "mobility.model", "radio.path_loss", "data.partition"])
def test_a_form_names_no_code(client: Client, key: str) -> None:
    answer = check(client, overrides=[f"{key}=os:system"])
    assert not answer["ok"]
    assert answer["sentence"].startswith(f"'{key}' is 'os:system', but the dashboard imports no code by name; choose")
    assert "cannot be chosen here" in check(client, policy="os:system")["sentence"]


def test_a_misspelt_part_gets_a_suggestion_at_its_key(client: Client) -> None:
    answer = check(client, overrides=["mobility.model=random_wlak"])
    assert [problem["key"] for problem in answer["problems"]] == ["mobility.model"]
    assert "did you mean 'random_walk'" in answer["problems"][0]["sentence"]
    assert "did you mean 'dpvd'" in check(client, policy="dpvb")["sentence"]


def test_forms_and_playground_list_what_is_registered(client: Client) -> None:
    choices = client.get("/api/choices").json()
    assert choices["policies"] == [*POLICIES.names, *ALGORITHMS]
    assert choices["live"] + choices["slow"] == list(POLICIES.names)
    assert choices["slow"] == ["exact"]
    schema = choices["scenario"]["$defs"]
    assert schema["Data"]["properties"]["name"]["examples"] == list(DATASETS.names)
    answer = client.post("/api/playground", json={}).json()
    assert [policy["name"] for policy in answer["policies"]] == choices["live"]
    for name, words in (("gredy", "did you mean 'greedy'"), ("os:system", "cannot be chosen here")):
        refused = client.post("/api/playground", json={"policies": [name]})
        assert refused.status_code == 422
        assert words in refused.text
