from __future__ import annotations

import json

import numpy as np
import pytest

from covey.privacy import GaussianReleases, Ledger, epsilon


def test_charges_add_up_per_user() -> None:
    ledger = Ledger(3)
    ledger.charge([0, 2], [0.1, 0.2])
    ledger.charge([2], 0.3)
    np.testing.assert_allclose(ledger.rho, [0.1, 0.0, 0.5])
    assert ledger.releases.tolist() == [1, 0, 2]
    np.testing.assert_allclose(ledger.epsilon(), [epsilon(0.1, 1e-5), 0.0, epsilon(0.5, 1e-5)])


def test_budget_refuses_the_release_that_would_exceed_it_and_only_that() -> None:
    ledger = Ledger(2, budget_epsilon=2.0)
    assert ledger.charge([0, 1], ledger.budget_rho * [1.0, 1.01]).tolist() == [True, False]
    assert ledger.rho[1] == 0.0
    assert ledger.refusals.tolist() == [0, 1]
    assert ledger.charge([1], ledger.budget_rho[1] / 2).all()
    assert not ledger.charge([0], 1e-9).any()
    assert (ledger.epsilon("zcdp") <= 2.0).all()


def test_infinite_cost_is_kept_not_hidden() -> None:
    ledger = Ledger(1)
    ledger.charge([0], np.inf)
    assert np.isinf(ledger.epsilon()[0])


def test_round_trip_and_refusal_of_damage() -> None:
    ledger = Ledger(2, delta=1e-6, adjacency="add_remove", budget_epsilon=3.0)
    ledger.charge([1], 0.1 + 0.2)
    again = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    assert again.to_dict() == ledger.to_dict()
    assert again.rho[1] == ledger.rho[1]
    with pytest.raises(ValueError, match="schema"):
        Ledger.from_dict(ledger.to_dict() | {"schema": 99})
    with pytest.raises(ValueError, match="cannot be trusted"):
        Ledger.from_dict(ledger.to_dict() | {"spent": {"gradient": [0.0, -1.0], "identity": [0.0, 0.0]}})


def test_a_copy_is_independent() -> None:
    ledger = Ledger(1)
    twin = ledger.copy()
    twin.charge([0], 1.0)
    assert ledger.rho[0] == 0.0


def test_misuse() -> None:
    ledger = Ledger(2)
    with pytest.raises(ValueError, match="charged twice"):
        ledger.charge([1, 1], 0.1)
    with pytest.raises(ValueError, match="0 or more"):
        ledger.charge([1], -0.1)
    assert ledger.rho.sum() == 0


def test_every_user_can_have_a_budget_of_its_own() -> None:
    ledger = Ledger(2, budget_epsilon=[1.0, 4.0])
    assert ledger.budget_rho[0] < ledger.budget_rho[1]
    assert ledger.charge([0, 1], ledger.budget_rho[1]).tolist() == [False, True]
    assert ledger.left.tolist() == [ledger.budget_rho[0], 0.0]
    again = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    np.testing.assert_array_equal(again.budget_rho, ledger.budget_rho)
    with pytest.raises(ValueError, match="2 numbers for 3 users"):
        Ledger(3, budget_epsilon=[1.0, 2.0])


def test_identities_are_charged_to_the_same_total_and_budget() -> None:
    ledger = Ledger(2, budget_epsilon=1.0)
    half = float(ledger.budget_rho[0]) / 2
    assert ledger.charge([0], half, "identity").all()
    assert ledger.charge([0], half).all()
    assert not ledger.charge([0], half, "identity").any()
    np.testing.assert_allclose(ledger.rho, [2 * half, 0.0])
    assert ledger.spent["identity"][0] == half
    assert (ledger.releases[0], ledger.announcements[0], ledger.refusals[0]) == (1, 1, 1)


def test_the_exact_formula_is_not_used_where_it_does_not_hold() -> None:
    ledger = Ledger(2)
    ledger.charge([0, 1], 0.3)
    ledger.charge([1], 0.1, "identity")
    assert ledger.epsilon()[0] == epsilon(0.3, 1e-5, "exact")
    assert ledger.epsilon()[1] == epsilon(0.4, 1e-5, "zcdp") > epsilon(0.4, 1e-5, "exact")


def test_raw_announcements_are_labelled_and_survive_a_round_trip() -> None:
    ledger = Ledger(3)
    ledger.label_unprotected([0, 2])
    ledger.label_unprotected([2])
    again = Ledger.from_dict(json.loads(json.dumps(ledger.to_dict())))
    assert again.unprotected.tolist() == [1, 0, 2]
    assert not again.rho.any()


def test_a_read_only_ledger_is_charged_in_a_copy_and_nothing_is_refunded() -> None:
    before = Ledger(3, budget_epsilon=2.0)
    before.charge([0, 1], [0.01, 0.02])
    shown = before.read_only()
    with pytest.raises(ValueError, match="read-only"):
        shown.charge([0], [0.01])
    with pytest.raises(ValueError, match="read-only"):
        shown.budget_rho[:] = np.inf
    after = shown.copy()
    after.charge([0], [0.01])
    assert after.why_not_after(before) == ""
    assert "lowers `spent['gradient']` of user 0 from 0.02 to 0.01" in before.why_not_after(after)
    assert before.rho.tolist() == [0.01, 0.02, 0.0]
    wider = before.copy()
    wider.budget_rho += 1.0
    assert "has other budgets" in wider.why_not_after(before)
    assert "has another delta" in Ledger(3, delta=1e-3, budget_epsilon=2.0).why_not_after(before)


def test_sampled_sums_cannot_be_taken_out_of_a_ledger() -> None:
    before = Ledger(2, adjacency="add_remove")
    none = before.copy()
    releases = GaussianReleases.of_sums(np.ones(2), np.ones(2), "add_remove", steps=3, rate=0.1)
    before.charge([0, 1], releases)
    none.releases = before.releases.copy()
    assert "lacks sampled sums" in none.why_not_after(before)
    assert before.copy().why_not_after(none) == ""
