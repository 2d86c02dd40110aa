from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from covey.allocation.groups import TooLargeError, shareable_groups

from .conftest import NOISE_W, POWER_W, make_instance


def groups_by_enumeration(received_w: np.ndarray, candidates: np.ndarray, floor: float) -> set[tuple[int, ...]]:
    stations = len(candidates)
    options = [[-1, *np.flatnonzero(row)] for row in candidates]
    found = set()
    for group in product(*options):
        users = [i for i in group if i >= 0]
        if len(set(users)) < len(users):
            continue
        good = all(
            received_w[group[b], b]
            >= floor * (NOISE_W + sum(received_w[group[q], b] for q in range(stations) if q != b and group[q] >= 0))
            for b in range(stations)
            if group[b] >= 0
        )
        if good:
            found.add(tuple(int(i) for i in group))
    return found


@pytest.mark.parametrize("seed", range(10))
def test_maximal_groups_generate_exactly_the_shareable_ones(seed: int) -> None:
    problem = make_instance(seed, stations=3, users=6, area_m=700.0)
    received_w = POWER_W * problem.gains
    candidates = problem.capable[:, problem.identities]
    everything = groups_by_enumeration(received_w, candidates, 1.0)
    maximal = shareable_groups(received_w, candidates, noise_w=NOISE_W, min_sinr=1.0, max_groups=10_000)
    rows = {tuple(int(i) for i in row) for row in maximal}
    assert len(rows) == len(maximal)
    subsets = {tuple(s) for row in rows for s in product(*[{-1, i} for i in row])}
    assert subsets == everything
    for row in rows:
        assert not any(other != row and all(a in (-1, b) for a, b in zip(row, other, strict=True)) for other in rows)


def test_limit() -> None:
    problem = make_instance(0, area_m=3000.0)
    with pytest.raises(TooLargeError, match="more than 10 groups"):
        shareable_groups(
            problem.gains, problem.capable[:, problem.identities], noise_w=NOISE_W, min_sinr=1.0, max_groups=10
        )
