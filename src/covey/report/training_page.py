"""The report of a training as one self-contained web page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from covey.agents.settings import LearnerSettings
from covey.report import training_reading as reading
from covey.report.elements import document, folded, picture, player, plot, plots, section, settings, table, tiles
from covey.report.sheets import Sheet
from covey.report.training_data import training_data
from covey.report.words import VIOLATION_WORDS, count, number, percent
from covey.scenario import Scenario, dump_scenario

Rows = Sequence[dict[str, Any]]


def build_training_page(
    rows: Rows,
    learner: LearnerSettings,
    scenario: Scenario,
    *,
    seed: int,
    learning: str,
    versions: Mapping[str, str],
    image: bytes | None,
) -> str:
    """The page from the rows of metrics.csv; `image` is the training plot, None before the first epoch."""
    body = [_head(rows, learner, scenario, seed, learning)]
    if rows and image is not None:
        body += [_tiles(rows), player("epoch"), _still(image), *_results(rows, scenario)]
    else:
        body.append("<p>No epoch was finished, so there are no results. The settings below are those requested.</p>")
    body += [_repeat(learner, seed, learning), folded("Settings of the learner", table(_sheet(learner)))]
    body.append(settings(dump_scenario(scenario), versions))
    return document(f"covey training: {scenario.name}", body, training_data(rows, learner, scenario))


def _head(rows: Rows, learner: LearnerSettings, scenario: Scenario, seed: int, learning: str) -> str:
    done = len(rows) >= learner.epochs
    state = count(len(rows), "epoch") if done else f"{len(rows):,} of {count(learner.epochs, 'epoch')}"
    rounds = "surrogate rounds" if learning == "surrogate" else "real rounds"
    parts = [
        f"<h1>covey training: {escape(scenario.name)}</h1>",
        f"<p>{escape(scenario.description)}</p>" if scenario.description else "",
        f'<p class="muted">{escape(learner.algorithm)}, {escape(learner.head)} head, {escape(learner.penalty)} penalty,'
        f" seed {seed}, {state} on {rounds}.</p>",
    ]
    if not done:
        parts.append(
            f"<p><strong>This training was interrupted after {state}.</strong> Continue it with"
            " <code>covey train --resume --out FOLDER</code>, where FOLDER is that of this page.</p>"
        )
    return "".join(parts)


def _tiles(rows: Rows) -> str:
    last = rows[-1]
    entries = []
    for way in reading.WAYS:
        epoch, best = max(reading.known(rows, f"{way}_reward"), key=lambda pair: pair[1], default=(0, None))
        where = f"reward in epoch {epoch:,}" if epoch else "no validation yet"
        entries.append((f"Best validation, {way}", number(best, 4), where))
    entries += [
        ("Violating users", number(last["violators"]), "in an episode of the last epoch"),
        ("Served in a round", number(last["served"]), "in the last epoch"),
    ]
    return tiles(entries)


def _still(image: bytes) -> str:
    text = "Four charts over the epochs: reward of an episode, violating users, served users, loss with exploration."
    return picture(image, text, "The training; the sections below describe the charts.")


def _results(rows: Rows, scenario: Scenario) -> list[str]:
    over = f"Line chart over {count(len(rows), 'epoch')}"

    def ends(column: str) -> str:
        found = reading.known(rows, column)
        return f"from {number(found[0][1])} to {number(found[-1][1])}" if found else "without values"

    kinds = ", ".join(f"{words} {ends(name)}" for name, words in VIOLATION_WORDS.items())
    both = {way: ends(f"{way}_reward") for way in reading.WAYS}
    broke = {way: ends(f"{way}_violators") for way in reading.WAYS}
    return [
        section(
            "Reward",
            reading.on_reward(rows),
            plot(
                "reward",
                "Accumulated reward of an episode",
                f"{over}: validation reward, alone {both['alone']} and guarded {both['guarded']}; while exploring"
                f" {ends('reward')}, without the penalty {ends('reward_without_penalty')}.",
                note="Rewards of epochs with many violations lie below the chart. Drag over epochs to see them larger,"
                " double-click to see all epochs.",
            ),
        ),
        section(
            "Violations",
            reading.on_violations(rows),
            plots(
                plot(
                    "violations",
                    "Violating users of an episode, while exploring",
                    f"{over}: violating users in an episode {ends('violators')}; by kind: {kinds}.",
                ),
                plot(
                    "validation_violations",
                    "Violating users of a round in validations",
                    f"{over}: violating users in a round of validation, alone {broke['alone']} and guarded"
                    f" {broke['guarded']}.",
                ),
            ),
        ),
        section(
            "Service",
            reading.on_service(rows, scenario.network.users),
            plots(plot("served", "Served users of a round", f"{over}: users served in a round {ends('served')}.")),
        ),
        section(
            "Learning",
            reading.on_learning(rows),
            plots(
                plot("loss", "Loss of the value network", f"{over}: mean squared error {ends('loss')}."),
                plot(
                    "epsilon",
                    "Explored choices (epsilon)",
                    f"{over}: share of explored choices from {percent(rows[0]['epsilon'])} to"
                    f" {percent(rows[-1]['epsilon'])}, and share of rounds with a violation from"
                    f" {percent(rows[0]['violating_rounds'])} to {percent(rows[-1]['violating_rounds'])}.",
                ),
            ),
        ),
    ]


def _sheet(learner: LearnerSettings) -> Sheet:
    rows = [
        (name, str(getattr(learner, name)).lower(), field.description or "")
        for name, field in LearnerSettings.model_fields.items()
    ]
    return Sheet("As in docs/learner.md", ("setting", "value", "meaning"), rows, words=3)


def _repeat(learner: LearnerSettings, seed: int, learning: str) -> str:
    changed = [
        f"--learner {shlex.quote(f'{name}={str(getattr(learner, name)).lower()}')}"
        for name, field in LearnerSettings.model_fields.items()
        if getattr(learner, name) != field.default
    ]
    command = " ".join(["covey train scenario.toml", *changed, f"--seed {seed} --learning {learning} --out again"])
    return (
        "<section><h2>Repeat this training</h2><p>The scenario is in <code>scenario.toml</code> next to this page"
        " and below. With the same versions and calibration it gives a byte-identical policy.</p>"
        f"<pre>{escape(command)}</pre>"
        "<p>Use the policy with <code>covey run SCENARIO --policy policy.safetensors</code> and evaluate it with"
        " <code>covey evaluate policy.safetensors SCENARIO</code>.</p></section>"
    )
