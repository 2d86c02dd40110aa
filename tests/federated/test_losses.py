"""Losses: gradients against plain differentiation, what is refused, and one loss everywhere in a run."""

from __future__ import annotations

import copy
import math
import pickle
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.deploy.near import make_devices, small
from tests.federated.networks import FAST, SLOW, Network, make, mlp, pooled
from tests.federated.networks import samples as draw
from torch import Tensor, nn
from torch.nn import functional

import covey
from covey.environment.calibration import learning_settings
from covey.errors import CoveyError, ScenarioError
from covey.evaluation import Central, central
from covey.evaluation.bound_runs import play_and_measure
from covey.federated import Ditto, PersonalProblem, build_loss, clipped_gradient_sum, load_flat, loss_of, use_loss
from covey.federated.clip import group_gradients
from covey.federated.hook_strategy import Hooked
from covey.federated.losses import OwnLoss, cross_entropy, differentiated, focal, label_smoothing
from covey.federated.one_by_one import OneByOne
from covey.federated.per_sample import mapped_gradients
from covey.federated.steps import bounded_scores, loss_table, sample_losses, task_scores
from covey.federated.strategies import strategy_for, use_strategy
from covey.federated.training.sgd import _mean_gradient
from covey.parts import LOSSES
from covey.scenario import PAPER_START, Scenario, load_scenario
from covey.simulation.run import user_data

HERE = "tests.federated.test_losses"
SQUARED = "examples.parts.squared_error:squared_error"
calls = 0


def margin(outputs: Tensor, y: Tensor) -> Tensor:
    """By how much the best wrong class comes within 1 of the right one, squared."""
    right = outputs.gather(1, y[:, None])[:, 0]
    wrong = outputs.masked_fill(torch.arange(outputs.shape[1]) == y[:, None], -torch.inf).amax(1)
    return (1.0 + wrong - right).clamp_min(0.0).square()


weighted = partial(functional.cross_entropy, reduction="none", label_smoothing=0.3)


