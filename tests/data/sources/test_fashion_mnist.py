from __future__ import annotations

from pathlib import Path

import pytest
from tests.data.idx_files import write_idx

from covey.data import Dataset, load_dataset
from covey.data.sources import fashion_mnist
from covey.errors import DataError
from covey.scenario.schema import Data


def load(path: Path | None) -> Dataset:
    return load_dataset(Data(name="fashion_mnist", path=str(path) if path else None))


def test_clothes_are_named(tmp_path: Path) -> None:
    assert load(write_idx(tmp_path)).classes[9] == "ankle boot"


def test_the_system_folder_is_used_only_without_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fashion_mnist, "SYSTEM_FOLDERS", (write_idx(tmp_path / "system"),))
    assert load(None).source == str(tmp_path / "system")
    with pytest.raises(DataError, match="dataset-fashion-mnist"):
        load(tmp_path / "elsewhere")
