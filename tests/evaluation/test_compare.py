from __future__ import annotations

import json

import numpy as np
import pytest

import covey
from covey.association import get_policy
from covey.errors import PolicyError
from covey.evaluation import compare, default_policies
from covey.parts import POLICIES
from covey.report.comparison import comparison_table, draw_comparison
from covey.scenario import load_scenario


@pytest.fixture(scope="module")
def comparison():
    scenario = load_scenario("quick", ["training.rounds=3"])
    policies = {name: get_policy(name) for name in ("random", "nearest", "coverage", "greedy")}
    return compare(scenario, policies, range(5), together=2)


def test_groups_of_layouts_do_not_change_results(comparison) -> None:
    scenario = load_scenario("quick", ["training.rounds=3"])
    whole = compare(scenario, {"greedy": get_policy("greedy")}, range(5))
    np.testing.assert_array_equal(whole["greedy"].reward, comparison["greedy"].reward)


def test_differences_are_paired(comparison) -> None:
    estimate = comparison.difference("coverage", "greedy")
    change = comparison["coverage"].reward - comparison["greedy"].reward
    assert estimate.value == pytest.approx(change.mean())
    assert estimate.n == 5
    assert comparison.relative("coverage", "greedy").value == pytest.approx(
        100 * change.mean() / abs(comparison["greedy"].reward.mean())
    )


def test_violations_are_counted_by_kind_and_punished(comparison) -> None:
    nearest, greedy = comparison["nearest"], comparison["greedy"]
    assert greedy.violators.sum() == 0
    assert nearest.violators.sum() > 0
    assert sum(total.sum() for total in nearest.kinds.values()) >= nearest.violators.sum()
    assert nearest.reward.mean() < nearest.without_penalty.mean()


def test_real_rounds_give_what_simulate_gives() -> None:
    scenario = load_scenario("quick", ["training.rounds=2"])
    result = compare(scenario, {"greedy": get_policy("greedy")}, [3, 4], learning="real")["greedy"]
    for index, seed in enumerate((3, 4)):
        history = covey.simulate(scenario, "greedy", seed=seed)
        assert result.reward[index] == pytest.approx(history.column("reward").sum(), rel=1e-12)
        assert result.final_loss[index] == pytest.approx(history.column("loss")[-1], rel=1e-12)


def test_json_table_and_picture_hold_every_policy(comparison) -> None:
    values = json.loads(json.dumps(comparison.to_dict()))
    assert set(values["policies"]) == {"random", "nearest", "coverage", "greedy"}
    assert values["policies"]["greedy"]["reward"]["n"] == 5
    assert comparison_table(comparison).row_count == 4
    labels = [text.get_text() for text in draw_comparison(comparison).axes[0].get_yticklabels()]
    assert labels == ["random", "nearest", "coverage"]


def test_no_layouts_is_an_error() -> None:
    with pytest.raises(PolicyError, match="no layouts"):
        compare(load_scenario("quick"), {"greedy": get_policy("greedy")}, [])


def test_exact_is_a_reference_only_where_it_is_quick() -> None:
    assert "exact" in default_policies(load_scenario("quick"))
    assert "exact" not in default_policies(load_scenario("campus"))


def test_references_are_what_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(POLICIES, "_registered", {"mine": get_policy("greedy")})
    assert list(default_policies(load_scenario("quick"))) == [*POLICIES.builtin, "mine"]
