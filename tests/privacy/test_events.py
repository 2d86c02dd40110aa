from __future__ import annotations

import json
import math
from functools import lru_cache

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import rdp
from dp_accounting.gaussian_mechanism import get_epsilon_gaussian
from dp_accounting.pld import privacy_loss_distribution as pld

from covey.privacy import GaussianReleases, Journal, Ledger, charge_lost, labelled, read_journal, read_whole_journal
from covey.privacy.composition import ORDERS, composed_epsilon, sampled_divergences
from covey.privacy.sampled import MOST_KINDS, SampledSums

DELTA = 1e-5


def sums(multiplier: float, rate: float = 1.0, steps: int = 1, users: int = 1) -> GaussianReleases:
    full = np.full(users, 1.0)
    return GaussianReleases(multiplier * full, full, rate * full, np.full(users, steps, np.int64))


gaussian = lru_cache(get_epsilon_gaussian)


@lru_cache
def independent(multiplier: float, rate: float) -> pld.PrivacyLossDistribution:
    return pld.from_gaussian_mechanism(multiplier, sampling_prob=rate, value_discretization_interval=1e-3)


def test_a_thousand_settings_of_both_units_equal_dp_accounting() -> None:
    """Most on all samples (both units and adjacencies), a sixth sampled too, half of those beside announcements."""
    rng = np.random.default_rng(19)
    kinds = [(1.5, 0.02), (2.0, 0.05), (3.0, 0.1), (4.0, 0.3), (8.0, 0.5)]
    for number in range(1000):
        unit = "device" if number % 4 == 0 else "sample"
        sampled = number % 6 == 3
        adjacency = "add_remove" if sampled or number % 8 < 2 else "replace_one"
        clip, std = float(rng.choice([0.5, 1.25, 4.0])), float(rng.choice([8.5, 21.0, 60.0]))
        ledger = Ledger(1, adjacency=adjacency, unit=unit)
        steps, rounds = int(rng.integers(1, 6)), int(rng.integers(1, 9))
        # A device releases one update a round, however many steps it took.
        releases = GaussianReleases.of_sums(
            np.array([clip]), np.array([std]), adjacency, steps=1 if unit == "device" else steps
        )
        for _ in range(rounds):
            ledger.charge([0], releases)
        sensitivity = clip * (1 if adjacency == "add_remove" else 2)
        count = rounds * (1 if unit == "device" else steps)
        if not sampled:
            expected = gaussian(std / sensitivity / math.sqrt(count), DELTA)
            assert ledger.epsilon()[0] == pytest.approx(expected, rel=1e-9, abs=1e-12)
            continue
        multiplier, rate = kinds[int(rng.integers(len(kinds)))]
        number_of_sums = int(rng.choice([10, 40, 90]))
        ledger.charge([0], sums(multiplier, rate, number_of_sums - 3))
        ledger.charge([0], sums(multiplier, rate, 3))
        announced = number % 12 == 9
        if announced:
            ledger.charge([0], 0.03, "identity")
            accountant = rdp.RdpAccountant(orders=ORDERS)
            accountant.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)), number_of_sums)
            accountant.compose(dp.GaussianDpEvent(std / sensitivity), count).compose(dp.ZCDpEvent(0.03))
            expected = accountant.get_epsilon(DELTA)
        else:
            whole = independent(multiplier, rate).self_compose(number_of_sums)
            own = std / sensitivity / math.sqrt(count)
            expected = whole.compose(
                pld.from_gaussian_mechanism(own, value_discretization_interval=1e-3)
            ).get_epsilon_for_delta(DELTA)
        # Multipliers and rates are rounded to the safe side by 0.025 %; both estimates are pessimistic.
        assert ledger.epsilon()[0] == pytest.approx(expected, rel=4e-3), (multiplier, rate, number_of_sums)
        if announced:
            assert ledger.epsilon()[0] >= expected * (1 - 1e-9)


