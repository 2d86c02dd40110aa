"""Data over time: what users hold in every round.

A change of data over time is a part (`covey.parts.DATA_OVER_TIME`): a class that is made with the scenario and the
seed of a run. The users' data of a round are a function of the first data, the round and the seed alone, so that a
resumed run goes on with the same data. Users keep their number of samples, which is public.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from covey.data.types import UserData
from covey.scenario import Scenario


class DataOverTime(ABC):
    """Base of all changes of data; needs: see `covey.parts.NEEDS`."""

    needs: ClassVar[frozenset[str]] = frozenset({"new_data"})

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario, self.seed = scenario, seed

    @abstractmethod
    def at(self, round: int, first: UserData) -> UserData:
        """What users hold in `round`, counted from 0, when they held `first` at the start.

        As many samples of each user, of the same shape and classes, in the same order of users. The same object as in
        the last round where nothing changed: other objects are copied to all worker processes.
        """


class Constant(DataOverTime):
    """Users keep what they hold."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def at(self, round: int, first: UserData) -> UserData:
        """`first`."""
        return first
