"""Every question that can be asked of a dashboard, right and wrong; traversal and guards have files of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.dashboard.conftest import Client, write_run

from covey.dashboard.access import REPORT_POLICY
from covey.dashboard.scenario_keys import COMPARED, POINTS
from covey.report.page_data import report_data
from covey.simulation.load_run import read_history


def error_of(client: Client, path: str, status: int = 422) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    return str(answer.json()["error"])


def test_about_and_choices(client: Client, folder: Path) -> None:
    about = client.get("/api/about").json()
    assert about["folder"] == folder.name
    assert str(folder) not in str(about)
    choices = client.get("/api/choices").json()
    presets = {preset["name"]: preset["values"] for preset in choices["presets"]}
    assert [*presets] == ["campus", "cifar10", "femnist", "paper", "paper_digits", "paper_femnist", "quick"]
    assert presets["quick"]["network"]["users"] == 12
    assert "greedy" in choices["policies"]
    assert "dpvd" in choices["policies"]
    users = choices["scenario"]["$defs"]["Network"]["properties"]["users"]
    assert users["description"] == "Number of users (devices), U."
    assert "epochs" in choices["learner"]["properties"]


def test_an_empty_folder_has_no_entries(client: Client) -> None:
    assert client.get("/api/entries").json() == []


def test_details_files_and_report_of_a_real_run(with_real_run: Path, client: Client) -> None:
    details = client.get("/api/entry?id=real").json()
    assert details["summary"]["rounds"] == 2
    assert details["entry"]["status"] == "finished"
    assert "report.html" in details["files"]
    for name in details["files"]:
        answer = client.get("/api/file", params={"id": "real", "name": name})
        assert answer.content == (with_real_run / "real" / name).read_bytes()
    report = client.get("/api/file?id=real&name=report.html")
    assert report.headers["content-security-policy"] == REPORT_POLICY
    assert report.headers["content-type"].startswith("text/html")
    assert "sandbox" in REPORT_POLICY
    assert "allow-same-origin" not in REPORT_POLICY


def test_pictures_are_those_of_the_report(with_real_run: Path, client: Client) -> None:
    data = client.get("/api/pictures?id=real").json()
    assert data["rounds"] == 2
    assert len(data["frames"]) == 2
    assert data["series"]["loss"] == report_data(read_history(with_real_run / "real"))["series"]["loss"]


def test_a_history_read_from_a_folder_is_that_of_the_run(with_real_run: Path, client: Client) -> None:
    history = read_history(with_real_run / "real")
    summary = client.get("/api/entry?id=real").json()["summary"]
    assert [user["samples"] for user in summary["users"]] == history.samples.tolist()
    assert [user["group"] for user in summary["users"]] == history.groups.tolist()
    assert [user["served_rounds"] for user in summary["users"]] == history.served_rounds.tolist()
    assert summary["start"] == history.start


def test_nothing_to_draw_is_one_sentence(folder: Path, client: Client) -> None:
    path = write_run(folder, "a")
    assert "cannot be read" in error_of(client, "/api/pictures?id=a")
    (path / "checkpoint.safetensors").unlink()
    assert "nothing to draw" in error_of(client, "/api/pictures?id=a")


def test_curves_of_several(folder: Path, client: Client) -> None:
    write_run(folder, "a", rounds=3)
    write_run(folder, "b", rounds=2)
    (folder / "t").mkdir()
    (folder / "t" / "metrics.csv").write_text("epoch,reward,loss\n1,-2,\n2,-1,0.5\n")
    answer = client.get("/api/curves?id=a&id=b&id=t&column=loss&column=reward&column=nothing&column=epsilon_max").json()
    assert {column["name"]: column["entries"] for column in answer["columns"]} == {
        "loss": 3, "accuracy": 2, "epsilon_max": 2, "reward": 1,
    }  # fmt: skip
    loss = answer["curves"]["loss"]
    assert [curve["id"] for curve in loss] == ["a", "b", "t"]
    assert loss[0] == {"id": "a", "x": [1, 2, 3], "y": [2.0, 1.0, pytest.approx(2 / 3)]}
    assert loss[2] == {"id": "t", "x": [1, 2], "y": [None, 0.5]}
    assert answer["curves"]["nothing"] == []
    assert answer["curves"]["epsilon_max"][0]["y"] == [None, None, None]


def test_long_curves_are_thinned_and_keep_their_end(folder: Path, client: Client) -> None:
    rows = "".join(f"{epoch},{epoch / 2}\n" for epoch in range(1, 4 * POINTS))
    (folder / "t").mkdir()
    (folder / "t" / "metrics.csv").write_text("epoch,reward\n" + rows)
    curve = client.get("/api/curves?id=t&column=reward").json()["curves"]["reward"][0]
    assert POINTS / 2 < len(curve["x"]) <= POINTS + 1
    assert (curve["x"][0], curve["x"][-1]) == (1, 4 * POINTS - 1)
    assert curve["y"] == [x / 2 for x in curve["x"]]


def test_differences_of_scenarios(folder: Path, client: Client) -> None:
    write_run(folder, "a")
    write_run(folder, "b", total=9, overrides=("privacy.v_max=6", "network.task_sets=[[0,1],[1,2],[2,3],[3,0]]"))
    answer = client.get("/api/differences?id=a&id=b").json()
    different = {row["key"]: row["values"] for row in answer["different"]}
    assert different == {
        "total": [3, 9],
        "privacy.v_max": [290.0, 6.0],
        "network.task_sets": [None, "[[0, 1], [1, 2], [2, 3], [3, 0]]"],
    }
    assert answer["equal"] > 50
    assert client.get("/api/differences?id=a").json()["different"] == []


@pytest.mark.parametrize(
    "path",
    [
        "/api/entry", "/api/file?id=a", "/api/curves", "/api/differences?column=x", "/api/pictures", "/api/follow",
        "/api/curves?" + "&".join(["id=a"] * (COMPARED + 1)), "/api/curves?id=a&" + "&".join(["column=a"] * 100),
        "/api/entry?id=" + "x" * 1000,
    ],
)  # fmt: skip
def test_questions_that_lack_something_are_one_sentence(client: Client, folder: Path, path: str) -> None:
    write_run(folder, "a")
    assert error_of(client, path).count("\n") == 0


def test_missing_things_are_404(client: Client) -> None:
    for path in ("entry?id=x", "curves?id=x", "differences?id=x", "pictures?id=x", "follow?id=x", "nothing"):
        assert error_of(client, f"/api/{path}", 404)
    assert client.get("/static/../app.py").status_code == 404
    assert client.get("/static/%2e%2e/app.py").status_code == 404
    assert client.request("DELETE", "/api/entries", headers={"content-type": "application/json"}).status_code == 405


def test_pages_come_with_the_package(client: Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "<!DOCTYPE html>" in page.text
    assert page.text == client.get("/static/index.html").text


def test_an_unexpected_error_is_one_sentence(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr("covey.dashboard.app.judge", fail)
    answer = client.post("/api/check", json={})
    assert answer.status_code == 500
    assert "ZeroDivisionError" in answer.json()["error"]
    assert "secret" not in answer.text


def test_a_file_that_vanishes_while_it_is_read_is_one_sentence(
    folder: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(folder, "a")

    def vanish(*_: Any) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(folder / "a"))

    monkeypatch.setattr("covey.dashboard.run_tables._update", vanish)
    sentence = error_of(client, "/api/curves?id=a", 409)
    assert "try again" in sentence
    assert str(folder) not in sentence


def test_text_of_users_is_never_html(folder: Path, client: Client) -> None:
    path = write_run(folder, "a", status="failed", message="<script>alert(1)</script>")
    (path / "output.txt").write_text("<script>")
    for question in ("entries", "entry?id=a", "entry?id=<script>", "file?id=a&name=output.txt"):
        kind = client.get(f"/api/{question}").headers["content-type"]
        assert kind.startswith(("application/json", "text/plain"))
