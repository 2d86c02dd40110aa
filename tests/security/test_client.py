from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.security.rounds import flipped, parameters, revealed, shared, to, uploaded

from covey.security import BelowThresholdError, Client, EncodingError, RefusedError, SeededEntropy, Session
from covey.security.errors import TamperedError
from covey.security.sharing import ELEMENT_BYTES

SESSION = Session(parameters(), "run", 0)
TASKS = [0, 0, 1, 1, 1, 2]


def fresh(users: int = 6) -> list[Client]:
    return [Client(SESSION, user, TASKS[user], SeededEntropy(0, user)) for user in range(users)]


def test_both_kinds_of_share_of_one_peer_are_never_revealed() -> None:
    clients, _ = uploaded(SESSION, TASKS)
    clients[0].count(range(6))
    for other in (range(5), [0, 1, 2, 3], [0, 2, 3, 4, 5]):
        with pytest.raises(RefusedError, match="both kinds of share"):
            clients[0].count(other)
    answers = revealed(clients, range(6))
    for answer in answers:
        for row in answer.seed_shares.values():
            assert not row.keys() & answer.key_shares.keys()
    with pytest.raises(RefusedError, match="both kinds of share"):
        clients[0].count(range(5))


def test_two_groups_told_different_survivors_cannot_both_open() -> None:
    clients, _ = uploaded(SESSION, TASKS)
    told = [client.count(range(6)) for client in clients[:3]]
    told += [client.count([0, 1, 3, 4, 5]) for client in clients[3:]]  # as if user 2 had dropped
    envelopes = [envelope for sent in told for envelope in sent]
    for user, group in ((0, [1, 2]), (3, [4, 5])):
        received = to(clients[user], envelopes)
        with pytest.raises(TamperedError, match="another purpose"):  # the counts are bound to the survivors
            clients[user].reveal(received)
        agreeing = [envelope for envelope in received if envelope.sender in group]
        with pytest.raises(BelowThresholdError, match="3 users answered and 4 are needed"):
            clients[user].reveal(agreeing)


def test_the_same_survivors_again_give_the_same_envelopes() -> None:
    clients, _ = uploaded(SESSION, TASKS)
    assert clients[0].count(range(6)) == clients[0].count([5, 4, 3, 2, 1, 0])


def test_answers_hold_shares_of_large_slots_and_dropped_users_only() -> None:
    clients = shared(SESSION, TASKS)
    for client in clients[:5]:
        client.upload(np.ones(5), 10)
    for answer in revealed(clients[:4], range(5)):  # user 5 dropped before its upload, user 4 after it
        assert answer.counts == (2, 3, 0)
        assert set(answer.seed_shares) == {0, 1}
        assert all(set(row) == set(range(5)) for row in answer.seed_shares.values())
        assert set(answer.key_shares) == {5}
        assert len(answer.key_shares[5]) == ELEMENT_BYTES


def test_no_share_leaves_when_no_slot_is_large_enough() -> None:
    session = Session(parameters(minimum=4), "run", 0)
    clients = shared(session, TASKS)
    for client in clients[:5]:
        client.upload(np.ones(5), 10)
    for answer in revealed(clients[:5], range(5)):
        assert answer.counts == (2, 3, 0)
        assert answer.seed_shares == {}
        assert answer.key_shares == {}


def test_tampered_redirected_and_replayed_envelopes_are_refused() -> None:
    clients = fresh()
    roster = [client.advertise() for client in clients]
    for client in clients:
        client.agree(roster)
    sent = [envelope for client in clients for envelope in client.share()]
    good = to(clients[0], sent)
    for at in (0, 12, 40, -1):
        with pytest.raises(TamperedError, match="modified in transit"):
            clients[0].accept([flipped(good[0], at), *good[1:]])
    redirected = replace(to(clients[1], sent)[1], receiver=0)
    with pytest.raises(TamperedError):
        clients[0].accept([redirected])
    with pytest.raises(TamperedError, match="not its peer"):
        clients[0].accept(to(clients[1], sent))
    with pytest.raises(TamperedError, match="twice"):
        clients[0].accept([good[0], *good])
    with pytest.raises(TamperedError):  # a valid envelope under another sender's name
        clients[0].accept([replace(good[0], sender=3), *good[1:]])
    clients[0].accept(good)


