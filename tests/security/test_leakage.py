"""What stations could find out from all they see: nothing but the counts and the sums of open slots."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.security.rounds import revealed, shared

from covey.security import Parameters, SeededEntropy, Session, Transcript, aggregate_masked, encode
from covey.security.keys import agree
from covey.security.masks import apply_mask, pair_key, pair_sign, self_key
from covey.security.sharing import combine, unpack

Words = NDArray[np.uint64]
SLOTS, LENGTH, USERS = 3, 800, 8
SIZES = Parameters(USERS, 5, 2, SLOTS, LENGTH)
#: Slot 2 has one contributor, user 7. User 6 drops before its upload, user 5 after it.
TASKS = [0, 0, 0, 1, 1, 1, 0, 2]
UPLOADED = [0, 1, 2, 3, 4, 5, 7]


def looks_uniform(words: Words) -> bool:
    """Bytes and words pass for uniform at a level of 1 in 10,000."""
    bytes_ = stats.chisquare(np.bincount(words.reshape(-1).view(np.uint8), minlength=256)).pvalue
    top = stats.kstest(words.reshape(-1) / 2.0**64, "uniform").pvalue
    return bool(min(bytes_, top) > 1e-4)


@pytest.fixture(scope="module")
def seen() -> Transcript:
    """All that the stations saw in a round whose values are all 1, with 100 samples each."""
    result = aggregate_masked(
        np.ones((USERS, LENGTH)),
        [100] * USERS,
        TASKS,
        [0, 0, 0, 1, 1, 1, 0, 1],
        parameters=SIZES,
        dropped_before=(6,),
        dropped_after=(5,),
        entropy=SeededEntropy(11),
        transcript=True,
    )
    assert result.opened.tolist() == [True, True, False]
    assert result.transcript is not None
    return result.transcript


def recovered(seen: Transcript, users: Collection[int], slot: int, seeds_of: int) -> Words:
    """The best a station can do for the sum of `users` in `slot`: remove every mask it can compute.

    Personal masks by the seeds that were revealed for slot `seeds_of`, pair masks with the dropped users by
    their recovered keys.
    """
    session, holders = seen.session, [answer.user for answer in seen.answers]
    keys = {keys.user: keys for keys in seen.keys}
    words = np.zeros(LENGTH + 1, dtype=np.uint64)
    for user in users:
        words += seen.uploads[user][slot]

    def opened(shares: list[bytes]) -> bytes:
        column = np.array([unpack(share, 1) for share in shares], dtype=object)
        return combine(holders, column, SIZES.threshold)[0].to_bytes(32, "big")

    for user in users:
        if seeds_of in seen.answers[0].seed_shares:
            seed = opened([answer.seed_shares[seeds_of][user] for answer in seen.answers])
            apply_mask(words, self_key(seed, session, user, slot), -1)
        for gone in seen.answers[0].key_shares:
            secret = agree(opened([answer.key_shares[gone] for answer in seen.answers]), keys[user].mask)
            apply_mask(words, pair_key(secret, session, keys[user], keys[gone], slot), -pair_sign(user, gone))
    return words


def test_the_attack_works_on_open_slots(seen: Transcript) -> None:
    scale = int(SIZES.scale)
    assert np.all(recovered(seen, UPLOADED, 0, 0)[:-1] == 300 * scale)
    assert np.all(recovered(seen, UPLOADED, 1, 1)[:-1] == 300 * scale)


def test_a_slot_below_the_minimum_stays_closed_for_all_stations_together(seen: Transcript) -> None:
    assert all(answer.counts == (3, 3, 1) for answer in seen.answers)
    assert all(set(answer.seed_shares) == {0, 1} for answer in seen.answers)
    for seeds_of in (2, 0, 1):  # no seed was revealed for slot 2, and those of other slots do not help
        words = recovered(seen, UPLOADED, 2, seeds_of)
        assert looks_uniform(words)
        assert not np.any(words[:-1] == 100 * int(SIZES.scale))


def test_uploads_and_subsets_stay_masked_after_unmasking(seen: Transcript) -> None:
    for users in ([0], [7], UPLOADED[:-1], [0, 1, 2]):
        for slot in (0, 1):
            assert looks_uniform(recovered(seen, users, slot, slot))


def test_the_partial_sum_of_one_station_stays_masked(seen: Transcript) -> None:
    assert {station: partial.users for station, partial in seen.partials.items()} == {0: (0, 1, 2), 1: (3, 4, 5, 7)}
    for partial in seen.partials.values():
        np.testing.assert_array_equal(
            partial.words, np.sum([seen.uploads[user] for user in partial.users], axis=0, dtype=np.uint64)
        )
        assert looks_uniform(partial.words)
        for slot in (0, 1):  # even with every revealed seed and key
            assert looks_uniform(recovered(seen, partial.users, slot, slot))


def test_an_upload_that_comes_late_stays_masked() -> None:
    # User 6 counts as dropped and its mask key is recovered; then its upload arrives after all.
    session = Session(SIZES, "late", 0)
    clients = shared(session, TASKS, seed=12)
    for user in UPLOADED:
        clients[user].upload(np.ones(LENGTH), 100)
    answers = revealed([clients[user] for user in UPLOADED], UPLOADED)
    late = clients[6].upload(np.ones(LENGTH), 100).words
    shares = np.array([unpack(answer.key_shares[6], 1) for answer in answers], dtype=object)
    key = combine(UPLOADED, shares, SIZES.threshold)[0].to_bytes(32, "big")
    keys = [client._own_keys() for client in clients]
    for slot in range(SLOTS):
        for peer in UPLOADED:
            pair = pair_key(agree(key, keys[peer].mask), session, keys[6], keys[peer], slot)
            apply_mask(late[slot], pair, -pair_sign(6, peer))
        assert looks_uniform(late[slot])
        # Only the seeds, which nobody reveals for a dropped user, open it.
        apply_mask(late[slot], self_key(clients[6]._seeds[slot], session, 6, slot), -1)
        assert np.all(late[slot][:-1] == (100 * int(SIZES.scale) if slot == 0 else 0))


def test_one_upload_is_uniform_and_of_one_size_for_every_task() -> None:
    sizes = set()
    for task in range(SLOTS):
        client = shared(Session(SIZES, "sizes", task), [task] * USERS, seed=task)[0]
        upload = client.upload(np.full(LENGTH, 3.0), 100)
        sizes.add(upload.size)
        assert upload.words.shape == (SLOTS, LENGTH + 1)
        assert all(looks_uniform(row) for row in upload.words)
        assert looks_uniform(upload.words)
    assert sizes == {4 + 8 * SLOTS * (LENGTH + 1)}
    assert not looks_uniform(encode(np.full(LENGTH, 3.0), 100, SIZES))


def features(words: Words, sizes: list[int], sent: bytes) -> NDArray[np.float64]:
    """Words, byte histograms of the upload and of the envelopes, and message sizes."""
    histogram = np.bincount(words.reshape(-1).view(np.uint8), minlength=256)
    envelopes = np.bincount(np.frombuffer(sent, dtype=np.uint8), minlength=256)
    return np.concatenate([words.reshape(-1) / 2.0**64, histogram, envelopes, sizes])


@pytest.fixture(scope="module")
def observations() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Features of 1,000 users' messages, the same without masks, and the users' tasks."""
    sizes, users = Parameters(5, 3, 2, SLOTS, 6), 5
    rng = np.random.default_rng(2)
    masked, plain, labels = [], [], []
    for number in range(200):
        tasks = rng.integers(0, SLOTS, users)
        vectors = rng.normal(size=(users, 6)) + 3.0 * tasks[:, None]  # values that tell the task by themselves
        samples = rng.integers(200, 601, users)
        result = aggregate_masked(
            vectors,
            samples,
            tasks,
            [0, 0, 0, 1, 1],
            parameters=sizes,
            entropy=SeededEntropy(7),
            round=number,
            transcript=True,
        )
        seen = result.transcript
        assert seen is not None
        for user in range(users):
            envelopes = [e for e in seen.shares + seen.counts if e.sender == user]
            lengths = [len(e.payload) for e in envelopes] + [seen.answers[user].size, seen.uploads[user].nbytes]
            sent = b"".join(e.payload for e in envelopes)
            bare = np.zeros((SLOTS, 7), dtype=np.uint64)
            bare[tasks[user]] = encode(vectors[user], int(samples[user]), sizes)
            masked.append(features(seen.uploads[user], lengths, sent))
            plain.append(features(bare, lengths, sent))
        labels.append(tasks)
    return np.stack(masked), np.stack(plain), np.concatenate(labels)


@pytest.mark.parametrize("kind", ["linear", "forest"])
def test_a_classifier_cannot_tell_the_task_of_a_sender(
    observations: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]], kind: str
) -> None:
    masked, plain, labels = observations
    correct = []
    for data in (masked, plain):
        model = (
            make_pipeline(StandardScaler(), LogisticRegression(max_iter=500, C=0.01))
            if kind == "linear"
            else RandomForestClassifier(100, random_state=0)
        )
        model.fit(data[:500], labels[:500])
        correct.append(int(np.sum(model.predict(data[500:]) == labels[500:])))
    low, high = stats.binom.interval(0.999, 500, 1 / SLOTS)
    assert low <= correct[0] <= high
    assert correct[1] > 450  # the same classifier reads uploads without masks
