from __future__ import annotations

from collections.abc import Callable

import numpy as np

from covey.report import draw_blocks
from covey.report.block_grid import occupancy
from covey.report.pictures import png
from covey.simulation import History


def test_occupancy_puts_every_served_user_on_its_block(history: History) -> None:
    for record in history.records:
        holders = occupancy(record.users, 4, 4)
        assert (holders >= 0).sum() == record.served
        for (station, block), user in np.ndenumerate(holders):
            if user >= 0:
                assert (record.users.station[user], record.users.block[user]) == (station, block)


def test_every_block_of_a_small_network_names_user_task_and_rate(history: History) -> None:
    figure = draw_blocks(history)
    texts = [text.get_text() for text in figure.axes[0].texts]
    users = history.records[-1].users
    for user in np.flatnonzero(users.station >= 0):
        cell = next(text for text in texts if text.startswith(f"user {user}, "))
        assert f"task {users.identity[user]}\n" in cell
        assert cell.endswith("Mbit/s")
    digits = [text.get_text() for text in figure.axes[1].texts]
    assert len(digits) == history.column("served").sum()


def test_large_networks_show_shares_instead_of_single_blocks(make_history: Callable[..., History]) -> None:
    history = make_history(users=60, stations=14, tasks=14, blocks=10, rounds=10)
    figure = draw_blocks(history)
    assert "per cent" in figure.axes[1].get_title(loc="left")
    assert png(figure)


def test_an_earlier_round_and_no_round(make_history: Callable[..., History]) -> None:
    history = make_history(rounds=3)
    assert "Round 1 of 3" in draw_blocks(history, 0).axes[0].get_title(loc="left")
    assert "No round" in draw_blocks(make_history(played=0)).texts[0].get_text()
