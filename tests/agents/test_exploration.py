from __future__ import annotations

import numpy as np

from covey.agents.exploration import explore, explore_utilities


def drawn(users: int = 8) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    choosable = rng.random((200, 3, users)) < 0.7
    selected = np.zeros_like(choosable)
    selected[..., :2] = choosable[..., :2]
    return selected, choosable


def test_nothing_changes_without_exploration() -> None:
    selected, choosable = drawn()
    assert np.array_equal(explore(selected, choosable, 3, 0.0, np.random.default_rng(1), flip=True), selected)


def test_explored_choices_stay_allowed_and_small() -> None:
    selected, choosable = drawn()
    for flip in (True, False):
        explored = explore(selected, choosable, 3, 1.0, np.random.default_rng(1), flip=flip)
        assert not np.any(explored & ~choosable)
        assert explored.sum(axis=-1).max() <= 3
        assert np.any(explored != selected)


def test_flips_stay_close_to_the_best_choice() -> None:
    selected, choosable = drawn()
    rng = np.random.default_rng(2)
    near = explore(selected, choosable, 8, 1.0, rng, flip=True)
    far = explore(selected, choosable, 8, 1.0, np.random.default_rng(2), flip=False)
    assert (near != selected).sum(axis=-1).mean() < (far != selected).sum(axis=-1).mean()


def test_about_as_many_choices_are_explored_as_asked() -> None:
    selected, choosable = drawn()
    explored = explore(selected, choosable, 3, 0.3, np.random.default_rng(3), flip=True)
    changed = (explored != selected).any(axis=-1).mean()
    assert 0.2 < changed < 0.35


def test_utilities_are_disturbed_more_the_more_is_explored() -> None:
    part = np.zeros((50, 3, 8))
    part[:, :, 0] = -np.inf
    rng = np.random.default_rng(0)
    same, _ = explore_utilities(part, part, 0.0, rng)
    assert np.array_equal(same, part)
    lead, further = explore_utilities(part, part, 1.0, rng)
    assert np.all(np.isneginf(lead[:, :, 0]))
    assert not np.array_equal(lead, further)
    shares = (further[:, :, 1:] > 0).mean(axis=(1, 2))
    assert shares.min() < 0.2
    assert shares.max() > 0.7
