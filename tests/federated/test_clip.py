from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.federated.networks import FAST, SLOW, Choosing, Network, cnn, make, mlp, samples
from torch import Tensor, nn

from covey.federated.clip import chunk_length, clipped_gradient_sum, group_gradients
from covey.federated.hook_strategy import Hooked
from covey.federated.one_by_one import OneByOne
from covey.federated.per_sample import looped_gradients
from covey.federated.strategies import strategy_for


def expected(module: nn.Module, x: Tensor, y: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """The sum of clipped gradients and the norms, sample by sample in float64."""
    rows = looped_gradients(module, x, y)[0].double()
    norms = rows.norm(dim=1)
    return (torch.clamp(clip / norms, max=1.0) @ rows), norms


def relative(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("network", [*FAST.values(), *SLOW.values()], ids=[*FAST, *SLOW])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_the_sum_equals_that_of_clipped_single_gradients(
    network: Network, dtype: torch.dtype, tolerance: float
) -> None:
    build, shape, classes = network
    module = make(build, dtype)
    x, y = samples(13, shape, classes, dtype)
    clip = float(expected(module, x, y, 1.0)[1].median())
    found = clipped_gradient_sum(module, x, y, clip)
    total, norms = expected(module, x, y, clip)
    assert relative(found.total, total) < tolerance
    assert relative(found.norms, norms) < tolerance
    losses = nn.functional.cross_entropy(module(x), y, reduction="none")
    assert relative(found.losses, losses.detach()) < tolerance
    assert found.rejected == 0
    assert found.total.dtype == found.norms.dtype == torch.float64
    assert not found.total.requires_grad
    assert not found.losses.requires_grad


@pytest.mark.parametrize("network", FAST.values(), ids=FAST)
def test_linear_and_convolutional_layers_have_hooks(network: Network) -> None:
    build, shape, classes = network
    module = make(build)
    assert isinstance(strategy_for(module, *samples(4, shape, classes)), Hooked)


@pytest.mark.parametrize("network", SLOW.values(), ids=SLOW)
def test_all_other_modules_are_differentiated_sample_by_sample(network: Network) -> None:
    build, shape, classes = network
    module = make(build)
    assert isinstance(strategy_for(module, *samples(4, shape, classes)), OneByOne)


def test_a_module_that_takes_another_path_is_treated_again_from_the_start() -> None:
    module = make(Choosing)
    x, y = samples(6, (3,), 3)
    x[5] *= 1000
    assert isinstance(strategy_for(module, x, y), Hooked)
    found = clipped_gradient_sum(module, x, y, 0.5, chunk=5)
    # The slow strategy takes the same chunks, so the large sample is alone in both.
    assert relative(found.total, expected(module, x, y, 0.5)[0]) < 1e-10
    assert isinstance(strategy_for(module, x, y), OneByOne)


@pytest.mark.parametrize("network", [FAST["cnn"], FAST["tokens"], FAST["residual"], SLOW["normed"]])
@pytest.mark.parametrize("clip", [1e-300, 1e-30, 1e-3, 0.7, 1e3, 1e30])
def test_no_sample_contributes_more_than_the_clipping_norm(network: Network, clip: float) -> None:
    build, shape, classes = network
    module = make(build, torch.float32)
    x, y = samples(12, shape, classes, torch.float32)
    x[::3] *= 100
    for i in range(len(x)):
        share = clipped_gradient_sum(module, x[i : i + 1], y[i : i + 1], clip)
        assert float(share.total.norm()) <= clip * (1 + 1e-6)
        if share.norms[0] > clip:
            assert float(share.total.norm()) == pytest.approx(clip, rel=1e-5)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(1e-6, 1e6), st.floats(1e-3, 1e4))
def test_replacing_one_sample_moves_the_sum_by_at_most_twice_the_clipping_norm(
    seed: int, clip: float, scale: float
) -> None:
    module = make(mlp, torch.float32)
    draw = torch.Generator().manual_seed(seed)
    x, y = torch.randn(9, 3, 4, generator=draw), torch.randint(4, (9,), generator=draw)
    other = x.clone()
    other[seed % 9] = scale * torch.randn(3, 4, generator=draw)
    one = clipped_gradient_sum(module, x, y, clip).total
    two = clipped_gradient_sum(module, other, y, clip).total
    assert float((one - two).norm()) <= 2 * clip * (1 + 1e-4)


@pytest.mark.parametrize("network", [FAST["cnn"], FAST["mlp"], FAST["tokens"], FAST["residual"], SLOW["normed"]])
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e38])
def test_a_sample_without_a_finite_gradient_counts_as_nothing(network: Network, value: float) -> None:
    build, shape, classes = network
    module = make(build, torch.float32)
    x, y = samples(8, shape, classes, torch.float32)
    others = [0, 1, 2, 4, 5, 6, 7]
    wanted = clipped_gradient_sum(module, x[others], y[others], 0.5, chunk=8)
    x[3] = value
    before = x.clone()
    found = clipped_gradient_sum(module, x, y, 0.5, chunk=8)
    assert torch.isfinite(found.total).all()
    assert torch.equal(x.nan_to_num(7.0), before.nan_to_num(7.0))
    if math.isfinite(float(found.norms[3])):
        # The network may saturate on large values; then the sample has a gradient and is clipped.
        assert found.rejected == 0
        assert float((found.total - wanted.total).norm()) <= 0.5 * (1 + 1e-5)
    else:
        assert found.rejected == 1
        torch.testing.assert_close(found.total, wanted.total, rtol=1e-5, atol=1e-6)


