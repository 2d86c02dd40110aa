from __future__ import annotations

from pathlib import Path

import pytest

from covey.figures.cells import cells_in
from covey.figures.kinds import RealRun
from covey.figures.plans import DEFAULT_RULE, FIGURES, RULES, Work, noise_of
from covey.figures.rows import Row, where
from covey.figures.scales import SCALES
from covey.figures.shown.figure_9 import ENERGY, OURS, THEIRS, TIME, claims, draw, rows
from covey.scenario.schema import Clustering


def run(
    rule: str, seed: int, accuracy: float, *, part: str = "compared", factor: float = 1.0,
    energy: tuple[float, float] = (1.0, 1.0), time: tuple[float, float, float] = (1.0, 1.0, 1.0), rounds: int = 2,
) -> list[Row]:  # fmt: skip
    """A run that starts at accuracy 0.1; energy: sending, computing; time: uplink, computing, downlink."""
    return [
        {"part": part, "data": "digits", "factor": factor, "rule": rule, "seed": seed, "round": number + 1}
        | {"clustering_accuracy": accuracy if number == rounds - 1 else 0.1, "served": 8}
        | dict(zip(ENERGY, energy, strict=True))
        | dict(zip(TIME, time, strict=True))
        for number in range(rounds)
    ]


def papers(seeds: int = 3) -> list[Row]:
    """Runs as the paper has them."""
    data = []
    for seed in range(seeds):
        shift = 0.01 * seed
        data += run(OURS, seed, 0.878 + shift, energy=(4.0, 7.4), time=(3.0, 2.4, 2.0))
        data += run(THEIRS, seed, 0.9 + shift, energy=(8.0, 2.0), time=(7.0, 1.0, 2.0))
    return data


def test_the_papers_numbers_are_reproduced_by_runs_that_have_them() -> None:
    accuracy, energy, time = claims(papers(), "here")
    for claim, value in ((accuracy, -2.2), (energy, 14.0), (time, -26.0)):
        assert claim.estimate is not None
        assert claim.estimate.value == pytest.approx(value)
        assert claim.estimate.n == 3
    # Intervals without width reach a number only up to rounding, so that seeds must differ.
    data = papers()
    for row in where(data, rule=THEIRS, seed=0):
        row |= {"clustering_accuracy": row["clustering_accuracy"] + 0.002, "uplink_s": 7.1, "transmit_energy_j": 7.9}
    assert [claim.verdict for claim in claims(data, "here")] == ["reproduced"] * 3
    assert "after 2 rounds" in accuracy.quantity
    assert "87.8 %" not in accuracy.reason
    assert "Our rule ends at 88.8 %, k-means at 91.0 %." in accuracy.reason


def test_parts_add_up_to_the_change_and_the_largest_is_named() -> None:
    _, energy, time = claims(papers(), "here")
    assert "sending -40.0 ± 0.0 % and computing +54.0 ± 0.0 %; computing makes most of the difference" in energy.reason
    assert "22.8 J in a run against 20.0 J" in energy.reason
    assert "uplink -40.0 ± 0.0 %, computing +14.0 ± 0.0 % and downlink +0.0 ± 0.0 %; uplink makes most" in time.reason


def test_opposite_signs_are_not_reproduced_and_half_of_it_is_the_direction() -> None:
    data = []
    for seed in range(3):
        data += run(OURS, seed, 0.99, energy=(1.0, 0.5 + 0.01 * seed), time=(2.6, 0.05 * seed, 0.0))
        data += run(THEIRS, seed, 0.8 + 0.01 * seed, energy=(1.0, 1.0), time=(3.0, 0.0, 0.0))
    accuracy, energy, time = claims(data, "here")
    assert accuracy.verdict == "not reproduced"
    assert energy.verdict == "not reproduced"
    assert time.verdict == "direction only"


def test_the_reason_says_what_noise_does_to_both_on_digits() -> None:
    data = papers()
    for seed in range(2):
        for factor, theirs, ours in ((0.0, 1.0, 0.8), (1.0, 0.7, 0.75)):
            data += run(THEIRS, seed, theirs, part="noise", factor=factor)
            data += run(OURS, seed, ours, part="noise", factor=factor)
    accuracy, energy, _ = claims(data, "here")
    assert "k-means, which sees noised uploads, by -30.0 ± 0.0 points, n = 2" in accuracy.reason
    assert "works on clean data on the device, by -5.0 ± 0.0 points, n = 2" in accuracy.reason
    assert "-20.0 ± 0.0 points there without noise and +5.0 ± 0.0 points with it" in accuracy.reason
    assert accuracy.estimate is not None
    assert accuracy.estimate.value == pytest.approx(-2.2)
    assert energy.estimate is not None
    assert energy.estimate.value == pytest.approx(14.0)


