from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from covey.data import Dataset
from covey.scenario.schema import Scenario


@pytest.fixture(autouse=True)
def _no_real_data(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests never see data sets of the machine they run on."""
    monkeypatch.setenv("COVEY_DATA", str(tmp_path_factory.mktemp("data_root")))
    monkeypatch.setattr("covey.data.sources.fashion_mnist.SYSTEM_FOLDERS", ())


def make_scenario(*, users: int = 12, tasks: int = 4, **data: Any) -> Scenario:
    """A scenario with these data settings and no noise, which would limit sample sizes."""
    return Scenario.model_validate(
        {
            "network": {"users": users, "tasks": tasks, "tasks_per_station": tasks},
            "data": data,
            "privacy": {"noise": "off"},
        }
    )


def make_dataset(
    *, classes: int = 10, train: int = 300, test: int = 60, shape: tuple[int, ...] = (1, 4, 4), writers: int = 0
) -> Dataset:
    """`train` and `test` samples of every class; the first two pixels of a sample spell its row number."""
    y = np.tile(np.arange(classes, dtype=np.int64), train + test)
    rows = np.arange(len(y))
    x = np.zeros((len(y), *shape), np.float32)
    x.reshape(len(y), -1)[:, 0] = rows
    x.reshape(len(y), -1)[:, 1] = y
    return Dataset(
        name="made",
        x=x,
        y=y,
        test=rows >= classes * train,
        classes=tuple(f"c{c}" for c in range(classes)),
        writer=(rows % writers).astype(np.int64) if writers else None,
    )


Scenarios = Callable[..., Scenario]
Datasets = Callable[..., Dataset]


@pytest.fixture
def scenario_of() -> Scenarios:
    return make_scenario


@pytest.fixture
def dataset_of() -> Datasets:
    return make_dataset
