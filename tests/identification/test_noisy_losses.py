"""Bounded vectors: what one sample can move, the scale of their noise, and what they cost in whole runs."""

from __future__ import annotations

import json
from itertools import combinations_with_replacement, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from covey.errors import ScenarioError
from covey.federated import build_model, count_weights
from covey.federated.steps import loss_table
from covey.identification import build_rule
from covey.identification.noisy_losses import vector_noise_std
from covey.privacy import Journal, read_journal
from covey.privacy.noise_source import ReplayNoise, SecureNoise
from covey.scenario import Scenario, load_scenario
from covey.simulation import History, Simulation, simulate
from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint

KINDS = ["noisy_losses", "noisy_contrasts"]


def scenario(identity: str, *overrides: str) -> Scenario:
    return load_scenario("quick", ["clustering.rule=loss_vectors", f"privacy.identity={identity}", *overrides])


def announcement(identity: str, *overrides: str) -> Any:
    return build_rule(scenario(identity, *overrides)).announcement


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
@pytest.mark.parametrize("identity", KINDS)
def test_no_sample_moves_the_sum_further_than_its_reach(identity: str, adjacency: str) -> None:
    told = announcement(identity, f"privacy.adjacency={adjacency}", "privacy.loss_bound=2.5")
    values = [0.0, 1.0, 2.5, 40.0, 1e300, np.inf, np.nan]
    vectors = told.bounded(np.array(list(product(values, repeat=4))))
    assert np.isfinite(vectors).all()
    if adjacency == "replace_one":
        most = max(np.linalg.norm(vectors - one, axis=1).max() for one in vectors)
    else:  # a public constant may be taken from every vector
        most = np.linalg.norm(vectors - (1.25 if identity == "noisy_losses" else 0.0), axis=1).max()
    assert most <= told.reach * (1 + 1e-12)
    assert most == pytest.approx(told.reach)  # no noise is wasted


@pytest.mark.parametrize("identity", KINDS)
def test_replacing_any_one_sample_moves_the_mean_by_at_most_the_sensitivity(identity: str) -> None:
    told, rng = announcement(identity), np.random.default_rng(0)
    samples = np.concatenate([rng.exponential(2.0, (12, 4)), 9.0 * np.eye(4)])
    means = {
        chosen: told.bounded(samples[list(chosen)]).mean(axis=0)
        for chosen in combinations_with_replacement(range(len(samples)), 3)
    }
    for chosen, mean in means.items():
        for place, other in product(range(3), range(len(samples))):
            neighbour = tuple(sorted((*chosen[:place], other, *chosen[place + 1 :])))
            assert np.linalg.norm(mean - means[neighbour]) <= told.reach / 3 + 1e-12


@pytest.mark.parametrize("rho", [1e-4, 0.02, 3.0])
def test_the_noise_costs_rho(rho: float) -> None:
    samples = np.array([1, 60, 90, 600])
    std = vector_noise_std(samples, 6.0, rho)
    np.testing.assert_allclose((6.0 / samples) ** 2 / (2 * std**2), rho)
    for identity, reach in (("noisy_losses", np.sqrt(4) * 3.0), ("noisy_contrasts", 2.0)):
        told = announcement(identity, f"privacy.identity_rho={rho}")
        np.testing.assert_allclose(told.noise_std(samples), reach / samples / np.sqrt(2 * rho))
        assert told.rho == rho


def computer(noise: Any, tasks: int = 4) -> Any:
    """A device with a few samples, as far as an announcement needs it."""
    chosen = scenario("noisy_losses")
    module = build_model(chosen.model, (1, 3, 3), 5)
    rng = np.random.default_rng(0)
    models = rng.normal(size=(tasks, count_weights(module))).astype(np.float32)
    x, y = torch.from_numpy(rng.random((6, 1, 3, 3), dtype=np.float32)), torch.from_numpy(rng.integers(5, size=6))
    return SimpleNamespace(
        module=module, models=models, noise=noise, batch_of=lambda *given: (x, y), samples_of=lambda user: len(y)
    )


def user_of(losses: np.ndarray, declared: int, normals: float) -> Any:
    """A user of `declared` samples that holds those with these `losses` (n, 4), and the noise it draws."""
    x, y = torch.from_numpy(losses), torch.zeros(len(losses), dtype=torch.int64)
    return SimpleNamespace(
        module=None,
        models=np.zeros((4, 1), np.float32),
        noise=lambda *given: np.full(given[-1], normals),
        batch_of=lambda *given: (x, y),
        samples_of=lambda user: declared,
    )


