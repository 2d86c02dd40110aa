from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from covey.privacy import Ledger
from covey.report import reading
from covey.simulation import History


def _text(sentences: list[str]) -> str:
    return " ".join(sentences)


def test_learning_names_the_group_that_lags(history: History) -> None:
    worst = int(np.argmin(history.records[-1].group_accuracy))
    text = _text(reading.on_learning(history, history.summary()))
    assert f"Group {worst} lags" in text
    assert "fell from" in text
    assert "higher than before" not in text


def test_learning_says_when_groups_are_close_and_when_loss_rose(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=2)
    history.records[-1] = replace(
        history.records[-1], group_accuracy=[0.5, 0.51, 0.52, 0.53], group_loss=[9.0, 1, 1, 1]
    )
    text = _text(reading.on_learning(history, history.summary()))
    assert "within 3.0 percentage points" in text
    assert "The loss of group 0 is higher" in text


def test_identities_counts_and_names_the_wrong_ones(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=1, seed=1)
    summary = history.summary()
    wrong = [user["user"] for user in summary["users"] if not user["identity_right"]]
    text = _text(reading.on_identities(history, summary))
    assert text.startswith(f"{12 - len(wrong)} of 12 users")
    assert f"Wrong: users {wrong[0]}" in text


def test_identities_of_the_oracle(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=1, scenario={"clustering": {"rule": "oracle"}})
    assert "told its true group" in _text(reading.on_identities(history, history.summary()))


def test_network_names_the_most_common_violation(history: History) -> None:
    summary = history.summary()
    summary["totals"].update(unable=0, beyond_blocks=0, selected_twice=7, no_block=3, no_broadcast=0)
    assert "chosen by more than one station (7 times)" in _text(reading.on_network(history, summary))
    summary["totals"].update(violators=0)
    assert "No rule was broken" in _text(reading.on_network(history, summary))


def test_network_mentions_users_never_served_refusals_and_damage(history: History) -> None:
    summary = history.summary()
    summary["totals"].update(refused_releases=2, rejected_uploads=1)
    quiet = replace(history, served_rounds=np.where(np.arange(12) < 2, 0, history.served_rounds))
    text = _text(reading.on_network(quiet, summary))
    assert "2 users were never served" in text
    assert "2 uploads did not happen" in text
    assert "1 upload arrived damaged" in text


def test_cost_names_the_longest_part(history: History) -> None:
    text = _text(reading.on_cost(history, history.summary()))
    assert "for the uplink" in text


def test_privacy_explains_epsilon_and_warns_when_it_is_large(history: History) -> None:
    summary = history.summary()
    text = _text(reading.on_privacy(history, summary))
    assert "had the noise been secret" in text
    assert "promises little" in text
    summary["privacy"]["epsilon_max"]["exact"] = 1.0
    summary["privacy"]["noise"] = "secure"
    text = _text(reading.on_privacy(history, summary))
    assert "e^1.00 = 2.72" in text
    assert "only a limit that was set beforehand promises" in text
    assert "promises little" not in text
    assert "had the noise" not in text


def test_privacy_without_noise_without_uploads_and_with_a_large_delta(history: History) -> None:
    summary = history.summary()
    summary["privacy"]["delta"] = 0.01
    assert "choose a smaller privacy.delta" in _text(reading.on_privacy(history, summary))
    summary["privacy"]["epsilon_max"]["exact"] = math.inf
    assert "unlimited" in _text(reading.on_privacy(history, summary))
    summary["privacy"]["epsilon_max"]["exact"] = 0.0
    assert "nothing was spent" in _text(reading.on_privacy(history, summary))


def test_rounds_tell_of_movement_stations_and_the_last_change(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=4)
    text = _text(reading.on_rounds(history, history.summary()))
    assert "m between two rounds on average" in text
    assert "100.0 % of the links lead to the nearest station" in text
    first = history.records[0].users
    same = {"x_m": first.x_m, "y_m": first.y_m, "identity": first.identity}
    history.records[1:] = [replace(record, users=replace(record.users, **same)) for record in history.records[1:]]
    text = _text(reading.on_rounds(history, history.summary()))
    assert "stayed where they were" in text
    assert "Nobody ever changed the task" in text
    other = replace(first, identity=(first.identity + 1) % 4)
    history.records[0] = replace(history.records[0], users=other)
    assert "Nobody changed the task after round 2" in _text(reading.on_rounds(history, history.summary()))
    history.records[-1] = replace(history.records[-1], users=other)
    assert "12 users changed the task in the last round" in _text(reading.on_rounds(history, history.summary()))


def test_a_single_round_shows_no_movement(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=1)
    assert "shows no movement" in _text(reading.on_rounds(history, history.summary()))


def test_network_lists_all_kinds_and_compares_halves(history: History) -> None:
    summary = history.summary()
    summary["totals"].update(unable=1, beyond_blocks=0, selected_twice=7, no_block=3, no_broadcast=0)
    text = _text(reading.on_network(history, summary))
    assert (
        "else left without a block at the rate floor (3) and chosen by a station that cannot run the task (1)" in text
    )
    violators = history.column("violators")
    assert (
        f"The first 7 rounds had {violators[:7].sum()} violating users, the other 8 had {violators[7:].sum()}" in text
    )


def test_privacy_says_how_near_users_are_to_their_budgets(make_history: Callable[..., History]) -> None:
    history = make_history(users=4, rounds=2)
    assert "budget" not in _text(reading.on_privacy(history, history.summary()))
    ledger = Ledger(4, delta=1e-5, budget_epsilon=20.0)
    ledger.spent["gradient"][:] = ledger.budget_rho * [0.2, 0.95, 0.5, 0.0]
    history.ledger = ledger
    text = _text(reading.on_privacy(history, history.summary()))
    assert "User 1 has used most of its budget, 95.0 % of its rho; 1 user has less than a tenth left" in text


def test_cost_names_a_round_that_was_much_slower(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=3)
    assert "slowest" not in _text(reading.on_cost(history, history.summary()))
    history.records[1] = replace(history.records[1], delay_s=9.0)
    assert "The slowest was round 2 with 9.00 s" in _text(reading.on_cost(history, history.summary()))
