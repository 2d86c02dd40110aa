from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import covey
from covey.allocation import noise_levels
from covey.errors import ScenarioError
from covey.identification import build_rule
from covey.privacy import GaussianReleases, Ledger
from covey.privacy.planning import Releases
from covey.privacy.target import least_std, v_max_for
from covey.scenario import dump_scenario, load_scenario
from covey.simulation.load_run import read_history
from covey.simulation.target import announced_rho

SAMPLES = np.array([200, 340, 610, 250])


def cap(
    target: float, *, unit: str = "sample", rate: float = 1.0, steps: int = 1, n_min: float = 0.0, **more: float
) -> float:
    adjacency = "add_remove" if rate < 1 else "replace_one"
    return v_max_for(
        target, samples=SAMPLES, n_min=n_min, delta=1e-5, adjacency=adjacency, unit=unit,
        uploads=int(more.get("uploads", 20)), announced_rho=more.get("announced_rho", 0.0),
        releases=lambda std: releases(std, unit, rate, steps),
    )  # fmt: skip


def releases(std: np.ndarray, unit: str, rate: float, steps: int) -> GaussianReleases:
    adjacency = "add_remove" if rate < 1 else "replace_one"
    bound = SAMPLES.mean() * (1.0 / SAMPLES if unit == "sample" else np.ones(4))
    return GaussianReleases.of_sums(bound, std, adjacency, rate=rate, steps=steps)


@pytest.mark.parametrize("unit", ["sample", "device"])
@pytest.mark.parametrize(("rate", "steps"), [(1.0, 1), (1.0, 5), (0.1, 5)])
@pytest.mark.parametrize("target", [0.5, 4.0])
def test_the_user_served_every_round_ends_at_the_target_and_not_above(
    unit: str, rate: float, steps: int, target: float
) -> None:
    v_max = cap(target, unit=unit, rate=rate, steps=steps)
    each = releases(least_std(SAMPLES, v_max), unit, rate, steps)
    ledger = Ledger(4, adjacency="add_remove" if rate < 1 else "replace_one", unit=unit)
    for _ in range(20):
        ledger.charge(range(4), each)
    assert 0.99 * target < ledger.epsilon().max() <= target


def test_nobody_has_less_noise_than_the_plan_says_whoever_is_served() -> None:
    rng, smallest = np.random.default_rng(5), np.full(6, np.inf)
    for _ in range(300):
        samples = rng.integers(20, 600, 6)
        task = rng.integers(-1, 2, 6)
        levels = noise_levels(samples, task, 7.0, 0.0, tasks=2).std
        bound, served = least_std(samples, 7.0), task >= 0
        assert (levels[served] >= bound[served] * (1 - 1e-9)).all()
        smallest = np.minimum(smallest, np.where(served, levels / bound, np.inf))
    alone = noise_levels(SAMPLES, np.array([0, -1, -1, -1]), 7.0, 0.0, tasks=1).std[0]
    assert alone == pytest.approx(least_std(SAMPLES, 7.0)[0])  # and the bound is reached
    assert smallest.min() < 1.2


def test_errors_name_the_bound_and_the_value_that_would_do() -> None:
    with pytest.raises(
        ScenarioError, match=r"floor \(11f\), privacy\.n_min = 9000.*lower privacy.n_min to at most"
    ) as error:
        cap(4.0, n_min=9000.0)
    most = float(str(error.value).split("n_min to at most ")[1].split(",")[0])
    assert cap(4.0, n_min=most) == cap(4.0)
    lower = float(str(error.value).rsplit("at most ", 1)[1])
    assert cap(lower, n_min=9000.0) > cap(4.0)
    with pytest.raises(ScenarioError, match="announcements of tasks alone cost epsilon"):
        cap(1.0, announced_rho=0.5)
    with pytest.raises(ScenarioError, match=r"even the largest privacy\.v_max"):
        cap(1e-3, uploads=10**9)


def test_a_run_ends_below_its_target_and_says_the_cap(tmp_path: Path) -> None:
    from covey.privacy import Journal
    from covey.simulation import Simulation
    from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint, write_results

    chosen = load_scenario("quick", ["privacy.target_epsilon=3"])
    with Simulation(chosen, rounds=2, journal=Journal(tmp_path / "ledger.jsonl")) as simulation:
        simulation.play()
        save_checkpoint(simulation, tmp_path)
    with Simulation(chosen, rounds=2, journal=Journal(tmp_path / "ledger.jsonl")) as simulation:
        restore_checkpoint(simulation, tmp_path)
        simulation.play()
        save_checkpoint(simulation, tmp_path)
        write_results(simulation.history, tmp_path, {})
    privacy = json.loads((tmp_path / "summary.json").read_text())["privacy"]
    assert privacy["target_epsilon"] == 3
    assert 0.5 < privacy["epsilon_max"]["exact"] <= 3
    assert (privacy["unit"], privacy["neighbours"]) == ("sample", "one sample replaced")
    assert privacy["single_upload"]["epsilon_max"] < privacy["epsilon_max"]["exact"]
    assert read_history(tmp_path).scenario.privacy.v_max == privacy["v_max"] != chosen.privacy.v_max
    again = load_scenario(tmp_path / "scenario.toml")  # repeatable as it is
    assert again.privacy.target_epsilon == 3
    assert "v_max" not in dump_scenario(again)