def test_divergences_equal_dp_accounting_and_rise_with_rate_and_fall_with_noise() -> None:
    for multiplier, rate in ((0.7, 0.01), (1.0, 0.3), (20.0, 0.9), (5.0, 1.0)):
        theirs = rdp.RdpAccountant(orders=ORDERS)
        theirs.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)))
        own = sampled_divergences(np.array([multiplier]), np.array([rate]))[0]
        np.testing.assert_allclose(own, theirs._rdp, rtol=1e-6, atol=1e-12)
        assert (sampled_divergences(np.array([multiplier]), np.array([rate * 0.99]))[0] <= own).all()
        assert (sampled_divergences(np.array([multiplier * 1.01]), np.array([rate]))[0] <= own).all()


def test_releases_on_all_samples_have_the_bits_of_a_sum_of_rho() -> None:
    one, other = Ledger(3), Ledger(3)
    releases = GaussianReleases.of_sums(np.array([1.0, 2.0, 3.0]), np.array([9.0, 7.0, 5.0]), "replace_one", steps=3)
    for _ in range(7):
        one.charge([0, 1, 2], releases)
        other.charge([0, 1, 2], releases.rho)
    np.testing.assert_array_equal(one.rho, other.rho)
    np.testing.assert_array_equal(one.epsilon(), other.epsilon())
    assert one.largest_epsilon() == other.largest_epsilon()
    assert not one.sampled


def test_sampling_gains_only_for_adding_or_removing_a_sample() -> None:
    with pytest.raises(ValueError, match="adding or removing a sample only"):
        Ledger(1).charge([0], sums(2.0, 0.1))
    ledger = Ledger(1, adjacency="add_remove")
    ledger.charge([0], sums(2.0, 0.1, 50))
    assert ledger.epsilon()[0] < 0.3 * Ledger_of_all(2.0, 50)
    assert ledger.rho[0] == pytest.approx(50 / 8, rel=1e-3)  # without the gain
    assert ledger.epsilon()[0] <= ledger.epsilon("zcdp")[0] <= ledger.epsilon("simple")[0]
    assert ledger.largest_epsilon() == ledger.epsilon("zcdp")[0]


def Ledger_of_all(multiplier: float, steps: int) -> float:  # noqa: N802
    ledger = Ledger(1, adjacency="add_remove")
    ledger.charge([0], sums(multiplier, 1.0, steps))
    return float(ledger.epsilon()[0])


def test_no_noise_is_infinite_whatever_the_sampling() -> None:
    ledger = Ledger(1, adjacency="add_remove")
    ledger.charge([0], sums(0.0, 0.1))
    assert math.isinf(ledger.epsilon()[0])


@pytest.mark.parametrize(("multiplier", "rate", "budget"), [(1.0, 0.02, 3.0), (4.0, 0.3, 1.0), (0.8, 0.005, 2.0)])
def test_a_budget_holds_with_amplification_and_a_planned_order_allows_more(
    multiplier: float, rate: float, budget: float
) -> None:
    allowed = []
    for planned in (False, True):
        ledger = Ledger(1, adjacency="add_remove", budget_epsilon=budget)
        if planned:
            ledger.plan(sums(multiplier, rate))
        steps = 1 << 16
        while steps:
            if not ledger.charge([0], sums(multiplier, rate, steps))[0]:
                steps //= 2
        # By the ledger and by the accountant of others.
        count = int(ledger.sampled.rows[:, 3].sum())
        allowed.append(count)
        if count == 0:
            continue
        theirs = rdp.RdpAccountant().compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)), count)
        assert ledger.epsilon()[0] <= theirs.get_epsilon(DELTA) <= budget * (1 + 1e-9)
    assert allowed[1] > 0
    assert allowed[1] >= allowed[0]
    assert composed_epsilon(0, 0, ((multiplier, rate, allowed[1]),), DELTA, "zcdp") > 0.97 * budget


