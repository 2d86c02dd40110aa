from __future__ import annotations

from pathlib import Path

import pytest

import covey
from covey.agents import library
from covey.agents.library import find_policy, learned_policy, policy_or_train, policy_path
from covey.agents.settings import LearnerSettings
from covey.errors import PolicyError
from covey.scenario import PAPER_START, load_scenario


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVEY_DATA", str(tmp_path))


@pytest.mark.parametrize(("preset", "start"), [("quick", ()), ("paper_digits", PAPER_START), ("paper", PAPER_START)])
def test_presets_come_with_a_policy(preset: str, start: tuple[str, ...]) -> None:
    policy = find_policy("dpvd", load_scenario(preset))
    assert policy.scenario == load_scenario(preset)
    assert policy.way == "guarded"
    # A file that is older than the options of a start must not be taken for one of today's default.
    hidden = {"name", "description"}
    assert policy.trained_on.model_dump(exclude=hidden) == load_scenario(preset, start).model_dump(exclude=hidden)
    assert find_policy("dpvd", load_scenario(preset, PAPER_START)).trained_on == policy.trained_on
    with pytest.raises(PolicyError):
        find_policy("dpvd", load_scenario(preset, ["clustering.similarity_weight=0.3"]))


def test_a_missing_policy_says_how_to_train_it() -> None:
    with pytest.raises(PolicyError, match="covey train quick --algorithm iql"):
        find_policy("iql", load_scenario("quick"))


def test_a_policy_is_trained_once_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(LearnerSettings):
        """Few and small epochs."""

        epochs: int = 2
        networks: int = 2
        updates: int = 1
        validation: int = 2

    monkeypatch.setattr(library, "LearnerSettings", Small)
    scenario = load_scenario("quick", ["network.users=9"])
    epochs: list[int] = []
    first = policy_or_train("iql", scenario, lambda row, total: epochs.append(row["epoch"]))
    assert epochs == [1, 2]
    assert policy_path("iql", scenario).is_file()
    again = policy_or_train("iql", scenario, lambda row, total: pytest.fail("trained again"))
    assert first.settings.algorithm == again.settings.algorithm == "iql"


def test_a_learned_policy_by_name_or_file(tmp_path: Path) -> None:
    by_name = covey.learned_policy("dpvd", "quick", way="alone")
    assert by_name.__name__ == "dpvd_alone"
    by_name.save(tmp_path / "p.safetensors")
    assert learned_policy(tmp_path / "p.safetensors", "quick").__name__ == "dpvd"
