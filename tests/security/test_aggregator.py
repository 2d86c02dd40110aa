from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.security.rounds import parameters, revealed, shared, to

from covey.security import (
    Aggregator,
    BelowThresholdError,
    Client,
    MaskedUpload,
    PartialSum,
    SecurityError,
    SeededEntropy,
    Session,
    TamperedError,
    UnmaskAnswer,
    add_partials,
    unmask,
)
from covey.security.sharing import pack

SESSION = Session(parameters(), "run", 0)
TASKS = [0, 0, 1, 1, 1, 2]


def finished(dropped: tuple[int, ...] = ()) -> tuple[list[Client], PartialSum, list[UnmaskAnswer]]:
    """A round in which user u sends u + 1 in all values, with 10 samples, up to the users' answers."""
    clients = shared(SESSION, TASKS)
    stations = [Aggregator(SESSION), Aggregator(SESSION)]
    present = [client for client in clients if client.user not in dropped]
    for client in present:
        stations[client.user % 2].receive(client.upload(np.full(5, client.user + 1.0), 10))
    total = add_partials([station.partial() for station in stations])
    return clients, total, revealed(present, total.users)


def test_stations_add_up_to_the_open_sums() -> None:
    clients, total, answers = finished(dropped=(4,))
    opened = unmask(SESSION, total, {c.user: c._own_keys() for c in clients}, range(6), answers)
    assert opened.counts.tolist() == [2, 2, 1]
    assert opened.opened.tolist() == [True, True, False]
    assert opened.samples.tolist() == [20, 20, 0]
    np.testing.assert_allclose(opened.sums[:2], [[30.0] * 5, [70.0] * 5])
    assert np.all(np.isnan(opened.sums[2]))


def test_users_who_never_shared_are_not_missed() -> None:
    clients = [Client(SESSION, user, TASKS[user], SeededEntropy(0, user)) for user in range(6)]
    keys = {client.user: client.advertise() for client in clients}
    for client in clients:
        client.agree(keys.values())
    sent = [envelope for client in clients[:5] for envelope in client.share()]
    station = Aggregator(SESSION)
    for client in clients[:5]:
        client.accept(to(client, sent))
        station.receive(client.upload(np.full(5, client.user + 1.0), 10))
    answers = revealed(clients[:5], range(5))
    opened = unmask(SESSION, station.partial(), keys, range(5), answers)
    np.testing.assert_allclose(opened.sums[:2], [[30.0] * 5, [120.0] * 5])


def test_wrong_uploads_are_refused_and_do_not_count() -> None:
    station = Aggregator(SESSION)
    words = np.ones((3, 6), dtype=np.uint64)
    station.receive(MaskedUpload(0, words))
    with pytest.raises(SecurityError, match="two uploads"):
        station.receive(MaskedUpload(0, words))
    for bad in (np.ones((3, 5), dtype=np.uint64), np.ones((3, 6)), np.ones(18, dtype=np.uint64)):
        with pytest.raises(SecurityError, match=r"\(3, 6\) words of 64 bits"):
            station.receive(MaskedUpload(1, bad))  # type: ignore[arg-type]
    assert station.partial().users == (0,)
    np.testing.assert_array_equal(station.partial().words, words)


def test_partial_sums_add_modulo_the_word_and_hold_each_user_once() -> None:
    top = np.full((3, 6), 2**64 - 1, dtype=np.uint64)
    one = PartialSum((0,), top)
    total = add_partials([one, PartialSum((2, 1), np.full((3, 6), 3, dtype=np.uint64))])
    assert total.users == (0, 1, 2)
    assert np.all(total.words == 2)
    assert np.all(one.words == 2**64 - 1)
    with pytest.raises(SecurityError, match="at two stations"):
        add_partials([one, one])


def test_too_few_answers_open_nothing() -> None:
    clients, total, answers = finished()
    keys = {client.user: client._own_keys() for client in clients}
    with pytest.raises(BelowThresholdError, match="3 users answered and 4 are needed"):
        unmask(SESSION, total, keys, range(6), answers[:3])
    opened = unmask(SESSION, total, keys, range(6), answers[:4])
    np.testing.assert_allclose(opened.sums[0], 30.0)


def test_answers_that_contradict_each_other_are_refused() -> None:
    clients, total, answers = finished(dropped=(5,))
    keys = {client.user: client._own_keys() for client in clients}
    with pytest.raises(TamperedError, match="different counts"):
        unmask(SESSION, total, keys, range(6), [replace(answers[0], counts=(3, 2, 0)), *answers[1:]])
    with pytest.raises(TamperedError, match="exactly the users"):
        unmask(SESSION, total, keys, range(6), [replace(answers[0], key_shares={}), *answers[1:]])
    wrong = replace(answers[0], key_shares={5: pack([7])})
    with pytest.raises(TamperedError, match="do not fit together"):
        unmask(SESSION, total, keys, range(6), [wrong, *answers[1:]])
    with pytest.raises(TamperedError, match=r"does not fit its public key|not hold a 256-bit secret"):
        unmask(SESSION, total, keys, range(6), [wrong, *answers[1:4]])  # exactly the threshold: no spare share


def test_masks_that_do_not_cancel_are_noticed() -> None:
    clients, total, answers = finished()
    keys = {client.user: client._own_keys() for client in clients}
    changed = PartialSum(total.users, total.words + np.uint64(2**62))
    with pytest.raises(TamperedError, match="slot 0 does not open to a sum"):
        unmask(SESSION, changed, keys, range(6), answers)
