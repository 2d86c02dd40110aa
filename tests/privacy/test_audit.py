from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.privacy import mutants
from tests.privacy.mutants import CLIP, COUNT, DECLARED, MU, NOISE_STD, UNIT, WEIGHTS, Samples, device
from torch import Tensor, nn

from covey.data import UserData
from covey.federated import build_model, clipped_gradient_sum, count_weights, initial_weights, noised_step
from covey.federated.hook_strategy import Hooked
from covey.federated.strategies import strategy_for
from covey.privacy import NoNoise, ReplayNoise, SecureNoise, sensitivity
from covey.privacy.audit import (
    Declared,
    GaussianAudit,
    RecordedNoise,
    Source,
    added_noise,
    claimed_mu,
    gaussian_audit,
    leaks,
    noise_correlation,
    noise_law,
    resends_differ,
    sensitivity_found,
    single_precision_share,
    spread_p_value,
)
from covey.scenario import load_scenario
from covey.simulation import Simulation

OWN = mutants.own_samples()
MIRRORED = mutants.mirrored_pair(OWN)
SOURCES: dict[str, Callable[[int], Source]] = {"replay": ReplayNoise, "secure": lambda _: SecureNoise()}
by_source = pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)


def neighbours() -> list[tuple[Samples, Samples]]:
    """Data sets that differ in one sample: the worst pair, other digits, and values that no image has."""
    x, y = mutants.digits()
    others = [mutants.replaced(OWN, factor * x[100 + i], int(y[i])) for i, factor in enumerate((1, 1, 50, -1e3, 1e6))]
    strange = [mutants.replaced(OWN, value, row=3) for value in (math.nan, math.inf, -math.inf, 0.0, 1e20, 1e38)]
    return [MIRRORED, *((OWN, other) for other in others + strange)]


# The real mechanism keeps its word.


def test_the_real_sum_moves_as_far_as_declared_and_no_farther() -> None:
    found = sensitivity_found(device, neighbours())
    assert set(found) == {"upload"}
    assert found["upload"].norm <= DECLARED["upload"].sensitivity
    assert found["upload"].norm > 0.999 * DECLARED["upload"].sensitivity
    assert found["upload"].pair == 0


