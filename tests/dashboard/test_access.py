"""Who may ask for what."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.dashboard.conftest import Client, write_run

from covey.dashboard.scenario_keys import BODY_BYTES, Settings
from covey.errors import ScenarioError

TOKEN = "a-token-of-enough-letters"


@pytest.fixture
def locked(folder: Path) -> Client:
    write_run(folder, "a")
    return Client(Settings(folder, port=8421, token=TOKEN))


def test_every_answer_has_strict_headers(client: Client) -> None:
    for path in ("/", "/api/entries", "/api/nothing", "/static/nothing.js", "/api/entry?id=missing"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8421", "127.0.0.1.evil.example", "192.168.1.5:8421", "a@127.0.0.1", "", "[::"],
)
def test_foreign_host_names_are_refused(folder: Path, host: str) -> None:
    answer = Client(Settings(folder)).get("/api/entries", headers={"host": host})
    assert answer.status_code == 421
    assert "address it printed" in answer.json()["error"]


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1:1", "LOCALHOST", "[::1]:8421", "127.0.0.2"])
def test_names_of_this_machine_are_taken_at_any_port(folder: Path, host: str) -> None:
    assert Client(Settings(folder)).get("/api/entries", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8421"},
        {"origin": "null"},
        {"origin": "file://127.0.0.1:8421"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
        {"origin": "http://127.0.0.1:8421", "sec-fetch-site": "cross-site"},
    ],
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/api/start"), ("POST", "/api/check"), ("GET", "/api/entries")])
def test_other_origins_may_neither_write_nor_read(
    client: Client, folder: Path, headers: dict[str, str], method: str, path: str
) -> None:
    more = {"json": {}} if method == "POST" else {}
    answer = client.request(method, path, headers=headers, **more)
    assert answer.status_code == 403
    assert "another web page" in answer.json()["error"]
    assert list(folder.iterdir()) == []


def test_a_link_elsewhere_may_lead_to_the_page_only(client: Client) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=link).status_code == 200
    assert client.get("/", headers={**link, "sec-fetch-dest": "iframe"}).status_code == 403
    assert client.get("/api/file?id=a&name=report.html", headers=link).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [{}, {"origin": "http://127.0.0.1:8421"}, {"origin": "http://127.0.0.1:8421", "sec-fetch-site": "same-origin"}],
)
def test_the_page_itself_and_scripts_may_write(client: Client, headers: dict[str, str]) -> None:
    assert client.post("/api/check", json={}, headers=headers).json()["ok"] is True


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_writes_are_json_only(client: Client, kind: str) -> None:
    answer = client.post("/api/check", content="{}", headers={"content-type": kind})
    assert answer.status_code == 415


def test_other_machines_are_refused_without_a_token(folder: Path) -> None:
    for address in ("10.0.0.7", "testclient", "::ffff:10.0.0.7"):
        answer = Client(Settings(folder), address=address).get("/api/entries")
        assert answer.status_code == 403
        assert "--token" in answer.json()["error"]


def test_large_bodies_are_refused(client: Client) -> None:
    assert client.post("/api/check", json={"name": "x" * BODY_BYTES}).status_code == 413

    async def chunks():  # without a length
        for _ in range(BODY_BYTES // 1000 + 2):
            yield b" " * 1000

    headers = {"content-type": "application/json"}
    assert client.post("/api/check", content=chunks(), headers=headers).status_code == 413
    wrong = {**headers, "content-length": "-5"}
    assert client.post("/api/check", content=b"{}", headers=wrong).status_code == 413


@pytest.mark.parametrize(
    "path", ["/api/entries", "/api/openapi.json", "/static/index.html", "/api/entry?id=a", "/api/watch", "/nothing"]
)
def test_with_a_token_nothing_is_read_without_it(locked: Client, path: str) -> None:
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": TOKEN},
        {"cookie": f"covey_8421={TOKEN}"},
        {"cookie": "covey_8421="},
        {"cookie": "\x01bad"},
    ):
        answer = locked.get(path, headers=headers)
        assert answer.status_code == 401
        assert "token" in answer.json()["error"]
        assert TOKEN not in answer.text


def test_with_a_token_nothing_is_written_without_it(locked: Client, folder: Path) -> None:
    for path in ("/api/start", "/api/stop", "/api/resume", "/api/check", "/api/playground"):
        assert locked.post(path, json={}).status_code == 401
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_the_token_opens_by_header(locked: Client) -> None:
    answer = locked.get("/api/entries", headers={"authorization": f"Bearer {TOKEN}"})
    assert [entry["id"] for entry in answer.json()] == ["a"]


def test_the_login_link_gives_a_cookie_that_opens(locked: Client) -> None:
    page = locked.get("/")
    assert page.status_code == 401
    assert "default-src 'none'; style-src 'sha256-" in page.headers["content-security-policy"]
    assert "needs a token" in page.text
    answer = locked.get(f"/login?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("covey_8421=")
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    opened = locked.get("/api/entries", headers={"cookie": cookie.partition(";")[0]})
    assert opened.status_code == 200


def test_the_login_form_takes_the_token_and_refuses_others(locked: Client) -> None:
    wrong = locked.post("/login", data={"token": "wrong"})
    assert wrong.status_code == 401
    assert "not the token" in wrong.text
    assert "set-cookie" not in wrong.headers
    assert locked.post("/login", data={"token": "<script>"}).text.count("<script>") == 0
    assert locked.get("/login").status_code == 401
    assert locked.post("/login", data={"token": TOKEN}).status_code == 303
    assert locked.post("/login", data={"token": TOKEN}, headers={"origin": "http://evil.example"}).status_code == 403


def test_a_token_serves_other_machines_by_address_but_not_by_foreign_names(folder: Path) -> None:
    far = Client(Settings(folder, host="0.0.0.0", token=TOKEN, port=8421), address="10.0.0.7", host="10.0.0.1:8421")
    far.headers = {"authorization": f"Bearer {TOKEN}"}
    assert far.get("/api/entries").status_code == 200
    assert far.get("/api/entries", headers={"host": "evil.example"}).status_code == 421


def test_without_a_token_login_leads_to_the_page(client: Client) -> None:
    assert client.get("/login?token=x").headers["location"] == "/"


@pytest.mark.parametrize("token", ["short", "with spaces in it ........", "späte Zeichen sind nicht gut"])
def test_weak_tokens_are_refused(folder: Path, token: str) -> None:
    with pytest.raises(ScenarioError, match="at least 16"):
        Settings(folder, token=token)


def test_other_addresses_need_a_token(folder: Path) -> None:
    with pytest.raises(ScenarioError, match="needs a token"):
        Settings(folder, host="0.0.0.0")
    assert Settings(folder, host="::1").token is None
