"""No name leads out of the folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dashboard.conftest import Client, write_run

from covey.dashboard.runs_folder import FILES, EntryNameError, Folder, NotFoundError, stat_of

OUTSIDE = [
    "..", "../secret", "a/../../secret", "/etc", "/", "", ".", "./a", "a/.", "a//b", "a/", ".hidden", "a\\..\\b",
    "a\0b", "~", "~/x", "link", "link/inside", "a/link", "x" * 400, "a/b/c/d/e", "file", "%2e%2e/secret", "a\nb",
]  # fmt: skip


@pytest.fixture
def tricky(tmp_path: Path, folder: Path) -> Folder:
    """A folder with links that lead out of it, beside a secret run."""
    write_run(tmp_path, "secret")
    write_run(folder, "a")
    write_run(folder, ".hidden")
    (folder / "file").write_text("")
    os.symlink(tmp_path, folder / "link")
    os.symlink(tmp_path / "secret", folder / "a" / "link")
    os.symlink(tmp_path / "secret" / "scenario.toml", folder / "a" / "report.html")
    os.symlink(tmp_path / "secret", folder / "linked_run")
    return Folder(folder)


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_name_leads_out(tricky: Folder, client: Client, name: str) -> None:
    with pytest.raises(NotFoundError):
        tricky.place(name)
    for path, more in (("entry", {}), ("file", {"name": "scenario.toml"}), ("curves", {}), ("differences", {})):
        answer = client.get(f"/api/{path}", params={"id": name, **more})
        assert answer.status_code in (404, 422), path
        assert "v_max" not in answer.text
    for path in ("stop", "resume"):
        assert client.post(f"/api/{path}", json={"id": name}).status_code in (404, 422)
    asked = client.post("/api/check", json={"entry": name})
    assert asked.status_code == 422 or asked.json()["ok"] is False


@given(st.text(alphabet="./\\~a\0 link%", max_size=30))
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_found_is_inside(tricky: Folder, name: str) -> None:
    try:
        path = tricky.place(name)
    except NotFoundError:
        return
    assert os.path.realpath(path) == str(path)
    assert tricky.root in path.parents


def test_links_are_neither_listed_nor_read(tricky: Folder, client: Client) -> None:
    assert [entry["id"] for entry in client.get("/api/entries").json()] == ["a"]
    with pytest.raises(NotFoundError, match=r"report\.html"):
        tricky.file("a", "report.html")
    assert "report.html" not in client.get("/api/entry?id=a").json()["files"]


@pytest.mark.parametrize("name", ["checkpoint.safetensors", "../a/scenario.toml", "progress.jsonl", "", "report.html"])
def test_only_known_files_are_given(tricky: Folder, client: Client, name: str) -> None:
    assert name not in FILES or name == "report.html"
    assert client.get("/api/file", params={"id": "a", "name": name}).status_code == 404


def test_entries_are_found_at_any_allowed_depth_and_not_inside_each_other(folder: Path) -> None:
    write_run(folder, "one/two/three/four")
    write_run(folder, "one/two/three/too/deep")
    write_run(folder, "outer")
    write_run(folder / "outer", "inner")
    (folder / "empty").mkdir()
    assert sorted(name for name, _ in Folder(folder).walk()) == ["one/two/three/four", "outer"]


def test_names_for_new_entries(folder: Path) -> None:
    place = Folder(folder)
    assert place.name_for("mine", "x") == "mine"
    assert place.name_for(None, "quick/../x-greedy-seed0") == "quick_.._x-greedy-seed0"
    assert place.name_for(None, "...") == "run"
    (folder / "run").mkdir()
    assert place.name_for(None, "") == "run-2"
    for wrong in ("a/b", "..", ".a", "-a", "a b", "x" * 65, "ä", "a\n"):
        with pytest.raises(EntryNameError, match="letters"):
            place.name_for(wrong, "")
    with pytest.raises(EntryNameError, match="already"):
        place.name_for("run", "")


def test_a_file_that_is_replaced_while_a_folder_is_read_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "gone").touch()
    (tmp_path / "there").touch()
    with os.scandir(tmp_path) as entries:
        gone, there = sorted(entries, key=lambda file: file.name)
    (tmp_path / "gone").unlink()
    assert stat_of(gone) is None
    assert (stat_of(there) or os.stat(tmp_path)).st_ino == os.stat(tmp_path / "there").st_ino
