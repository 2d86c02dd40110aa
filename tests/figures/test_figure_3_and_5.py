"""Figs. 3 and 5 from known curves: who converges earlier, who earns more, who varies less."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from covey.figures.claims import Claim
from covey.figures.shown import figure_3, figure_5

Row = dict[str, Any]
EPOCHS = 60


def curve(level: float, arrives: int) -> np.ndarray:
    """A reward that jumps from -2000 to its level."""
    return np.where(np.arange(EPOCHS) < arrives, -2000.0, level)


def rows_3(seeds: int = 4, methods: tuple[str, ...] = ("dpvd", "iql", "qmix", "iql_local")) -> list[Row]:
    level = {"dpvd": -800.0, "iql": -1000.0, "qmix": -805.0, "iql_local": -1500.0}
    arrives = {"dpvd": 10, "iql": 25, "qmix": 10, "iql_local": 5}
    found = []
    for loop in ("covey", "paper"):
        for method in methods:
            if loop == "paper" and method == "iql_local":
                continue
            for seed in range(seeds):
                rewards = curve(level[method] - seed, arrives[method])
                found += [
                    figure_3._row("training", loop, method, seed, i + 1, r, 1.0, 2.0) for i, r in enumerate(rewards)
                ]
                found.append(
                    figure_3._row("held out alone", loop, method, seed, 0, level[method] + 10 * seed, 0.5, 2.0)
                )
    found.append(figure_3._row("reference", float("nan"), "greedy", 0, 0, -900.0))  # type: ignore[arg-type]
    return found


def test_fig_3_knows_who_is_faster_and_better() -> None:
    faster, more, own, like = figure_3.claims(rows_3(), "digits")
    assert (faster.verdict, more.verdict, own.verdict, like.verdict) == ("reproduced",) * 4
    assert more.estimate is not None
    assert more.estimate.value == pytest.approx(100 * 200 / 1001.5)
    assert like.estimate is not None
    assert like.estimate.value == pytest.approx(100 * 5 / 806.5)
    assert "In the paper's own loop: +20.0" in more.reason


def test_fig_3_the_other_way_round_is_not_reproduced() -> None:
    swapped = {"dpvd": "iql", "iql": "dpvd"}
    data = [row | {"method": swapped.get(row["method"], row["method"])} for row in rows_3()]
    faster, more, own, like = figure_3.claims(data, "digits")
    assert (faster.verdict, more.verdict, like.verdict) == ("not reproduced",) * 3
    assert own.verdict == "reproduced"


def test_fig_3_real_and_surrogate_trainings_are_told_apart() -> None:
    data = rows_3()
    for learning, gain in (("real", 100.0), ("surrogate", 50.0)):
        for seed in range(3):
            data.append(figure_3._row(f"trained on {learning}", "digits", "dpvd", seed, 0, -1000.0 + gain))
            data.append(figure_3._row(f"trained on {learning}", "digits", "iql", seed, 0, -1000.0))
    reason = figure_3.claims(data, "digits")[1].reason
    assert "+10.0 ± 0.0 %, n = 3 with real rounds inside, +5.0 ± 0.0 %, n = 3 with the surrogate" in reason


def test_fig_3_says_what_the_schedule_of_exploration_does() -> None:
    data = rows_3()
    for method in ("dpvd", "iql"):
        for seed in range(2):
            rewards = curve(-900.0, 5)
            data += [
                figure_3._row("training", "short exploration", method, seed, i + 1, r) for i, r in enumerate(rewards)
            ]
    reason = figure_3.claims(data, "digits")[0].reason
    assert "DPVD in 15 instead of 20 epochs (n = 2) and IQL in 15 instead of 35 epochs (n = 2) converge" in reason


@pytest.mark.parametrize("data", [[], rows_3(1), rows_3(3, ("dpvd",))])
def test_fig_3_with_little_or_nothing(data: list[Row], tmp_path: Any) -> None:
    assert {claim.verdict for claim in figure_3.claims(data, "digits")} == {"not testable"}
    figure_3.draw(data, "digits").savefig(tmp_path / "picture.png")


def test_fig_3_shows_both_loops_and_held_out_layouts() -> None:
    figure = figure_3.draw(rows_3(), "digits")
    assert isinstance(figure, Figure)
    ours, theirs, held = figure.axes
    assert ours.get_legend().get_texts()[0].get_text() == "DPVD (n = 4)"
    assert len(theirs.get_legend().get_texts()) == 3
    assert [label.get_text() for label in held.get_xticklabels()] == [
        "DPVD",
        "IQL",
        "QMIX",
        "IQL, own rewards",
        "greedy",
    ]


def rows_5(spread: float = 1.0, gap: float = 2000.0, seeds: int = 6) -> list[Row]:
    found = []
    for loop in ("covey", "paper"):
        for penalty, level, wide in (("dpvd", -1000.0, spread), ("dpvd_fixed", -1000.0 - gap, 100.0)):
            for seed in range(seeds):
                rewards = curve(level + wide * (seed - 2.5), 10 if penalty == "dpvd" else 30)
                start = {"loop": loop, "penalty": penalty, "seed": seed}
                other = {"reward_without_penalty": level, "violating_rounds": 0.1, "served": 3.0}
                found += [
                    start | {"epoch": i + 1, "reward": r, "violators": 1.0} | other for i, r in enumerate(rewards)
                ]
                violators = 1.0 if penalty == "dpvd" else 3.0
                found.append(start | {"epoch": 0, "reward": level, "violators": violators} | other)
    return found


def verdicts(found: list[Claim]) -> list[str]:
    return [claim.verdict for claim in found]


def test_fig_5_knows_faster_steadier_and_higher() -> None:
    faster, steadier, higher = figure_5.claims(rows_5(), "digits")
    assert verdicts([faster, steadier, higher]) == ["reproduced"] * 3
    assert steadier.estimate is not None
    assert steadier.estimate.value == pytest.approx(-99.99)
    assert higher.estimate is not None
    assert higher.estimate.value == pytest.approx(2000.0)
    assert "-2.00 ± 0.00 violating users" in higher.reason


def test_fig_5_equal_penalties_reproduce_nothing() -> None:
    data = [row | {"reward": row["reward"]} for row in rows_5(spread=100.0, gap=0.0)]
    steadier, higher = figure_5.claims(data, "digits")[1:]
    assert verdicts([steadier, higher]) == ["not reproduced"] * 2


def test_fig_5_says_when_violations_end_and_what_is_left_to_gain() -> None:
    data = [
        row
        | {"reward": -1000.0 if row["epoch"] > 20 else -1300.0, "violators": 0.0 if row["epoch"] > 5 else 4.0}
        | {"reward_without_penalty": -900.0 if row["epoch"] > 20 else -1100.0}
        for row in rows_5()
        if row["loop"] == "covey"
    ]
    faster, _, higher = figure_5.claims(data, "digits")
    assert "of the first epoch in epoch 14 with the progressive and in epoch 14 with the fixed" in faster.reason
    assert "rises by 300, 200 of it in parts that no penalty touches" in faster.reason
    assert "Penalties take 100 of the common reward" in higher.reason
    lasting = [row | {"violators": 4.0 + row["epoch"] / 10} for row in data]
    assert ", violating users of an episode go from 4.1 to" in figure_5.claims(lasting, "digits")[0].reason


@pytest.mark.parametrize("data", [[], rows_5(seeds=1)])
def test_fig_5_with_little_or_nothing(data: list[Row], tmp_path: Any) -> None:
    assert set(verdicts(figure_5.claims(data, "digits"))) == {"not testable"}
    figure_5.draw(data, "digits").savefig(tmp_path / "picture.png")
