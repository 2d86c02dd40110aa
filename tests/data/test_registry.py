from __future__ import annotations

import numpy as np
import pytest

from covey.data import known_datasets, load_dataset, partition, register_dataset
from covey.data import sources as package
from covey.errors import DataError
from covey.scenario.schema import Data


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "_registered", {})


def test_a_registered_loader_gets_the_section_and_the_seed(dataset_of, scenario_of) -> None:
    asked = []

    def loader(data, seed):
        asked.append((data.path, seed))
        return dataset_of()

    register_dataset("mine", loader)
    scenario = scenario_of(name="mine", path="somewhere", samples_min=20, samples_max=30, test_samples=10)
    users = partition(load_dataset(scenario.data, tasks=4, seed=7), scenario, 7)
    assert asked == [("somewhere", 7)]
    assert users.users == 12
    assert "mine" in known_datasets()
    register_dataset("mine", lambda data, seed: dataset_of(classes=3))
    assert len(load_dataset(scenario.data).classes) == 3


@pytest.mark.parametrize("name", ["", "digits", "folder"])
def test_built_in_names_cannot_be_replaced(name: str, dataset_of) -> None:
    with pytest.raises(ValueError, match="choose a name other than"):
        register_dataset(name, lambda data, seed: dataset_of())


def test_a_loader_must_return_a_dataset() -> None:
    register_dataset("mine", lambda data, seed: np.zeros(3))
    with pytest.raises(DataError, match="returned ndarray"):
        load_dataset(Data(name="mine"))


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(DataError, match="did you mean 'cifar10'"):
        load_dataset(Data(name="cifar"))
    with pytest.raises(DataError, match="register_dataset"):
        load_dataset(Data(name="zzz"))


def test_a_partition_that_cannot_work_is_refused_before_anything_is_read() -> None:
    register_dataset("mine", lambda data, seed: pytest.fail("was read"))
    with pytest.raises(DataError, match="at most 4"):
        load_dataset(Data(name="mine", partition="rotation"), tasks=5)
