"""Scenarios: the schema, the presets, and reading and writing them as TOML."""

from covey.scenario.first_values import DEFAULT_START, PAPER_START
from covey.scenario.load import PRESETS, dump_scenario, load_scenario, load_stored_scenario
from covey.scenario.schema import Scenario

__all__ = [
    "DEFAULT_START",
    "PAPER_START",
    "PRESETS",
    "Scenario",
    "dump_scenario",
    "load_scenario",
    "load_stored_scenario",
]
