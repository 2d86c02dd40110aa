"""Reports as a reader meets them: opened as a file, moved by slider, mouse and keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.report.conftest import history_of
from tests.report.test_training_page import SCENARIO, SETTINGS, rows_of

from covey.privacy import Ledger
from covey.report import render_html, write_training_report
from covey.report.words import VIOLATION_WORDS
from covey.simulation import History

pytestmark = pytest.mark.browser

#: A number that changes with what a canvas shows.
FINGERPRINT = """canvas => {
  const image = canvas.toDataURL();
  let sum = 0;
  for (let index = 0; index < image.length; index += 1) sum = (sum * 31 + image.charCodeAt(index)) % 1000000007;
  return sum;
}"""
#: Keeps what the play button says.
NOTE_BUTTON = """() => {
  const button = document.querySelector("#player button");
  globalThis.said = [];
  new MutationObserver(() => said.push(button.textContent)).observe(button, { childList: true });
}"""
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

Open = Callable[..., Any]


@pytest.fixture
def open_report(open_page: Open) -> Open:
    """Opens a report and waits until it is drawn."""

    def opener(address: str, **options: Any) -> Any:
        page = open_page(address, **options)
        page.wait_for_function("() => performance.getEntriesByName('covey:drawn').length > 0")
        return page

    return opener


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of reports: a small run, a large one, one with a hostile name, and a training."""
    folder = tmp_path_factory.mktemp("pages")
    evil = "</script><script>document.title='owned'</script>"
    runs = {
        "large": history_of(users=1000, stations=10, tasks=5, rounds=30, blocks=12),
        "evil": history_of(rounds=1, policy=evil, scenario={"name": evil, "description": evil}),
        "empty": history_of(played=0),
        "open": history_of(rounds=2, scenario={"privacy": {"noise": "off"}}),
        "budget": _with_budgets(history_of(rounds=2)),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("covey.report.pictures.DPI", 50)
        addresses = {"small": _run(folder / "small.html", history_of(rounds=6)), "training": _training(folder)}
        # The others need no pictures, which take seconds.
        patch.setattr("covey.report.html.draw_pictures", lambda history: {"map": b"", "blocks": b""})
        patch.setattr("covey.report.html.draw_panel", lambda history, name: None)
        patch.setattr("covey.report.html.png", lambda figure: b"")
        return addresses | {name: _run(folder / f"{name}.html", history) for name, history in runs.items()}


def _with_budgets(history: History) -> History:
    """The run with a budget for every user, kept by nobody, without violations."""
    limited = Ledger(12, delta=history.ledger.delta, budget_epsilon=[50.0 + user for user in range(12)])
    limited.spent = history.ledger.spent
    history.ledger = limited
    calm = dict.fromkeys(("violators", *VIOLATION_WORDS), 0)
    history.records[:] = [replace(record, **calm) for record in history.records]
    return history


def _run(path: Path, history: History) -> str:
    path.write_text(render_html(history, versions={"covey": "1"}), encoding="utf-8")
    return path.as_uri()


def _training(folder: Path) -> str:
    given: dict[str, Any] = {"seed": 0, "learning": "surrogate", "versions": {"covey": "1"}}
    return write_training_report(rows_of(), SETTINGS, SCENARIO, folder, **given)[-1].as_uri()


def pictures(page: Any) -> dict[str, int]:
    """A number for every drawing that follows the slider."""
    return {name: page.eval_on_selector(f"#{name} canvas", FINGERPRINT) for name in ("map", "blocks", "confusion")}


def wait(page: Any, place: str, text: str) -> None:
    """Wait until an element says this. A function, because the page's rules forbid the evaluation of text."""
    page.wait_for_function("([at, text]) => document.querySelector(at).textContent === text", arg=[place, text])


def choose(page: Any, round: int) -> None:
    """Move the slider to a round and wait until the page has followed."""
    page.eval_on_selector(
        "#player input", "(slider, at) => { slider.value = at; slider.dispatchEvent(new Event('input')); }", round - 1
    )
    wait(page, "#player output", f"{round} of 6")


def test_the_slider_moves_map_blocks_identities_and_facts(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["small"])
    choose(page, 6)
    last, facts = pictures(page), page.inner_text("#facts")
    choose(page, 1)
    first = pictures(page)
    assert all(first[name] != last[name] for name in first)
    assert page.inner_text("#facts") != facts
    assert "Round 1." in page.get_attribute("#confusion canvas", "aria-label")
    choose(page, 6)
    assert pictures(page) == last


def test_keys_move_the_slider_and_play_runs_to_the_end(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["small"])
    slider = page.locator("#player input")
    slider.press("Home")
    wait(page, "#player output", "1 of 6")
    slider.press("ArrowRight")
    wait(page, "#player output", "2 of 6")
    button = page.locator("#player button")
    # What the button says is noted in the page: a busy machine may look only after the last round.
    page.evaluate(NOTE_BUTTON)
    button.press("Enter")
    wait(page, "#player output", "6 of 6")
    wait(page, "#player button", "Play")
    assert page.evaluate("said") == ["Pause", "Play"]


def test_users_are_picked_and_the_map_is_zoomed_by_keys(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["small"])
    canvas = page.locator("#map canvas")
    before = page.eval_on_selector("#map canvas", FINGERPRINT)
    canvas.press("ArrowRight")
    assert page.inner_text("#map .details").startswith("User 0: group")
    canvas.press("ArrowLeft")
    assert page.inner_text("#map .details").startswith("User 11: group")
    picked = page.eval_on_selector("#map canvas", FINGERPRINT)
    canvas.press("+")
    zoomed = page.eval_on_selector("#map canvas", FINGERPRINT)
    canvas.press("0")
    canvas.press("Escape")
    assert len({before, picked, zoomed}) == 3
    assert page.eval_on_selector("#map canvas", FINGERPRINT) == before


def test_users_are_picked_by_mouse(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["small"])
    place = page.evaluate(
        """() => {
          const { site, frames } = JSON.parse(document.getElementById("data").textContent);
          const canvas = document.querySelector("#map canvas");
          const last = frames[frames.length - 1];
          const height = canvas.clientHeight - 44;
          const scale = height / site.area_m[1];
          const left = (canvas.clientWidth - site.area_m[0] * scale) / 2;
          return { x: left + last.x_dm[3] / 10 * scale, y: 18 + height - last.y_dm[3] / 10 * scale };
        }"""
    )
    page.locator("#map canvas").click(position=place)
    assert page.inner_text("#map .details").startswith("User 3: group")


def test_every_plot_is_drawn_follows_the_slider_and_can_hide_lines(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["small"])
    assert page.locator("[data-plot] canvas:not(.swatch)").count() == 12
    page.locator("[data-plot=accuracy]").scroll_into_view_if_needed()
    values = "[...document.querySelectorAll('[data-plot=accuracy] output')].map(output => output.textContent).join()"
    choose(page, 6)
    page.wait_for_function(f"() => {values}.includes('%')")
    last = page.evaluate(values)
    choose(page, 2)
    page.wait_for_function(f"last => {values} !== last", arg=last)
    plot = "[data-plot=accuracy] canvas:not(.swatch)"
    before = page.eval_on_selector(plot, FINGERPRINT)
    key = page.locator("[data-plot=accuracy] .keys button").first
    key.press("Enter")
    assert key.get_attribute("aria-pressed") == "false"
    page.wait_for_function(f"before => ({FINGERPRINT})(document.querySelector('{plot}')) !== before", arg=before)


def test_a_click_into_a_plot_chooses_its_round(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["small"])
    page.locator("[data-plot=loss] .u-over").click(position={"x": 4, "y": 60})
    wait(page, "#player output", "1 of 6")


@pytest.mark.parametrize("name", ["small", "large", "training", "empty"])
def test_a_phone_shows_the_page_without_scrolling_sideways(open_report: Open, files: dict[str, str], name: str) -> None:
    page = open_report(files[name], width=390, height=800, has_touch=True)
    assert page.evaluate(SIDEWAYS) == 0


def test_dark_and_light_pages_differ_and_change_without_loading_anew(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["small"], color_scheme="light")
    choose(page, 6)
    background = "getComputedStyle(document.body).backgroundColor"
    light, drawn = page.evaluate(background), pictures(page)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"light => {background} !== light", arg=light)
    page.wait_for_function(f"old => ({FINGERPRINT})(document.querySelector('#map canvas')) !== old", arg=drawn["map"])
    assert all(pictures(page)[name] != drawn[name] for name in drawn)
    assert page.evaluate(background) == "rgb(21, 23, 26)"


