"""Accounting against published values and against Google's dp-accounting, setting by setting.

Its default neighbouring relation is kept everywhere and the sensitivity goes into the noise multiplier: its RDP
accountant ignores the replace-one relation and its PLD accountant doubles the sensitivity by itself.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Literal

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian
from scipy.special import log_ndtr, ndtr

from covey.cli.main import main
from covey.privacy.planning import Plan, Releases, solve
from covey.seeding import generator

#: M = 1, X = 500, noise 0.05 on the mean gradient, 100 rounds, delta = 1e-5.
REFERENCE = {"simple": "4.1588", "zcdp": "3.6659", "exact": "3.3869"}
#: A denser list than the accountant's own, around the best orders of the settings below.
ORDERS = 1.0 + np.geomspace(0.05, 2000, 400)


@dataclass(frozen=True)
class Setting:
    clip: float
    samples: int
    mean_noise: float
    rounds: int
    delta: float
    adjacency: Literal["replace_one", "add_remove"]

    @property
    def multiplier(self) -> float:
        """Noise on the mean over the most that one sample can move the mean."""
        moved = self.clip / self.samples * (2 if self.adjacency == "replace_one" else 1)
        return self.mean_noise / moved

    @property
    def plan(self) -> Plan:
        releases = Releases(self.clip, self.adjacency)
        return solve(releases, rounds=self.rounds, noise_std=self.mean_noise * self.samples, delta=self.delta)


def random_settings(count: int, largest_rho: float = 30.0) -> list[Setting]:
    rng = generator(3, "samples")
    settings = []
    for _ in range(count):
        clip, samples, rounds = 10 ** rng.uniform(-1, 1.3), int(rng.integers(20, 5000)), int(rng.integers(1, 1000))
        # Noise from a total rho of at least 1e-3, so that epsilon lies where budgets do.
        total = 10 ** rng.uniform(-3, math.log10(largest_rho))
        settings.append(
            Setting(
                clip=clip,
                samples=samples,
                mean_noise=2 * clip / samples * math.sqrt(rounds / (2 * total)),
                rounds=rounds,
                delta=10 ** rng.uniform(-9, -3),
                adjacency="replace_one" if rng.random() < 0.5 else "add_remove",
            )
        )
    return settings


@pytest.mark.parametrize(("noise", "scale"), [(0.05, 500), (25.0, 1)], ids=["on the mean", "on the sum"])
def test_the_reference_example_through_the_library(noise: float, scale: int) -> None:
    plan = solve(Releases(clip=1.0), rounds=100, noise_std=noise * scale, delta=1e-5)
    assert plan.releases.upload_rho(plan.noise_std) == pytest.approx(0.0032, rel=1e-12)
    assert {method: f"{value:.4f}" for method, value in plan.by_method.items()} == REFERENCE


@pytest.mark.parametrize("noise", [["--noise-std", "0.05", "--on", "mean"], ["--noise-std", "25", "--on", "sum"]])
def test_the_reference_example_through_the_command(noise: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    question = ["privacy", "--clip", "1", "--samples", "500", "--rounds", "100", "--delta", "1e-5", *noise]
    with pytest.raises(SystemExit, match="0"):
        main(question)
    printed = capsys.readouterr().out
    assert all(value in printed for value in REFERENCE.values())
    with pytest.raises(SystemExit, match="0"):
        main([*question, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["rho_per_round"] == pytest.approx(0.0032, rel=1e-12)
    assert {method: f"{value:.4f}" for method, value in answer["answer_by_method"].items()} == REFERENCE


def test_a_thousand_settings_agree_with_dp_accounting() -> None:
    for index, setting in enumerate(random_settings(1000)):
        answers, multiplier, rounds = setting.plan.by_method, setting.multiplier, setting.rounds
        release = dp_accounting.ZCDpEvent(1 / (2 * multiplier**2))
        theirs = rdp.RdpAccountant().compose(release, rounds).get_epsilon(setting.delta)
        assert answers["zcdp"] <= theirs * (1 + 1e-9), setting  # a list of orders can only miss the best one
        dense = rdp.RdpAccountant(ORDERS).compose(release, rounds).get_epsilon(setting.delta)
        assert answers["zcdp"] == pytest.approx(dense, rel=1e-3), setting
        total = multiplier / math.sqrt(rounds)
        near, far = 0.5 / total - answers["exact"] * total, -0.5 / total - answers["exact"] * total
        gap = ndtr(near) - math.exp(answers["exact"] + log_ndtr(far))
        assert gap == pytest.approx(setting.delta, rel=1e-6), setting
        if index % 10 == 0:
            assert answers["exact"] == pytest.approx(get_epsilon_gaussian(total, setting.delta), rel=1e-9), setting
        assert answers["exact"] < answers["zcdp"] < answers["simple"], setting


def test_twenty_settings_agree_with_privacy_loss_distributions() -> None:
    for setting in random_settings(20, largest_rho=2.0):
        release = dp_accounting.GaussianDpEvent(setting.multiplier)
        theirs = pld.PLDAccountant().compose(release, setting.rounds).get_epsilon(setting.delta)
        assert setting.plan.by_method["exact"] == pytest.approx(theirs, rel=1e-4), setting


def test_gaussian_uploads_and_noisy_announcements_add_up_as_in_dp_accounting() -> None:
    for setting in random_settings(50):
        every, cost = 7, 0.003
        releases = Releases(setting.clip, setting.adjacency, identity_rho=cost, announce_every=every)
        noise_std = setting.mean_noise * setting.samples
        plan = solve(releases, rounds=setting.rounds, noise_std=noise_std, delta=setting.delta)
        accountant = rdp.RdpAccountant(ORDERS)
        accountant.compose(dp_accounting.GaussianDpEvent(setting.multiplier), setting.rounds)
        accountant.compose(dp_accounting.ZCDpEvent(cost), math.ceil(setting.rounds / every))
        assert plan.method == "zcdp"
        assert plan.epsilon == pytest.approx(accountant.get_epsilon(setting.delta), rel=1e-3), setting
