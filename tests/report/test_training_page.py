from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from tests.report.page import Page

from covey.agents.settings import LearnerSettings
from covey.report import training_reading as reading
from covey.report import write_training_report
from covey.report.training_data import training_data
from covey.report.words import VIOLATION_WORDS
from covey.scenario import load_scenario
from covey.scenario.load import scenario_from_dict

SETTINGS = LearnerSettings(epochs=6, validate_every=3)
SCENARIO = load_scenario("quick")


def rows_of(epochs: int = 6) -> list[dict[str, Any]]:
    """Rows of metrics.csv that get better epoch by epoch; every third has a validation."""
    rows = []
    for epoch in range(1, epochs + 1):
        checked = epoch % 3 == 0
        rows.append(
            {
                "epoch": epoch,
                "epsilon": 1.0 / epoch,
                "loss": 2.0 / epoch,
                "reward": -9e4 / epoch,
                "reward_std": 10.0,
                "reward_without_penalty": -3000.0 + epoch,
                "violators": 12.0 / epoch,
                "violating_rounds": 0.5 / epoch,
                "served": 4.0 + epoch / 10,
                **dict.fromkeys(VIOLATION_WORDS, 1.0 / epoch),
                "alone_reward": -2800.0 + epoch if checked else math.nan,
                "alone_violators": 0.25 if checked else math.nan,
                "guarded_reward": -2600.0 + epoch if checked else math.nan,
                "guarded_violators": 0.0 if checked else math.nan,
            }
        )
    return rows


def page_of(rows: list[dict[str, Any]], folder: Path, **changes: Any) -> str:
    given = {"settings": SETTINGS, "scenario": SCENARIO, "seed": 2, "learning": "surrogate", "versions": {"covey": "1"}}
    paths = write_training_report(rows, folder=folder, **{**given, **changes})
    return paths[-1].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(rows_of(), tmp_path_factory.mktemp("page"))


def test_the_page_is_whole_and_has_every_plot_with_a_text(page: str) -> None:
    parsed = Page(page)
    assert parsed.open == []
    assert parsed.handlers == []
    assert set(parsed.plots) == {"reward", "violations", "validation_violations", "served", "loss", "epsilon"}
    assert all(len(text) > 30 for text in [*parsed.plots.values(), *parsed.alternatives])
    assert len(parsed.alternatives) == 1
    assert page.count("<h3>What this means</h3>") == 4
    assert not re.search(r"(url\(|@import|https?://)", re.sub(r"base64,[^\"]+", "", page))
    assert not re.search(r"\b(nan|inf|None)\b", parsed.text)


def test_the_page_holds_the_columns_of_metrics_csv(page: str) -> None:
    data = Page(page).data
    assert data == json.loads(json.dumps(training_data(rows_of(), SETTINGS, SCENARIO), allow_nan=False))
    assert data["series"]["guarded_reward"] == [None, None, -2597, None, None, -2594]


def test_settings_versions_and_how_to_repeat(page: str) -> None:
    text = Page(page).text
    assert "covey train scenario.toml --learner epochs=6 --learner validate_every=3 --seed 2" in text
    assert "target_rate" in text
    assert "[network]" in text


def test_without_an_epoch_there_is_a_page_and_no_picture(tmp_path: Path) -> None:
    parsed = Page(page_of([], tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert parsed.open == []
    assert "No epoch was finished" in parsed.text
    assert "interrupted after 0 of 6 epochs" in parsed.text


def test_an_interrupted_training_says_how_to_continue(tmp_path: Path) -> None:
    text = Page(page_of(rows_of(2), tmp_path)).text
    assert "interrupted after 2 of 6 epochs" in text
    assert "covey train --resume" in text
    assert "No validation was made yet" in text


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    hostile = scenario_from_dict({"name": evil, "description": evil})
    page = page_of(rows_of(1), tmp_path, scenario=hostile, versions={evil: evil})
    assert evil not in page
    assert Page(page).tags.count("script") == 3
    assert Page(page).data["name"] == evil


def test_reward_names_the_best_epoch_of_each_way_and_the_better_way() -> None:
    text = " ".join(reading.on_reward(rows_of()))
    assert "Deciding alone, the stations' reward on validation layouts was -2,797 in epoch 3 and at best -2,794" in text
    assert "Deciding behind the admission guard is better by 200" in text
    assert "violations cost 87,001 of it in an episode of the first epoch and 12,006 in one of the last" in text


def test_violations_service_and_learning_are_told_by_both_ends() -> None:
    rows = rows_of()
    assert "12.0 violating users on average in the first epoch and 2.00 in the last" in reading.on_violations(rows)[0]
    assert "nobody broke a rule" in reading.on_violations(rows)[-1]
    assert reading.on_service(rows, 12)[0].startswith("4.10 of 12 users")
    assert "at its lowest in epoch 6" in reading.on_learning(rows)[0]
    nothing = [{**row, "loss": math.nan} for row in rows]
    assert len(reading.on_learning(nothing)) == 1
