"""Pieces of a comparison: the same from a pool, kept and found again, and known by everything they depend on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from covey.association import get_policy
from covey.environment import calibration_for
from covey.evaluation import Comparison, compare
from covey.evaluation.pieces import Piece, Played, play_pieces
from covey.learners.policy import LearnedPolicy
from covey.learners.settings import LearnerSettings
from covey.learners.storage import trained_policy
from covey.learners.training import Trainer
from covey.pools import open_pool
from covey.scenario import load_scenario

SCENARIO = load_scenario("quick")
SEEDS = range(5)


@pytest.fixture(scope="module")
def learned() -> LearnedPolicy:
    return trained_policy(Trainer(SCENARIO, LearnerSettings(epochs=1, networks=1, validation=1)))


def piece(reference: str = "greedy", **changes: object) -> Piece:
    found = Piece(reference, get_policy(reference), (0, 1), SCENARIO, "surrogate", calibration_for(SCENARIO), 2)
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
    first = dict(play_pieces(pieces, None, tmp_path))
    monkeypatch.setattr("covey.evaluation.pieces.Player", None)
    assert dict(play_pieces(pieces, None, tmp_path)) == first


@pytest.mark.parametrize("content", [b"", b"{}", b'{"values": 3}', b"\xff"])
def test_a_damaged_piece_is_computed_again(content: bytes, tmp_path: Path) -> None:
    first = dict(play_pieces([piece()], None, tmp_path))[0]
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    again = dict(play_pieces([piece()], None, tmp_path))[0]
    assert isinstance(again, Played)
    assert again.values == first.values
    assert path.read_bytes() != content


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
    kept = tmp_path / "pieces"
    (played,) = dict(play_pieces([piece(name=name)], None, kept)).values()
    assert len(list(kept.iterdir())) == 1
    np.testing.assert_array_equal(played.values["reward"], dict(play_pieces([piece()], None, None))[0].values["reward"])
