"""A changed default is never answered from results of the old one, and keeps the keys of what was kept before."""

from __future__ import annotations

import pytest

from covey.environment.calibration import learning_settings
from covey.errors import ScenarioError
from covey.figures.kinds import RealRun
from covey.jobs import scenario_digest
from covey.scenario import dump_scenario, load_scenario, load_stored_scenario
from covey.scenario.first_values import DEFAULT_START, FIRST_VALUES, PAPER_START, not_at_first


def test_the_papers_start_has_the_first_values() -> None:
    scenario = load_scenario("quick", PAPER_START)
    for section, options in FIRST_VALUES.items():
        for option, first in options.items():
            assert getattr(getattr(scenario, section), option) == first
    assert load_scenario("quick", [*PAPER_START, *DEFAULT_START]) == load_scenario("quick")


@pytest.mark.parametrize("more", [[], ["clustering.batch=8"], ["training.rounds=3"]])
def test_the_old_and_the_new_default_have_digests_of_their_own(more: list[str]) -> None:
    new, old = (load_scenario("quick", [*given, *more]) for given in ((), PAPER_START))
    assert scenario_digest(new) != scenario_digest(old)
    assert "rescue" not in not_at_first(old).get("clustering", {})
    assert not_at_first(new)["clustering"]["rescue"] is True
    assert "clustering.rescue" not in learning_settings(old)
    assert learning_settings(new)["clustering.rescue"] is True
    # A value that is given and equals the default counts as the default.
    assert scenario_digest(load_scenario("quick", ["clustering.rescue=true", *more])) == scenario_digest(new)


def test_a_stored_scenario_that_is_older_than_an_option_means_its_first_value(tmp_path) -> None:
    """As the run was played; scenarios that people write mean the default."""
    new, old, path = load_scenario("quick"), load_scenario("quick", PAPER_START), tmp_path / "scenario.toml"
    for scenario in (new, old):
        path.write_text(dump_scenario(scenario), encoding="utf-8")
        assert load_stored_scenario(path) == scenario == load_scenario(path)
    younger = [f"{option} = " for options in FIRST_VALUES.values() for option in options]
    lines = [line for line in dump_scenario(new).splitlines() if not line.startswith(tuple(younger))]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert load_stored_scenario(path) == old
    assert load_scenario(path) == new
    path.write_text("clustering = 3\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match="clustering"):
        load_stored_scenario(path)


def test_cells_of_figures_start_as_in_the_paper_unless_they_say_otherwise() -> None:
    assert not RealRun("quick").loaded.clustering.rescue
    assert RealRun("quick", ("clustering.rescue=true",)).loaded.clustering.rescue
    assert RealRun("quick", ("clustering.start=release",)).loaded.clustering.start == "release"
