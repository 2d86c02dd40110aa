from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from covey.data.dealing import groups_of_users
from covey.environment import (
    Calibration,
    SurrogateRounds,
    calibrate,
    calibration_for,
    find_calibration,
    learning_hash,
)
from covey.environment.calibration import Trace, exploring, fit, learning_settings, policy_of_run
from covey.environment.surrogate import Constants, learn
from covey.errors import ScenarioError
from covey.scenario import PAPER_START, Scenario, dump_scenario, load_scenario

TRUE = Constants(
    start=2.3, start_std=0.2, knots=(0.0, 9.0), own=(0.06, -1.02), other=(0.1, 0.02), mixed=(-0.2, 0.05), missing=0.03,
    noise=4.0, floor=0.0, ceiling=9.0, offset_std=0.0, judgement_std=0.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def quick() -> Scenario:
    return load_scenario("quick")


def made(seed: int, judgement_std: float = 0.0) -> Trace:
    """A run of users that learn exactly as the constants say and judge their losses with an error."""
    rng = np.random.default_rng(seed)
    users, tasks, rounds = 12, 4, 15
    groups, samples = rng.permutation(np.arange(users) % tasks), rng.integers(60, 90, users)
    by_group = rng.normal(TRUE.start, TRUE.start_std, (1, tasks, tasks))
    losses, identities, served, noise_std = [by_group[0, groups]], [], [], []
    for t in range(rounds):
        judged = losses[-1] + judgement_std * rng.standard_normal((users, tasks))
        identities.append(rng.integers(tasks, size=users) if t == 0 else judged.argmin(axis=1))
        served.append(rng.random(users) < rng.uniform(0.1, 1.0))
        noise_std.append(rng.uniform(1.0, 5.0, users))
        by_group = learn(
            TRUE, by_group, groups[None], identities[-1][None], samples[None], served[-1][None], noise_std[-1][None]
        )
        losses.append(by_group[0, groups])
    return Trace(
        seed, 650, samples, groups, np.stack(identities), np.stack(served), np.stack(noise_std), np.stack(losses)
    )


def test_the_fit_finds_the_constants_that_made_the_runs(quick: Scenario) -> None:
    found = fit(quick, [made(seed) for seed in range(8)])
    for name in ("other", "mixed", "missing", "noise"):
        assert getattr(found.constants, name) == pytest.approx(getattr(TRUE, name), rel=1e-5), name
    # The true line through other knots is the same line.
    np.testing.assert_allclose(found.constants.own, np.interp(found.constants.knots, TRUE.knots, TRUE.own), rtol=1e-5)
    assert found.constants.start == pytest.approx(TRUE.start, abs=0.1)
    assert found.constants.offset_std == pytest.approx(0.0, abs=1e-12)
    # Not 0: runs kept out reach losses that the others have not shown, where the fit stays constant.
    assert found.error.one_step_rmse < 0.01
    assert found.error.one_step_r2 > 0.99
    assert found.error.rollout_rmse < 0.02
    assert (found.error.runs_fitted, found.error.runs_kept_out) == (6, 2)


@pytest.mark.parametrize("std", [0.0, 0.1, 0.3])
def test_the_fit_finds_how_well_users_judge(quick: Scenario, std: float) -> None:
    found = fit(quick, [made(seed, std) for seed in range(12)])
    assert found.constants.judgement_std == pytest.approx(std, rel=0.3, abs=0.01)


def test_missing_users_and_noise_never_help_even_where_the_data_asks_for_it(quick: Scenario) -> None:
    traces = [made(seed) for seed in range(4)]
    upside_down = [
        Trace(t.seed, t.weights, t.samples, t.groups, t.identities, t.served, t.noise_std, 5.0 - t.losses)
        for t in traces
    ]
    found = fit(quick, upside_down).constants
    assert min(found.missing, found.noise) >= 0.0


def test_real_runs_are_calibrated_and_the_file_reads_back(quick: Scenario, tmp_path: Path) -> None:
    short = load_scenario("quick", ["training.rounds=4"])
    seen: list[int] = []
    found = calibrate(short, runs=2, on_run=lambda trace: seen.append(trace.seed))
    assert seen == [1000, 1001]
    found.save(tmp_path / "c.json")
    assert Calibration.load(tmp_path / "c.json") == found
    found.check(quick)  # the number of rounds does not shape learning
    again = calibrate(short, runs=2, processes=2)
    assert again == found


def test_what_shapes_learning_is_in_the_hash_and_nothing_else() -> None:
    base = learning_hash(load_scenario("quick"))
    for harmless in (
        "network.users=30",
        "network.stations=9",
        "radio.min_rate_bps=2e6",
        "reward.penalty=5",
        "training.rounds=3",
    ):
        assert learning_hash(load_scenario("quick", [harmless])) == base
    for change in (
        "training.clip=3",
        "privacy.v_max=6",
        "model.name=mlp",
        "data.transform=hog",
        "data.samples_max=91",
        "clustering.rule=loss",
    ):
        assert learning_hash(load_scenario("quick", [change])) != base


@pytest.mark.parametrize("preset", ["quick", "paper", "paper_digits"])
def test_presets_come_with_a_calibration_that_fits(preset: str) -> None:
    assert calibration_for(load_scenario(preset)).scenario == preset


@pytest.mark.parametrize("preset", ["paper_digits", "paper", "paper_femnist"])
def test_calibrations_of_the_papers_start_serve_no_other(preset: str) -> None:
    """Those of the first version do not name the options of a start: they were fitted without."""
    papers = calibration_for(load_scenario(preset, PAPER_START))
    assert papers.version == "0.1.0"
    assert not {"clustering.start", "clustering.rescue"} & set(papers.settings)
    for other in ("clustering.rescue=true", "clustering.start=release"):
        changed = load_scenario(preset, [*PAPER_START, other])
        with pytest.raises(ScenarioError, match=other.partition("=")[0].replace(".", r"\.")):
            papers.check(changed)


def test_stale_missing_and_damaged_calibrations_are_one_sentence(tmp_path: Path) -> None:
    other = load_scenario("quick", ["training.clip=3", "privacy.v_max=6"])
    assert find_calibration(other) is None
    with pytest.raises(ScenarioError, match="there is no calibration for how scenario 'quick' learns"):
        calibration_for(other)
    with pytest.raises(ScenarioError, match=r"is stale: privacy\.v_max, training\.clip differ"):
        calibration_for(load_scenario("quick")).check(other)
    with pytest.raises(ScenarioError, match="cannot be read as a calibration"):
        Calibration.load(tmp_path / "none.json")
    (tmp_path / "half.json").write_text(json.dumps({"scenario": "quick"}))
    with pytest.raises(ScenarioError, match="cannot be read as a calibration"):
        Calibration.load(tmp_path / "half.json")
    with pytest.raises(ScenarioError, match="at least 2"):
        calibrate(load_scenario("quick"), runs=1)


def test_runs_take_turns_between_few_and_many_users() -> None:
    names = [getattr(policy_of_run(index), "__name__", "") for index in range(6)]
    assert names == ["exploring", "greedy", "coverage"] * 2


def test_the_exploring_policy_serves_few_and_many(quick: Scenario) -> None:
    from covey import simulate

    history = simulate(quick, exploring, rounds=12, seed=3)
    served = history.column("served")
    assert history.column("violators").sum() == 0
    assert served.min() <= 2
    assert served.max() >= 5


def test_groups_count_only_where_they_are_not_the_tasks() -> None:
    plain = learning_settings(load_scenario("quick"))
    assert not {"data.groups", "data.group_sizes", "data.rotations"} & plain.keys()
    assert learning_settings(load_scenario("quick", ["data.groups=4"])) == plain
    fewer = learning_settings(load_scenario("quick", ["network.tasks=2"]))
    assert (fewer["network.tasks"], fewer["data.groups"]) == (2, 4)
    assert learning_settings(load_scenario("quick", ["data.group_sizes=[7,3,1,1]"]))["data.group_sizes"] == [7, 3, 1, 1]


@pytest.mark.parametrize("tasks", [2, 6])
def test_more_or_fewer_tasks_than_groups_can_be_fitted_and_played(tasks: int) -> None:
    scenario = load_scenario("quick", [f"network.tasks={tasks}", "training.rounds=3"])
    found = calibrate(scenario, runs=4)
    assert found.error.one_step_r2 > 0
    rounds = SurrogateRounds(scenario, found, count=2)
    rounds.reset([5, 6])
    for row, seed in zip(rounds.groups, (5, 6), strict=True):
        np.testing.assert_array_equal(row, groups_of_users(scenario, seed))
    while not rounds.done:
        assert rounds.observation.identities.max() < tasks
        outcome = rounds.step(np.random.default_rng(0).random((2, 4, 12)) < 0.2)
        assert np.isfinite(outcome.loss).all()


def test_a_missing_calibration_names_the_file_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path / "none"))
    scenario = load_scenario("quick", ["training.learning_rate=0.0123"])
    file = tmp_path / "my site.toml"
    file.write_text(dump_scenario(scenario), encoding="utf-8")
    with pytest.raises(ScenarioError, match="fit one with: covey calibrate quick "):
        calibration_for(scenario)
    with pytest.raises(ScenarioError) as error:
        calibration_for(load_scenario(file))
    assert f"covey calibrate '{file}' " in str(error.value)