@pytest.mark.parametrize("count", [1, 2, 75])
@pytest.mark.parametrize("identity", KINDS)
def test_what_is_told_with_and_without_a_sample_costs_its_rho(
    identity: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that depends on whether a sample is there: the mean, which may move, and the noise, which may not."""
    monkeypatch.setattr("covey.federated.steps.loss_table", lambda module, models, x, y: x.numpy())
    said = announcement(identity, "privacy.adjacency=add_remove")
    extremes = [np.array(corner, dtype=np.float64) for corner in product([0.0, 1e6], repeat=4)]
    moved = []
    for others, one in product(extremes, extremes):
        whole = np.array([*[others] * (count - 1), one])
        means = [said.tell(user_of(part, count, 0.0), [0], 1, 1)[0] for part in (whole, whole[:-1])]
        noises = [
            said.tell(user_of(part, count, 1.0), [0], 1, 1)[0] - mean
            for part, mean in zip((whole, whole[:-1]), means, strict=True)
        ]
        np.testing.assert_allclose(*noises, rtol=1e-9)
        std = noises[0][0]
        moved.append(np.linalg.norm(means[0] - means[1]))
        assert moved[-1] ** 2 / (2 * std**2) <= said.rho * (1 + 1e-9)
    assert max(moved) == pytest.approx(said.reach / count)  # no noise is wasted


@pytest.mark.parametrize("identity", KINDS)
def test_a_user_that_holds_what_it_declares_tells_the_plain_mean(
    identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.federated.steps.loss_table", lambda module, models, x, y: x.numpy())
    losses = np.random.default_rng(0).exponential(2.0, (60, 4))
    for adjacency in ("replace_one", "add_remove"):
        said = announcement(identity, f"privacy.adjacency={adjacency}")
        told = said.tell(user_of(losses, 60, 0.3), [0], 1, 1)[0]
        np.testing.assert_array_equal(
            told, said.bounded(losses).sum(axis=0) / 60 + said.noise_std(np.array([60])) * 0.3
        )


def two_sided(values: np.ndarray, std: float) -> float:
    """How likely normal values of this standard deviation have so small or so large a sum of squares."""
    below = chi2.cdf((values**2).sum() / std**2, values.size)
    return float(2 * min(below, 1 - below))


@pytest.mark.parametrize("source", [ReplayNoise(3), SecureNoise()])
@pytest.mark.parametrize("identity", KINDS)
def test_the_noise_has_its_scale_and_no_other(identity: str, source: Any) -> None:
    told, device = announcement(identity), computer(source)
    mean = told.bounded(loss_table(device.module, device.models, *device.batch_of())).mean(axis=0)
    drawn = np.concatenate([told.tell(device, [0], number, 1) for number in range(1500)]) - mean
    std = told.noise_std(np.array([6]))[0]
    # Secure noise is never the same; a right scale fails once in a million runs.
    assert two_sided(drawn, std) > 1e-6
    for wrong in (2 / 3, 3 / 2):
        assert two_sided(drawn, wrong * std) < 1e-9
    assert np.abs(drawn.mean(axis=0)).max() < 5 * std / np.sqrt(1500)
    # Independent between models.
    assert np.abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 5 / np.sqrt(1500)


def test_losses_of_a_table_are_those_of_each_model() -> None:
    device = computer(None)
    x, y = device.batch_of()
    table = loss_table(device.module, device.models, x, y)
    for k, weights in enumerate(device.models):
        matrix, bias = weights[:45].reshape(5, 9), weights[45:]
        outputs = x.numpy().reshape(6, 9) @ matrix.T + bias
        expected = np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(6), y.numpy()]
        np.testing.assert_allclose(table[:, k], expected, rtol=1e-4)


def test_broken_models_and_samples_are_told_within_bounds() -> None:
    device = computer(lambda *given: np.zeros(4))
    device.models[1] = np.nan
    told = announcement("noisy_losses").tell(device, [0], 1, 1)[0]
    assert told[1] == 3.0
    assert (told >= 0).all()
    contrasts = announcement("noisy_contrasts").tell(device, [0], 1, 1)[0]
    assert contrasts[1] == contrasts.max()
    assert np.linalg.norm(contrasts) <= 1.0 + 1e-12
    device.models[:] = np.nan
    assert announcement("noisy_contrasts").tell(device, [0], 1, 1)[0].tolist() == [0.0] * 4


def nobody(observation: Any, rng: np.random.Generator) -> np.ndarray:
    """Serves no user, so that announcements are all that is released."""
    return np.zeros((4, 12), bool)


@pytest.mark.parametrize("identity", KINDS)
def test_each_announcement_is_charged_its_rho_and_no_more(identity: str) -> None:
    chosen = scenario(identity, "privacy.identity_rho=0.03", "clustering.announce_every=2")
    history = simulate(chosen, nobody, rounds=6)
    charged = np.diff(history.user_column("rho_identity"), axis=0, prepend=0.0)
    for record, cost in zip(history.records, charged, strict=True):
        np.testing.assert_allclose(cost, 0.03 if record.round in (2, 4, 6) else 0.0, atol=1e-15)
    assert (history.ledger.announcements == 3).all()
    assert not history.ledger.unprotected.any()
    assert history.summary()["privacy"]["identities_protected"] is True
    assert any("epsilon includes them" in note for note in history.notes)


def test_raw_vectors_are_labelled_unprotected() -> None:
    history = simulate(scenario("raw", "clustering.announce_rounds=2"), rounds=4)
    assert (history.ledger.unprotected == 2).all()
    assert not history.ledger.spent["identity"].any()
    assert any("NOT protected" in note for note in history.notes)
    assert history.column("clustering_accuracy")[-1] == 1.0


def test_the_charge_is_on_disk_before_a_vector_is_drawn(tmp_path: Path) -> None:
    seen: list[int] = []
    chosen = scenario("noisy_contrasts")
    with Simulation(chosen, nobody, rounds=3, journal=Journal(tmp_path / "charges")) as simulation:
        tell = simulation.world.engine.tell

        def watch(round: int, users: np.ndarray) -> np.ndarray:
            last = read_journal(tmp_path / "charges")[-1]
            assert (last.round, last.kind, last.users) == (round, "identity", tuple(users.tolist()))
            seen.append(round)
            return tell(round, users)

        simulation.world.engine.tell = watch
        while not simulation.done:
            simulation.play()
    assert seen == [1, 2]


def test_users_that_cannot_afford_it_keep_their_task() -> None:
    budgets = [50.0] * 12
    budgets[2] = budgets[7] = 0.01
    history = simulate(scenario("noisy_losses", f"privacy.budget_epsilon={budgets}"), nobody, rounds=5)
    identity = history.user_column("identity")
    assert (identity[:, [2, 7]] == identity[0, [2, 7]]).all()
    assert history.ledger.announcements[[0, 2, 7]].tolist() == [4, 0, 0]
    assert history.ledger.refusals[[0, 2, 7]].tolist() == [0, 4, 4]
    assert not history.ledger.rho[[2, 7]].any()


def bits(history: History) -> tuple[str, bytes]:
    return json.dumps([record.scalars() for record in history.records]), history.models.tobytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_resumed_and_parallel_runs_have_the_same_bits(workers: int, tmp_path: Path) -> None:
    chosen = scenario("noisy_contrasts")
    whole = simulate(chosen, rounds=5, workers=1)
    with Simulation(chosen, rounds=5, workers=workers) as simulation:
        for _ in range(3):
            simulation.play()
        save_checkpoint(simulation, tmp_path)
    with Simulation(chosen, rounds=5, workers=workers) as simulation:
        restore_checkpoint(simulation, tmp_path)
        while not simulation.done:
            simulation.play()
        assert bits(simulation.history) == bits(whole)


@pytest.mark.parametrize("mode", ["masked", "blind"])
@pytest.mark.parametrize("identity", ["raw", *KINDS])
def test_masks_are_refused_in_a_sentence(mode: str, identity: str) -> None:
    with pytest.raises(ScenarioError, match="'loss_vectors', which needs stations that see what every single user"):
        simulate(scenario(identity, f"security.mode={mode}"), rounds=1)


def test_contrasts_find_the_groups_of_digits_at_a_small_charge() -> None:
    found = [
        simulate(scenario("noisy_contrasts"), rounds=10, seed=seed).column("clustering_accuracy")[-1]
        for seed in (0, 1, 2)
    ]
    assert found == [1.0] * 3
