from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from covey.figures.cells import cells_in
from covey.figures.plans import Work, figure_bound
from covey.figures.rows import Row, read_rows, write_rows
from covey.figures.scales import SCALES
from covey.figures.shown.figure_bound import claims, draw, rows
from covey.theory import CAUSES, RunBound, TaskBound
from covey.theory.curvature import Curvature
from covey.theory.measured_steps import StepMeasures


def step(seed: int, task: int, number: int, **changes: Any) -> Row:
    """A step from loss 1 to 0.8 under a bound of 1.2, to which missing users add 0.3 and noise adds 0.1."""
    row: Row = {
        "seed": seed, "task": task, "group": task, "samples": 10, "round": number, "loss_before": 1.0, "loss": 0.8,
        "bound": 1.2, "bound_accumulated": 1.6, "bound_worst": 4.0, "played": 1, "held": 1, "excess": 0.0,
        "lowest": 0.0, "missing": 0.3, "wrong": 0.0, "clipping": 0.0, "overshoot": 0.0, "noise": 0.1,
    }  # fmt: skip
    return row | changes


def steps(seeds: int = 3, **changes: Any) -> list[Row]:
    return [step(s, task, number, **changes) for s in range(seeds) for task in range(2) for number in (1, 2)]


def test_a_bound_that_always_holds() -> None:
    held, loose, cause = claims(steps(), "here")
    assert {claim.figure for claim in (held, loose, cause)} == {"ours"}
    assert held.estimate is not None
    assert held.estimate.value == 100.0
    assert held.verdict == "reproduced"
    assert "It held in 12 of 12 steps" in held.reason
    assert "above it" not in held.reason
    assert loose.estimate is not None
    assert loose.estimate.value == pytest.approx(1.5)
    assert loose.verdict == "reproduced"
    assert "At most 1.50 times" in loose.reason
    assert "are 2.00 times the loss at the end (2.00 to 2.00 over seeds)" in loose.reason
    assert "is 5.00 times the loss (median)" in loose.reason
    assert cause.estimate is not None
    assert cause.estimate.value == pytest.approx(50.0)
    assert cause.verdict == "reproduced"
    assert cause.claim.endswith("due to missing users.")
    assert "missing users 75.0 ± 0.0 %, noise 25.0 ± 0.0 %" in cause.reason
    assert "in 3 of 3 runs" in cause.reason


def test_a_bound_that_fails_half_of_the_time() -> None:
    data = steps()
    for row in data[::2]:
        row |= {"held": 0, "loss": 1.3, "excess": 0.4}
    data[0]["excess"] = 1.7
    held, *_ = claims(data, "here")
    assert held.estimate is not None
    assert held.estimate.value == 50.0
    assert held.verdict == "not reproduced"
    assert "In 6 steps the loss was above it by at most 1.70 standard deviations" in held.reason
    for row in data:
        row["excess"] = float("nan")
    assert "In 6 steps the loss was above it; in 6 of them there was no noise." in claims(data, "here")[0].reason


def test_steps_in_which_nobody_took_part_do_not_count() -> None:
    data = steps()
    for row in data[::2]:
        row |= {"played": 0, "bound": 80.0, "held": 0}
    held, loose, _ = claims(data, "here")
    assert held.estimate is not None
    assert held.estimate.value == 100.0
    assert "of 6 steps" in held.reason
    assert loose.estimate is not None
    assert loose.estimate.value == pytest.approx(1.5)


def test_no_cause_leads_where_seeds_disagree() -> None:
    data = steps(2)
    for row in data[4:]:
        row |= {"missing": 0.1, "noise": 0.28}
    *_, cause = claims(data, "here")
    assert cause.verdict == "not testable"
    assert "in 1 of 2 runs" in cause.reason


def test_shares_are_weighted_by_samples() -> None:
    data = steps()
    for row in data:
        if row["task"] == 1:
            row |= {"samples": 90, "missing": 0.0, "wrong": 0.4, "noise": 0.0}
    *_, cause = claims(data, "here")
    assert cause.claim.endswith("due to wrong identities.")
    assert "wrong identities 90.0 ± 0.0 %, missing users 7.5 ± 0.0 %, noise 2.5 ± 0.0 %" in cause.reason