def test_it_moves_no_farther_with_recorded_noise_or_on_mini_batches() -> None:
    loud = sensitivity_found(device, neighbours(), ReplayNoise(5))
    assert loud["upload"].norm <= DECLARED["upload"].sensitivity * (1 + 1e-4)
    half = sensitivity_found(partial(device, batch=COUNT // 2, rounds=6), [MIRRORED], ReplayNoise(5))
    each = np.linalg.norm(half["upload"].difference.reshape(6, WEIGHTS), axis=1) / (2 * DECLARED["upload"].sensitivity)
    # The sample is in a batch or not; where it is, half as many samples share the step.
    assert np.all((each < 1e-6) | (np.abs(each - 1) < 1e-3))
    assert 0 < (each > 0.5).sum() < 6


@pytest.mark.parametrize("name", ["softmax", "mlp", "cnn"])
def test_no_built_in_model_moves_farther_from_random_weights(name: str) -> None:
    module = build_model(load_scenario("quick").model.model_copy(update={"name": name}), (1, 8, 8), 10)
    weights = initial_weights(module, 1, seed=3)[0]

    def step(samples: Samples, noise: Source) -> Mapping[str, np.ndarray]:
        x, y = mutants.tensors(samples)
        values = noise(0, 0, "noise", count_weights(module)) * 0.3
        return {"upload": noised_step(module, weights, x, y, clip=0.2, noise=values, learning_rate=COUNT).weights}

    found = sensitivity_found(step, neighbours())
    assert 0.01 < found["upload"].norm <= float(sensitivity(0.2)) * (1 + 1e-4)


def test_a_bad_sample_shows_itself_no_more_than_any_other() -> None:
    bad = [(OWN, mutants.replaced(OWN, value)) for value in (math.nan, math.inf, -math.inf)]
    found = sensitivity_found(device, bad)
    # It counts as nothing, which is at most C away from any sample, and the step is still divided by all n.
    assert 0 < found["upload"].norm <= UNIT * CLIP * (1 + 1e-4)
    x, y = (np.delete(part, 0, axis=0) for part in OWN)
    without = device((x, y), RecordedNoise())["upload"] * (COUNT - 1) / COUNT
    np.testing.assert_allclose(device(bad[0][1], RecordedNoise())["upload"], without, rtol=1e-5, atol=1e-9)
    everything = (np.full_like(OWN[0], math.nan), OWN[1])
    assert np.isfinite(device(everything, ReplayNoise(0))["upload"]).all()


@by_source
def test_the_added_noise_has_the_declared_law(source: Callable[[int], Source]) -> None:
    values = added_noise(partial(device, rounds=10), OWN, source(1))["upload"]
    law = noise_law(values, DECLARED["upload"].noise_std)
    assert law.holds
    assert max(law.p_two_thirds, law.p_three_halves) < 1e-30
    for wrong in (2 / 3, 3 / 2):
        assert not noise_law(wrong * values, DECLARED["upload"].noise_std).holds


@by_source
def test_nothing_leaks_beyond_the_declaration(source: Callable[[int], Source]) -> None:
    assert leaks(device, DECLARED, neighbours(), [source(seed) for seed in range(4)]) == []


@by_source
def test_the_measured_distance_of_neighbours_is_the_claimed_one(source: Callable[[int], Source]) -> None:
    one, other = (device(side, source(seed), rounds=600)["upload"] for seed, side in enumerate(MIRRORED))
    found = gaussian_audit(one, other, MU, direction=sensitivity_found(device, [MIRRORED])["upload"].difference)
    assert found.verdict == "consistent"
    assert found.low < MU < found.high
    assert found.high - found.low < 0.4 * MU
    assert spread_p_value(one, other) > 1e-6


@by_source
def test_noise_reaches_the_step_in_float64(source: Callable[[int], Source], monkeypatch: pytest.MonkeyPatch) -> None:
    assert single_precision_share(noise_at_the_step(device, source(0), monkeypatch), NOISE_STD) < 1e-3


@by_source
def test_users_and_rounds_have_unrelated_noise(source: Callable[[int], Source]) -> None:
    rows = added_noise(partial(mutants.fleet, rounds=4), [OWN] * 6, source(0))["upload"].reshape(24, WEIGHTS)
    found = noise_correlation(rows)
    assert found.holds
    assert abs(found.largest) < 0.3


def test_noise_is_asked_for_once_per_release() -> None:
    noise = RecordedNoise(ReplayNoise(0))
    mutants.fleet([OWN] * 3, noise, rounds=2)
    assert noise.requests == [(user, number, "noise", WEIGHTS) for number in range(2) for user in range(3)]
    assert noise.repeated == []


def test_a_resend_is_the_same_bytes_under_replay() -> None:
    assert resends_differ(partial(device, rounds=3), OWN, ReplayNoise(7)) == []
    assert resends_differ(partial(device, batch=5, rounds=3), OWN, ReplayNoise(7)) == []


def test_secure_noise_is_never_drawn_twice_so_an_upload_is_kept_to_be_sent_again() -> None:
    assert resends_differ(device, OWN, SecureNoise()) == ["upload"]


def test_a_round_shows_stations_nothing_of_the_data_but_the_noised_models() -> None:
    scenario = load_scenario("quick", ["clustering.rule=oracle"])

    def play(data: UserData, noise: Source) -> Mapping[str, np.ndarray]:
        with Simulation(scenario, data=data) as simulation:
            simulation.play()
            state = simulation.state
        apart = ("ledger", "memory", "aggregation")
        shown = {field.name: getattr(state, field.name) for field in fields(state) if field.name not in apart}
        shown |= {**state.memory, **state.aggregation}
        return {name: np.asarray(value) for name, value in shown.items()} | {"rho": state.ledger.rho}

    with Simulation(scenario) as simulation:
        data, clip = simulation.data, simulation.world.clip
        served = int(np.flatnonzero(simulation.play().users.station >= 0)[0])
    rows = slice(int(data.offsets[served]), int(data.offsets[served + 1]))
    changed = data.x.copy()
    changed[rows.start] = 30.0
    found = sensitivity_found(play, [(data, replace(data, x=changed))])
    moved = {name for name, change in found.items() if change.norm > 0}
    assert {"models"} <= moved <= {"models", "movements"}
    allowed = scenario.training.learning_rate * float(sensitivity(clip[served])) / (rows.stop - rows.start)
    assert found["models"].norm <= allowed * (1 + 1e-4)


# Broken copies of it are caught, each by the check that is made for it.


def test_halved_noise_is_caught() -> None:
    halved = partial(mutants.noise_halved, rounds=10)
    assert not noise_law(added_noise(halved, OWN, ReplayNoise(1))["upload"], DECLARED["upload"].noise_std).holds
    assert [leak.reason for leak in leaks(halved, DECLARED, [(OWN, OWN)], [ReplayNoise(1)])] == ["noise"]
    found = outside(partial(mutants.noise_halved, rounds=250))
    assert found.verdict == "violated"
    assert found.low < 2 * MU < found.high


def test_clipping_the_whole_gradient_is_caught() -> None:
    found = sensitivity_found(mutants.whole_gradient_clipped, [MIRRORED])
    assert found["upload"].norm > 10 * DECLARED["upload"].sensitivity
    assert outside(partial(mutants.whole_gradient_clipped, rounds=250)).verdict == "violated"
    assert [leak.reason for leak in leaks(mutants.whole_gradient_clipped, DECLARED, [MIRRORED], [])] == ["sensitivity"]


@pytest.mark.parametrize("mutant", [mutants.seed_shared_by_users, mutants.seed_shared_by_rounds])
def test_a_shared_seed_is_caught(mutant: Callable[..., Mapping[str, np.ndarray]]) -> None:
    noises = added_noise(partial(mutant, rounds=4), [OWN] * 6, ReplayNoise(0))["upload"].reshape(24, WEIGHTS)
    found = noise_correlation(noises)
    assert not found.holds
    assert found.largest == pytest.approx(1.0, abs=1e-4)
    assert found.shift == 0
    same_round, same_user = np.ptp(np.array(found.rows) // 6) == 0, np.ptp(np.array(found.rows) % 6) == 0
    assert (same_round, same_user) == ((True, False) if mutant is mutants.seed_shared_by_users else (False, True))
    noise = RecordedNoise(ReplayNoise(0))
    mutant([OWN] * 2, noise, rounds=2)
    assert noise.repeated


def test_noise_per_mini_batch_charged_once_is_caught() -> None:
    found = sensitivity_found(mutants.noised_per_mini_batch, [MIRRORED])
    # Every sample is in four of the eight releases: twice the distance.
    assert found["upload"].norm == pytest.approx(2 * DECLARED["upload"].sensitivity, rel=0.01)
    one, other = (repeats(mutants.noised_per_mini_batch, side, seed) for seed, side in enumerate(MIRRORED))
    audit = gaussian_audit(one, other, MU, direction=found["upload"].difference)
    assert audit.verdict == "violated"
    assert audit.low < 2 * MU < audit.high


def test_a_resend_with_new_noise_charged_once_is_caught() -> None:
    found = sensitivity_found(mutants.resent_with_new_noise, [MIRRORED])
    assert found["upload"].norm == pytest.approx(2 * DECLARED["upload"].sensitivity, rel=0.01)
    one, other = (repeats(mutants.resent_with_new_noise, side, seed) for seed, side in enumerate(MIRRORED))
    assert gaussian_audit(one, other, MU, direction=found["upload"].difference).verdict == "violated"


def test_a_loss_that_leaves_with_the_upload_is_caught() -> None:
    found = leaks(mutants.loss_beside_the_upload, DECLARED, neighbours()[:3], [ReplayNoise(s) for s in range(4)])
    assert [(leak.name, leak.reason) for leak in found] == [("loss", "undeclared")]
    assert found[0].found > 0.1
    # Declaring it helps only with the truth about how far it moves and how much noise it has.
    declared = DECLARED | {"loss": Declared(5.0 / COUNT, 0.0)}
    assert claimed_mu(declared.values()) == math.inf
    bright = (OWN, mutants.replaced(OWN, 100.0))
    found = leaks(mutants.loss_beside_the_upload, declared, [bright], [ReplayNoise(s) for s in range(4)])
    assert [(leak.name, leak.reason) for leak in found] == [("loss", "sensitivity"), ("loss", "noise")]
    declared = DECLARED | {"loss": Declared(1e6, 1.0)}
    found = leaks(mutants.loss_beside_the_upload, declared, [bright], [ReplayNoise(s) for s in range(4)])
    assert [(leak.name, leak.reason) for leak in found] == [("loss", "noise")]


def test_float32_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = noise_at_the_step(mutants.noise_in_float32, ReplayNoise(0), monkeypatch)
    assert single_precision_share(seen, NOISE_STD) == 1.0


def test_a_bad_sample_that_spoils_the_sum_is_caught() -> None:
    found = sensitivity_found(mutants.bad_samples_kept, [(OWN, mutants.replaced(OWN, math.nan))])
    assert math.isinf(found["upload"].norm)
    # It is right where all samples are.
    assert sensitivity_found(mutants.bad_samples_kept, [MIRRORED])["upload"].norm <= DECLARED["upload"].sensitivity


def test_noise_that_depends_on_the_data_is_caught() -> None:
    found = leaks(mutants.quiet_on_easy_data, DECLARED, [(OWN, MIRRORED[0])], [ReplayNoise(s) for s in range(4)])
    assert ("requests", "undeclared") in {(leak.name, leak.reason) for leak in found}
    assert ("upload", "noise") in {(leak.name, leak.reason) for leak in found}


def outside(mutant: Callable[..., Mapping[str, np.ndarray]]) -> GaussianAudit:
    """The audit of many releases of a mutant on the mirrored pair."""
    one, other = (mutant(side, ReplayNoise(seed))["upload"] for seed, side in enumerate(MIRRORED))
    direction = sensitivity_found(device, [MIRRORED])["upload"].difference
    return gaussian_audit(one, other, MU, direction=direction)


def repeats(mutant: Callable[..., Mapping[str, np.ndarray]], side: Samples, seed: int) -> np.ndarray:
    return np.stack([mutant(side, ReplayNoise(seed), repeat=number)["upload"] for number in range(200)])


def noise_at_the_step(
    mechanism: Callable[..., Mapping[str, np.ndarray]], source: Source, monkeypatch: pytest.MonkeyPatch
) -> np.ndarray:
    """The noise that a user's step is given, whatever it came from."""
    seen: list[np.ndarray] = []

    def watched(*given: object, noise: np.ndarray, **more: object) -> object:
        seen.append(noise)
        return noised_step(*given, noise=noise, **more)

    monkeypatch.setattr("covey.federated.training.step.noised_step", watched)
    mechanism(OWN, source, rounds=3)
    assert [noise.dtype for noise in seen] == [np.float64] * 3
    return np.concatenate(seen)


# Where a plausible mechanism would not keep its word.


def test_adding_a_sample_does_not_change_the_scale_of_the_noise() -> None:
    more, fewer = OWN, (OWN[0][:-1], OWN[1][:-1])
    public = len(more[1])
    one, other = (
        device(side, ReplayNoise(seed), rounds=150, public_size=public)["upload"]
        for seed, side in enumerate((more, fewer))
    )
    assert spread_p_value(one, other) > 1e-6


def test_dividing_by_the_samples_that_are_there_would_show_their_number() -> None:
    more, fewer = OWN, (OWN[0][:-1], OWN[1][:-1])
    one, other = (device(side, ReplayNoise(seed), rounds=150)["upload"] for seed, side in enumerate((more, fewer)))
    assert spread_p_value(one, other) < 1e-6


class Contrast(nn.Module):
    """Compares two tokens, after a layer that is wide enough for a ghost norm."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(40, 50)
        self.out = nn.Linear(50, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.wide(x)
        return self.out(hidden[:, 0] - hidden[:, 1])


@pytest.mark.parametrize("size", [1.0, 1e6, 1e7, 1e9, 1e12])
def test_a_sample_whose_positions_cancel_stays_within_the_clipping_norm(size: float) -> None:
    module, rng = Contrast(), np.random.default_rng(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.from_numpy(rng.normal(size=parameter.shape) / 8))
    usual = torch.from_numpy(rng.normal(size=(3, 2, 40))).float()
    assert isinstance(strategy_for(module, usual, torch.tensor([0, 1, 2])), Hooked)
    token = torch.from_numpy(size * rng.normal(size=40)).float()
    found = clipped_gradient_sum(module, torch.stack([token, token])[None], torch.tensor([0]), CLIP)
    assert float(found.total.norm()) <= CLIP * (1 + 1e-4)


# The checks themselves.


def normals(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count)


def test_the_noise_law_needs_enough_values_and_the_right_shape() -> None:
    assert noise_law(3.0 * normals(2000), 3.0).holds
    assert not noise_law(normals(100), 1.0).holds
    uniform = np.random.default_rng(0).uniform(-math.sqrt(3), math.sqrt(3), 20_000)
    assert not noise_law(uniform, 1.0).holds
    assert not noise_law(normals(5000) + 0.2, 1.0).holds
    assert not noise_law(np.append(normals(2000), math.nan), 1.0).holds
    with pytest.raises(ValueError, match="above 0"):
        noise_law(normals(10), 0.0)


@pytest.mark.parametrize("std", [1.0, 0.3, 7.7])
def test_float32_noise_is_told_from_float64_noise_at_any_scale(std: float) -> None:
    coarse = normals(1000).astype(np.float32)
    assert single_precision_share(normals(1000) * std, std) == 0.0
    assert single_precision_share(coarse.astype(np.float64) * std, std) == 1.0
    assert single_precision_share(coarse * np.float32(std), std) == 1.0
    assert single_precision_share(normals(1000).astype(np.float16), 1.0) == 1.0


def test_correlation_finds_streams_that_begin_inside_each_other_and_accepts_independent_ones() -> None:
    stream = normals(1200)
    rows = np.stack([normals(1000, 1), stream[:1000], normals(1000, 2), -5.0 * stream[150:1150]])
    found = noise_correlation(rows)
    assert not found.holds
    assert found.rows == (1, 3)
    assert found.shift in (150, 850)
    assert found.largest < -0.7
    assert noise_correlation(normals(40 * 500).reshape(40, 500)).holds
    with pytest.raises(ValueError, match="rows of noise"):
        noise_correlation(stream)


@pytest.mark.parametrize("size", [650, 651])
def test_correlation_finds_a_row_that_repeats_itself(size: int) -> None:
    rows = np.stack([normals(size, 1), np.tile(normals(size, 2)[: (size + 1) // 2], 2)[:size]])
    found = noise_correlation(rows)
    assert not found.holds
    assert found.rows == (1, 1)


def test_correlation_accuses_independent_noise_as_rarely_as_it_says() -> None:
    rng = np.random.default_rng(0)
    accused = sum(not noise_correlation(rng.standard_normal((4, 200)), alpha=0.05).holds for _ in range(400))
    # The sum over all shifts and pairs is a bound, so the rate is at most alpha, and near it.
    assert 1 <= accused <= 33


def test_what_cannot_be_compared_moves_infinitely_far() -> None:
    def mechanism(data: int, noise: Source) -> dict[str, object]:
        number, only = (math.nan, {"only": 1.0}) if data else (1.0, {})
        return {"same": math.inf, "number": number, "shape": np.ones(data + 1), **only}

    found = sensitivity_found(mechanism, [(0, 0), (0, 1)])
    assert found["same"].norm == 0
    assert all(math.isinf(found[name].norm) for name in ("number", "shape", "only"))
    assert {found[name].pair for name in ("number", "shape", "only")} == {1}


def test_declarations_add_up() -> None:
    assert claimed_mu([Declared(3.0, 1.0), Declared(4.0, 1.0), Declared(0.0, 0.0)]) == 5.0
    assert Declared(1.0, 0.0).mu == math.inf
    assert claimed_mu([]) == 0.0


def test_a_mechanism_whose_noise_is_off_gets_none() -> None:
    with pytest.raises(RuntimeError, match="off"):
        device(OWN, NoNoise())


def test_the_interval_of_mu_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        found = gaussian_audit(3.0 * rng.standard_normal(80), 3.0 * (rng.standard_normal(120) + 1.5), 1.5, alpha=0.1)
        covered += found.low <= 1.5 <= found.high
    assert 0.86 < covered / 400 < 0.94


def test_an_audit_of_constant_or_too_few_releases() -> None:
    assert gaussian_audit(np.ones(5), np.ones(5), 0.0).verdict == "consistent"
    found = gaussian_audit(np.ones(5), np.zeros(5), 1e9)
    assert (found.mu, found.verdict) == (math.inf, "violated")
    with pytest.raises(ValueError, match="at least 2"):
        gaussian_audit(np.ones(1), np.ones(5), 1.0)
    with pytest.raises(ValueError, match="direction"):
        gaussian_audit(np.ones((5, 2)), np.ones((5, 2)), 1.0)


def test_the_spread_tells_scales_apart_and_means_not() -> None:
    one, other = normals(200 * 500).reshape(200, 500), normals(200 * 500, 1).reshape(200, 500)
    assert spread_p_value(one, other + 3.0) > 1e-3
    assert spread_p_value(one, 1.02 * other) < 1e-6
