"""A changed default is never answered from results of the old one, and keeps the keys of what was kept before."""

from __future__ import annotations

import pytest

from covey.environment.calibration import learning_settings
from covey.figures.kinds import RealRun
from covey.jobs import scenario_digest
from covey.scenario import load_scenario
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


def test_results_that_were_kept_before_the_change_keep_their_keys() -> None:
    """Digests that version 0.1.0 gave to its presets."""
    found = {name: scenario_digest(load_scenario(name, PAPER_START)) for name in ("quick", "paper")}
    assert found == {"quick": "807bcf955152bdb5", "paper": "f4319d4065a0c736"}


def test_cells_of_figures_start_as_in_the_paper_unless_they_say_otherwise() -> None:
    assert not RealRun("quick").loaded.clustering.rescue
    assert RealRun("quick", ("clustering.rescue=true",)).loaded.clustering.rescue
    assert RealRun("quick", ("clustering.start=release",)).loaded.clustering.start == "release"
