"""The playground: feasible links, and the outcome, noise and epsilon of each policy. Nothing is trained."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from covey.association import quick_policies
from covey.dashboard.forms import Base, table_of
from covey.dashboard.network import Network
from covey.dashboard.runs_folder import Folder
from covey.dashboard.scenario_keys import NAME, PLAYGROUND
from covey.errors import ScenarioError
from covey.files import plain
from covey.parts import POLICIES
from covey.report.map import cells
from covey.report.page_data import PAGES
from covey.report.palette import group_colours, readable
from covey.report.words import VIOLATION_NAMES, VIOLATION_WORDS
from covey.scenario import Scenario
from covey.scenario.load import scenario_from_dict
from covey.scenario.part_names import PartName

#: Maximum number of policies in a request.
POLICIES_ASKED = 64
Coordinate = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Points = Annotated[list[tuple[Coordinate, Coordinate]], Field(min_length=1, max_length=PLAYGROUND["users"])]
Registered = Annotated[str, Field(max_length=NAME), PartName(POLICIES, own=False)]


class Question(Base):
    """A network: a scenario, and the positions of stations and users."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = Field(
        0, description="Seed of positions, samples and tasks that are not given."
    )
    round: Annotated[int, Field(ge=0, le=1_000_000)] = Field(0, description="Sets the turn order and the fading.")
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        None, description="Rounds that epsilon covers, all with these links; default: the scenario's."
    )
    stations_m: Points | None = Field(None, description="Stations as [x, y] in metres.")
    users_m: Points | None = Field(None, description="Users as [x, y] in metres.")
    tasks: Annotated[list[Annotated[int, Field(ge=0, le=10**6)]], Field(max_length=PLAYGROUND["users"])] | None = Field(
        None, description="Task of every user."
    )
    samples: Annotated[list[Annotated[int, Field(ge=1, le=10**6)]], Field(max_length=PLAYGROUND["users"])] | None = (
        Field(None, description="Samples of every user.")
    )
    policies: Annotated[list[Registered], Field(max_length=POLICIES_ASKED)] = Field(
        default_factory=quick_policies, description="Policies to evaluate; default: all quick policies."
    )


def play(question: Question, folder: Folder) -> dict[str, Any]:
    """The network, its links, and the outcome of each policy; JSON-serialisable.

    `links.alone_bps` (U, B) are interference-free rates, `links.feasible` (U, B) whether a user
    could be served there without interference. Per policy: `station`, `block`, `rate_bps`, `noise_std`,
    `rho`, `epsilon` and `reason` of every user, and `constraints` with slacks and whether they bind.
    """
    scenario = _scenario(question, folder)
    try:
        # Overflow and invalid operations raise here instead of giving infinity or NaN.
        with np.errstate(over="raise", invalid="raise", divide="ignore"):
            return _play(question, scenario)
    except (ArithmeticError, ValueError) as error:
        raise ScenarioError(f"these numbers cannot be computed with ({error}); use more usual ones") from None


def _play(question: Question, scenario: Scenario) -> dict[str, Any]:
    network = Network(scenario, question.seed, question.round, question.tasks, question.samples)
    limits = network.limits
    rounds = question.rounds or scenario.training.rounds
    answer = {
        "area_m": list(scenario.network.area_m),
        "stations_m": network.stations_m.tolist(),
        "station_tasks": [list(tasks) for tasks in scenario.network.station_tasks],
        "users_m": network.users_m.tolist(),
        "tasks": network.tasks.tolist(),
        "task_count": limits.tasks,
        "samples": network.samples.tolist(),
        "blocks": limits.radio.blocks,
        "downlink_slots": limits.radio.downlink_slots,
        "min_rate_bps": scenario.radio.min_rate_bps,
        "rounds": rounds,
        "delta": scenario.privacy.delta,
        "noise": scenario.privacy.noise,
        "cells_m": [cell.round(1).tolist() for cell in cells(network.stations_m, *scenario.network.area_m)],
        "colours": _colours(limits.tasks),
        "kinds": [[name, VIOLATION_NAMES[name], words] for name, words in VIOLATION_WORDS.items()],
        "links": {"alone_bps": network.alone_bps.tolist(), "feasible": network.feasible.tolist()},
        "policies": [network.outcome(name, rounds) for name in question.policies],
    }
    return dict(plain(answer))


@cache
def _colours(tasks: int) -> dict[str, list[str]]:
    """Colours of the tasks on a light and on a dark page."""
    found = group_colours(tasks)
    return {page: [readable(colour, behind) for colour in found] for page, behind in PAGES.items()}


def _scenario(question: Question, folder: Folder) -> Scenario:
    table, where = table_of(question, folder)
    network = table.setdefault("network", {})
    if isinstance(network, dict):
        for points, count, key in (
            (question.stations_m, "stations", "station_positions_m"),
            (question.users_m, "users", "user_positions_m"),
        ):
            if points is not None:
                network[key], network[count] = points, len(points)
    scenario = scenario_from_dict(table, where=where)
    for key, largest in PLAYGROUND.items():
        if getattr(scenario.network, key) > largest:
            raise ScenarioError(
                f"the playground takes at most {largest} {key}, but there are {getattr(scenario.network, key)}; lower"
                f" network.{key}"
            )
    return scenario
