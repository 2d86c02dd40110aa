"""A partition in one file: groups that share no class, the hardest label skew there is.

covey run quick --set data.partition=examples.parts.class_split:deal
"""

from __future__ import annotations

import numpy as np

from covey.data import Dataset, UserData
from covey.data.dealing import deal_by_class
from covey.errors import DataError
from covey.scenario import Scenario


def deal(dataset: Dataset, scenario: Scenario, seed: int) -> UserData:
    """Class c belongs to group c modulo K; a group holds its classes about equally, on any data set."""
    tasks, classes = scenario.network.tasks, len(dataset.classes)
    if tasks > classes:
        raise DataError(
            f"{classes} classes of '{dataset.name}' cannot be split among {tasks} groups; set network.tasks to at most"
            f" {classes}"
        )
    held = np.arange(classes) % tasks == np.arange(tasks)[:, None]  # (K, classes)
    return deal_by_class(dataset, scenario, seed, held / held.sum(axis=1, keepdims=True))
