"""Figs. 4, 7, 8 and 10 from known rows."""

from __future__ import annotations

from typing import Any

import pytest

from covey.figures.shown import figure_4, figure_7, figure_8, figure_10

Row = dict[str, Any]


def over_users(better: float, seeds: int = 5, sizes: tuple[int, ...] = (4, 12)) -> list[Row]:
    """IQL's loss is 1 at 12 users and 1.5 at 4; DPVD's is lower by `better` at 12."""
    found = []
    for users in sizes:
        for method, loss in (("dpvd", 1.0 - better), ("iql", 1.0), ("qmix", 1.0 - better)):
            for seed in range(seeds):
                level = (1.5 if users == 4 else loss) + 0.01 * (seed + (method == "dpvd") * (seed % 2))
                found.append({
                    "users": users, "method": method, "seed": seed, "loss": level, "test_loss": level, "accuracy": 0.5,
                    "clustering_accuracy": 1.0 - 0.05 * seed, "served": 3.0 + (method == "dpvd"), "violators": 0.0,
                    "reward": -1.0, "reward_without_penalty": -1.0,
                })  # fmt: skip
    return found


@pytest.mark.parametrize(
    ("better", "verdicts"),
    [
        (0.2, ["reproduced", "reproduced", "reproduced"]),
        (0.05, ["direction only", "reproduced", "reproduced"]),
        (0.0, ["not reproduced", "not reproduced", "reproduced"]),
        (-0.2, ["not reproduced", "not reproduced", "reproduced"]),
    ],
)
def test_fig_4(better: float, verdicts: list[str]) -> None:
    found = figure_4.claims(over_users(better), "digits")
    assert [claim.verdict for claim in found] == verdicts
    assert found[0].estimate is not None
    assert found[0].estimate.value == pytest.approx(-100 * better, abs=1.0)
    assert "+1.0 ± 0.0 users per round, n = 5 more than IQL" in found[0].reason
    assert "groups found -" in found[0].reason


def test_fig_4_a_slower_rise_is_no_faster_fall() -> None:
    data = [row | {"loss": row["loss"] - (1.0 if row["users"] == 4 else 0.0)} for row in over_users(0.2)]
    data += [row | {"method": "greedy", "served": 9.0, "loss": 0.9} for row in data if row["method"] == "qmix"]
    falls = figure_4.claims(data, "digits")[1]
    assert falls.estimate is not None
    assert falls.estimate.low > 0.1
    assert falls.verdict == "not reproduced"
    assert "it serves 100 % of the users in a round and then 33 %" in falls.reason
    assert "Greedy, which serves 75 % of 12 users, ends at 0.900 ± 0.000 nats, n = 5" in falls.reason


def test_fig_10_judges_the_largest_network_only() -> None:
    (claim,) = figure_10.claims(over_users(0.3), "FEMNIST")
    assert claim.figure == "10"
    assert claim.verdict == "reproduced"
    assert "12 users" in claim.claim


@pytest.mark.parametrize("data", [[], over_users(0.1, seeds=1)])
def test_figs_4_and_10_with_little_or_nothing(data: list[Row], tmp_path: Any) -> None:
    for figure in (figure_4, figure_10):
        assert {claim.verdict for claim in figure.claims(data, "x")} == {"not testable"}
        figure.draw(data, "x").savefig(tmp_path / "picture.png")


def accuracies(part: str = "compared", factor: float = 1.0, **last: float) -> list[Row]:
    return [
        {"part": part, "factor": factor, "rule": rule, "seed": seed, "round": turn, "loss": 1.0,
         "clustering_accuracy": 0.25 if turn < 15 else last[rule] + 0.01 * ((seed + len(rule)) % 2)}
        for rule in last for seed in range(6) for turn in range(1, 16)
    ]  # fmt: skip


def test_fig_7() -> None:
    rules = {"gradient_loss_0.2": 0.97, "loss": 0.9, "gradient_loss_0.5": 0.9, "printed_sign_0.2": 0.8}
    gain, order, level = figure_7.claims(accuracies(**rules), "digits")
    assert [gain.verdict, order.verdict, level.verdict] == ["reproduced"] * 3
    assert level.here.startswith("97.5")
    worse = rules | {"gradient_loss_0.2": 0.7, "gradient_loss_0.5": 0.99}
    assert {claim.verdict for claim in figure_7.claims(accuracies(**worse), "digits")} == {"not reproduced"}
    small = rules | {"gradient_loss_0.2": 0.92}
    assert figure_7.claims(accuracies(**small), "digits")[0].verdict == "direction only"


def test_fig_7_says_how_runs_end_and_what_noise_does_to_the_weights() -> None:
    data = accuracies(**{"gradient_loss_0.2": 0.74, "gradient_loss_0.5": 1.0, "loss": 0.5, "printed_sign_0.2": 0.5})
    data = [row | {"clustering_accuracy": min(row["clustering_accuracy"], 1.0)} for row in data]
    data += accuracies("noise", 0.0, **{"gradient_loss_0.2": 0.7, "gradient_loss_0.5": 0.8})
    data += accuracies("noise", 1.0, **{"gradient_loss_0.2": 0.5, "gradient_loss_0.5": 0.8})
    reason = figure_7.claims(data, "digits")[1].reason
    assert "-10.0 ± 0.0 points, n = 6 without privacy noise and -30.0 ± 0.0 points, n = 6 with" in reason
    assert "Weight 0.2: 0 of 6 runs end with every user right; the others end at 74 %, 75 %." in reason
    assert "Weight 0.5: 6 of 6 runs end with every user right." in reason


def test_fig_7_with_nothing(tmp_path: Any) -> None:
    assert {claim.verdict for claim in figure_7.claims([], "x")} == {"not testable"}
    figure_7.draw([], "x").savefig(tmp_path / "picture.png")


def sweep(high: dict[str, tuple[float, float]]) -> list[Row]:
    """Loss and noise by method at the largest weight; 1 and 100 at the smallest."""
    found = []
    for weight, values in ((1e6, {"dpvd": (1.0, 100.0), "iql": (1.0, 100.0)}), (1e9, high)):
        for method, (loss, noise) in values.items():
            for seed in range(5):
                found.append({
                    "leakage_weight": weight, "method": method, "seed": seed, "loss": loss + 0.001 * seed,
                    "noise_variance": noise, "leakage": 0.0, "served": noise / 10, "violators": 0.0,
                    "clustering_accuracy": 1.0,
                })  # fmt: skip
    return found


def test_fig_8() -> None:
    found = figure_8.claims(sweep({"dpvd": (1.5, 20.0), "iql": (2.2, 30.0)}), "digits")
    assert [claim.verdict for claim in found] == ["reproduced"] * 4
    assert "DPVD: 10.0 at 1e+06, 2.0 at 1e+09" in found[0].reason


def test_fig_8_where_nobody_is_served_by_either() -> None:
    found = figure_8.claims(sweep({"dpvd": (2.3, 0.0), "iql": (2.3, 0.0)}), "digits")
    assert [claim.verdict for claim in found] == ["reproduced", "reproduced", "not reproduced", "not reproduced"]


def test_fig_8_with_nothing(tmp_path: Any) -> None:
    assert {claim.verdict for claim in figure_8.claims([], "x")} == {"not testable"}
    figure_8.draw([], "x").savefig(tmp_path / "picture.png")
    figure = figure_8.draw(sweep({"dpvd": (2.3, 0.0), "iql": (2.3, 0.0)}), "x")
    assert [axis.get_ylabel() for axis in figure.axes][1] == "normalised noise"
