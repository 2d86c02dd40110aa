from __future__ import annotations

import re
from pathlib import Path

from covey.agents.reference import settings_reference
from covey.agents.settings import LearnerSettings
from covey.agents.training import Trainer
from covey.scenario import load_scenario

DOCS = Path(__file__).parents[2] / "docs"


def test_the_settings_page_is_up_to_date() -> None:
    assert (DOCS / "learner.md").read_text(encoding="utf-8") == settings_reference(), "run `make docs-reference`"


def test_every_logged_metric_is_explained() -> None:
    settings = LearnerSettings(epochs=1, networks=2, updates=1, validation=2)
    row = Trainer(load_scenario("quick"), settings).run_epoch()
    page = (DOCS / "training.md").read_text(encoding="utf-8")
    table = page[page.index("## metrics.csv") : page.index("## summary.json")]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(row)
