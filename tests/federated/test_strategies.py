from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.federated.networks import FAST, SLOW, Choosing, Idle, Network, Stray, Tied, Twice, cnn, make, mlp, pooled
from tests.federated.networks import samples as draw
from torch import Tensor, nn

from covey.errors import ScenarioError
from covey.federated.clip import chunk_length, clipped_gradient_sum, group_gradients
from covey.federated.hook_strategy import Hooked
from covey.federated.one_by_one import OneByOne
from covey.federated.per_sample import looped_gradients, mapped_gradients
from covey.federated.strategies import Floats, GradientStrategy, Trial, outputs_of, strategy_for, use_strategy
from covey.parts import GRADIENT_STRATEGIES
from covey.scenario.load import load_scenario
from covey.scenario.schema import Compute


class Doubled(Hooked):
    """Says that norms are twice what they are."""

    def run(self, x: Tensor, y: Tensor) -> tuple[Floats, Tensor]:
        squares, losses = super().run(x, y)
        return 4 * squares, losses


def nothing(module: nn.Module, trial: Trial) -> None:
    """A part that makes no strategy."""


@pytest.mark.parametrize("name", ["hooks", "one_by_one", "auto"])
def test_every_strategy_gives_the_gradients_of_plain_differentiation(name: str) -> None:
    module = make(cnn)
    x, y = draw(12, (2, 10, 10), 3)
    use_strategy(module, name)
    truth, losses = looped_gradients(module, x, y)
    found = clipped_gradient_sum(module, x, y, math.inf)
    torch.testing.assert_close(found.total, truth.sum(0), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.norms, truth.norm(dim=1), rtol=1e-9, atol=1e-12)
    rows, grouped = group_gradients(module, x.view(4, 3, *x.shape[1:]), y.view(4, 3))
    torch.testing.assert_close(rows, truth.view(4, 3, -1).mean(1), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(grouped.flatten(), losses)
    torch.testing.assert_close(outputs_of(module, x, y), module(x))


def test_compiled_gives_the_gradients_of_plain_differentiation() -> None:
    pytest.importorskip("llvmlite", reason="the compiled kernels are optional")
    module = make(pooled, torch.float32)
    x, y = draw(6, (3, 9, 10), 3, torch.float32)
    truth = looped_gradients(module, x, y)[0]
    sums = {}
    for name in ("compiled", "auto", "hooks"):
        use_strategy(module, name)
        sums[name] = clipped_gradient_sum(module, x, y, math.inf).total
        torch.testing.assert_close(sums[name].float(), truth.sum(0), rtol=1e-4, atol=1e-5)
    assert torch.equal(sums["compiled"], sums["auto"])
    assert not torch.equal(sums["compiled"], sums["hooks"])


def test_the_name_that_was_asked_for_last_counts() -> None:
    module = make(pooled, torch.float32)
    x, y = draw(6, (3, 9, 10), 3, torch.float32)
    for name, kind in (("hooks", Hooked), ("one_by_one", OneByOne), ("hooks", Hooked)):
        use_strategy(module, name)
        found = strategy_for(module, x, y)
        assert type(found) is kind
        use_strategy(module, name)
        assert strategy_for(module, x, y) is found


@pytest.mark.parametrize("network", [SLOW["twice"], SLOW["normed"]])
def test_modules_that_can_be_mapped_over_samples_are(network: Network) -> None:
    build, shape, classes = network
    module = make(build)
    found = strategy_for(module, *draw(4, shape, classes))
    assert isinstance(found, OneByOne)
    assert found.gradients is mapped_gradients


def test_a_trial_needs_one_sample_only_and_ignores_what_is_not_finite() -> None:
    module = make(mlp)
    x, y = draw(1, (3, 4), 4)
    x[0, 0, 0] = math.nan
    trial = Trial.of(module, x, y)
    assert trial.x.shape == (3, 3, 4)
    assert torch.isfinite(trial.truth).all()
    assert trial.conclusive
    assert isinstance(strategy_for(module, x, y), Hooked)


def test_where_nothing_can_be_compared_nothing_is_remembered() -> None:
    module = make(Idle)
    x, y = draw(3, (4,), 3)
    with torch.no_grad():
        module.out.weight.fill_(math.nan)  # type: ignore[union-attr, operator]
    first = strategy_for(module, x, y)
    assert strategy_for(module, x, y) is not first
    assert chunk_length(module, x, y) >= 8


@pytest.mark.parametrize(
    ("name", "build", "shape", "reason"),
    [
        ("hooks", SLOW["normed"][0], (2, 4, 4), r"layer '1' \(GroupNorm\) is not a plain Linear"),
        ("hooks", Twice, (6,), "calls a layer twice"),
        ("hooks", Tied, (6,), "two layers share a parameter"),
        ("hooks", Stray, (6,), "uses a parameter outside of its layer"),
        ("hooks", SLOW["time_first"][0], (4, 2), "are not the samples"),
        ("hooks", SLOW["even_same"][0], (2, 4, 4), "padded by more pixels on one side"),
        ("compiled", mlp, (3, 4), "no Conv2d of 3 x 3 kernels"),
        ("tests.federated.test_strategies:Doubled", mlp, (3, 4), "differ from those of plain differentiation"),
    ],
)
def test_a_strategy_that_was_asked_for_and_does_not_suit_says_why(
    name: str, build: type[nn.Module], shape: tuple[int, ...], reason: str
) -> None:
    module = make(build, torch.float32)
    x, y = draw(3, shape, 3, torch.float32)
    use_strategy(module, name)
    with pytest.raises(ScenarioError, match=rf"'{name}', which does not support.*{reason}.*'auto'$"):
        clipped_gradient_sum(module, x, y, 1.0)
    assert not any("forward" in vars(layer) for layer in module.modules())


def test_a_module_that_takes_another_path_later_is_refused_only_when_the_strategy_was_asked_for() -> None:
    module = make(Choosing)
    x, y = draw(6, (3,), 3)
    use_strategy(module, "hooks")
    outputs_of(module, x, y)
    x[5] *= 1000
    with pytest.raises(ScenarioError, match=r"'hooks', which does not support the module .Choosing.: the module calls"):
        clipped_gradient_sum(module, x, y, 0.5, chunk=5)
    use_strategy(module, "auto")
    assert clipped_gradient_sum(module, x, y, 0.5, chunk=5).rejected == 0
    assert isinstance(strategy_for(module, x, y), OneByOne)


def test_a_part_must_make_a_strategy() -> None:
    module = make(mlp)
    use_strategy(module, "tests.federated.test_strategies:nothing")
    with pytest.raises(ScenarioError, match=r"made None; it must make a covey.federated.strategies.GradientStrategy"):
        strategy_for(module, *draw(3, (3, 4), 4))


def test_an_unknown_name_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'hooks'"):
        use_strategy(make(mlp), "hoks")
    with pytest.raises(ScenarioError, match=r"'compield' is unknown; .*did you mean 'compiled'"):
        load_scenario("quick", ["compute.gradients=compield"])
    assert Compute().gradients == "auto"


def test_a_registered_strategy_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GRADIENT_STRATEGIES, "_registered", {})
    GRADIENT_STRATEGIES.register("mine", lambda module, trial: Hooked(module))
    module = make(mlp)
    use_strategy(module, "mine")
    assert isinstance(strategy_for(module, *draw(3, (3, 4), 4)), Hooked)


def test_every_built_in_strategy_can_be_imported() -> None:
    for name in GRADIENT_STRATEGIES.builtin:
        assert callable(GRADIENT_STRATEGIES.get(name))


@pytest.mark.parametrize("network", FAST.values(), ids=FAST)
def test_rejected_samples_leave_no_trace_in_any_strategy(network: Network) -> None:
    build, shape, classes = network
    module = make(build)
    x, y = draw(4, shape, classes)
    rejected = np.array([False, True, False, False])
    factors = torch.tensor([1.0, 0.0, 0.5, 2.0], dtype=torch.float64)
    truth = factors @ looped_gradients(module, x, y)[0]
    x[1] = math.nan
    for strategy in (Hooked(module), OneByOne(module, Trial.of(module, x, y))):
        assert isinstance(strategy, GradientStrategy)
        total = torch.zeros(len(truth), dtype=torch.float64)
        with strategy:
            strategy.run(x, y)
            strategy.add(factors, rejected, total)
            strategy.finish(total)
        torch.testing.assert_close(total, truth, rtol=1e-9, atol=1e-12)
