"""What happens to a run when uploads are lost, repeated, delayed or garbage on their way."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from covey.federated import REASONS, Upload
from covey.scenario import load_scenario
from covey.simulation import History, simulate
from covey.simulation.checkpoint import write_results
from covey.simulation.world import LossyTransport

ROUNDS = 3
Meddle = Callable[[Upload], Upload]

#: For each reason what makes a good upload bad.
GARBAGE: dict[str, Meddle] = {
    "unexpected": lambda upload: replace(upload, user=upload.user + 100),
    "stale": lambda upload: replace(upload, round=upload.round - 1),
    "oversized": lambda upload: replace(upload, weights=np.zeros(3 * upload.weights.size, np.float32)),
    "wrong_type": lambda upload: replace(upload, weights=upload.weights.astype(np.float64)),
    "wrong_shape": lambda upload: replace(upload, weights=upload.weights[:-1]),
    "not_finite": lambda upload: replace(upload, weights=np.where(np.arange(650) == 3, np.nan, upload.weights)),
    "too_far": lambda upload: replace(upload, weights=upload.weights + np.float32(5)),
}
#: Other shapes that garbage comes in.
ODD: dict[str, tuple[str, Meddle]] = {
    "infinite": ("not_finite", lambda upload: replace(upload, weights=np.full(650, -np.inf, np.float32))),
    "huge": ("too_far", lambda upload: replace(upload, weights=np.full(650, 3e38, np.float32))),
    "matrix": ("wrong_shape", lambda upload: replace(upload, weights=upload.weights[None])),
    "nothing": ("wrong_shape", lambda upload: replace(upload, weights=np.zeros(0, np.float32))),
    "scalar": ("wrong_shape", lambda upload: replace(upload, weights=np.array(1.0, np.float32))),
    "integers": ("wrong_type", lambda upload: replace(upload, weights=np.zeros(650, np.int32))),
    "objects": ("wrong_type", lambda upload: replace(upload, weights=np.array([None] * 650))),
    "complex": ("wrong_type", lambda upload: replace(upload, weights=upload.weights.astype(np.complex64))),
    "other byte order": ("wrong_type", lambda upload: replace(upload, weights=upload.weights.astype(">f4"))),
    "no array": ("wrong_type", lambda upload: replace(upload, weights=None)),
    "a list": ("wrong_type", lambda upload: replace(upload, weights=upload.weights.tolist())),
    "a text": ("wrong_type", lambda upload: replace(upload, weights="weights")),
    "hidden undefined": (
        "wrong_type",
        lambda upload: replace(upload, weights=np.ma.masked_invalid(GARBAGE["not_finite"](upload).weights)),
    ),
    "a later round": ("stale", lambda upload: replace(upload, round=upload.round + 1)),
    "nobody": ("unexpected", lambda upload: replace(upload, user=-1)),
}


def run(transport: Callable[[int, Sequence[Upload]], Sequence[Upload]] | None = None, *overrides: str) -> History:
    return simulate(load_scenario("quick", overrides), rounds=ROUNDS, transport=transport)


def first_lost(round: int, sent: Sequence[Upload]) -> list[Upload]:
    return list(sent)[1:]


@pytest.fixture(scope="module")
def plain() -> History:
    return run()


@pytest.fixture(scope="module")
def without_first() -> History:
    return run(first_lost)


def same_learning(a: History, b: History) -> None:
    np.testing.assert_array_equal(a.models, b.models)
    for name in ("identity", "loss", "joined", "station", "rho"):
        np.testing.assert_array_equal(a.user_column(name), b.user_column(name))
    np.testing.assert_array_equal(a.column("task_served"), b.column("task_served"))


def senders(history: History) -> list[int]:
    """The first user served in each round."""
    return [int(np.flatnonzero(stations >= 0)[0]) for stations in history.user_column("station")]


def test_every_reason_has_its_garbage() -> None:
    assert set(GARBAGE) | {"duplicate"} == set(REASONS)


@pytest.mark.parametrize("case", [*GARBAGE, *ODD])
def test_garbage_in_place_of_an_upload_is_as_if_it_were_lost(case: str, without_first: History) -> None:
    reason, spoil = ODD.get(case) or (case, GARBAGE[case])
    bad = run(lambda number, sent: [spoil(sent[0]), *sent[1:]])
    same_learning(bad, without_first)
    assert bad.ledger.to_dict() == without_first.ledger.to_dict()
    known = reason != "unexpected"
    assert bad.column("rejected_uploads").tolist() == [1] * ROUNDS
    assert bad.column("lost_uploads").tolist() == [0 if known else 1] * ROUNDS
    assert bad.column("unexpected_uploads").tolist() == [0 if known else 1] * ROUNDS
    flags = np.zeros((ROUNDS, 12), np.int64)
    if known:
        flags[np.arange(ROUNDS), senders(bad)] = 1 << list(REASONS).index(reason)
    np.testing.assert_array_equal(bad.user_column("rejection"), flags)
    assert bad.rejections() == {reason: ROUNDS}
    assert f"Stations turned uploads away: {ROUNDS} {REASONS[reason]}." in bad.notes


@pytest.mark.parametrize("reason", GARBAGE)
def test_garbage_beside_good_uploads_changes_nothing(reason: str, plain: History) -> None:
    flooded = run(lambda number, sent: [GARBAGE[reason](upload) for upload in sent] + list(sent))
    same_learning(flooded, plain)
    assert flooded.ledger.to_dict() == plain.ledger.to_dict()
    np.testing.assert_array_equal(flooded.column("rejected_uploads"), flooded.column("served"))
    assert not flooded.column("lost_uploads").any()
    np.testing.assert_array_equal(flooded.user_column("joined"), flooded.user_column("station") >= 0)


def test_all_kinds_at_once_are_counted_each(plain: History, tmp_path: Path) -> None:
    mixed = run(lambda number, sent: [*sent, *(spoil(sent[0]) for spoil in GARBAGE.values()), sent[0]])
    same_learning(mixed, plain)
    # After a good upload of a user all that could still be one is a second upload.
    assert mixed.column("rejected_uploads").tolist() == [len(GARBAGE) + 1] * ROUNDS
    before = run(lambda number, sent: [*(spoil(sent[0]) for spoil in GARBAGE.values()), *sent, sent[0]])
    same_learning(before, plain)
    assert before.rejections() == dict.fromkeys(REASONS, ROUNDS)
    write_results(before, tmp_path, {})
    rows = list(csv.DictReader((tmp_path / "users.csv").open()))
    everything = sum(1 << bit for bit, reason in enumerate(REASONS) if reason != "unexpected")
    flagged = [(int(row["round"]) - 1, int(row["user"])) for row in rows if int(row["rejection"]) == everything]
    assert flagged == list(enumerate(senders(before)))
    assert sum(int(row["rejection"]) > 0 for row in rows) == ROUNDS


def test_the_same_bytes_sent_again_cost_nothing(plain: History) -> None:
    again = run(lambda number, sent: [upload for upload in sent for _ in range(3)])
    same_learning(again, plain)
    assert again.ledger.to_dict() == plain.ledger.to_dict()
    np.testing.assert_array_equal(again.column("rejected_uploads"), 2 * again.column("served"))
    flags = np.where(again.user_column("station") >= 0, 1 << list(REASONS).index("duplicate"), 0)
    np.testing.assert_array_equal(again.user_column("rejection"), flags)


def test_uploads_delayed_by_a_round_are_stale_and_stay_charged(plain: History) -> None:
    late: list[Upload] = []

    def delay(round: int, sent: Sequence[Upload]) -> list[Upload]:
        arriving = late.copy()
        late[:] = [sent[0]]
        return [*arriving, *list(sent)[1:]]

    history = run(delay)
    assert history.column("rejected_uploads").tolist() == [0, 1, 1]
    assert set(history.rejections()) <= {"stale", "unexpected"}
    served = np.cumsum(history.user_column("station") >= 0, axis=0)[-1]
    np.testing.assert_array_equal(history.ledger.releases, served)


def test_order_of_arrival_does_not_matter(plain: History) -> None:
    reversed_ = run(lambda number, sent: list(sent)[::-1])
    same_learning(reversed_, plain)
    assert not reversed_.column("rejected_uploads").any()


def test_lost_uploads_are_counted_charged_and_in_no_model(plain: History) -> None:
    lossy = run(None, "radio.loss_probability=0.4")
    lost = (lossy.user_column("station") >= 0) & (lossy.user_column("joined") == 0)
    assert 0 < lost.sum() < (lossy.user_column("station") >= 0).sum()
    np.testing.assert_array_equal(lossy.column("lost_uploads"), lost.sum(axis=1))
    assert not lossy.column("rejected_uploads").any()
    np.testing.assert_array_equal(lossy.records[0].users.rho, plain.records[0].users.rho)
    np.testing.assert_array_equal(lossy.ledger.releases, (lossy.user_column("station") >= 0).sum(axis=0))
    assert lossy.summary()["totals"]["lost_uploads"] == lost.sum()
    np.testing.assert_array_equal(run(None, "radio.loss_probability=0.4").models, lossy.models)


def test_losses_come_as_often_as_the_scenario_says() -> None:
    lossy = LossyTransport(0.3, seed=5)
    sent = [Upload(user, 0, np.zeros(1, np.float32)) for user in range(100)]
    arrived = np.array([len(lossy(number, sent)) for number in range(100)])
    # Four standard deviations of 10,000 draws.
    assert abs(arrived.sum() / 10_000 - 0.7) < 4 * np.sqrt(0.21 / 10_000)
    assert arrived.std() > 0
    assert [u.user for u in lossy(3, sent[::-1])] == [u.user for u in lossy(3, sent)][::-1]


def test_a_round_in_which_nothing_arrives_leaves_all_models(plain: History) -> None:
    deaf = run(lambda number, sent: [])
    np.testing.assert_array_equal(deaf.column("lost_uploads"), deaf.column("served"))
    assert not deaf.user_column("joined").any()
    assert deaf.column("loss")[0] == pytest.approx(deaf.start["loss"])
    np.testing.assert_array_equal(deaf.records[0].users.rho, plain.records[0].users.rho)
    assert deaf.ledger.releases.sum() == deaf.column("served").sum()


def test_honest_uploads_are_never_turned_away() -> None:
    for overrides in (
        ["training.batch=16"],
        ["training.clip=0.01", "training.learning_rate=3"],
        ["privacy.noise=off"],
        ["privacy.v_max=4000"],
        ["privacy.adjacency=add_remove", "model.name=mlp"],
    ):
        history = run(None, *overrides)
        assert history.column("served").sum() > 0
        assert not history.column("rejected_uploads").any(), overrides