@pytest.mark.parametrize("data", [[], steps(1), steps(1, played=0), steps(1, missing=0.0, noise=0.0)])
def test_one_seed_or_nothing_is_not_testable(data: list[Row]) -> None:
    found = claims(data, "here")
    assert {claim.verdict for claim in found} == {"not testable"}
    assert all(claim.reason for claim in found)
    assert len(draw(data, "here").axes) == 2
    if not data:
        assert [claim.estimate for claim in found] == [None] * 3


def test_pictures_show_loss_and_bounds_of_all_seeds_and_every_cause() -> None:
    data = steps()
    for row in data:
        if row["task"] == 1:
            row |= {"samples": 30, "loss": 0.4}
    losses, causes = draw(data, "here").axes
    legend = losses.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "bounds added up (n = 3)", "bound of one round (n = 3)", "measured loss (n = 3)",
    ]  # fmt: skip
    measured = next(line for line in losses.lines if str(line.get_label()).startswith("measured"))
    assert list(measured.get_ydata()) == pytest.approx([1.0, 0.5, 0.5])
    assert len(losses.lines) == 3 * (3 + 1)
    assert [tick.get_text().replace("\n", " ") for tick in causes.get_xticklabels()] == list(CAUSES.values())
    heights = [bars[0].get_height() for bars in causes.containers if hasattr(bars, "patches")]
    assert heights == pytest.approx([75.0, 0.0, 0.0, 0.0, 25.0])


def run_bound(next_loss: list[float]) -> RunBound:
    """One task: gradient 1, step 0.1, L = 1, no error but a little noise; nobody takes part in the last round."""
    count = len(next_loss)
    numbers = {field.name: np.zeros(count) for field in fields(StepMeasures)}
    numbers |= {name: np.ones(count) for name in ("loss", "kept")}
    moved = np.arange(count) < count - 1
    numbers |= {
        "next_loss": np.array(next_loss), "gradient": 1.0 * moved, "along": 1.0 * moved, "length": 1.0 * moved,
        "noise_energy": 0.01 * moved, "noise": 0.1 * moved, "chance": 0.5 * moved,
    }  # fmt: skip
    return RunBound([TaskBound(2, 1, 40, 0.1, 0.0, Curvature(1.0, 1.0, "bound"), StepMeasures(**numbers))])


def test_rows_count_steps_as_the_run_itself_does(tmp_path: Path) -> None:
    # The bound of these rounds is near 0.95: the first loss is below it, the second above, the third within rounding.
    bound = float(run_bound([0.5, 0.5, 0.5, 1.0]).tasks[0].bound.total[0])
    assert 0.9 < bound < 1.0
    result = run_bound([bound - 0.01, bound + 0.02, bound + 5e-7, 1.0])
    work = Work(SCALES["quick"], 2, cells_in(tmp_path))
    assert rows(work) == []
    work.store.keep(figure_bound(work)[1], result.to_dict())
    write_rows(tmp_path / "bound.csv", rows(work))
    found = read_rows(tmp_path / "bound.csv")
    assert [(row["seed"], row["task"], row["group"], row["samples"], row["round"]) for row in found] == [
        (1, 2, 1, 40, number) for number in (1, 2, 3, 4)
    ]
    assert [row["played"] for row in found] == [1, 1, 1, 0]
    assert [row["held"] for row in found] == [1, 0, 1, 1]
    numbers = result.to_dict()
    assert sum(row["played"] for row in found) == numbers["steps"]
    assert sum(row["played"] * row["held"] for row in found) == numbers["held_steps"]
    assert max(row["excess"] for row in found) == pytest.approx(numbers["largest_excess"])
    assert found[1]["excess"] == pytest.approx(0.02 / (0.1 * 0.5))
    _, loose, _ = claims(found, "here")
    assert loose.estimate is not None
    assert loose.estimate.value == pytest.approx(numbers["looseness_median"])
