"""A changed default is never answered from results of the old one, and keeps the keys of what was kept before."""

from __future__ import annotations

import pytest

from covey.environment.calibration import learning_settings
from covey.figures.cells import scenario_of
from covey.jobs import scenario_digest
from covey.scenario import load_scenario
from covey.scenario.first_defaults import CHANGED, PAPER_START, differing, first_default


def test_what_has_changed_really_differs_from_the_schema_or_is_pinned() -> None:
    scenario = load_scenario("quick")
    for name, options in CHANGED.items():
        section = getattr(scenario, name)
        for option, first in options.items():
            assert first_default(section, option) == first
            assert any(pin.startswith(f"{name}.{option}=") for pin in PAPER_START)
    assert first_default(scenario.training, "rounds") == 15


@pytest.mark.parametrize("more", [[], ["clustering.batch=8"], ["training.rounds=3"]])
def test_the_old_and_the_new_default_have_digests_of_their_own(more: list[str]) -> None:
    new, old = (load_scenario("quick", [*given, *more]) for given in ((), PAPER_START))
    assert scenario_digest(new) != scenario_digest(old)
    assert "rescue" not in differing(old).get("clustering", {})
    assert differing(new)["clustering"]["rescue"] is True
    assert "clustering.rescue" not in learning_settings(old)
    assert learning_settings(new)["clustering.rescue"] is True
    # A value that is given and equals the default counts as the default.
    assert scenario_digest(load_scenario("quick", ["clustering.rescue=true", *more])) == scenario_digest(new)


def test_results_that_were_kept_before_the_change_keep_their_keys() -> None:
    """Digests that version 0.1.0 gave to its presets."""
    found = {name: scenario_digest(load_scenario(name, PAPER_START)) for name in ("quick", "paper")}
    assert found == {"quick": "807bcf955152bdb5", "paper": "f4319d4065a0c736"}


def test_cells_of_figures_and_studies_start_as_in_the_paper_unless_they_say_otherwise() -> None:
    assert not scenario_of("quick", ()).clustering.rescue
    assert scenario_of("quick", ("clustering.rescue=true",)).clustering.rescue
    assert scenario_of("quick", ("clustering.start=release",)).clustering.start == "release"
