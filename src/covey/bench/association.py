"""Speed of the environment, of training and of decisions, with profiles."""

from __future__ import annotations

import cProfile
import pstats
import time
from functools import partial
from typing import Any

import numpy as np
import torch

from covey.agents.policy import LearnedPolicy, Way
from covey.agents.settings import LearnerSettings
from covey.agents.training import Trainer
from covey.agents.training_files import trained_policy
from covey.allocation import noise_levels
from covey.association import Policy, get_policy
from covey.bench.timing import timed
from covey.environment import SurrogateRounds, calibration_for
from covey.scenario import Scenario, load_scenario
from covey.seeding import generator


def environment_speed(*, episodes: int = 8, networks: tuple[int, ...] = (1, 64, 512)) -> dict[str, Any]:
    """Network steps per second of surrogate rounds in the paper's network, by batch size."""
    scenario = load_scenario("paper")
    rows = []
    for count in networks:
        rounds = SurrogateRounds(scenario, calibration_for(scenario), count)
        rng = np.random.default_rng(0)
        _episode(rounds, rng, 0)
        started, steps = time.perf_counter(), 0
        for number in range(max(1, episodes if count < 100 else episodes // 4)):
            steps += _episode(rounds, rng, 1 + number)
        rows.append({"networks": count, "steps_per_s": steps / (time.perf_counter() - started)})
    rounds = SurrogateRounds(scenario, calibration_for(scenario), 64)
    profile = cProfile.Profile()
    profile.enable()
    _episode(rounds, np.random.default_rng(0), 99)
    profile.disable()
    parts = {
        "moving": "_move",
        "looking": "_look",
        "projection": "project",
        "noise": "_noise",
        "learning": "learn",
    }
    return {"speed": rows, "where_time_goes_at_64": _shares(profile, "_episode", parts)}


def _episode(rounds: SurrogateRounds, rng: np.random.Generator, number: int) -> int:
    """Play one episode of random actions; returns the number of network steps."""
    rounds.reset([rounds.count * number + n for n in range(rounds.count)])
    steps = 0
    while not rounds.done:
        eligible = rounds.observation.eligible
        rounds.step(eligible & (rng.random(eligible.shape) < 0.3))
        steps += rounds.count
    return steps


def training_speed(*, epochs: int = 10) -> dict[str, Any]:
    """Environment and gradient steps per second of `covey train paper`, and a profile."""
    # No validation in the measured epochs; it runs every 20 epochs and costs about as much as five of them.
    settings = LearnerSettings(epochs=epochs + 9, validate_every=epochs + 9)
    found = {}
    for head in ("additive", "subset"):
        trainer = Trainer(load_scenario("paper"), settings.model_copy(update={"head": head}))
        trainer.run_epoch()
        profile = cProfile.Profile()
        started = time.perf_counter()
        for _ in range(epochs):
            trainer.run_epoch()
        seconds = time.perf_counter() - started
        profile.enable()
        trainer.run_epoch()
        profile.disable()
        parts = {
            "gradient_steps": "update", "choosing": "act", "environment": "step", "worth_of_users": "marginal_gains",
            "features": "features",
        }  # fmt: skip
        found[head] = {
            "environment_steps_per_s": epochs * settings.networks * trainer.rounds.limits.rounds / seconds,
            "gradient_steps_per_s": epochs * settings.updates / seconds,
            "where_time_goes": _shares(profile, "run_epoch", parts),
        }
    return found


def _shares(profile: cProfile.Profile, whole: str, parts: dict[str, str]) -> dict[str, float]:
    """Cumulative time of each part's function as a share of the function `whole`; covey's functions only."""
    cumulative: dict[str, float] = {}
    stats: Any = pstats.Stats(profile)
    for (file, _, name), (_, _, _, total, _) in stats.stats.items():
        if "covey" in file:
            cumulative[name] = max(cumulative.get(name, 0.0), total)
    return {part: cumulative.get(name, 0.0) / cumulative[whole] for part, name in parts.items()}


def decision_time(*, repeats: int = 20, users: tuple[int, ...] = (12, 100, 1000)) -> dict[str, Any]:
    """Milliseconds per decision of all stations by number of users: a learned policy, guarded and alone, and greedy."""
    policy = trained_policy(Trainer(load_scenario("paper"), LearnerSettings(epochs=1, networks=1, validation=1)))
    rows = []
    for count in users:
        for stations in (4, 16):
            rows.append(_decide(policy, _sized(count, stations), repeats) | {"users": count, "stations": stations})
    return {"decisions": rows}


def decision_growth(
    *, repeats: int = 9, users: tuple[int, ...] = (12, 100, 1000, 10_000, 100_000), stations: int = 4
) -> dict[str, Any]:
    """Scaling of a round's decision and its allocation of blocks and noise with the number of users, in milliseconds.

    The area grows with the users; stations and blocks are fixed, and so is the number of served users.
    `allocation_ms` is for greedy's selection. `exponents`: scaling exponents since the row before, 1 if linear.
    """
    policy = trained_policy(Trainer(load_scenario("paper"), LearnerSettings(epochs=1, networks=1, validation=1)))
    rows: list[dict[str, Any]] = []
    for count in users:
        few = max(3, repeats if count <= 1000 else repeats // 3)
        row: dict[str, Any] = {"users": count, **_decide(policy, _sized(count, stations), few)}
        if rows:
            before, longer = rows[-1], np.log(count / rows[-1]["users"])
            row["exponents"] = {
                key: float(np.log(row[key] / before[key]) / longer) for key in row if key.endswith("_ms")
            }
        rows.append(row)
    return {"stations": stations, "sizes": rows}


def _sized(users: int, stations: int) -> Scenario:
    blocks, side = (4, 500.0) if users <= 12 else (8, 1000.0) if users <= 100 else (16, 2000.0 * (users / 1000) ** 0.5)
    tasks = [sorted((b + j) % 4 for j in range(3)) for b in range(stations)]
    changes = [f"network.users={users}", f"network.stations={stations}", f"network.blocks={blocks}"]
    changes += [f"network.area_m=[{side}, {side}]", f"network.task_sets={tasks}"]
    return load_scenario("paper", changes)


def _decide(policy: LearnedPolicy, scenario: Scenario, repeats: int) -> dict[str, float]:
    rounds = SurrogateRounds(scenario, calibration_for(scenario), 1)
    observation = rounds.reset([0])[0]
    ways: tuple[Way, ...] = ("guarded", "alone")
    deciders: dict[str, Policy] = {
        way: LearnedPolicy(policy.settings, policy.weights, scenario, way=way, trained_on=policy.trained_on)
        for way in ways
    }
    deciders["greedy"] = get_policy("greedy")
    found = {}
    torch.set_num_threads(1)
    for name, decider in deciders.items():
        found[f"{name}_ms"] = 1e3 * timed(partial(decider, observation, generator(0, "policy")), repeats)["median_s"]
    selected = deciders["greedy"](observation, generator(0, "policy"))
    samples = observation.samples.astype(np.float64)

    def allocate() -> None:
        plan = observation.project(selected)
        served = np.where(plan.served, observation.identities, -1)
        noise_levels(samples, served, scenario.privacy.v_max, scenario.privacy.n_min)

    found["allocation_ms"] = 1e3 * timed(allocate, repeats)["median_s"]
    return found
