"""Runs with several local steps: workers, kill and resume, masks, the charge of every round, and the environment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import covey
from covey.federated import Step
from covey.privacy import GaussianReleases
from covey.simulation import Simulation
from covey.simulation.checkpoint import restore_checkpoint, save_checkpoint

SETTINGS = {
    "sample": ["training.steps=3", "training.batch=16", "training.momentum=0.5", "training.server=momentum",
               "training.server_rate=0.5"],
    "poisson": ["training.epochs=1", "training.batch=16", "training.sampling=poisson", "training.optimizer=adam",
                "training.learning_rate=0.01", "training.server=yogi", "training.server_rate=0.1",
                "privacy.adjacency=add_remove"],
    "device": ["privacy.unit=device", "training.steps=4", "training.batch=16", "training.proximal=0.1",
               "training.schedule=cosine", "training.server=adam", "training.server_rate=0.1"],
}  # fmt: skip


def scenario(name: str, *more: str) -> covey.Scenario:
    return covey.load_scenario("quick", [*SETTINGS[name], *more])


@pytest.mark.parametrize("name", SETTINGS)
def test_workers_and_a_resumed_run_give_the_same_bits(name: str, tmp_path: Path) -> None:
    whole = covey.simulate(scenario(name), rounds=4, seed=3)
    pair = covey.simulate(scenario(name), rounds=4, seed=3, workers=2)
    assert whole.models.tobytes() == pair.models.tobytes()
    with Simulation(scenario(name), rounds=4, seed=3) as stopped:
        for _ in range(2):
            stopped.play()
        assert stopped.state.aggregation
        save_checkpoint(stopped, tmp_path)
    with Simulation(scenario(name), rounds=4, seed=3) as resumed:
        restore_checkpoint(resumed, tmp_path)
        while not resumed.done:
            resumed.play()
        assert resumed.history.models.tobytes() == whole.models.tobytes()
        assert resumed.history.ledger.rho.tobytes() == whole.ledger.rho.tobytes()


@pytest.mark.parametrize("name", SETTINGS)
def test_masks_change_nothing_and_no_honest_upload_is_rejected(name: str) -> None:
    blind, masked = (covey.simulate(scenario(name, f"security.mode={m}"), rounds=3) for m in ("blind", "masked"))
    assert blind.models.tobytes() == masked.models.tobytes()
    seen = covey.simulate(scenario(name), rounds=3)
    assert sum(record.rejected_uploads for record in seen.records) == 0


class UserByUser(Step):
    """Says what it releases in a loop over users, as the interface allows: all arrays are (n,)."""

    def releases(self, clip, noise_std, samples):
        pairs = list(zip(clip.tolist(), noise_std.tolist(), strict=True))
        std, most = [float(std) for _, std in pairs], [2.0 * float(clip) for clip, _ in pairs]
        return GaussianReleases(np.array(std), np.array(most), np.ones(len(pairs)), np.ones(len(pairs), dtype=int))


def test_a_summary_asks_local_training_for_one_round_at_a_time() -> None:
    usual = covey.simulate("quick", rounds=3).summary()["privacy"]
    own = covey.simulate(covey.load_scenario("quick", [f"training.local={__name__}:UserByUser"]), rounds=3)
    assert own.summary()["privacy"] == usual


def test_several_steps_learn_more_and_cost_more() -> None:
    one = covey.simulate("quick", rounds=4, seed=1000)
    five = covey.simulate(covey.load_scenario("quick", ["training.steps=5"]), rounds=4, seed=1000)
    assert five.summary()["final"]["accuracy"] > one.summary()["final"]["accuracy"]
    first = one.user_column("rho")[0], five.user_column("rho")[0]
    served = first[0] > 0
    np.testing.assert_allclose(first[1][served], 5 * first[0][served])


def test_an_episode_of_the_environment_is_the_run() -> None:
    from covey.environment.real_rounds import RealRounds

    chosen = scenario("sample")
    with RealRounds(chosen) as rounds, Simulation(chosen, seed=2) as run:
        rounds.reset([2])
        for _ in range(2):
            selected = np.zeros((chosen.network.stations, chosen.network.users), dtype=bool)
            selected[0, :2] = True
            rounds.step(selected[None])
            run.policy = lambda observation, rng, selected=selected: selected
            run.play()
        assert rounds._simulations[0].state.models.tobytes() == run.state.models.tobytes()
