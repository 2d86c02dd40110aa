"""Pieces of a comparison: the same from a pool, kept and found again, and known by everything they depend on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from covey.agents.policy import LearnedPolicy
from covey.agents.settings import LearnerSettings
from covey.agents.training import Trainer
from covey.agents.training_files import trained_policy
from covey.arrays import BoolArray
from covey.association import ExactPolicy, Policy, get_policy
from covey.environment import calibration_for
from covey.evaluation import Comparison, compare
from covey.evaluation.episodes import EpisodeJob, EpisodeResult, play_jobs, policy_identity
from covey.jobs import Store, open_pool
from covey.network import Observation
from covey.scenario import load_scenario

SCENARIO = load_scenario("quick")
SEEDS = range(5)


@pytest.fixture(scope="module")
def learned() -> LearnedPolicy:
    return trained_policy(Trainer(SCENARIO, LearnerSettings(epochs=1, networks=1, validation=1)))


def piece(reference: str = "greedy", **changes: object) -> EpisodeJob:
    found = EpisodeJob(reference, get_policy(reference), (0, 1), SCENARIO, "surrogate", calibration_for(SCENARIO), 2)
    return replace(found, **changes)  # type: ignore[arg-type]


def values(comparison: Comparison) -> dict[str, object]:
    found = comparison.to_dict()
    for summary in found["policies"].values():
        del summary["decision_ms"]
    return found


def test_a_pool_changes_nothing_but_times(learned: LearnedPolicy) -> None:
    policies = {"greedy": get_policy("greedy"), "random": get_policy("random"), "dpvd": learned.with_way("guarded")}
    alone = compare(SCENARIO, policies, SEEDS, together=2)
    with open_pool(2) as pool:
        assert values(compare(SCENARIO, policies, SEEDS, together=2, pool=pool)) == values(alone)


def test_kept_pieces_are_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [piece(), piece(seeds=(2, 3))]
    first = dict(play_jobs(pieces, None, Store(tmp_path / "pieces.jsonl")))
    monkeypatch.setattr("covey.evaluation.episodes.Player", None)
    again = [piece(), piece(seeds=(2, 3))]
    assert dict(play_jobs(again, None, Store(tmp_path / "pieces.jsonl"))) == first


def test_a_damaged_piece_is_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "pieces.jsonl"
    first = dict(play_jobs([piece()], None, Store(path)))[0]
    path.write_bytes(path.read_bytes()[:-20])
    again = dict(play_jobs([piece()], None, Store(path)))[0]
    assert isinstance(again, EpisodeResult)
    assert again.values == first.values
    assert Store(path).has(piece())


def test_a_changed_policy_of_the_same_name_is_never_answered_from_the_past(tmp_path: Path) -> None:
    def everybody(serve: bool) -> Policy:
        if serve:

            def mine(observation: Observation, rng: np.random.Generator) -> BoolArray:
                return get_policy("greedy")(observation, rng)
        else:

            def mine(observation: Observation, rng: np.random.Generator) -> BoolArray:
                return np.zeros(observation.eligible.shape, dtype=bool)

        return mine

    kept = Store(tmp_path / "pieces.jsonl")
    served = [
        compare(SCENARIO, {"mine": everybody(serve)}, [0, 1], kept=kept)["mine"].served for serve in (True, False)
    ]
    assert served[0].all()
    assert not served[1].any()


def test_what_a_policy_remembers_of_its_rounds_does_not_change_it(tmp_path: Path) -> None:
    policy = ExactPolicy()
    before = policy_identity(policy)
    compare(SCENARIO, {"exact": policy}, [0], kept=Store(tmp_path / "pieces.jsonl"))
    assert policy.record
    assert policy_identity(policy) == before
    assert policy_identity(ExactPolicy(time_limit_s=1.0)) != before


def test_pieces_are_known_by_all_that_they_depend_on(learned: LearnedPolicy) -> None:
    calibration = calibration_for(SCENARIO)
    other = replace(calibration, constants=replace(calibration.constants, floor=0.5 * calibration.constants.floor))
    weights = {way: {name: 2.0 * tensor for name, tensor in part.items()} for way, part in learned.weights.items()}
    louder = LearnedPolicy(learned.settings, weights, SCENARIO)
    different = [
        piece(),
        piece("random"),
        piece(seeds=(0, 2)),
        piece(together=4),
        piece(learning="real", calibration=None),
        piece(calibration=other),
        piece(scenario=load_scenario("quick", ["network.users=13"])),
        piece(policy=learned.with_way("alone")),
        piece(policy=learned.with_way("guarded")),
        piece(policy=louder.with_way("guarded")),
    ]
    assert len({one.key for one in different}) == len(different)
    assert piece().key == piece().key


@pytest.mark.parametrize("name", ["runs/train/policy.safetensors", "../up", "/abs/p", "a" * 300])
def test_a_policy_named_by_its_file_is_kept_in_the_folder(name: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "pieces.jsonl"
    (played,) = dict(play_jobs([piece(name=name)], None, Store(kept))).values()
    assert list(kept.parent.iterdir()) == [kept]
    np.testing.assert_array_equal(played.values["reward"], dict(play_jobs([piece()], None, None))[0].values["reward"])
