"""Cells: what makes two of them the same, each computed once, in order, over processes, resumed, and never lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from covey.errors import PolicyError
from covey.figures.cells import CELLS, Cell, cells_in, policy_file, policy_name
from covey.figures.compute import _finished, _with_needs, finish
from covey.figures.kinds import Allocated, Bounded, Partitioned, Played, RealRun, Training
from covey.figures.plans import FIGURES, RULES, Work, leakage_of, noise_of, plan_of, users_of
from covey.figures.scales import SCALES
from covey.jobs import Store

TRAINED = Training("quick", settings=(("algorithm", "iql"), ("epochs", 1)))


def test_what_changes_nothing_does_not_change_the_key() -> None:
    plain = RealRun("quick", seed=3)
    assert RealRun("quick", ("clustering.similarity_weight=0.2",), 3).key == plain.key
    assert RealRun("quick", ("name=other",), 3).key == plain.key


@pytest.mark.parametrize(
    "other",
    [
        RealRun("quick", seed=4),
        RealRun("paper", seed=3),
        RealRun("quick", ("training.clip=3",), 3),
        RealRun("quick", seed=3, policy="nearest"),
        RealRun("quick", seed=3, policy=TRAINED),
        Bounded("quick", seed=3),
    ],
)
def test_what_changes_the_result_changes_the_key(other: Cell) -> None:
    assert other.key != RealRun("quick", seed=3).key


def test_a_cell_depends_on_the_training_of_its_policy_and_on_the_surrogate() -> None:
    longer = replace(TRAINED, settings=(("algorithm", "iql"), ("epochs", 2)))
    assert RealRun("quick", policy=TRAINED).key != RealRun("quick", policy=longer).key
    assert "surrogate" in TRAINED.content
    assert "surrogate" not in replace(TRAINED, learning="real").content
    assert RealRun("quick", policy=TRAINED).needs == (TRAINED,)
    assert Played("quick").needs == ()


def test_cells_are_computed_once_over_processes_and_read_back(tmp_path: Path) -> None:
    store = cells_in(tmp_path)
    cells = [Partitioned("quick", seed=seed) for seed in range(3)]
    told: list[tuple[int, int]] = []
    finish(lambda _: [*cells, cells[0]], store, 2, lambda _, done, known: told.append((done, known)))
    assert told[0] == (0, 3)
    assert told[-1] == (3, 3)
    before = (tmp_path / CELLS).read_bytes()
    assert before.count(b"\n") == 3
    assert sum(map(sum, cells_in(tmp_path)[cells[1]]["counts"])) > 12 * 60
    again: list[str] = []
    finish(lambda _: [*cells], cells_in(tmp_path), 2, lambda now, *_: again.append(now))
    assert again == [""]
    assert (tmp_path / CELLS).read_bytes() == before


def test_results_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    cells = [RealRun("quick", ("training.rounds=2",), seed) for seed in range(2)]
    for processes in (1, 2):
        finish(lambda _: [*cells], cells_in(tmp_path / str(processes)), processes)
    for cell in cells:
        assert cells_in(tmp_path / "1")[cell] == cells_in(tmp_path / "2")[cell]


def test_a_plan_that_learns_of_more_cells_is_followed_to_its_end(tmp_path: Path) -> None:
    first, second = Partitioned("quick"), Partitioned("quick", seed=1)
    finish(lambda store: [first, second] if store.has(first) else [first], store := cells_in(tmp_path), 1)
    assert store.has(second)


def test_policies_come_before_who_needs_them_and_are_made_again_only_if_needed(tmp_path: Path) -> None:
    run = Played("quick", policy=TRAINED, layouts=1)
    assert _with_needs([run, TRAINED]) == [TRAINED, run]
    store = cells_in(tmp_path / "all")
    for cell in (TRAINED, run):
        store.keep(cell, {})
    assert _finished(TRAINED, [TRAINED, run], store), "all who need the policy are finished"
    store = cells_in(tmp_path / "trained")
    store.keep(TRAINED, {}, files={policy_name(TRAINED): b"weights"})
    assert _finished(TRAINED, [TRAINED, run], store)
    policy_file(store.folder, TRAINED).write_bytes(b"other weights")
    assert not _finished(TRAINED, [TRAINED, run], store), "the run needs the policy as it was trained"
    policy_file(store.folder, TRAINED).unlink()
    assert not _finished(TRAINED, [TRAINED, run], store), "the run needs a policy that is not there"


def test_an_error_in_a_cell_reaches_the_caller_and_keeps_what_is_finished(tmp_path: Path) -> None:
    good, bad = Partitioned("quick"), Bounded("quick", policy="nobody")
    with pytest.raises(PolicyError, match="nobody"):
        finish(lambda _: [good, bad], cells_in(tmp_path), 1)
    assert cells_in(tmp_path).has(good)
    assert not cells_in(tmp_path).has(bad)


def test_a_damaged_cell_is_computed_again(tmp_path: Path) -> None:
    cell = Partitioned("quick")
    finish(lambda _: [cell], cells_in(tmp_path), 1)
    path = tmp_path / CELLS
    first = cells_in(tmp_path)[cell]
    path.write_bytes(path.read_bytes().replace(b'"counts":[[', b'"counts":[[1', 1))
    assert not cells_in(tmp_path).has(cell)
    finish(lambda _: [cell], cells_in(tmp_path), 1)
    assert cells_in(tmp_path)[cell] == first


def test_cells_of_other_versions_are_computed_again_unless_told_otherwise(tmp_path: Path) -> None:
    cell = Partitioned("quick")
    old = Store(tmp_path / CELLS, software={"covey": "0.0.9"})
    old.keep(cell, {"counts": "old"})
    finish(lambda _: [cell], kept := cells_in(tmp_path, any_version=True), 1)
    assert kept[cell] == {"counts": "old"}
    assert kept.other_version(cell) is not None
    finish(lambda _: [cell], kept := cells_in(tmp_path), 1)
    assert kept[cell] != {"counts": "old"}
    assert kept.other_version(cell) is None


def test_every_training_of_a_comparison_has_the_same_trials() -> None:
    work = Work(SCALES["full"], 2, cells_in(Path("nowhere")))
    for method in ("dpvd", "iql", "qmix", "iql_local", "dpvd_fixed"):
        trials = work.trials("paper", method)
        assert tuple(trials) == SCALES["full"].rates
        kept = {
            tuple((key, value) for key, value in cell.settings if key in ("epochs", "networks", "updates", "batch"))
            for cell in trials.values()
        }
        assert kept == {(("epochs", SCALES["full"].tuning_epochs),)}
    assert work.training("dpvd", 0) is None, "nothing is trained before it is tuned"


def test_the_best_rate_is_kept_and_trials_come_first(tmp_path: Path) -> None:
    work = Work(SCALES["quick"], 1, cells_in(tmp_path))
    for number, cell in enumerate(work.trials("paper_digits", "iql").values()):
        work.store.keep(cell, {"validation": {"alone": -100.0 + number}})
    assert work.rate("paper_digits", "iql") == SCALES["quick"].rates[-1]
    trained = work.training("iql", 5)
    assert trained is not None
    assert trained.learner.learning_rate == SCALES["quick"].rates[-1]
    ordered = plan_of(["4", "7"], SCALES["quick"], 2)(work.store)
    assert ordered[0].seed == SCALES["quick"].tuning_seed
    seeds = [cell.seed for cell in ordered if isinstance(cell, RealRun)]
    assert seeds == sorted(seeds, key=lambda seed: seed % 100)


@pytest.mark.parametrize("name", list(FIGURES))
@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_figure_asks_for_cells_that_can_be_named(name: str, scale: str) -> None:
    cells = FIGURES[name](Work(SCALES[scale], 1, cells_in(Path("nowhere"))))
    assert cells
    assert all(cell.label and len(cell.key) == 16 for cell in cells)


def test_overrides_of_sweeps() -> None:
    assert users_of("quick", 12) == ()
    assert users_of("quick", 4) == ("network.users=4",)
    assert leakage_of("paper", 1.0) == ()
    assert RealRun("paper", leakage_of("paper", 50.0)).loaded.reward.leakage_weight == 1e9
    quiet, loud = (RealRun("quick", noise_of("quick", factor)).loaded.privacy for factor in (1.0, 16.0))
    assert (loud.v_max, loud.n_min) == (16 * quiet.v_max, 4 * quiet.n_min)
    assert RealRun("quick", noise_of("quick", 0.0)).loaded.privacy.noise == "off"
    assert RealRun("quick", RULES["oracle"]).loaded.clustering.rule == "oracle"


def test_both_allocations_see_the_same_selections(tmp_path: Path) -> None:
    columns = Allocated("quick", ("training.rounds=3",), seed=1, repeats=1).compute(tmp_path)["columns"]
    assert len(columns["selected"]) == 3
    assert all(
        served <= selected for served, selected in zip(columns["sequential_served"], columns["selected"], strict=True)
    )
    assert all(value > 0 for value in columns["descent_ms"])