def test_a_zero_gradient_stays_zero() -> None:
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1e4, 0, 0], [-1e4, 0, 0]]))
        module.bias.zero_()
    x, y = torch.tensor([[1.0, 0, 0], [2.0, 0, 0]]), torch.tensor([0, 0])
    found = clipped_gradient_sum(module, x, y, 1.0)
    assert found.norms.tolist() == [0.0, 0.0]
    assert not found.total.any()
    assert found.rejected == 0


@pytest.mark.parametrize("chunk", [1, 2, 5, 100])
def test_the_chunk_length_changes_nothing_but_rounding(chunk: int) -> None:
    module = make(cnn, torch.float32)
    x, y = samples(11, (2, 10, 10), 3, torch.float32)
    wanted = clipped_gradient_sum(module, x, y, 0.3)
    found = clipped_gradient_sum(module, x, y, 0.3, chunk=chunk)
    assert relative(found.total, wanted.total) < 1e-5
    assert relative(found.norms, wanted.norms) < 1e-5


def test_no_clipping_gives_the_plain_gradient() -> None:
    module = make(cnn)
    x, y = samples(9, (2, 10, 10), 3)
    plain = torch.autograd.grad(nn.functional.cross_entropy(module(x), y, reduction="sum"), list(module.parameters()))
    found = clipped_gradient_sum(module, x, y, math.inf)
    assert relative(found.total, torch.cat([g.flatten() for g in plain])) < 1e-12


def test_no_samples_give_zeros() -> None:
    found = clipped_gradient_sum(make(mlp), torch.zeros(0, 3, 4), torch.zeros(0, dtype=torch.int64), 1.0)
    assert found.total.shape == (12 * 9 + 9 + 9 * 4,)
    assert not found.total.any()
    assert len(found.norms) == len(found.losses) == 0


def test_many_samples_pass_the_limit_of_what_layers_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covey.federated.hooks._KEPT_ELEMENTS", 30)
    module = make(mlp)
    x, y = samples(17, (3, 4), 4)
    found = clipped_gradient_sum(module, x, y, 0.4, chunk=2)
    assert relative(found.total, expected(module, x, y, 0.4)[0]) < 1e-10


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_a_clipping_norm_must_be_positive(clip: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        clipped_gradient_sum(make(mlp), *samples(2, (3, 4), 4), clip)


def test_a_chunk_must_hold_a_sample() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        clipped_gradient_sum(make(mlp), *samples(2, (3, 4), 4), 1.0, chunk=0)


def test_the_module_is_left_as_it_was() -> None:
    module = make(cnn)
    x, y = samples(5, (2, 10, 10), 3)
    before = [p.clone() for p in module.parameters()]
    clipped_gradient_sum(module, x, y, 1.0)
    with pytest.raises(RuntimeError):
        clipped_gradient_sum(module, x[:, :1], y, 1.0)
    assert all("forward" not in vars(layer) for layer in module.modules())
    assert all(p.grad is None for p in module.parameters())
    assert all(torch.equal(p, q) for p, q in zip(module.parameters(), before, strict=True))


def test_new_weights_are_seen_and_a_module_can_be_forgotten() -> None:
    module = make(mlp)
    x, y = samples(6, (3, 4), 4)
    clipped_gradient_sum(module, x, y, 1.0)
    with torch.no_grad():
        module[1].weight.mul_(2)  # type: ignore[index, union-attr, operator]
    module[3] = nn.Linear(9, 4, dtype=torch.float64)  # type: ignore[operator]
    found = clipped_gradient_sum(module, x, y, 1.0)
    assert relative(found.total, expected(module, x, y, 1.0)[0]) < 1e-10
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("network", [*FAST.values(), SLOW["normed"], SLOW["recurrent"]])
def test_group_gradients_are_those_of_the_groups_mean_losses(network: Network) -> None:
    build, shape, classes = network
    module = make(build)
    x, y = samples(12, shape, classes)
    rows, losses = group_gradients(module, x.view(4, 3, *shape), y.view(4, 3))
    single = looped_gradients(module, x, y)
    assert relative(rows, single[0].view(4, 3, -1).mean(1)) < 1e-10
    assert relative(losses, single[1].view(4, 3)) < 1e-10


def test_small_modules_take_longer_chunks() -> None:
    small, large = make(mlp), make(cnn)
    assert chunk_length(small, *samples(3, (3, 4), 4)) > chunk_length(large, *samples(3, (2, 10, 10), 3)) >= 8
