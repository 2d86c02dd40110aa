from __future__ import annotations

import numpy as np
import pytest

from covey.data import Source, load_dataset, partition, register_dataset, source_of
from covey.errors import DataError
from covey.parts import DATASETS, PARTITIONS
from covey.scenario.schema import Data


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (DATASETS, PARTITIONS):
        monkeypatch.setattr(registry, "_registered", {})


def test_a_registered_loader_gets_the_section_and_the_seed(dataset_of, scenario_of) -> None:
    asked = []

    def loader(data, seed):
        asked.append((data.path, seed))
        return dataset_of()

    register_dataset("mine", loader)
    scenario = scenario_of(name="mine", path="somewhere", samples_min=20, samples_max=30, test_samples=10)
    users = partition(load_dataset(scenario.data, groups=4, seed=7), scenario, 7)
    assert asked == [("somewhere", 7)]
    assert users.users == 12
    assert "mine" in DATASETS.names
    assert isinstance(source_of("mine"), Source)
    register_dataset("mine", lambda data, seed: dataset_of(classes=3))
    assert len(load_dataset(scenario.data).classes) == 3


@pytest.mark.parametrize("name", ["", "digits", "folder"])
def test_built_in_names_cannot_be_replaced(name: str, dataset_of) -> None:
    with pytest.raises(ValueError, match="choose a name"):
        register_dataset(name, lambda data, seed: dataset_of())


def test_a_loader_must_return_a_dataset() -> None:
    register_dataset("mine", lambda data, seed: np.zeros(3))
    with pytest.raises(DataError, match="returned ndarray"):
        load_dataset(Data(name="mine"))


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match="did you mean 'cifar10'"):
        Data(name="cifar")
    with pytest.raises(DataError, match="module:attribute"):
        load_dataset(Data.model_construct(name="zzz", partition="label_mix"))


def test_a_partition_that_cannot_work_is_refused_before_anything_is_read() -> None:
    register_dataset("mine", lambda data, seed: pytest.fail("was read"))
    with pytest.raises(DataError, match="at most 4"):
        load_dataset(Data(name="mine", partition="rotation"), groups=5)


def test_loaders_and_partitions_by_reference(tmp_path, monkeypatch, dataset_of, scenario_of) -> None:
    (tmp_path / "own_data.py").write_text(
        "from covey.data.partitions import label_mix\n\n"
        "def loader(data, seed):\n    'Noise.'\n    return dataset\n\n"
        "def halves(dataset, scenario, seed):\n    return label_mix(dataset, scenario, seed)\n\n"
        "halves.most_groups = 2\n\n"
        "def wrong(dataset, scenario, seed):\n    return 3\n\n"
        "number = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import own_data  # type: ignore[import-not-found]

    own_data.dataset = dataset_of()
    given = {"name": "own_data:loader", "samples_min": 20, "samples_max": 30, "test_samples": 10}
    scenario = scenario_of(tasks=2, partition="own_data:halves", **given)
    assert source_of("own_data:loader").about == "Noise."
    assert partition(load_dataset(scenario.data, groups=2), scenario, 0).users == 12
    with pytest.raises(DataError, match="tells 2 groups apart"):
        load_dataset(scenario.data, groups=3)
    with pytest.raises(DataError, match=r"returned int, not a covey.UserData"):
        partition(own_data.dataset, scenario_of(tasks=2, partition="own_data:wrong", **given), 0)
    with pytest.raises(DataError, match="neither a Source nor a loader"):
        source_of("own_data:number")
