"""The numbers and the snippet of the theory page are what the code gives."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tests.theory import problems
from tests.theory.test_random_problems import INSTANCES, corrected, failing, printed

PAGE = (Path(__file__).parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (ridge|w\^2|cosines)[^|]*\| (\w+) \| ([\d.]+) % \| 0 \| ([\d.]+) \|$", re.MULTILINE)
DRAWS = {"ridge": problems.ridge, "w^2": problems.wavy, "cosines": problems.cosines}


def test_the_table_of_random_problems() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) == len(DRAWS) * len(problems.TROUBLE)
    for loss, trouble, share, tightness in rows:
        rng = np.random.default_rng(7)
        problem = DRAWS[loss](rng, INSTANCES, trouble)
        slope = rng.uniform(0.0, 0.25, INSTANCES)
        truth = problem.expected_next_gap(1.0 / problem.smoothness)
        bound = corrected(problem, slope, problem.setting.tight())
        assert 100.0 * failing(truth, printed(problem, slope)) == pytest.approx(float(share), abs=0.2)
        assert failing(truth, bound) == 0.0
        assert np.median(truth / bound) == pytest.approx(float(tightness), abs=0.002)


def test_the_snippet_runs() -> None:
    snippets = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(snippets) == 1
    exec(compile(snippets[0], "docs/theory.md", "exec"), {})


def test_the_stranger_of_the_page() -> None:
    mean = (1.0 * 1.0 + 10.0 * (1.0 - 5.0)) / 11.0
    assert (mean - 1.0) ** 2 == pytest.approx(20.7, abs=0.05)