def test_envelopes_of_another_round_are_refused_even_under_the_same_keys() -> None:
    later = Session(SESSION.parameters, "run", 1)
    first = fresh()
    second = [Client(later, user, TASKS[user], SeededEntropy(0, user)) for user in range(6)]
    roster = [client.advertise() for client in first]
    assert roster == [client.advertise() for client in second]
    for client in first + second:
        client.agree(roster)
    sent = [envelope for client in first for envelope in client.share()]
    second[0].share()
    with pytest.raises(TamperedError):
        second[0].accept(to(second[0], sent))


def test_wrong_counts_of_a_peer_are_noticed() -> None:
    clients, _ = uploaded(SESSION, TASKS)
    liar = clients[5]
    envelopes = [envelope for client in clients[:5] for envelope in client.count(range(6))]
    liar._held[liar.user][-1] += 1  # its own share of the count of the last slot
    envelopes += liar.count(range(6))
    with pytest.raises(TamperedError, match="do not fit together"):
        clients[0].reveal(to(clients[0], envelopes))


def test_counts_that_contradict_the_survivors_are_refused() -> None:
    # All shares lie on one polynomial, but of a user who counts itself in the slots 0 and 2.
    clients, _ = uploaded(SESSION, TASKS)
    slots = SESSION.parameters.slots
    for client in clients:
        client._held[5][slots + 1] = client._held[5][slots + 3]
    with pytest.raises(TamperedError, match="do not add up to the survivors"):
        revealed(clients, range(6))


def test_the_roster_must_be_complete_and_untouched() -> None:
    clients = fresh()
    roster = [client.advertise() for client in clients]
    swapped = [replace(roster[0], mask=SeededEntropy(9).draw(32)), *roster[1:]]
    with pytest.raises(TamperedError, match="does not hold the keys that user 0 sent"):
        clients[0].agree(swapped)
    with pytest.raises(TamperedError, match="one public key twice"):
        clients[0].agree([*roster[:5], replace(roster[5], mask=roster[4].mask)])
    with pytest.raises(TamperedError, match="each user once"):
        clients[0].agree([*roster, roster[3]])
    with pytest.raises(TamperedError, match="each user once"):
        clients[0].agree([*roster[:5], replace(roster[5], user=6)])
    with pytest.raises(BelowThresholdError, match="3 users sent keys and 4 are needed"):
        clients[0].agree(roster[:3])
    with pytest.raises(TamperedError, match="not a valid X25519 key"):
        clients[0].agree([*roster[:5], replace(roster[5], mask=bytes(32))])


def test_survivors_must_be_plausible() -> None:
    clients, _ = uploaded(SESSION, TASKS)
    with pytest.raises(RefusedError, match="must include itself"):
        clients[0].count([1, 2, 3, 4, 5])
    with pytest.raises(RefusedError, match="nobody outside"):
        clients[0].count([0, 1, 2, 3, 9])
    with pytest.raises(BelowThresholdError, match="3 users uploaded and 4 are needed"):
        clients[0].count([0, 1, 2])
    clients[0].count(range(6))


def test_steps_happen_once_and_in_order() -> None:
    clients, _ = uploaded(SESSION, TASKS)
    with pytest.raises(RefusedError, match="asked to upload but its next step is count"):
        clients[0].upload(np.zeros(5), 10)
    with pytest.raises(RefusedError, match="each step happens once"):
        clients[0].share()
    early = shared(SESSION, TASKS)[0]
    with pytest.raises(RefusedError, match="asked to count but its next step is upload"):
        early.count(range(6))
    with pytest.raises(RefusedError, match="asked to reveal but its next step is upload"):
        early.reveal([])
    done, _ = uploaded(SESSION, TASKS)
    envelopes = [envelope for client in done for envelope in client.count(range(6))]
    done[0].reveal(to(done[0], envelopes))
    with pytest.raises(RefusedError, match="asked to reveal"):
        done[0].reveal(to(done[0], envelopes))


def test_values_that_cannot_be_sent_leave_the_user_able_to_send_others() -> None:
    client = shared(SESSION, TASKS)[0]
    with pytest.raises(EncodingError, match="NaN or infinite"):
        client.upload(np.full(5, np.nan), 10)
    with pytest.raises(EncodingError, match="overflows"):
        client.upload(np.full(5, 1e12), 10)
    assert client.upload(np.ones(5), 10).words.shape == (3, 6)


def test_wrong_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="user must be from 0 to 5, got 6"):
        Client(SESSION, 6, 0, SeededEntropy(0))
    with pytest.raises(ValueError, match="task must be from 0 to 2, got -1"):
        Client(SESSION, 0, -1, SeededEntropy(0))
