"""Transforms: what models see of samples, computed from each sample alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey import simulate
from covey.data.transforms.hog import CELLS, DIRECTIONS, FINE, hog, hog_fine
from covey.data.transforms.protocol import CHUNK, transform_users, transformed, transformed_shape
from covey.errors import CoveyError, DataError, ScenarioError
from covey.scenario import load_scenario
from covey.scenario.schema import Data
from covey.simulation.run import user_data

EDGES = (CELLS - 1) ** 2 * 4 * DIRECTIONS
PLAIN = Data()
HOG = Data(transform="hog")


def images(n: int, channels: int = 1, side: int = 12, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(n, channels, side, side)).astype(np.float32)


def test_none_changes_nothing() -> None:
    x = images(5)
    assert transformed(PLAIN, x) is x
    assert transformed_shape(PLAIN, (3, 4, 4)) == (3, 4, 4)
    scenario = load_scenario("quick")
    users = user_data(scenario, 0)
    assert transform_users(scenario.data, users) is users


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 9), (1, 28)])
def test_hog_has_its_shape_and_length_one(channels: int, side: int) -> None:
    features = hog(images(6, channels, side), HOG)
    assert features.shape == (6, EDGES + CELLS**2 * channels)
    assert features.dtype == np.float32
    assert np.linalg.norm(features, axis=1) == pytest.approx(1.0, abs=1e-4)
    assert transformed_shape(HOG, (channels, side, side)) == features.shape[1:]


def test_the_fine_grid_comes_after_the_coarse_one() -> None:
    x = images(4, 3, 16)
    fine, coarse = hog_fine(x, Data(transform="hog_fine")), hog(x, HOG)
    assert fine.shape == (4, EDGES + (FINE - 1) ** 2 * 4 * DIRECTIONS + CELLS**2 * 3)
    assert np.linalg.norm(fine, axis=1) == pytest.approx(1.0, abs=1e-4)
    first, same = fine[:, :EDGES], coarse[:, :EDGES]
    assert np.allclose(
        first / np.linalg.norm(first, axis=1)[:, None], same / np.linalg.norm(same, axis=1)[:, None], atol=1e-5
    )
    with pytest.raises(DataError, match="8 x 8 cells, but these have 7 x 7 pixels"):
        hog_fine(images(2, 1, 7), HOG)


def test_every_sample_is_mapped_by_itself_in_any_number() -> None:
    x = images(CHUNK + 3)
    together = transformed(HOG, x)
    assert np.allclose(together[CHUNK - 1 : CHUNK + 2], hog(x[CHUNK - 1 : CHUNK + 2], HOG), atol=1e-6)
    changed = x.copy()
    changed[7] *= -1.0
    moved = np.flatnonzero(np.abs(transformed(HOG, changed) - together).max(axis=1) > 1e-6)
    assert moved.tolist() == [7]


def test_a_ramp_votes_for_the_direction_in_which_it_rises() -> None:
    side = 16
    for quarter in range(4):
        ramp = np.tile(np.arange(side, dtype=np.float32), (side, 1))
        turned = np.rot90(ramp, -quarter)  # rises to the right, downwards, to the left, upwards
        edges = hog(np.ascontiguousarray(turned)[None, None], HOG)[0, :EDGES]
        strength = edges.reshape(DIRECTIONS, -1).mean(axis=1)
        assert strength.argmax() == quarter * DIRECTIONS // 4
        assert (np.delete(strength, strength.argmax()) < strength.max() - 1e-3).all()


def test_edges_do_not_depend_on_brightness_or_contrast() -> None:
    x = images(4)
    edges, others = (hog(values, HOG)[:, :EDGES] for values in (x, 3.0 * x + 2.0))
    # Lengths differ, because the means do; directions agree up to what is added to lengths.
    cosines = (edges * others).sum(1) / np.linalg.norm(edges, axis=1) / np.linalg.norm(others, axis=1)
    assert cosines == pytest.approx(1.0, abs=1e-3)


def test_of_several_channels_the_one_that_changes_most_votes() -> None:
    gray = images(3)
    coloured = np.concatenate([0.1 * images(3, seed=1), gray, 0.1 * images(3, seed=2)], axis=1)
    edges, others = hog(gray, HOG)[:, :EDGES], hog(coloured, HOG)[:, :EDGES]
    cosines = (edges * others).sum(1) / np.linalg.norm(edges, axis=1) / np.linalg.norm(others, axis=1)
    assert cosines.min() > 0.97


def test_an_empty_image_has_finite_features() -> None:
    assert np.isfinite(hog(np.zeros((2, 1, 8, 8), np.float32), HOG)).all()


def test_hog_takes_images_of_enough_pixels() -> None:
    with pytest.raises(
        DataError, match=re.escape("takes images (channels, height, width), but samples have shape (20,)")
    ):
        transformed(HOG, np.zeros((2, 20), np.float32))
    with pytest.raises(DataError, match="3 x 3 pixels"):
        transformed(HOG, np.zeros((2, 1, 3, 3), np.float32))


OWN = {
    "def own(x, data):\n    return x - x.mean(axis=0)": "other features in other company",
    "def own(x, data):\n    return x / (1e-6 + abs(x).max())": "other features in other company",
    "def own(x, data):\n    return x - x.mean(axis=0) if len(x) > 5 else x": "other features in other company",
    "def own(x, data):\n    return x.astype('float64')": "returned float64",
    "def own(x, data):\n    return x[:-1]": "return float32 of shape",
    "def own(x, data):\n    return x.tolist()": "returned list, not a numpy array",
    "def own(x, data):\n    return x * float('nan')": "NaN or infinity",
    "def own(x, data):\n    return x[:, :0]": "empty",
    "def own(x, data):\n    x -= 1\n    return x": "read-only",
    "def own(x, data):\n    raise KeyError('nothing here')": "nothing here",
}


@pytest.mark.parametrize(("source", "message"), OWN.items())
def test_mistakes_of_own_transforms_are_one_sentence(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"own_transform_{[*OWN].index(source)}"
    (tmp_path / f"{name}.py").write_text(source + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CoveyError, match=message) as caught:
        transformed(Data(transform=f"{name}:own"), images(8))
    assert f"{name}:own" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_own_transform_is_what_models_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_halves.py").write_text("def halves(x, data):\n    return x[:, :, ::2, ::2].copy()\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    seen = load_scenario("quick", ["data.transform=own_halves:halves"])
    users, plain = user_data(seen, 3), user_data(load_scenario("quick"), 3)
    assert users.shape == (1, 4, 4)
    assert np.array_equal(users.x, plain.x[:, :, ::2, ::2])
    assert np.array_equal(users.test_x, plain.test_x[:, :, ::2, ::2])
    assert np.array_equal(users.y, plain.y)


def test_runs_train_on_features() -> None:
    history = simulate(load_scenario("quick", ["data.transform=hog", "privacy.noise=off"]), "greedy", seed=1, rounds=3)
    assert history.models.shape[1] == (EDGES + CELLS**2 + 1) * 10
    assert history.records[-1].accuracy > history.records[0].accuracy


def test_data_that_are_given_beside_a_transform_are_refused() -> None:
    data = user_data(load_scenario("quick"), 1)
    with pytest.raises(ScenarioError, match=r"^data was given, but data\.transform is 'hog'.*data\.transform=none$"):
        simulate(load_scenario("quick", ["data.transform=hog"]), data=data, rounds=1)
    named = load_scenario("quick", ["data.transform=hog"])
    given = simulate("quick", seed=1, data=user_data(named, 1), rounds=1)
    assert given.models.tolist() == simulate(named, seed=1, rounds=1).models.tolist()
