from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.security.rounds import parameters, plain_sums

from covey.security import MaskedSums, Parameters, SeededEntropy, aggregate_masked, default_threshold


@settings(max_examples=30)
@given(st.data())
def test_sums_equal_the_plain_ones_with_and_without_dropouts(data: st.DataObject) -> None:
    users = data.draw(st.integers(1, 7), label="users")
    slots = data.draw(st.integers(1, 4), label="slots")
    threshold = data.draw(st.integers(users // 2 + 1, users), label="threshold")
    order = data.draw(st.permutations(range(users)), label="order")
    gone = data.draw(st.integers(0, users - threshold), label="gone")
    before = data.draw(st.integers(0, gone), label="before")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    sizes = Parameters(users, threshold, data.draw(st.integers(2, 4)), slots, data.draw(st.integers(1, 40)))
    vectors = rng.normal(size=(users, sizes.length)) * 10.0 ** rng.integers(-4, 4)
    samples, tasks = rng.integers(1, 601, users), rng.integers(0, slots, users)
    result = aggregate_masked(
        vectors,
        samples,
        tasks,
        rng.integers(0, 3, users),
        parameters=sizes,
        dropped_before=order[:before],
        dropped_after=order[before:gone],
        entropy=SeededEntropy(1),
    )
    kept = order[before:]
    counts = np.bincount(tasks[kept], minlength=slots)
    assert result.failure is None
    assert result.counts.tolist() == counts.tolist()
    assert result.opened.tolist() == (counts >= sizes.minimum).tolist()
    assert set(np.flatnonzero(result.uploaded)) == set(kept)
    expected = plain_sums(vectors, samples, tasks, slots, kept)[result.opened]
    np.testing.assert_allclose(result.sums[result.opened], expected, rtol=1e-12, atol=users * 2.0**-36)
    totals = np.bincount(tasks[kept], weights=samples[kept], minlength=slots)
    np.testing.assert_array_equal(result.samples, np.where(result.opened, totals, 0))
    assert np.all(np.isnan(result.sums[~result.opened]))
    np.testing.assert_allclose(
        result.means()[result.opened], expected / totals[result.opened, None], rtol=1e-12, atol=2.0**-36
    )


def twelve(**options: object) -> MaskedSums:
    """12 users at 4 stations, float32 weights, tasks 0 0 0 1 1 1 1 2 2 2 2 3."""
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(12, 650)) * 0.05).astype(np.float32)
    tasks = [0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3]
    sizes = Parameters(12, default_threshold(12), 2, 4, 650)
    samples = rng.integers(200, 601, 12)
    return aggregate_masked(vectors, samples, tasks, np.arange(12) % 4, parameters=sizes, **options)  # type: ignore[arg-type]


def test_masked_models_equal_plain_models_to_a_millionth() -> None:
    result = twelve()
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(12, 650)) * 0.05).astype(np.float32).astype(np.float64)
    samples = rng.integers(200, 601, 12)
    means = np.stack(
        [np.average(vectors[part], axis=0, weights=samples[part]) for part in np.split(np.arange(12), [3, 7, 11])[:3]]
    )
    np.testing.assert_allclose(result.means()[:3], means, rtol=1e-6, atol=1e-12)
    assert result.opened.tolist() == [True, True, True, False]


def test_three_of_twelve_may_drop_and_a_fourth_closes_the_round() -> None:
    assert twelve(dropped_before=(0, 4), dropped_after=(8,)).failure is None
    assert twelve(dropped_after=(0, 4, 8)).opened.tolist() == [True, True, True, False]
    for before, after in (((0, 4, 8, 9), ()), ((), (0, 4, 8, 9)), ((0, 4), (8, 9)), (range(12), ())):
        result = twelve(dropped_before=before, dropped_after=after)
        assert result.failure is not None
        assert "9 are needed" in result.failure
        assert "without a model change" in result.failure
        assert not result.opened.any()
        assert result.counts.tolist() == [-1] * 4
        assert result.samples.tolist() == [0] * 4
        assert np.all(np.isnan(result.sums))


def test_a_user_who_cannot_encode_drops_and_the_round_goes_on() -> None:
    vectors = np.ones((6, 5))
    vectors[1, 2] = np.nan
    vectors[2, 2] = 1e15
    result = aggregate_masked(vectors, [10] * 6, [0] * 6, [0] * 6, parameters=parameters())
    assert set(result.refused) == {1, 2}
    assert "NaN or infinite" in result.refused[1]
    assert "overflows" in result.refused[2]
    assert result.counts.tolist() == [4, 0, 0]
    np.testing.assert_allclose(result.sums[0], 40.0)


def test_a_single_user_opens_nothing() -> None:
    result = aggregate_masked(np.ones((1, 2)), [5], [1], [0], parameters=Parameters(1, 1, 2, 2, 2))
    assert result.counts.tolist() == [0, 1]
    assert not result.opened.any()
    assert np.all(np.isnan(result.sums))


def test_seeded_rounds_repeat_bit_by_bit_and_others_do_not() -> None:
    one, again = (twelve(entropy=SeededEntropy(3), transcript=True).transcript for _ in range(2))
    assert one is not None
    assert again is not None
    assert one.keys == again.keys
    assert one.shares == again.shares
    assert one.counts == again.counts
    np.testing.assert_array_equal(np.stack(list(one.uploads.values())), np.stack(list(again.uploads.values())))
    later = twelve(entropy=SeededEntropy(3), round=1, transcript=True).transcript
    real = twelve(transcript=True).transcript
    for other in (later, real):
        assert other is not None
        assert not {keys.mask for keys in one.keys} & {keys.mask for keys in other.keys}
        assert all(not np.any(one.uploads[user] == other.uploads[user]) for user in range(12))
    assert twelve().transcript is None


def test_runs_with_the_same_seed_and_another_name_have_other_masks() -> None:
    one, other = (twelve(entropy=SeededEntropy(3), run=run, transcript=True).transcript for run in ("a", "b"))
    assert one is not None
    assert other is not None
    assert all(not np.any(one.uploads[user] == other.uploads[user]) for user in range(12))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vectors": np.ones((5, 5))}, "one vector for each of the 6 users"),
        ({"samples": [1, 2]}, "samples must be one whole number for each of the 6 users"),
        ({"tasks": 1}, "tasks must be one whole number"),
        ({"stations": [0.5] * 6}, "stations must be one whole number"),
        ({"tasks": [0, 1, 2, 3, 0, 0]}, "task must be from 0 to 2, got 3"),
        ({"dropped_before": [6]}, "dropped users must be from 0 to 5"),
        ({"dropped_before": [1], "dropped_after": [1]}, "drop once only"),
    ],
)
def test_wrong_inputs_are_refused(change: dict[str, object], message: str) -> None:
    good: dict[str, object] = {"vectors": np.ones((6, 5)), "samples": [1] * 6, "tasks": [0] * 6, "stations": [0] * 6}
    with pytest.raises(ValueError, match=message):
        aggregate_masked(parameters=parameters(), **(good | change))  # type: ignore[arg-type]


def test_the_largest_model_opens_too() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(4, 550_000)).astype(np.float32)
    sizes = Parameters(4, 3, 2, 2, 550_000)
    result = aggregate_masked(vectors, [300] * 4, [0, 0, 1, 1], [0, 0, 1, 1], parameters=sizes, dropped_after=(2,))
    np.testing.assert_allclose(result.sums[1], 300 * vectors[2:].astype(np.float64).sum(0), rtol=1e-6, atol=1e-9)