@pytest.mark.parametrize("rounds", [2, 5])
def test_a_run_with_a_target_is_not_continued_with_another_number_of_rounds(rounds: int, tmp_path: Path) -> None:
    from covey.cli.main import main
    from covey.errors import ResumeError
    from covey.simulation import Simulation
    from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint

    chosen = load_scenario("quick", ["privacy.target_epsilon=3"])
    with Simulation(chosen, rounds=3) as simulation:
        simulation.play()
        save_checkpoint(simulation, tmp_path)
    (tmp_path / "scenario.toml").write_text(dump_scenario(chosen))
    with (
        Simulation(chosen, rounds=rounds) as simulation,
        pytest.raises(
            ResumeError,
            match=rf"target_epsilon = 3 in 3 rounds, .*continued with {rounds}; resume it with 3, or start a new run",
        ),
    ):
        restore_checkpoint(simulation, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SystemExit) as end:
        main(["run", "--resume", "--quiet", "--out", str(tmp_path), "--rounds", str(rounds)])
    assert end.value.code == ResumeError.exit_code
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_without_a_target_is_extended(tmp_path: Path) -> None:
    from covey.simulation import Simulation
    from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint

    with Simulation("quick", rounds=1) as simulation:
        simulation.play()
        save_checkpoint(simulation, tmp_path)
    with Simulation("quick", rounds=2) as simulation:
        restore_checkpoint(simulation, tmp_path)
        simulation.play()
        assert simulation.done


def test_cap_and_target_are_not_given_together(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="leave one of the two out"):
        load_scenario("quick", ["privacy.target_epsilon=3", "privacy.v_max=3"])
    assert load_scenario("paper").privacy.v_max == 12
    assert load_scenario("paper", ["privacy.target_epsilon=3"]).privacy.target_epsilon == 3  # gives way to the override
    with pytest.raises(ScenarioError, match=r"privacy\.noise is 'off'"):
        covey.simulate(load_scenario("quick", ["privacy.target_epsilon=3", "privacy.noise=off"]), rounds=1)


def test_sums_of_masked_uploads_tell_less_than_single_ones_by_the_noise_of_others() -> None:
    from covey.parts import LOCAL_TRAININGS
    from covey.simulation.exposure import under_aggregation

    history = covey.simulate(load_scenario("quick", ["security.mode=blind"]), rounds=3)
    assert history.summary()["privacy"]["under_aggregation"] is None
    masked = load_scenario("quick", ["security.mode=masked"])
    history.scenario = masked
    training = LOCAL_TRAININGS.build("step", masked)
    # Means, for a user who is alone in its task has no gain.
    found = [under_aggregation(history, training, honest)["epsilon_mean"] for honest in (0, 1, 2)]
    assert found[0] == pytest.approx(history.ledger.epsilon().mean(), rel=1e-9)
    assert found[0] > found[1] > found[2]
    # By hand: variances of the user and of the other with the least noise add up.
    rho = np.zeros(len(history.samples))
    for record in history.records:
        users = np.flatnonzero(record.users.station >= 0)
        cost = training.rho(
            history.clip, np.where(record.users.noise_std > 0, record.users.noise_std, np.inf), history.samples
        )
        for user in users:
            fellows = [
                other for other in users
                if other != user and record.users.identity[other] == record.users.identity[user]
                and record.users.joined[other] and record.users.joined[user]
            ]  # fmt: skip
            own = record.users.noise_std[user] ** 2
            least = min((record.users.noise_std[other] ** 2 for other in fellows), default=0.0)
            rho[user] += cost[user] * own / (own + least)
    by_hand = np.mean([covey.privacy.epsilon(cost, 1e-5) for cost in rho.tolist()])
    assert found[1] == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize("every", [1, 3, 5])
@pytest.mark.parametrize("within", [None, 1, 4, 6])
def test_plans_count_the_announcements_that_a_rule_makes(every: int, within: int | None) -> None:
    given = [f"clustering.announce_every={every}", "privacy.identity=noisy_max", "privacy.identity_rho=0.5"]
    given += [] if within is None else [f"clustering.announce_rounds={within}"]
    rule = build_rule(load_scenario("quick", given))
    most = None if within is None else sum(rule.announces(number) for number in range(1, within + 1))
    planned = Releases(identity_rho=0.5, first_announcement=2, announce_every=every, announcements=most)
    for rounds in range(15):
        often = sum(rule.announces(number) for number in range(1, rounds))
        assert planned.announced(rounds) == often
        assert announced_rho(rule, rounds) == 0.5 * often