def centred(outputs: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(outputs - outputs.mean(0), y)


def balanced(outputs: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(outputs, y) / functional.one_hot(y).sum(0)[y]


def shared(outputs: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(outputs, y) / len(y)


def by_place(outputs: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(outputs, y) * torch.arange(1, len(y) + 1)


def hidden(outputs: Tensor, y: Tensor) -> Tensor:
    """The values are those of single samples, but the gradient is that of all."""
    losses = cross_entropy(outputs, y)
    return losses + losses.detach().mean() * (losses - losses.detach())


def relabelled(outputs: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy that writes class 0 over all classes."""
    y[:] = 0
    return cross_entropy(outputs, y)


def to_class_0(outputs: Tensor, y: Tensor) -> Tensor:
    """The losses of `relabelled`, without writing."""
    return cross_entropy(outputs, torch.zeros_like(y))


def overwritten(outputs: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy that makes the outputs those of a perfect model, where nothing is differentiated."""
    losses = cross_entropy(outputs, y)
    if not outputs.requires_grad:
        outputs[:] = functional.one_hot(y, outputs.shape[1]).to(outputs)
    return losses


def mean(outputs: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, y)


def column(outputs: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(outputs, y)[:, None]


def whole(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs.argmax(1) - y


def wrong(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs.argmax(1) != y).float()


def unstable(outputs: Tensor, y: Tensor) -> Tensor:
    return (outputs.exp().exp().sum(1)).log()


def rooted(outputs: Tensor, y: Tensor) -> Tensor:
    """Finite, with an infinite gradient at 0."""
    return cross_entropy(outputs, y) + (outputs - outputs).sum(1).sqrt()


def drawn(outputs: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(outputs, y) * torch.rand(len(y))


def numbers(outputs: Tensor, y: Tensor) -> Any:
    return cross_entropy(outputs, y).tolist()


def failing(outputs: Tensor, y: Tensor) -> Tensor:
    raise KeyError("weights")


def tiring(outputs: Tensor, y: Tensor) -> Tensor:
    """Works on small numbers only."""
    if outputs.abs().max() > 1e3:
        raise ValueError("too\nlarge")
    return cross_entropy(outputs, y)


def of_one(outputs: Tensor) -> Tensor:
    return outputs.sum(1)


def truth_of(loss: Callable[[Tensor, Tensor], Tensor], module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Gradients (n, D) and losses (n,) by one plain backward pass for each sample."""
    rows, losses = [], []
    for i in range(len(x)):
        module.zero_grad()
        value = loss(module(x[i : i + 1]), y[i : i + 1]).sum()
        value.backward()  # type: ignore[no-untyped-call]
        rows.append(torch.cat([(p.grad if p.grad is not None else 0 * p).flatten() for p in module.parameters()]))
        losses.append(value.detach())
    module.zero_grad()
    return torch.stack(rows).detach(), torch.stack(losses)


@pytest.mark.parametrize("loss", [focal, label_smoothing, margin], ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("name", ["hooks", "one_by_one", "auto"])
@pytest.mark.parametrize("network", [FAST["cnn"], FAST["mlp"], FAST["tokens"], SLOW["twice"], SLOW["normed"]])
def test_per_sample_gradients_are_those_of_plain_differentiation(network: Network, name: str, loss: Any) -> None:
    build, shape, classes = network
    if name == "hooks" and network in SLOW.values():
        return  # tests/federated/test_strategies.py has these refusals
    module = make(build)
    x, y = draw(12, shape, classes)
    truth, losses = truth_of(loss, module, x, y)
    use_loss(module, loss)
    use_strategy(module, name)
    found = clipped_gradient_sum(module, x, y, math.inf, chunk=5)
    if name == "one_by_one":
        strategy = strategy_for(module, x, y)
        assert isinstance(strategy, OneByOne)
        assert strategy.gradients is mapped_gradients  # the quicker way agrees with single passes, on this loss too
    close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-12)
    close(found.total, truth.sum(0))
    close(found.norms, truth.norm(dim=1))
    close(found.losses, losses)
    clip = float(truth.norm(dim=1).median())
    clipped = clipped_gradient_sum(module, x, y, clip).total
    close(clipped, (truth * (clip / truth.norm(dim=1, keepdim=True)).clamp_max(1.0)).sum(0), rtol=1e-6)
    rows, grouped = group_gradients(module, x.view(4, 3, *shape), y.view(4, 3))
    close(rows, truth.view(4, 3, -1).mean(1))
    close(grouped.flatten(), losses)


@pytest.mark.parametrize("loss", [focal, margin], ids=lambda loss: loss.__name__)
def test_compiled_kernels_take_any_loss(loss: Any) -> None:
    pytest.importorskip("llvmlite", reason="the compiled kernels are optional")
    module = make(pooled, torch.float32)
    x, y = draw(9, (3, 9, 10), 3, torch.float32)
    truth = truth_of(loss, module, x, y)[0]
    use_loss(module, loss)
    sums = {}
    for name in ("compiled", "auto", "hooks"):
        use_strategy(module, name)
        sums[name] = clipped_gradient_sum(module, x, y, math.inf).total
        torch.testing.assert_close(sums[name].float(), truth.sum(0), rtol=1e-4, atol=1e-5)
    assert torch.equal(sums["compiled"], sums["auto"])
    assert not torch.equal(sums["compiled"], sums["hooks"])


def test_another_loss_of_the_same_module_gets_another_trial() -> None:
    module = make(mlp)
    x, y = draw(6, (12,), 4)
    strategy = strategy_for(module, x, y)
    assert isinstance(strategy, Hooked)
    assert strategy.chain is not None
    plain = clipped_gradient_sum(module, x, y, math.inf)
    use_loss(module, focal)
    assert strategy_for(module, x, y) is not strategy
    other = clipped_gradient_sum(module, x, y, math.inf)
    assert not torch.allclose(plain.losses, other.losses)
    use_loss(module, cross_entropy)
    assert torch.equal(clipped_gradient_sum(module, x, y, math.inf).total, plain.total)


def test_copies_of_a_module_keep_its_loss_and_the_default_leaves_no_trace() -> None:
    module = make(mlp)
    before = set(vars(module))
    assert loss_of(module) is cross_entropy
    use_loss(module, focal)
    assert loss_of(copy.deepcopy(module)) is focal
    assert loss_of(pickle.loads(pickle.dumps(module))) is focal
    use_loss(module, cross_entropy)
    assert set(vars(module)) == before
    assert loss_of(module) is cross_entropy


@pytest.mark.parametrize("count", [1, 7, 64, 300])
def test_the_default_has_the_bits_of_pytorch_with_means_and_sums(count: int) -> None:
    torch.manual_seed(count)
    module = nn.Sequential(nn.Flatten(), nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 4))
    x, y = draw(count, (12,), 4, torch.float32)
    parameters = list(module.parameters())
    weights = torch.cat([p.detach().flatten() for p in parameters])
    summed = torch.autograd.grad(functional.cross_entropy(module(x), y, reduction="sum") / 50, parameters)
    assert torch.equal(_mean_gradient(module, weights, x, y, 50), torch.cat([g.flatten() for g in summed]))
    averaged = torch.autograd.grad(functional.cross_entropy(module(x), y), parameters)
    ours = torch.autograd.grad(cross_entropy(module(x), y).mean(), parameters)
    assert all(map(torch.equal, averaged, ours))
    outputs = module(x).detach()
    leaves = outputs.clone().requires_grad_()
    functional.cross_entropy(leaves, y, reduction="sum").backward()  # type: ignore[no-untyped-call]
    losses, slopes = differentiated(cross_entropy, outputs, y)
    assert leaves.grad is not None
    assert torch.equal(slopes, leaves.grad)
    assert torch.equal(losses, functional.cross_entropy(outputs, y, reduction="none"))


def test_formulas_of_the_built_in_losses() -> None:
    outputs = torch.randn(20, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3
    y = torch.arange(20) % 5
    logs = outputs.numpy() - np.log(np.exp(outputs.numpy()).sum(1, keepdims=True))
    right = logs[np.arange(20), y.numpy()]
    np.testing.assert_allclose(cross_entropy(outputs, y), -right)
    np.testing.assert_allclose(label_smoothing(outputs, y), -(0.9 * right + 0.1 * logs.mean(1)))
    np.testing.assert_allclose(focal(outputs, y), -((1 - np.exp(right)) ** 2) * right)
    sure = torch.tensor([[80.0, -80.0]], requires_grad=True)
    losses = torch.stack([focal(sure, torch.tensor([label]))[0] for label in (0, 1)])
    assert torch.isfinite(losses).all()
    assert torch.isfinite(torch.autograd.grad(losses.sum(), sure)[0]).all()


@pytest.mark.parametrize("name", [*LOSSES.builtin, SQUARED, f"{HERE}:margin", f"{HERE}:weighted"])
@pytest.mark.parametrize("classes", [1, 2, 10, 62])
def test_losses_of_single_samples_are_taken(name: str, classes: int) -> None:
    if classes == 1 and name.endswith("margin"):
        return  # there is no other class to keep away from
    loss = build_loss(name, classes)
    outputs, y = torch.randn(6, classes), torch.arange(6) % classes
    assert loss(outputs, y).shape == (6,)
    assert (loss is LOSSES.get(name)) == (name in LOSSES.builtin)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("centred", "another loss or gradient among other samples than alone"),
        ("balanced", "another loss or gradient among other samples than alone"),
        ("shared", "another loss or gradient among other samples than alone"),
        ("by_place", "another loss or gradient among other samples than alone"),
        ("hidden", "another loss or gradient among other samples than alone"),
        ("mean", "of shape () for 8 samples"),
        ("column", "of shape (8, 1) for 8 samples"),
        ("whole", "returned torch.int64"),
        ("wrong", "has no gradient with respect to the outputs"),
        ("unstable", "is not finite, or its gradient is not"),
        ("rooted", "is not finite, or its gradient is not"),
        ("drawn", "other losses when called again"),
        ("numbers", "an object of type list, not a tensor"),
        ("failing", "failed on 8 samples: KeyError: 'weights'"),
        ("of_one", "cannot be called with 2 arguments"),
        ("HERE", "which cannot be called"),
        ("Path", "is a class"),
    ],
)
def test_what_is_no_loss_of_single_samples_gets_one_sentence(name: str, said: str) -> None:
    chosen = load_scenario("quick", [f"training.loss={HERE}:{name}"])
    with pytest.raises(ScenarioError, match=r"^[^\n]*$") as refused:
        covey.simulate(chosen, rounds=1)
    assert said in str(refused.value)
    assert f"{HERE}:{name}" in str(refused.value)
    if name in ("centred", "mean"):
        assert refused.value.exit_code == 2


def test_a_loss_that_fails_in_a_run_is_named_in_workers_too() -> None:
    chosen = load_scenario("quick", [f"training.loss={HERE}:tiring", "training.learning_rate=1e6"])
    for workers in (1, 2):
        with pytest.raises(CoveyError, match="too large") as failed:
            covey.simulate(chosen, rounds=5, workers=workers)
        said = str(failed.value)
        assert "\n" not in said
        assert re.match(rf'training\.loss = "{HERE}:tiring" failed on \d+ samples: ValueError: too large', said), said


def play(*overrides: str, **given: Any) -> covey.History:
    return covey.simulate(load_scenario("quick", list(overrides)), seed=1, **{"rounds": 3} | given)


@pytest.mark.parametrize("loss", ["focal", SQUARED])
def test_a_run_has_the_same_bits_in_workers_and_reports_this_loss(loss: str) -> None:
    chosen = load_scenario("quick", [f"training.loss={loss}", "training.personal=ditto", "clustering.rescue=false"])
    alone, pair = (covey.simulate(chosen, seed=1, rounds=3, workers=workers) for workers in (1, 2))
    assert alone.models.tobytes() == pair.models.tobytes()
    for name in ("loss", "test_loss", "personal_test_loss"):
        assert alone.column(name).tolist() == pair.column(name).tolist()
    assert alone.models.tobytes() != play("clustering.rescue=false").models.tobytes()
    # The last loss, from the models and the users' tasks.
    data, function = user_data(chosen, 1), LOSSES.get(loss)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    total = 0.0
    for user, task in enumerate(alone.records[-1].users.identity):
        load_flat(module, alone.models[task])
        rows = slice(int(data.offsets[user]), int(data.offsets[user + 1]))
        total += float(function(module(torch.from_numpy(data.x[rows])), torch.from_numpy(data.y[rows])).sum().detach())
    assert alone.column("loss")[-1] == pytest.approx(total / len(data.y), rel=1e-5)


def test_a_loss_that_writes_into_labels_or_outputs_falsifies_nothing() -> None:
    columns = ("accuracy", "loss", "test_loss")
    for writing, clean in ((f"{HERE}:relabelled", f"{HERE}:to_class_0"), (f"{HERE}:overwritten", "cross_entropy")):
        found, honest = (play(f"training.loss={name}", "clustering.rescue=false") for name in (writing, clean))
        for name in columns:
            np.testing.assert_allclose(found.column(name), honest.column(name), rtol=1e-6, err_msg=f"{writing} {name}")


@pytest.mark.parametrize("name", ["relabelled", "overwritten"])
@pytest.mark.parametrize("strategy", ["hooks", "one_by_one", "auto"])
def test_a_loss_leaves_the_samples_of_whoever_calls_it(name: str, strategy: str) -> None:
    module = make(mlp, torch.float32)
    x, y = draw(9, (12,), 4, torch.float32)
    kept = y.clone()
    use_loss(module, OwnLoss(name, globals()[name]))
    use_strategy(module, strategy)
    clipped_gradient_sum(module, x, y, math.inf)
    sample_losses(module, x, y)
    loss_table(module, np.zeros((2, 12 * 9 + 9 + 36), np.float32), x, y)
    assert torch.equal(y, kept)


def test_rules_and_announcements_compare_this_loss() -> None:
    module = make(mlp, torch.float32)
    use_loss(module, margin)
    x, y = draw(9, (12,), 4, torch.float32)
    rng = np.random.default_rng(0)
    models, movements = (rng.normal(size=(3, 12 * 9 + 9 + 36)).astype(np.float32) for _ in range(2))
    table, slopes = np.zeros((9, 3)), np.zeros((9, 3))
    for k in range(3):
        load_flat(module, models[k])
        rows, losses = truth_of(margin, module, x, y)
        table[:, k] = losses
        slopes[:, k] = rows.numpy() @ movements[k] / np.linalg.norm(movements[k])
    np.testing.assert_allclose(loss_table(module, models, x, y), table, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        task_scores(module, models, movements, x, y, gradients=False)[0], table.mean(0), rtol=1e-4
    )
    for gradients in (True, False):
        found = task_scores(module, models, movements, x, y, gradients=gradients)[0]
        np.testing.assert_allclose(found, table.mean(0), rtol=1e-4)
    bounds: dict[str, Any] = {"similarity_weight": 0.4, "loss_bound": 2.0, "slope_bound": 30.0}
    expected = (0.4 * (-slopes / 30.0).clip(-1, 1) - 0.6 * table.clip(0, 2.0)).mean(0)
    assert (table > 2.0).any()
    assert (table < 2.0).any()
    found = bounded_scores(module, models, movements, x, y, **bounds)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "more",
    [
        ("clustering.rule=loss_vectors", "privacy.identity=noisy_losses"),
        ("clustering.rule=soft",),
        ("privacy.unit=device", "training.steps=3", "training.clip=4"),
        ("model.name=mlp", "compute.gradients=one_by_one"),
    ],
)
def test_every_way_to_train_and_announce_uses_it(more: tuple[str, ...]) -> None:
    assert play(*more, "training.loss=focal").models.tobytes() != play(*more).models.tobytes()


def test_a_step_of_ditto_by_hand() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 64)).astype(np.float32), rng.integers(10, size=7)
    own, received = (rng.normal(size=650).astype(np.float32) for _ in range(2))
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    use_loss(module, LOSSES.get(SQUARED))
    chosen = load_scenario("quick", ["training.personal=ditto", "training.personal_steps=1"])
    batch = torch.from_numpy(x), torch.from_numpy(y)
    found = Ditto(chosen).run(PersonalProblem(module, own, received, lambda: batch))
    error = 2 * (x @ own[:640].reshape(10, 64).T + own[640:] - np.eye(10)[y]) / 7
    gradient = np.concatenate([(error.T @ x).ravel(), error.sum(0)])
    np.testing.assert_allclose(found, own - 0.1 * (gradient + 0.1 * (own - received)), atol=1e-4)


def test_the_central_model_is_trained_on_it_and_kept_apart() -> None:
    plain, other = load_scenario("quick"), load_scenario("quick", ["training.loss=focal"])
    data = user_data(plain, 0)

    def job_of(scenario: Scenario) -> central.CentralJob:
        part, members = Central(scenario, 0), np.flatnonzero(data.groups == 0)
        loss = build_loss(scenario.training.loss, 10)
        return central._job(data, 0, members, part._built(data), "softmax", 0, loss)

    jobs = job_of(plain), job_of(other)
    assert "loss" not in jobs[0].content  # groups that were kept before there was a choice stay kept
    assert jobs[0].key != jobs[1].key
    for job in jobs:
        central.train_centrally(job)
    weights = [torch.cat([p.detach().flatten() for p in job.module.parameters()]) for job in jobs]
    assert not torch.equal(*weights)
    assert loss_of(jobs[1].module) is focal
    assert not np.array_equal(Central(other, 0)(data), Central(plain, 0)(data))


def test_devices_refuse_a_loss_that_mixes_samples(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="per-sample clipping needs each to depend on its own sample"):
        make_devices(small(f"training.loss={HERE}:centred"), 0, tmp_path)


def test_bounds_are_for_cross_entropy() -> None:
    chosen = load_scenario("quick", [*PAPER_START, "training.loss=focal"])
    with (
        covey.Simulation(chosen, rounds=1) as simulation,
        pytest.raises(ScenarioError, match=r"training\.loss=default"),
    ):
        play_and_measure(simulation)


def test_a_surrogate_is_fitted_to_one_loss_and_old_fits_stay() -> None:
    assert "training.loss" not in learning_settings(load_scenario("quick"))
    assert learning_settings(load_scenario("quick", ["training.loss=focal"]))["training.loss"] == "focal"
