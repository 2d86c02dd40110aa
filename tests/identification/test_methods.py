"""What is told about rules and announcements: covey's own, those of others, and broken ones."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import ClassVar

import pytest

from covey import parts
from covey.cli.main import main
from covey.identification import Rule, ScoreRule
from covey.identification.methods import Method, methods
from covey.identification.page import methods_page
from covey.identification.raw import Raw
from covey.parts import ANNOUNCEMENTS, RULES


def named(name: str) -> Method:
    return next(method for method in methods() if method.name == name)


def test_the_page_is_up_to_date() -> None:
    page = Path(__file__).parents[2] / "docs" / "methods.md"
    assert page.read_text(encoding="utf-8") == methods_page(), "run `make docs-reference`"


def test_every_part_of_coveys_own_says_everything() -> None:
    found = methods(builtin=True)
    assert [one.name for one in found] == [*RULES.builtin, *ANNOUNCEMENTS.builtin]
    for method in found:
        said = [getattr(method, field.name) for field in fields(method) if field.name not in ("goes_with", "problem")]
        assert all(said), method.name
        assert "not said" not in said, method.name
        assert not method.problem
        assert method.line in methods_page()


def test_numbers_are_those_of_the_rules() -> None:
    assert named("gradient_loss").passes == "K per sample"
    assert named("loss").passes == "0.33 K per sample"
    assert named("kmeans").passes == "1 per sample"
    assert named("oracle").passes == "none"
    assert named("raw").passes == "on clustering.batch samples"
    assert named("noisy_contrasts").passes == "on all samples"
    assert named("from_release").passes == "none"
    assert named("noisy_contrasts").goes_with == ("loss_vectors",)
    assert named("loss_vectors").goes_with == ("raw", "noisy_losses", "noisy_contrasts")


class Silent(ScoreRule):
    needs: ClassVar[frozenset[str]] = frozenset({"losses", "single_uploads", "luck"})


class Spoken(Rule):
    """A rule that says something."""

    paper: ClassVar[str] = "nobody 2030"
    uploads: ClassVar[int] = 2


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that this program registers, and one that an installed package offers but that cannot be imported."""
    registered = {"silent": Silent, "spoken": Spoken, "odd": lambda scenario: 1 / 0}
    monkeypatch.setattr(RULES, "_registered", registered)
    monkeypatch.setattr(ANNOUNCEMENTS, "_registered", {"whispered": Raw})

    class Broken:
        def load(self) -> None:
            raise ImportError("no luck")

    offered = {"identification.broken": Broken(), "announcement.broken": Broken()}
    monkeypatch.setattr(parts, "_entries", lambda: offered)


@pytest.mark.usefixtures("others")
def test_parts_of_others_get_what_can_be_told() -> None:
    silent, spoken, odd = named("silent"), named("spoken"), named("odd")
    assert silent.computes == "every user's loss on every model"
    assert silent.sees == "stations that see every single upload, luck"
    assert (silent.rho, silent.air, silent.paper) == ("that of privacy.identity", "none", "not said")
    assert silent.passes == "K per sample"
    assert (spoken.paper, spoken.about) == ("nobody 2030", "A rule that says something.")
    assert (spoken.rho, spoken.air) == ("2 noised uploads per user and announcement", "2 uploads per user")
    assert spoken.passes == "2 per sample"
    assert (odd.passes, odd.rho) == ("not said", "0")
    whispered = named("whispered")
    assert {"loss", "gradient_loss", "silent"} <= set(whispered.goes_with)
    assert not {"kmeans", "oracle"} & set(whispered.goes_with)
    broken = [method for method in methods() if method.name == "broken"]
    assert [method.kind for method in broken] == ["rule", "announcement"]
    assert all("no luck" in method.problem for method in broken)


@pytest.mark.usefixtures("others")
def test_the_command_lists_all_and_goes_on_after_broken_ones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as ended:
        main(["methods", "--json"])
    assert ended.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in told] == [*RULES.names, *ANNOUNCEMENTS.names]
    assert told[0]["set"] == "--set clustering.rule=gradient_loss"
    with pytest.raises(SystemExit) as ended:
        main(["methods"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"clustering.rule={name} " in shown for name in RULES.names)
    assert all(f"privacy.identity={name} " in shown for name in ANNOUNCEMENTS.names)
    assert shown.count("ImportError") == 2