def test_a_budget_counts_sampled_sums_uploads_and_announcements_together() -> None:
    ledger = Ledger(1, adjacency="add_remove", budget_epsilon=2.0)
    ledger.plan(sums(1.5, 0.05))
    while ledger.charge([0], sums(1.5, 0.05, 20))[0]:
        ledger.charge([0], sums(40.0))
        ledger.charge([0], 1e-4, "identity")
    with pytest.raises(ValueError, match="after a release"):
        ledger.plan(sums(1.5, 0.05))
    assert 1.7 < ledger.epsilon()[0] <= 2.0


def test_events_survive_the_file_and_older_ledgers_load() -> None:
    ledger = Ledger(3, adjacency="add_remove", unit="sample", budget_epsilon=[2.0, 3.0, 4.0])
    ledger.plan(sums(2.0, 0.1, users=3))
    ledger.charge([2, 0], sums(2.0, 0.1, 5, users=2))
    again = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    assert again.to_dict() == ledger.to_dict()
    np.testing.assert_array_equal(again.budget_rho, ledger.budget_rho)
    np.testing.assert_array_equal(again.charged, ledger.charged)
    assert again.epsilon().tolist() == ledger.epsilon().tolist()
    for damage in ([[0, 1, -5, 0]], [[7, 1, -5, 3]], [[0, 1, 5, 1]], [[0, 1]]):
        with pytest.raises(ValueError, match=r"sampled release|reshape"):
            Ledger.from_dict(ledger.to_dict() | {"sampled": damage})
    old = Ledger(2).to_dict() | {"schema": 2}
    del old["sampled"], old["order"], old["unit"]
    assert Ledger.from_dict(old).unit == "sample"


def test_a_journal_line_says_what_was_released_and_for_which_neighbours(tmp_path) -> None:
    ledger = Ledger(2, adjacency="add_remove")
    journal = labelled(Journal(tmp_path / "j"), "sample", "add_remove")
    journal.record(0, "gradient", np.array([0, 1]), sums(2.0, 0.1, 5, users=2))
    ledger.charge([0, 1], sums(2.0, 0.1, 5, users=2))
    journal.record(1, "gradient", np.array([1]), sums(3.0, 0.2, 4))
    line = json.loads((tmp_path / "j").read_text().splitlines()[0])
    assert (line["mechanism"], line["unit"], line["adjacency"]) == ("gaussian", "sample", "add_remove")
    assert (line["rate"], line["steps"], line["noise_std"]) == ([0.1, 0.1], [5, 5], [2.0, 2.0])
    entries = read_whole_journal(tmp_path / "j", ledger, 0)
    full = charge_lost(ledger, entries, 1)
    ledger.charge([1], sums(3.0, 0.2, 4))
    assert full.to_dict()["sampled"] == ledger.to_dict()["sampled"]
    with pytest.raises(ValueError, match="lacks charges"):
        read_whole_journal(tmp_path / "j", full, 0)
    more = full.copy()
    more.sampled = more.sampled.added(np.array([0]), np.array([2.0]), np.array([0.1]), np.array([1]))
    with pytest.raises(ValueError, match="sampled sums that it does not"):
        read_whole_journal(tmp_path / "j", more, 1)
    for other in (Ledger(2), Ledger(2, adjacency="add_remove", unit="device")):
        with pytest.raises(ValueError, match="do not add up"):
            charge_lost(other, entries, 0)
    text = (tmp_path / "j").read_text().replace('"rate": [0.2]', '"rate": [1.5]')
    (tmp_path / "j").write_text(text)
    with pytest.raises(ValueError, match=r"line 2 of .* damaged"):
        read_journal(tmp_path / "j")


