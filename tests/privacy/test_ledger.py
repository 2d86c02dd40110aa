from __future__ import annotations

import json

import numpy as np
import pytest

from covey.privacy import Ledger, epsilon


def test_charges_add_up_per_user() -> None:
    ledger = Ledger(3)
    ledger.charge([0, 2], [0.1, 0.2])
    ledger.charge([2], 0.3)
    np.testing.assert_allclose(ledger.rho, [0.1, 0.0, 0.5])
    assert ledger.releases.tolist() == [1, 0, 2]
    np.testing.assert_allclose(ledger.epsilon(), [epsilon(0.1, 1e-5), 0.0, epsilon(0.5, 1e-5)])


def test_budget_refuses_the_release_that_would_exceed_it_and_only_that() -> None:
    ledger = Ledger(2, budget_epsilon=2.0)
    assert ledger.charge([0, 1], [ledger.budget_rho, ledger.budget_rho * 1.01]).tolist() == [True, False]
    assert ledger.rho[1] == 0.0
    assert ledger.refusals.tolist() == [0, 1]
    assert ledger.charge([1], ledger.budget_rho / 2).all()
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
        Ledger.from_dict(ledger.to_dict() | {"rho": [0.0, -1.0]})


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
