"""The study of groups: its cells, what its page says of them, and what it leaves out."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from covey.figures.cells import cells_in
from covey.jobs import Values

ROOT = Path(__file__).parents[1]


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with the modules beside it."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT / "experiments")
    return import_module("clustering")


def values(right: float, *, estimate: int = 4, rho: float = 2.0, accuracy: float = 0.8) -> Values:
    """A run of two rounds that ends with this clustering accuracy."""
    return {
        "clustering_accuracy": [0.5, right], "accuracy": [0.2, accuracy], "rho_mean": rho, "rho_max": 2 * rho,
        "groups": 4, "groups_estimate": estimate, "groups_confirmed": 0, "models_used": 4, "group_models": [4, 3],
        "offers": 1, "starting_rounds": 1,
    }  # fmt: skip


def keep(study: ModuleType, out: Path, names: tuple[str, str, str], seeds: range, **given: Any) -> None:
    """Finished cells of these names in the store of `out`."""
    store = cells_in(out)
    for seed in seeds:
        store.keep(study.cell(*names, seed), values(**given))


def test_every_data_set_is_a_scenario_with_a_title_and_seeds_that_were_asked_for(study: ModuleType) -> None:
    page = import_module("clustering_cells")
    assert [name for name in study.DATA if not name.startswith("groups_")] == [*page.TITLES]
    assert set(page.BARS) <= set(page.TITLES)
    wanted = {"digits": 60, "cifar10": 20, "femnist": 10, "campus": 10, "synthetic_100": 20, "groups_5_of_8": 20}
    assert {name: study.DATA[name].judged for name in wanted} == wanted
    for data, setting in study.DATA.items():
        for variant in setting.variants:
            scenario = study.cell(data, variant, "greedy", 1000).loaded
            assert scenario.training.rounds == 15
    growing = study.cell("groups_3_growing", "new", "greedy", 1000).loaded
    assert (growing.first_tasks, growing.network.tasks, growing.groups) == (2, 8, 3)


def test_variants_differ_in_start_and_rescue_alone(study: ModuleType) -> None:
    new, paper = (study.cell("digits", name, "greedy", 1).loaded for name in ("new", "paper_start"))
    assert (new.clustering.start, new.clustering.rescue) == ("random", True)
    assert (paper.clustering.start, paper.clustering.rescue) == ("random", False)
    assert new.model_copy(update={"clustering": paper.clustering}) == paper


def test_cells_run_seed_by_seed_with_both_policies_for_what_verdicts_need(study: ModuleType) -> None:
    cells = study.cells_of("digits", range(9000, 9002), None, None)
    assert [cell.seed for cell in cells] == [9000] * 9 + [9001] * 9
    assert {cell.variant for cell in cells if cell.policy == "coverage"} == {"new", "paper_start", "oracle"}


def test_judged_seeds_replace_development_seeds_data_set_by_data_set(study: ModuleType, tmp_path: Path) -> None:
    keep(study, tmp_path, ("digits", "new", "greedy"), range(1000, 1003), right=0.5)
    keep(study, tmp_path, ("digits", "new", "greedy"), range(9000, 9004), right=1.0)
    keep(study, tmp_path, ("campus", "new", "greedy"), range(1000, 1003), right=0.75)
    found = import_module("clustering_cells").read_runs(tmp_path)
    assert found["digits", "new", "greedy"].seeds == [9000, 9001, 9002, 9003]
    assert found["digits", "new", "greedy"].perfect[:, -1].all()
    assert found["campus", "new", "greedy"].seeds == [1000, 1001, 1002]


def test_the_page_says_which_bars_hold_and_what_is_missing(study: ModuleType, tmp_path: Path) -> None:
    seeds = range(9000, 9080)
    keep(study, tmp_path, ("digits", "new", "greedy"), seeds, right=1.0)
    keep(study, tmp_path, ("digits", "oracle", "greedy"), seeds, right=1.0, accuracy=0.82)
    keep(study, tmp_path, ("digits", "paper_start", "greedy"), seeds, right=0.75, rho=1.5)
    keep(study, tmp_path, ("digits_rotation", "new", "greedy"), seeds, right=0.75)
    keep(study, tmp_path, ("campus", "new", "greedy"), range(1000, 1003), right=1.0)
    keep(study, tmp_path, ("groups_4_of_8", "new", "greedy"), seeds, right=1.0, estimate=5)
    text = import_module("clustering_page").render_page(tmp_path)
    verdicts = text[text.index("## What holds") : text.index("## Beside other")]
    digits, rotation = (line for line in verdicts.splitlines() if line.startswith("| digits"))
    assert "at least 0.99: holds | at least 95 %: holds | does not hold | does not hold | does not hold |" in digits
    assert "at least 0.97: does not hold | at least 90 %: does not hold | not run | not run | not run |" in rotation
    assert "`campus`" not in verdicts  # development seeds decide nothing
    words = " ".join(text.split())
    assert "shown with development seeds: 200 users (`campus` with less noise)." in words
    assert "CIFAR-10 (`paper`); FEMNIST (`paper_femnist`); digits at epsilon 4 (`quick`);" in words
    assert "| 8 models from the start | 4 | `greedy` | 80 | 0 % (0 to 5) |" in text
    assert "| digits, label mixes (`paper_digits`) | 3 | 80 of 80 | 0.750 | 100 % |" in text


def test_a_page_without_cells_says_so(study: ModuleType, tmp_path: Path) -> None:
    text = import_module("clustering_page").render_page(tmp_path)
    assert "No judged seeds have been computed yet." in text
    assert text.count("Not run yet.") == 2


def test_shares_have_the_interval_of_clopper_and_pearson(study: ModuleType) -> None:
    share = import_module("clustering_cells").share_interval
    perfect = share(np.ones(20, dtype=bool))
    assert (perfect.value, perfect.high) == (1.0, 1.0)
    assert perfect.low == pytest.approx(0.025 ** (1 / 20))  # all of n hit with probability p^n
    none = share(np.zeros(10, dtype=bool))
    assert (none.low, none.high) == (0.0, pytest.approx(1 - 0.025 ** (1 / 10)))


def test_differences_are_of_common_seeds(study: ModuleType, tmp_path: Path) -> None:
    keep(study, tmp_path, ("digits", "new", "greedy"), range(9000, 9004), right=1.0)
    keep(study, tmp_path, ("digits", "oracle", "greedy"), range(9002, 9010), right=1.0, accuracy=0.9)
    keep(study, tmp_path, ("digits", "loss", "greedy"), range(9020, 9022), right=1.0)
    found = import_module("clustering_cells").read_runs(tmp_path)
    gap = found["digits", "new", "greedy"].minus(found["digits", "oracle", "greedy"], "accuracy")
    assert (gap.n, gap.value) == (2, pytest.approx(-0.1))
    assert found["digits", "new", "greedy"].minus(found["digits", "loss", "greedy"], "accuracy") is None


def test_forgotten_cells_are_computed_again_and_others_stay(study: ModuleType, tmp_path: Path) -> None:
    keep(study, tmp_path, ("digits", "new", "greedy"), range(1000, 1003), right=1.0)
    import_module("study").forget([study.cell("digits", "new", "greedy", 1001)], tmp_path)
    assert [record.job["seed"] for record in cells_in(tmp_path).records()] == [1000, 1002]


def test_judged_cells_are_never_computed_again(study: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["clustering.py", "--judged", "--again"])
    with pytest.raises(SystemExit):
        study.main()
