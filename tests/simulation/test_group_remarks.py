"""Sentences on the groups of a run: each kind, for one and for many, and none where there is nothing to say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from covey.scenario import load_scenario
from covey.simulation import History, simulate
from covey.simulation.group_remarks import OFFER_REASONS, group_remarks
from covey.simulation.record import RoundRecord

#: Every task has users, and every group a task of its own.
GOOD = np.arange(12) % 4


@pytest.fixture(scope="module")
def history() -> History:
    return simulate(load_scenario("paper_digits", ["training.rounds=1"]), seed=0)


def told(history: History, tasks: list[np.ndarray], **changes: list[int]) -> list[str]:
    """The sentences of a run whose users had these `tasks` in its rounds, with these fields of the records."""
    plain = {"starting": 0, "offered_task": -1, "offered_source": -1, "offered_users": 0, "offered_reason": 0}
    plain |= {"groups_estimate": 4, "groups_confirmed": 4}
    records: list[RoundRecord] = []
    for row, identity in enumerate(tasks):
        users = replace(history.records[0].users, identity=identity, group=GOOD)
        fields = plain | {name: values[row] for name, values in changes.items()}
        counts = [int((identity == task).sum()) for task in range(4)]
        records.append(replace(history.records[0], round=row + 1, users=users, task_users=counts, **fields))
    return group_remarks(replace(history, records=records))


def test_nothing_is_said_before_the_first_round_or_where_all_is_well(history: History) -> None:
    assert group_remarks(replace(history, records=[])) == []
    assert told(history, [GOOD] * 5) == []


def test_models_without_users(history: History) -> None:
    (one, *_) = told(history, [np.where(GOOD == 3, 2, GOOD)])
    assert one == "Model 3 has no users after 1 round."
    (two, *_) = told(history, [np.where(GOOD > 1, 0, GOOD)] * 2)
    assert two == "Models 2 and 3 have no users after 2 rounds."
    (three, *_) = told(history, [np.full(12, 2)] * 2)
    assert three == "Models 0, 1 and 3 have no users after 2 rounds."


def test_groups_that_share_a_model(history: History) -> None:
    sentences = told(history, [np.where(GOOD == 3, 2, GOOD)])
    assert sentences[1:] == ["Groups 2 and 3 share model 2: it is trained on data of different kinds."]
    assert "Groups 0, 1, 2 and 3 share model 1" in told(history, [np.full(12, 1)])[1]


def test_users_that_keep_changing_their_task(history: History) -> None:
    other = GOOD.copy()
    other[5] = 2
    restless = [GOOD, other] * 3
    (one,) = told(history, restless)
    assert one.startswith("User 5 changed the task in more than a third of the rounds (5 times at most)")
    assert told(history, restless[:3]) == [], "too few rounds to tell"
    assert told(history, [GOOD, other, *[GOOD] * 5]) == [], "two changes in six are no more than a third"
    (many,) = told(history, [GOOD, GOOD[::-1].copy()] * 3)
    assert many.startswith("Users 0, 1, 2, 3 and 8 more changed the task")
    unknown = told(history, [np.where(GOOD == 0, -1, tasks) for tasks in restless])
    assert not any("changed the task" in sentence for sentence in unknown), "tasks that stay on devices"


def test_labels_drawn_in_the_start_are_no_changes(history: History) -> None:
    drawn = [GOOD[::-1].copy(), GOOD, GOOD[::-1].copy()]
    sentences = told(history, [*drawn, *[GOOD] * 5], starting=[1] * 3 + [0] * 5)
    assert not any("changed the task" in sentence for sentence in sentences)


def test_how_the_groups_were_found(history: History) -> None:
    (one,) = told(history, [GOOD] * 2, starting=[1, 0])
    assert one == "Uploads of the first round told 4 groups; each began with a model made from its own uploads."
    (more,) = told(history, [GOOD] * 4, starting=[1, 1, 1, 0], groups_estimate=[-1, -1, 1, 4])
    assert more.startswith("Uploads of the first 3 rounds told 1 group; each began")
    (unsure,) = told(history, [GOOD] * 2, starting=[1, 0], groups_confirmed=[0, 0])
    assert unsure.startswith("Uploads of the first round could not tell for sure, but suggested 4 groups;")


def test_a_run_that_is_still_starting(history: History) -> None:
    for rounds, words in ((1, "1 round"), (2, "2 rounds")):
        sentences = told(
            history,
            [GOOD] * rounds,
            starting=[1] * rounds,
            groups_estimate=[-1] * rounds,
            groups_confirmed=[-1] * rounds,
        )
        assert sentences[-1] == f"All users share one model so far: uploads of {words} do not tell the groups apart."


@pytest.mark.parametrize(
    ("reason", "users", "words"),
    [
        ("evidence", 3, "to 3 users of task 1, whose uploads differ from those of the others."),
        ("evidence", 1, "to one user of task 1, whose uploads differ from those of the others."),
        ("guess", 2, "to 2 users of task 1, because noise hides whether it holds two groups."),
        ("copy", 0, "to the users of task 1 as a copy, because no uploads tell them apart."),
    ],
)
def test_offers(history: History, reason: str, users: int, words: str) -> None:
    (sentence,) = told(
        history, [GOOD] * 2, offered_task=[-1, 3], offered_source=[-1, 1], offered_users=[0, users],
        offered_reason=[0, OFFER_REASONS.index(reason)],
    )  # fmt: skip
    assert sentence == f"After round 2, model 3 was offered {words}"


def test_many_offers_are_counted(history: History) -> None:
    number = 7
    sentences = told(
        history, [GOOD] * number, offered_task=[3] * number, offered_source=[1] * number, offered_users=[2] * number,
        offered_reason=[1] * number,
    )  # fmt: skip
    assert len(sentences) == 5
    assert sentences[-1] == "Models were offered 3 more times, the last one after round 7."
    five = told(
        history, [GOOD] * 5, offered_task=[3] * 5, offered_source=[1] * 5, offered_users=[2] * 5, offered_reason=[1] * 5
    )
    assert five[-1] == "A model was offered once more, after round 5."


def test_every_reason_of_an_offer_has_a_sentence(history: History) -> None:
    for number in range(1, len(OFFER_REASONS)):
        assert told(history, [GOOD], offered_task=[2], offered_source=[0], offered_users=[1], offered_reason=[number])[
            0
        ].startswith("After round 1, model 2 was offered")


def test_a_real_run_is_told_in_order_and_in_its_summary() -> None:
    new = ["clustering.start=release", "clustering.rescue=true"]
    history = simulate(load_scenario("paper_digits", [*new, "training.rounds=5"]), seed=1004)
    sentences = group_remarks(history)
    assert sentences[0].startswith("Uploads of the first round told 2 groups;")
    assert [sentence[:13] for sentence in sentences[1:]] == ["After round 2", "After round 4"]
    assert all(sentence.endswith(".") and "\n" not in sentence for sentence in sentences)
