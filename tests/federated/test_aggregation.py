from __future__ import annotations

import numpy as np
import pytest

from covey.federated import aggregate_models
from covey.federated.aggregation.mean import _CHUNK


def case(seed: int, n: int = 9, weights: int = 7) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((n, weights)).astype(np.float32),
        rng.integers(4, size=n),
        rng.integers(3, size=n),
        rng.integers(1, 600, size=n),
        rng.standard_normal((5, weights)).astype(np.float32),
    )


@pytest.mark.parametrize("seed", range(10))
def test_two_stages_equal_one_weighted_mean(seed: int) -> None:
    uploads, task, station, samples, models = case(seed)
    new = aggregate_models(uploads, task, station, samples, models, 3)
    assert new.dtype == np.float32
    for k in range(5):
        members = task == k
        if not members.any():
            assert np.array_equal(new[k], models[k])
        else:
            wanted = np.average(uploads[members].astype(np.float64), axis=0, weights=samples[members])
            np.testing.assert_allclose(new[k], wanted, rtol=1e-6, atol=1e-7)


def test_models_are_averaged_in_pieces_as_they_would_be_whole() -> None:
    uploads, task, station, samples, models = case(1, weights=2 * _CHUNK + 3)
    new = aggregate_models(uploads, task, station, samples, models, 3)
    for part in (slice(0, _CHUNK), slice(_CHUNK, 2 * _CHUNK), slice(2 * _CHUNK, None)):
        alone = aggregate_models(uploads[:, part], task, station, samples, models[:, part], 3)
        assert np.array_equal(new[:, part], alone)


def test_the_result_does_not_depend_on_the_stations() -> None:
    uploads, task, station, samples, models = case(0)
    together = aggregate_models(uploads, task, np.zeros_like(station), samples, models, 1)
    np.testing.assert_allclose(aggregate_models(uploads, task, station, samples, models, 3), together, rtol=1e-6)


def test_a_task_without_uploads_keeps_its_model_bit_for_bit() -> None:
    models = np.array([[np.float32(0.1), np.nan, -0.0], [1, 2, 3]], np.float32)
    nobody = np.zeros(0, np.int64)
    new = aggregate_models(np.zeros((0, 3), np.float32), nobody, nobody, nobody, models, 2)
    assert new.tobytes() == models.tobytes()
    assert new is not models


def test_a_single_upload_becomes_the_model() -> None:
    upload = np.array([[0.1, 1e-30, 3e30]], np.float32)
    one = np.array([0])
    new = aggregate_models(upload, one, one, np.array([333]), np.zeros((1, 3), np.float32), 1)
    assert np.array_equal(new, upload)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": np.full(9, 5)}, "0 to 4"),
        ({"station": np.full(9, -1)}, "0 to 2"),
        ({"station": np.zeros(8, np.int64)}, "9 uploads"),
        ({"samples": np.zeros(9, np.int64)}, "at least 1"),
        ({"uploads": np.zeros((9, 6), np.float32)}, "7 weights"),
    ],
)
def test_wrong_arrays_are_refused(change: dict[str, np.ndarray], words: str) -> None:
    names = ("uploads", "task", "station", "samples", "models")
    arrays = dict(zip(names, case(1), strict=True)) | change
    with pytest.raises(ValueError, match=words):
        aggregate_models(**arrays, stations=3)
