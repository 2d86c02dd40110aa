from __future__ import annotations

from pathlib import Path

import pytest

from covey.figures.cells import CELLS, cells_in
from covey.figures.kinds import Allocated
from covey.figures.plans import Work, figure_6, leakage_of
from covey.figures.rows import Row
from covey.figures.scales import SCALES
from covey.figures.shown.figure_6 import COLUMNS, claims, draw, rows
from covey.jobs import Store


def allocated(
    seed: int, *, factor: float = 1.0, policy: str = "greedy", ours: float = 2.0, theirs: float = 2.0,
    ours_ms: float = 1.0, theirs_ms: float = 2.0, served: tuple[int, int] = (8, 8), rounds: int = 3,
) -> list[Row]:  # fmt: skip
    return [
        {
            "factor": factor, "policy": policy, "seed": seed, "round": number + 1, "selected": 8,
            "sequential_objective": ours, "descent_objective": theirs, "sequential_served": served[0],
            "descent_served": served[1], "sequential_passes": 1, "descent_passes": 3, "sequential_ms": ours_ms,
            "descent_ms": theirs_ms,
        }
        for number in range(rounds)
    ]  # fmt: skip


def test_equal_results_at_half_the_time() -> None:
    data = [row for seed in range(3) for row in allocated(seed)]
    equal, cheaper = claims(data, "here")
    assert equal.estimate is not None
    assert equal.estimate.value == 0.0
    assert equal.verdict == "reproduced"
    assert equal.reason == "At the scenario's own weight the objective is the same in all 9 rounds."
    assert cheaper.estimate is not None
    assert cheaper.estimate.value == pytest.approx(-50.0)
    assert cheaper.verdict == "reproduced"
    assert "2.00 times as long, with 3.00 passes instead of 1.00" in cheaper.reason


def test_a_worse_objective_and_a_slower_method_are_seen() -> None:
    data = [row for seed in range(3) for row in allocated(seed, ours=2.4, ours_ms=3.0 + 0.01 * seed, served=(8, 5))]
    equal, cheaper = claims(data, "here")
    assert equal.estimate is not None
    assert equal.estimate.value == pytest.approx(20.0)
    assert equal.verdict == "not reproduced"
    assert "differs in 9 of 9 rounds (+20.0 ± 0.0 % in the mean)" in equal.reason
    assert "descent serves 5.0 users in a round, the sequential method 8.0, and in 9 of these" in equal.reason
    assert cheaper.estimate is not None
    assert cheaper.estimate.value == pytest.approx(50.5)
    assert cheaper.verdict == "not reproduced"


def test_only_the_own_weight_is_judged_and_larger_ones_are_explained() -> None:
    data = [row for seed in range(2) for row in allocated(seed)]
    data += [row for seed in range(2) for row in allocated(seed, factor=50.0, ours=3.0, served=(8, 2))]
    equal, _ = claims(data, "here")
    assert equal.verdict == "reproduced"
    assert "At 50 times the weight it differs in 6 of 6 rounds (+50.0 ± 0.0 % in the mean)" in equal.reason
    assert "5 times the weight the objective" not in equal.reason


def test_a_slow_round_does_not_move_the_median_of_ratios() -> None:
    data = [row for seed in range(2) for row in allocated(seed)]
    data[0]["sequential_ms"] = 100.0
    _, cheaper = claims(data, "here")
    assert cheaper.estimate is not None
    assert cheaper.estimate.value == pytest.approx(-50.0)


def test_rounds_in_which_nobody_is_selected_are_equal() -> None:
    data = [row for seed in range(2) for row in allocated(seed)]
    data[0] |= {"sequential_objective": 0.0, "descent_objective": 0.0}
    assert claims(data, "here")[0].verdict == "reproduced"
    draw(data, "here")


@pytest.mark.parametrize("data", [[], allocated(0), allocated(0, factor=5.0, policy="random")])
def test_one_seed_or_nothing_is_not_testable(data: list[Row]) -> None:
    equal, cheaper = claims(data, "here")
    assert {equal.verdict, cheaper.verdict} == {"not testable"}
    assert (equal.estimate is None) == (not data or data[0]["factor"] != 1.0)
    assert equal.reason
    assert cheaper.reason
    assert len(draw(data, "here").axes) == 3


def test_pictures_name_policies_and_show_every_seed() -> None:
    data = [row for seed in range(2) for row in allocated(seed, theirs_ms=2.0 + seed)]
    data += allocated(0, policy="random", factor=50.0, ours=3.0)
    figure = draw(data, "here")
    objective, cost, passes = figure.axes
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["greedy (n = 2)", "random (n = 1)"]
    assert [tick.get_text() for tick in objective.get_xticklabels()] == ["1", "5", "50"]
    assert [axis.get_ylabel() for axis in (objective, cost, passes)] == [
        "sequential above descent (%)", "descent / sequential (times)", "passes (sequential: 1)",
    ]  # fmt: skip
    dots = next(line for line in cost.lines if line.get_marker() == ".")
    assert list(dots.get_ydata()) == [2.0, 3.0]


def test_rows_carry_the_factor_of_the_plan(tmp_path: Path) -> None:
    work = Work(SCALES["quick"], 1, cells_in(tmp_path))
    for factor, ms in ((5.0, 7.0), (50.0, 9.0)):
        cell = Allocated("paper_digits", leakage_of("paper_digits", factor), 0, policy="random")
        assert cell.key in {planned.key for planned in figure_6(work)}
        work.store.keep(cell, {"columns": {name: [ms, ms] for name in COLUMNS}})
    found = rows(work)
    assert [(row["factor"], row["policy"], row["round"], row["descent_ms"]) for row in found] == [
        (5.0, "random", 1, 7.0), (5.0, "random", 2, 7.0), (50.0, "random", 1, 9.0), (50.0, "random", 2, 9.0),
    ]  # fmt: skip


def test_every_planned_cell_is_asked_for(tmp_path: Path) -> None:
    class Asked(Store):
        def __init__(self) -> None:
            super().__init__(tmp_path / CELLS)
            self.keys: set[str] = set()

        def has(self, cell: object) -> bool:
            self.keys.add(cell.key)  # type: ignore[attr-defined]
            return False

    store = Asked()
    work = Work(SCALES["quick"], 2, store)
    assert rows(work) == []
    assert store.keys == {cell.key for cell in figure_6(work)}
