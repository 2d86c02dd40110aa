"""What a run has spent, read from its folder: the half of `covey privacy` that looks back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import RenderableType
from safetensors import SafetensorError, safe_open

from covey.errors import ResumeError, ScenarioError
from covey.identification.rule import ScoreRule, rule_of
from covey.privacy import JOURNAL, Ledger, charge_lost, read_journal
from covey.privacy.accounting import Method
from covey.privacy.words import PROTECTED
from covey.report.privacy_section import Wording, draw_spent, not_covered, short, spent_holds, spent_record, spent_table
from covey.report.words import count, number
from covey.scenario import Scenario, load_stored_scenario
from covey.simulation.checkpoint import CHECKPOINT, read_checkpoint_header
from covey.simulation.history import PRIVACY_NOTES


@dataclass(frozen=True)
class Answer:
    """What the command shows: a sentence, a table, remarks, a picture, and all of it for machines.

    paste: options for `covey run`, or why none fit; empty where something else was asked.
    """

    sentence: str
    table: RenderableType
    holds: list[str]
    excluded: list[str]
    figure: Figure | None
    record: dict[str, Any]
    paste: str = ""


def raw_identities(scenario: Scenario) -> bool:
    """Whether tasks are found without noise: announced, or, with masked uploads, seen in who is in which sum."""
    rule = rule_of(scenario)
    return isinstance(rule, ScoreRule) and not rule.announcement.protected


def spent_by(folder: Path, method: Method | None, picture: bool) -> Answer:
    """What the run in `folder` has spent."""
    scenario, header, ledger, spent = _read_run(folder)
    chosen: Method = method or ("exact" if spent_holds(ledger, "exact") else "zcdp")
    if not spent_holds(ledger, chosen):
        raise ScenarioError(
            "the exact formula holds for Gaussian releases alone, but this run announced identities, which count as"
            " others; choose --method zcdp or simple, or leave it out"
        )
    values = ledger.epsilon(chosen)
    worst, played = int(ledger.rho.argmax()), header["round"]
    after = f"After {played} of {count(header['rounds'], 'round')}"
    if ledger.rho[worst] == 0:
        sentence = f"{after} nobody has spent anything."
    elif np.isinf(ledger.rho[worst]):
        sentence = f"{after} there is no guarantee: uploads left without noise."
    else:
        sentence = (
            f"{after} user {worst}, who spent most, is at epsilon {number(float(values[worst]), 5)} at delta"
            f" {short(ledger.delta)} ({chosen}); the mean of {count(ledger.users, 'user')} is"
            f" {number(float(values.mean()), 5)}."
        )
    holds = [
        PRIVACY_NOTES[scenario.privacy.noise],
        PROTECTED[ledger.unit, ledger.adjacency],
        "Public, that is known to everybody: numbers of samples, clipping norms, all noise levels, and who is served"
        " in which round.",
    ]
    if spent_holds(ledger, "exact"):
        holds.append(
            "The exact formula takes noise and schedule as fixed beforehand; where they followed from earlier outputs,"
            " it describes what happened. Only a budget, which is kept in zCDP or Renyi divergences, promises then."
        )
    if ledger.budget_epsilon is None:
        holds.append("There was no budget: what is shown was spent, but nothing had promised beforehand to stop there.")
    else:
        holds.append("The budget is kept by the zCDP formula; a release that would have exceeded it was not made.")
    excluded = not_covered(Wording(raw_identities=raw_identities(scenario)))
    record = {"sentence": sentence, "scenario": scenario.name, "noise": scenario.privacy.noise, "rounds": played}
    record |= {"rounds_planned": header["rounds"], "method": chosen, **spent_record(ledger)}
    record |= {"holds": holds, "not_covered": excluded}
    setting = f"scenario {scenario.name}, policy {header.get('policy')}, seed {header.get('seed')}"
    figure = draw_spent(ledger, spent, chosen, setting) if picture else None
    return Answer(sentence, spent_table(ledger), holds, excluded, figure, record)


def _read_run(folder: Path) -> tuple[Scenario, dict[str, Any], Ledger, NDArray[np.float64]]:
    """Scenario, header, ledger with all charges, and (T, U) totals of rho after each round of the run in a folder."""
    if not folder.is_dir():
        raise ResumeError(f"there is no folder '{folder}'; give one that `covey run` has written")
    for name in (CHECKPOINT, "scenario.toml"):
        if not (folder / name).is_file():
            raise ResumeError(f"'{folder}' holds no run: it has no {name}; give a folder that `covey run` has written")
    try:
        scenario, header = load_stored_scenario(folder / "scenario.toml"), read_checkpoint_header(folder, checked=True)
        ledger = Ledger.from_dict(header["ledger"])
        with safe_open(folder / CHECKPOINT, framework="numpy") as file:
            spent = file.get_tensor("users.rho") if "users.rho" in file.keys() else np.zeros((0, ledger.users))  # noqa: SIM118
        if not isinstance(header["round"], int) or not isinstance(header["rounds"], int):
            raise ValueError("it does not say how many rounds were played")
        if scenario.privacy.noise == "secure":  # seeded noise is the same again when a round is repeated
            ledger = charge_lost(ledger, read_journal(folder / JOURNAL), header["round"])
        return scenario, header, ledger, spent
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, ScenarioError, ResumeError) as error:
        lacks = f"its {CHECKPOINT} is damaged and lacks {error}" if isinstance(error, KeyError) else str(error)
        what = lacks.partition(" and cannot be resumed")[0]
        raise ResumeError(f"what the run in '{folder}' has spent cannot be read: {what}") from None
