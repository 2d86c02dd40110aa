from __future__ import annotations

import numpy as np
import pytest

from covey.data import load_dataset, partition
from covey.data.sources.base import data_root, held_out
from covey.scenario.schema import Data


def test_digits_are_upright_images_with_a_fixed_held_out_fifth() -> None:
    dataset = load_dataset(Data(name="digits"))
    assert dataset.x.shape == (1797, 1, 8, 8)
    assert dataset.x.dtype == np.uint8
    assert dataset.x.max() == 16
    counts, held = np.bincount(dataset.y), np.bincount(dataset.y[dataset.test])
    assert np.abs(held / counts - 0.2).max() < 0.004
    # A zero has ink around an empty middle, a one has ink in the middle column.
    mean = [dataset.x[dataset.y == c, 0].mean(axis=0) for c in (0, 1)]
    assert mean[0][3:5, 3:5].max() < 5 < mean[1][3:5, 3:5].min()
    values = dataset.normalise(dataset.x)
    assert abs(values.mean()) < 0.01
    assert abs(values.std() - 1) < 0.01
    assert np.array_equal(dataset.test, load_dataset(Data(name="digits"), seed=9).test)


def test_held_out_is_a_fifth_of_every_class_and_fixed() -> None:
    y = np.repeat([0, 1, 2], [50, 10, 1])
    test = held_out(y)
    assert [int(test[y == c].sum()) for c in range(3)] == [10, 2, 0]
    assert np.array_equal(test, held_out(y))


def test_synthetic_classes_are_gaussian_around_their_centres() -> None:
    data = Data(name="synthetic", features=5, classes=3, noise=0.5)
    dataset = load_dataset(data, seed=4)
    assert dataset.shape == (5,)
    assert dataset.x.dtype == np.float32
    y = np.repeat(np.arange(3), 4000)
    x = dataset.draw(y, np.random.default_rng(0))
    for c in range(3):
        centre, pool = x[y == c].mean(axis=0), dataset.x[dataset.y == c].mean(axis=0)
        np.testing.assert_allclose(centre, pool, atol=5 * 0.5 / np.sqrt(200))
        np.testing.assert_allclose(x[y == c].std(axis=0), 0.5, rtol=0.05)
    assert not np.allclose(load_dataset(data, seed=5).x, dataset.x)
    assert np.array_equal(load_dataset(data, seed=4).x, dataset.x)


def test_centres_spread_like_a_standard_normal() -> None:
    dataset = load_dataset(Data(name="synthetic", features=400, classes=10, noise=0.0))
    centres = dataset.x[:: len(dataset.x) // 10]
    assert abs(centres.std() - 1) < 0.05


def test_synthetic_never_runs_out_and_halves_are_different_draws(scenario_of) -> None:
    scenario = scenario_of(users=300, name="synthetic", samples_min=200, samples_max=300, test_samples=200)
    dataset = load_dataset(scenario.data, seed=0)
    users = partition(dataset, scenario, seed=0)
    assert len(users.x) > 300 * 200 > len(dataset.x)
    assert len(np.unique(users.x[:, 0])) > 0.99 * len(users.x)
    assert len(np.intersect1d(users.x[:, 0], users.test_x[:, 0])) < 0.01 * len(users.x)
    again = partition(load_dataset(scenario.data, seed=0), scenario, seed=0)
    assert np.array_equal(users.x, again.x)
    centres = np.stack([dataset.x[dataset.y == c].mean(axis=0) for c in range(10)])
    nearest = ((users.x[:5000, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == users.y[:5000]).mean() > 0.97, "labels and features belong together"


def test_the_folder_is_path_then_environment_then_cache(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "env"))
    assert data_root("given") == data_root("given").__class__("given")
    assert data_root() == tmp_path / "env"
    monkeypatch.setenv("COVEY_DATA", "")
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    assert data_root() == tmp_path / ".cache" / "covey"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_root("~/mine") == tmp_path / "mine"
