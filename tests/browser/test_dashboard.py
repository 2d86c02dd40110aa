"""The dashboard as somebody works with it in a browser: list, live updates, comparison, form, jobs, playground."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.browser.conftest import Open, show, until
from tests.dashboard.conftest import write_run

from covey.errors import ScenarioError
from covey.scenario import load_scenario
from covey.simulation.progress import Progress

pytestmark = pytest.mark.browser

#: Milliseconds that starting a command on a busy machine may take.
LONG = 300_000
#: Rounds that nobody waits for.
ENDLESS = 100_000
#: Keys of the lines beside accuracy.
LINES = ("most frequent class", "central model")


def test_the_list_shows_runs_and_follows_changes(address: str, open_page: Open, runs: Path) -> None:
    page = show(open_page, address, "runs")
    page.wait_for_selector("tbody tr:nth-child(2)")
    assert {"one", "two"} == set(page.locator("td[data-title=Name]").all_inner_texts())
    assert "finished" in page.inner_text("tbody tr:first-child")
    write_run(runs, "three", status="failed", message="the disk is full")
    page.wait_for_selector("text=three")
    assert "3 entries" in page.inner_text("[role=status] >> nth=1")
    page.fill("#filter", "failed")
    until(page, "document.querySelectorAll('tbody tr').length === 1")
    page.fill("#filter", "")
    page.get_by_role("button", name="Accuracy").press("Enter")
    assert page.get_attribute("th:has(button:text('Accuracy'))", "aria-sort") == "descending"
    page.check("[aria-label='Choose one']")
    page.check("[aria-label='Choose two']")
    page.click("text=Compare 2 chosen")
    page.wait_for_selector("[data-panel=accuracy] canvas")


def test_a_comparison_draws_curves_and_names_differences(address: str, open_page: Open) -> None:
    page = show(open_page, address, "compare?id=one&id=two")
    page.wait_for_selector("[data-panel=epsilon_max] canvas")
    assert page.locator("[data-panel=accuracy] .keys button").all_inner_texts() == ["1. one", "2. two", *LINES]
    table = page.inner_text("table")
    assert "privacy.v_max\t290\t6" in table
    assert "policy\tgreedy\trandom" in table
    assert "privacy.n_min" not in table
    page.check("label:has-text('delay') input")
    page.wait_for_selector("[data-panel=delay_s] canvas")
    page.uncheck("label:has-text('accuracy') input >> nth=0")
    page.wait_for_selector("[data-panel=accuracy]", state="detached")
    page.click("[aria-label='Remove two']")
    until(page, "document.querySelectorAll('.chosen li').length === 1")


def test_a_run_is_followed_round_by_round(address: str, open_page: Open, runs: Path) -> None:
    path = runs / "live"
    path.mkdir()
    about = {"kind": "run", "scenario": "quick", "policy": "greedy", "seed": 0}
    with Progress(path) as progress:
        progress.start(about, done=0, total=3, resume=False)
        progress.row({"round": 1, "accuracy": 0.25, "loss": 2.0}, 1)
        page = show(open_page, address, "run?id=live")
        page.wait_for_selector("text=25.0 %")
        assert "1/3 rounds" in page.inner_text(".line")
        progress.row({"round": 2, "accuracy": 0.5, "loss": 1.0}, 2)
        page.wait_for_selector("text=50.0 %")
        page.wait_for_selector("text=2/3 rounds")
        assert page.locator("[data-panel=accuracy] canvas").count() >= 1
        progress.row({"round": 3, "accuracy": 0.75, "loss": 0.5}, 3)
    page.wait_for_selector(".badge.finished")
    page.wait_for_selector("text=75.0 %")


def test_a_finished_run_shows_map_curves_files_and_report(address: str, open_page: Open) -> None:
    page = show(open_page, address, "run?id=one")
    page.wait_for_selector("#map canvas")
    page.locator("#map canvas").press("ArrowRight")
    assert page.inner_text("#map .details").startswith("User 0: group")
    page.wait_for_selector("[data-panel=loss] canvas")
    page.wait_for_selector("text=Open the report")
    with page.context.expect_page() as opened:
        page.click("text=Open the report")
    report = opened.value
    report.wait_for_selector("h1:has-text('covey report')")
    # The report runs apart from the dashboard: it has no origin, so that it can ask for nothing.
    assert report.evaluate("origin") == "null"


def test_a_form_says_what_is_wrong_while_one_types(address: str, open_page: Open) -> None:
    page = show(open_page, address, "new")
    page.wait_for_selector(".command code:not(:empty)")
    assert page.inner_text(".command code") == "covey run quick --policy greedy --seed 0"
    page.fill("#field-privacy-v_max", "-1")
    page.wait_for_selector(".alert:has-text('greater than 0')")
    with pytest.raises(ScenarioError) as error:
        load_scenario("quick", ["privacy.v_max=-1"])
    assert page.inner_text(".alert").lower().rstrip(".") == str(error.value).lower()
    assert "greater than 0" in page.inner_text("#field-privacy-v_max-error")
    assert page.get_attribute("#field-privacy-v_max", "aria-invalid") == "true"
    assert page.is_disabled("button[type=submit]")
    page.fill("#field-privacy-v_max", "6")
    until(page, "!document.querySelector('button[type=submit]').disabled")
    assert "--set privacy.v_max=6" in page.inner_text(".command code")
    page.fill("#field-network-tasks", "20")
    page.wait_for_selector(".section .wrong:has-text('more tasks (20) than users (12)')")
    page.select_option("#kind", "training")
    page.fill("#field-network-tasks", "4")
    page.fill("#field-epochs", "0")
    page.wait_for_selector("#field-epochs-error:has-text('greater than or equal to 1')")
    page.select_option("#base", "entry:two")
    until(page, "document.querySelector('#field-privacy-v_max').value === '6'")


def test_a_run_is_started_stopped_and_resumed(address: str, open_page: Open, runs: Path) -> None:
    page = show(open_page, address, "new")
    page.wait_for_selector(".command code:not(:empty)")
    page.fill("#name", "mine")
    page.fill("#rounds", str(ENDLESS))
    until(page, "document.querySelector('.command').textContent.includes('mine')")
    until(page, "!document.querySelector('button[type=submit]').disabled")
    page.click("button[type=submit]")
    page.wait_for_selector(".badge.running")
    page.wait_for_selector("#map canvas", timeout=LONG)
    page.wait_for_selector("[data-panel=loss] canvas")
    page.click("button:has-text('Stop')")
    page.wait_for_selector(".badge.interrupted", timeout=LONG)
    done = len((runs / "mine" / "rounds.csv").read_text().splitlines()) - 1
    page.click("button:has-text('Resume')")
    page.wait_for_selector(".badge.running")
    until(page, f"Number(document.querySelector('.line progress')?.value) > {done}")
    page.click("button:has-text('Stop')")
    page.wait_for_selector(".badge.interrupted", timeout=LONG)


def test_a_training_is_started_followed_stopped_and_compared(address: str, open_page: Open, runs: Path) -> None:
    page = show(open_page, address, "new?kind=training")
    page.wait_for_selector(".command code:has-text('covey train quick')")
    page.fill("#name", "learning")
    # Epochs that take moments, and more of them than anybody waits for.
    for key, value in {"epochs": ENDLESS, "networks": 1, "updates": 1, "validation": 1}.items():
        page.fill(f"#field-{key}", str(value))
    until(page, "document.querySelector('.command').textContent.includes('validation=1')")
    until(page, "!document.querySelector('button[type=submit]').disabled")
    page.click("button[type=submit]")
    page.wait_for_selector(".badge.running")
    page.wait_for_selector("[data-panel=reward] canvas", timeout=LONG)
    epochs = page.evaluate("document.querySelector('.line progress').value")
    until(page, f"document.querySelector('.line progress').value > {epochs}")
    page.click("button:has-text('Stop')")
    page.wait_for_selector(".badge.interrupted", timeout=LONG)
    page.wait_for_selector("text=Open the report")
    page.wait_for_selector("button:has-text('Resume')")
    page.click("nav >> text=Runs")
    page.wait_for_selector("tr:has-text('learning') >> text=epochs")
    shutil.copytree(runs / "learning", runs / "again")
    page.goto(f"{address}#/compare?id=learning&id=again&id=one")
    page.wait_for_selector("[data-panel=reward] canvas")
    names = ["1. learning", "2. again", "3. one"]
    assert page.locator("[data-panel=reward] .keys button").all_inner_texts() == names
    assert page.locator("[data-panel=accuracy] .keys button").all_inner_texts() == ["3. one", *LINES]
    assert "kind\ttraining\ttraining\trun" in page.inner_text("table")


def test_a_list_that_nobody_looked_at_is_right_again(address: str, open_page: Open, runs: Path) -> None:
    page = show(open_page, address, "runs")
    page.wait_for_selector("tbody tr:nth-child(2)")
    hide = (
        "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    page.evaluate(hide, True)
    shutil.rmtree(runs / "two")
    write_run(runs, "three")
    page.evaluate(hide, False)
    page.wait_for_selector("text=three")
    assert {"one", "three"} == set(page.locator("td[data-title=Name]").all_inner_texts())


def test_stations_and_users_are_dragged_and_moved_by_keys(address: str, open_page: Open) -> None:
    page = show(open_page, address, "playground")
    page.wait_for_selector(".policies td")
    canvas = page.locator(".playground-map > canvas")
    page.select_option("#pick", "s2")
    before = page.inner_text(".playground-map .details")
    assert before.startswith("Station 2 at 117, 0 m")
    samples = page.inner_text(".policies tbody tr:nth-child(2)")
    box = canvas.bounding_box()
    side = box["height"] - 40
    x, y = box["x"] + (box["width"] - side) / 2 + 117.5 / 500 * side, box["y"] + 14 + side
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 0.25 * side, y - 0.4 * side, steps=6)
    page.mouse.up()
    until(page, f"document.querySelector('.policies tbody tr:nth-child(2)').innerText !== {json.dumps(samples)}")
    assert page.inner_text(".playground-map .details").startswith("Station 2 at 24")
    page.select_option("#pick", "u0")
    at = page.inner_text(".playground-map .details")
    canvas.press("ArrowLeft")
    canvas.press("Shift+ArrowDown")
    assert page.inner_text(".playground-map .details") != at
    assert at.startswith("User 0 at 279, 394 m")
    assert page.inner_text(".playground-map .details").startswith("User 0 at 274, 369 m: task 2")
    canvas.press("t")
    page.wait_for_selector(".details:has-text('task 3')")


def test_limits_of_the_playground_change_what_binds(browser: Any, address: str) -> None:
    # Opened without complaints: the browser itself notes every refused question as an error.
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(LONG)
    page.goto(f"{address}#/playground")
    page.wait_for_selector(".policies td")
    page.fill("#limit-network-blocks", "1")
    # With one block each, several stations have no room left.
    until(page, "/blocks of a station .11b.: station \\d, \\d/.test(document.querySelector('.policies').innerText)")
    page.fill("#limit-privacy-v_max", "0")
    page.wait_for_selector(".alert:has-text('greater than 0')")
    page.fill("#limit-privacy-v_max", "12")
    page.wait_for_selector(".alert", state="hidden")
    page.check("text=Also exact")
    page.wait_for_selector("button:has-text('exact')")
    page.click("button:has-text('nearest')")
    page.wait_for_selector("text=Under nearest.")
    page.click("text=Use for a run")
    page.wait_for_selector(".command code:has-text('network.user_positions_m')")
    until(page, "!document.querySelector('button[type=submit]').disabled")
    context.close()
