"""JSON data of the training report.

| key | holds |
| --- | --- |
| `kind` | "training" |
| `name`, `algorithm` | of the scenario and the learner |
| `epochs`, `planned` | epochs finished and requested |
| `kinds` | kinds of violations: [column, short name, description] |
| `series` | columns of metrics.csv by name: a list over epochs, null for missing values |

Columns are explained in docs/training.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from covey.agents.settings import LearnerSettings
from covey.report.page_data import rounded
from covey.report.words import VIOLATION_NAMES, VIOLATION_WORDS
from covey.scenario import Scenario


def training_data(rows: Sequence[dict[str, Any]], settings: LearnerSettings, scenario: Scenario) -> dict[str, Any]:
    """The data of a training's report, from the rows of its metrics.csv."""
    names = list(rows[0]) if rows else ["epoch"]
    return {
        "kind": "training",
        "name": scenario.name,
        "algorithm": settings.algorithm,
        "epochs": len(rows),
        "planned": settings.epochs,
        "kinds": [[name, VIOLATION_NAMES[name], words] for name, words in VIOLATION_WORDS.items()],
        "series": {name: rounded([row[name] for row in rows]) for name in names},
    }