def test_counts_are_merged_raised_and_taken_back() -> None:
    rng = np.random.default_rng(3)
    book, plain = SampledSums(), dict[tuple[int, float], int]()
    for _ in range(300):
        users = rng.permutation(50)[:20]
        rate = 0.1 * (1 + users % 3)
        book = book.added(users, np.full(20, 2.0), rate, np.full(20, 2))
        for user, share in zip(users.tolist(), rate.tolist(), strict=True):
            plain[user, share] = plain.get((user, share), 0) + 2
    assert {(row[0], row[3]) for row in book.rows.tolist()} == {(user, count) for (user, _), count in plain.items()}
    less = SampledSums(book.rows[::2])
    assert book.covers(less)
    assert not less.covers(book)
    assert less.raised_to(book) == book == book.raised_to(less)
    assert len(less.lacks_of(book)) == len(book.rows) - len(less.rows)
    assert SampledSums.decoded(book.encoded(7), 7).of(7) == book.of(7)
    more = book.added(np.array([7, 8]), np.full(2, 9.0), np.full(2, 0.5), np.full(2, 4))
    taken = more.with_users_of(np.array([7]), book)
    assert taken.of(7) == book.of(7)
    assert taken.of(8) == more.of(8)


def test_many_kinds_of_sums_are_merged_to_the_safe_side() -> None:
    rng = np.random.default_rng(4)
    n = 60
    multiplier, rate = rng.uniform(3, 4, n), rng.uniform(0.1, 0.2, n)
    book = SampledSums().added(np.zeros(n, np.int64), multiplier, rate, np.full(n, 2))
    merged = book.of(0)
    assert len(merged) <= MOST_KINDS
    assert sum(count for *_, count in merged) == 2 * n
    exact = tuple(zip(multiplier.tolist(), rate.tolist(), [2] * n, strict=True))
    fine, coarse = (composed_epsilon(0, 0, some, DELTA, "zcdp") for some in (exact, merged))
    assert fine <= coarse < 1.6 * fine


def test_charging_many_users_keeps_few_rows() -> None:
    users = 100_000
    ledger = Ledger(users, adjacency="add_remove")
    everyone = np.arange(users)
    for _ in range(5):
        ledger = ledger.copy()
        ledger.charge(everyone, sums(2.0, 0.1, 3, users=users))
    assert ledger.sampled.rows.shape == (users, 4)
    assert (ledger.epsilon() == ledger.epsilon()[0]).all()
    assert ledger.largest_epsilon() >= ledger.epsilon()[0]


def varied(seed: int, rate: float, least: float, most: float, **given: float) -> Ledger:
    """A user with 60 sums, each of another multiplier, log-uniform between two."""
    ledger = Ledger(1, adjacency="add_remove", **given)
    for multiplier in np.exp(np.random.default_rng(seed).uniform(np.log(least), np.log(most), 60)).tolist():
        ledger.charge([0], sums(multiplier, rate))
    return ledger


@pytest.mark.parametrize(
    ("rate", "least", "most"), [(0.1, 1.0, 8.0), (0.3, 3.0, 60.0), (0.9, 2.0, 30.0), (1e-3, 1.0, 8.0)]
)
def test_no_formula_is_above_a_coarser_one(rate: float, least: float, most: float) -> None:
    for seed in range(3):
        ledger = varied(seed, rate, least, most)
        exact, zcdp, simple = (ledger.epsilon(method)[0] for method in ("exact", "zcdp", "simple"))
        unsampled = Ledger(1, adjacency="add_remove")
        unsampled.charge([0], ledger.rho)
        assert exact <= zcdp <= simple
        assert exact <= unsampled.epsilon("exact")[0]
        assert zcdp <= unsampled.epsilon("zcdp")[0]
        assert ledger.largest_epsilon() == zcdp


def test_epsilon_of_many_kinds_of_sums_stays_within_the_budget() -> None:
    ledger = varied(0, 0.3, 3.0, 60.0, budget_epsilon=2.0)
    assert len(np.unique(ledger.sampled.rows[:, 1])) > MOST_KINDS
    assert ledger.epsilon("exact")[0] <= ledger.epsilon("zcdp")[0] <= 2.0
