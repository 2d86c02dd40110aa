from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.agents.networks import AdditiveHead, SubsetHead, combine, initialise, top
from covey.errors import PolicyError


def additive(parts: int = 3, inputs: int = 5, blocks: int = 2, seed: int = 0) -> AdditiveHead:
    head = AdditiveHead(inputs, 16, blocks, parts)
    initialise(head, np.random.default_rng(seed))
    return head


def subset(parts: int = 3, inputs: int = 5, users: int = 5, masked: bool = True, dueling: bool = True) -> SubsetHead:
    head = SubsetHead(inputs, 16, 2, parts, stations=3, users=users, dueling=dueling, masked=masked)
    initialise(head, np.random.default_rng(1))
    return head


def drawn(users: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    features = torch.from_numpy(rng.normal(size=(4, 3, users, 5)).astype(np.float32))
    return features, torch.from_numpy(rng.random((4, 3, users)) < 0.7)


@given(
    st.lists(st.floats(-5, 5, allow_nan=False), min_size=1, max_size=7),
    st.integers(1, 4),
    st.integers(0, 2**7 - 1),
)
@settings(max_examples=200)
def test_top_is_the_best_subset_by_brute_force(values: list[float], blocks: int, mask: int) -> None:
    eligible = [(mask >> i) & 1 == 1 for i in range(len(values))]
    utilities = torch.tensor([v if ok else -math.inf for v, ok in zip(values, eligible, strict=True)])
    chosen = top(utilities, blocks)
    best = max(
        sum(values[i] for i in members)
        for size in range(min(blocks, len(values)) + 1)
        for members in combinations([i for i, ok in enumerate(eligible) if ok], size)
    )
    assert chosen.sum() <= blocks
    assert float(sum(values[i] for i in np.flatnonzero(chosen.numpy()))) == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("parts", [1, 3])
def test_additive_best_has_the_highest_value_of_all_selections(parts: int) -> None:
    head, (features, eligible) = additive(parts), drawn()
    head.price.fill_(0.7)
    chosen = head.best(features, eligible)
    nobody = torch.zeros_like(chosen)
    reached = combine(head.value(features, chosen, nobody), head.price)
    for size in range(3):
        for members in combinations(range(5), size):
            other = torch.zeros(4, 3, 5, dtype=torch.bool)
            other[..., list(members)] = True
            allowed = (other & ~eligible).sum(dim=-1) == 0
            value = combine(head.value(features, other, nobody), head.price)
            assert torch.all((value <= reached + 1e-5) | ~allowed)


def test_additive_values_move_with_the_users() -> None:
    head, (features, _) = additive(), drawn()
    order = torch.tensor([3, 1, 4, 0, 2])
    values, base = head(features)
    moved, same_base = head(features[:, :, order])
    torch.testing.assert_close(moved, values[:, :, order])
    torch.testing.assert_close(same_base, base)


def test_being_first_adds_its_own_gain_behind_the_guard_only() -> None:
    head, (features, eligible) = additive(), drawn()
    chosen = torch.zeros(4, 3, 5, dtype=torch.bool)
    chosen[..., 2] = True
    plain, first = head.value(features, chosen, chosen & False), head.value(features, chosen, chosen)
    assert torch.equal(plain[..., :2], first[..., :2])
    lead, further = head.utilities(features, torch.ones_like(eligible))
    torch.testing.assert_close(first[..., 2] - plain[..., 2], (lead - further)[..., 2])


def test_additive_scores_any_number_of_users() -> None:
    features, eligible = drawn(users=40)
    assert additive().best(features, eligible).sum(dim=-1).max() <= 2


@pytest.mark.parametrize("dueling", [True, False])
def test_subset_best_is_the_best_allowed_subset(dueling: bool) -> None:
    head, (features, eligible) = subset(dueling=dueling), drawn()
    head.price.fill_(0.3)
    chosen = head.best(features, eligible)
    assert not torch.any(chosen & ~eligible)
    values = combine(head(features), head.price)
    forbidden = (~eligible).float() @ head.table.T > 0
    expected = values.masked_fill(forbidden, -math.inf).amax(dim=-1)
    torch.testing.assert_close(combine(head.value(features, chosen, chosen), head.price), expected)


def test_without_the_mask_a_station_may_choose_anybody() -> None:
    head, (features, _) = subset(masked=False), drawn()
    nobody = torch.zeros(4, 3, 5, dtype=torch.bool)
    free = head.best(features, nobody)
    assert free.any()
    assert not subset().best(features, nobody).any()


def test_subset_utilities_are_what_is_lost_without_a_user() -> None:
    head, (features, eligible) = subset(), drawn()
    utilities, same = head.utilities(features, eligible)
    assert same is utilities
    values = head(features)[..., -1].masked_fill((~eligible).float() @ head.table.T > 0, -math.inf)
    best = head.table[values.argmax(dim=-1)] > 0
    assert torch.equal(torch.isfinite(utilities), best)
    n, b = 1, 2
    for user in np.flatnonzero(best[n, b].numpy()):
        rest = best[n, b].clone()
        rest[user] = False
        row = int(np.flatnonzero((head.table.numpy() == rest.numpy()).all(axis=1))[0])
        lost = float((values[n, b].max() - values[n, b, row]).detach())
        assert float(utilities[n, b, user].detach()) == pytest.approx(max(lost, 1e-6), rel=1e-4)


def test_equal_generators_give_equal_weights() -> None:
    first, second, other = additive(seed=3), additive(seed=3), additive(seed=4)
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])
    assert not torch.equal(first.score.weight, other.score.weight)


def test_too_many_subsets_are_refused_with_a_way_out() -> None:
    with pytest.raises(PolicyError, match="additive head"):
        SubsetHead(5, 16, 4, 1, stations=3, users=100, dueling=True, masked=True)
