"""Data drift: the users' data in every round.

A change of data over time is a part (`covey.parts.DATA_OVER_TIME`): a class that is built with the scenario and the
seed of a run. The users' data of a round are a function of the initial data, the round and the seed alone, so that a
resumed run continues with the same data. Users keep their number of samples, which is public.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from covey.data.types import UserData
from covey.scenario import Scenario


class DataOverTime(ABC):
    """Base class of data drift; needs: see `covey.parts.NEEDS`."""

    needs: ClassVar[frozenset[str]] = frozenset({"new_data"})

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario, self.seed = scenario, seed

    @abstractmethod
    def at(self, round: int, first: UserData) -> UserData:
        """The users' data in `round`, counted from 0, given their initial data `first`.

        The number of samples of each user, their shape, the classes and the order of users must not change. Return the
        same object as in the last round where nothing changed: new objects are copied to all worker processes.
        """


class Constant(DataOverTime):
    """No drift: users keep their data."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def at(self, round: int, first: UserData) -> UserData:
        """`first`."""
        return first