def test_noise_on_one_rule_alone_is_said_too() -> None:
    data = [row for f, a in ((0.0, 1.0), (1.0, 0.7)) for row in run(THEIRS, 0, a, part="noise", factor=f)]
    accuracy, *_ = claims(data, "here")
    assert accuracy.estimate is None
    assert accuracy.reason == (
        "On digits, privacy noise changes k-means, which sees noised uploads, by -30.0 points, n = 1."
    )


@pytest.mark.parametrize("data", [[], papers(1), run(OURS, 0, 0.9), run(OURS, 0, 0.9) + run(THEIRS, 1, 0.9)])
def test_one_seed_or_a_missing_method_is_not_testable(data: list[Row]) -> None:
    found = claims(data, "here")
    assert {claim.verdict for claim in found} == {"not testable"}
    assert all(
        (claim.estimate is not None) == (len(data) == len(papers(1)) and data[2]["seed"] == 0) for claim in found
    )
    assert all(claim.reason for claim in found)
    assert len(draw(data, "here").axes) == 3


def test_pictures_stack_the_parts_and_show_every_seed() -> None:
    data = papers() + run(THEIRS, 0, 0.3, part="noise", energy=(500.0, 500.0))
    accuracy, energy, time = draw(data, "here").axes
    legend = accuracy.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "gradient and loss, weight 0.2 (n = 3)", "central k-means (n = 3)",
    ]  # fmt: skip
    assert (energy.get_ylabel(), time.get_ylabel()) == ("energy of a run (J)", "time of a run (s)")
    for axis, parts, sums in (
        (energy, ["sending", "computing"], [[8.0, 16.0], [14.8, 4.0]]),
        (time, ["uplink", "computing", "downlink"], [[6.0, 14.0], [4.8, 2.0], [4.0, 4.0]]),
    ):
        legend = axis.get_legend()
        assert legend is not None
        assert [text.get_text() for text in legend.get_texts()] == parts
        bars = [bars for bars in axis.containers if hasattr(bars, "patches")]
        assert [[bar.get_height() for bar in part] for part in bars] == [pytest.approx(each) for each in sums]
        dots = [line for line in axis.lines if line.get_marker() == "."]
        assert [len(line.get_ydata()) for line in dots] == [3, 3]
        top = max(float(max(line.get_ydata())) for line in dots)
        assert axis.get_ylim()[1] > 1.2 * top


def test_rows_take_what_is_finished_with_and_without_noise(tmp_path: Path) -> None:
    work = Work(SCALES["full"], 2, cells_in(tmp_path))
    names = ("clustering_accuracy", "served", *ENERGY, *TIME)
    cells = [
        RealRun("paper", RULES[THEIRS], 1),
        RealRun("paper_digits", (*RULES[THEIRS], *noise_of("paper_digits", 0.0)), 0),
        RealRun("paper_digits", (*RULES[OURS], *noise_of("paper_digits", 1.0)), 0),
    ]
    for number, cell in enumerate(cells):
        columns = {name: [0.5, 0.1 * number] for name in names}
        work.store.keep(cell, {"columns": columns})
    ends = [row for row in rows(work) if row["round"] == 2]
    found = {(r["part"], r["data"], r["factor"], r["rule"], r["seed"]): r["clustering_accuracy"] for r in ends}
    assert found == {
        ("compared", "cifar10", 1.0, THEIRS, 1): 0.0,
        ("noise", "digits", 0.0, THEIRS, 0): 0.1,
        ("noise", "digits", 1.0, OURS, 0): 0.2,
    }


def test_claims_are_judged_on_the_papers_start_and_say_what_the_default_does() -> None:
    data = papers()
    extra = [
        row
        for seed in range(3)
        for row in run(DEFAULT_RULE, seed, 1.0, part="default start", energy=(9.0, 9.0), time=(9.0, 9.0, 9.0))
    ]
    without, both = claims(data, "here"), claims([*data, *extra], "here")
    assert [(one.estimate, one.verdict) for one in both] == [(one.estimate, one.verdict) for one in without]
    assert "default start" not in without[0].reason
    assert "our rule minus k-means is +9.0 ± 2.5 points, n = 3" in both[0].reason
    accuracy, energy, _ = draw([*data, *extra], "here").axes
    assert [text.get_text().partition(" (")[0] for text in accuracy.get_legend().get_texts()][1].endswith(
        "default start"
    )
    assert len(energy.get_xticks()) == 3


def test_only_the_default_curve_has_another_start(tmp_path: Path) -> None:
    work = Work(SCALES["full"], 1, cells_in(tmp_path))
    starts = {cell.loaded.clustering.rescue for cell in FIGURES["9"](work) if cell.overrides != RULES[DEFAULT_RULE]}
    assert starts == {False}
    default = RealRun("paper", RULES[DEFAULT_RULE]).loaded.clustering
    assert (default.start, default.rescue) == (Clustering().start, Clustering().rescue)
    assert default.rescue
