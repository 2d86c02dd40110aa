"""Local training and personal models of a scenario: made together, for some personal models are uploaded."""

from __future__ import annotations

from typing import Any

from covey.federated.personal.protocol import Personal
from covey.federated.training import LocalTraining
from covey.parts import LOCAL_TRAININGS, PERSONALS
from covey.scenario import Scenario


def build_training(scenario: Scenario) -> tuple[LocalTraining, Personal]:
    """The local training of a scenario, as its personal models have it, and these."""
    local: LocalTraining = LOCAL_TRAININGS.build(scenario.training.local, scenario)
    personal: Personal = PERSONALS.build(scenario.training.personal, scenario)
    training: Any = personal.training(local)
    if not isinstance(training, LocalTraining):
        why = f"gave {type(training).__name__} in `training`, not a covey.federated.LocalTraining"
        raise PERSONALS.refused(scenario.training.personal, why)
    return training, personal
