"""Generates the page of learner settings: `python -m covey.agents.reference`."""

from __future__ import annotations

from covey.agents.settings import LITERAL, LearnerSettings
from covey.scenario.reference import fields_table


def settings_reference() -> str:
    """The learner's settings as Markdown: every key, its type, default and meaning."""
    lines = [
        "# Learner settings",
        "",
        "Generated; regenerate with `python -m covey.agents.reference > docs/learner.md`. Give them to `covey train`",
        "as `--learner key=value`; algorithm, head, penalty and epochs have options of their own. Unknown keys are",
        "errors.",
        "",
        *fields_table(list(LearnerSettings.model_fields.items())),
        "",
        "## The literal loop",
        "",
        "`--literal` starts from these values instead:",
        "",
        "| key | value |",
        "| --- | --- |",
        *(f"| `{key}` | `{value}` |" for key, value in LITERAL.items()),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(settings_reference(), end="")
