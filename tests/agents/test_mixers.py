from __future__ import annotations

from itertools import product

import numpy as np
import torch

from covey.agents.mixers import Independent, MonotoneNetwork, Sum, build_mixer
from covey.agents.networks import initialise


def test_the_sum_is_best_where_every_station_is() -> None:
    values = torch.tensor(np.random.default_rng(0).normal(size=(3, 4)))  # 3 stations, 4 actions
    mixer = Sum()
    totals = {
        actions: float(mixer(torch.stack([values[b, a] for b, a in enumerate(actions)])[None], torch.zeros(1, 1)))
        for actions in product(range(4), repeat=3)
    }
    assert max(totals, key=lambda actions: totals[actions]) == tuple(values.argmax(dim=1).tolist())


def test_the_monotone_network_never_falls_when_a_station_gains() -> None:
    mixer = MonotoneNetwork(4, 10)
    initialise(mixer, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    values = torch.from_numpy(rng.normal(size=(200, 4)).astype(np.float32)).requires_grad_()
    state = torch.from_numpy(rng.normal(size=(200, 10)).astype(np.float32))
    mixer(values, state).sum().backward()
    assert values.grad is not None
    assert torch.all(values.grad >= 0)
    assert torch.any(values.grad > 0)


def test_with_one_station_sum_and_independent_are_the_same() -> None:
    values, state = torch.randn(5, 1), torch.zeros(5, 3)
    assert torch.equal(Sum()(values, state), Independent()(values, state))


def test_names_build_their_mixers() -> None:
    kinds = {name: type(build_mixer(name, 2, 3)) for name in ("none", "sum", "qmix")}  # type: ignore[arg-type]
    assert kinds == {"none": Independent, "sum": Sum, "qmix": MonotoneNetwork}
