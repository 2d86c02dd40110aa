from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.data.idx_files import PICTURES, write_idx

from covey.data import load_dataset, source_of
from covey.errors import DataError
from covey.scenario.schema import Data


def test_digits_are_named_and_normalised_by_public_constants(tmp_path: Path) -> None:
    dataset = load_dataset(Data(name="mnist", path=str(write_idx(tmp_path))))
    assert dataset.classes == tuple("0123456789")
    seen = dataset.normalise(dataset.x)
    np.testing.assert_allclose(seen[:, 0], (PICTURES / 255 - 0.1307) / 0.3081, rtol=1e-4, atol=1e-5)


def test_samples_are_counted_from_the_labels(tmp_path: Path) -> None:
    source = source_of("mnist")
    (write_idx(tmp_path / "mnist") / "t10k-images-idx3-ubyte").unlink()
    assert source.find is not None
    place = source.find(str(tmp_path))
    assert place == tmp_path / "mnist"
    assert source.count(place) == 5


def test_without_files_the_command_to_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"'mnist' is not in .*; run `covey data fetch mnist`, or put the four idx"):
        load_dataset(Data(name="mnist", path=str(tmp_path)))