def test_without_scripts_and_in_print_pictures_and_tables_take_over(
    open_page: Open, open_report: Open, files: dict[str, str]
) -> None:
    still = open_page(files["small"], java_script_enabled=False)
    assert still.locator("img:visible").count() == 10
    assert still.locator(".moving:visible").count() == 0
    assert still.get_by_text("Users by true group and announced task in round 6").is_visible()
    page = open_report(files["small"])
    assert page.locator("img:visible").count() == 0
    page.emulate_media(media="print")
    assert page.locator("img:visible").count() == 10
    assert page.locator("#map:visible").count() == 0


def test_a_thousand_users_and_a_training_open_and_move(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["large"])
    page.locator("#player input").press("Home")
    wait(page, "#player output", "1 of 30")
    assert "of 1,000 users served" in page.inner_text("#facts")
    training = open_report(files["training"])
    assert training.locator("[data-plot] canvas:not(.swatch)").count() == 6
    training.locator("#player input").press("Home")
    wait(training, "#player output", "1 of 6")


def test_budgets_stand_beside_what_was_spent(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["budget"])
    for plot, name in (("spent", "budget"), ("privacy", "smallest budget")):
        assert name in page.locator(f"[data-plot={plot}] .keys button").all_inner_texts()[-1]
    page.locator("#map canvas").press("ArrowRight")
    assert page.inner_text("#map .details").endswith(" of 50.0.")
    assert page.inner_text("[data-plot=violations]") == "No rule was broken in any round."


def test_without_noise_the_plots_of_epsilon_say_so(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["open"])
    for plot in ("spent", "privacy"):
        assert page.inner_text(f"[data-plot={plot}]") == "Unlimited: uploads left without noise."
    page.locator("#player input").press("Home")
    wait(page, "#player output", "1 of 2")


def test_hostile_names_stay_text(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["evil"])
    assert page.title().startswith("covey report: </script>")
    assert page.locator("h1").inner_text().endswith("</script>")


def test_every_control_can_be_reached_by_tab(open_report: Open, files: dict[str, str]) -> None:
    page = open_report(files["small"])
    wanted = page.locator("input:visible, button:visible, summary:visible, [tabindex='0']:visible").count()
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("[...document.querySelectorAll('*')].indexOf(document.activeElement)"))
    assert len(reached) >= wanted
