"""What there is to know about every rule and announcement before choosing one: `covey methods` and docs/methods.md.

The words are those of the parts themselves (`Rule.paper` and so on); what a part does not say is told from what it
needs, uploads and costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from covey.errors import CoveyError
from covey.identification.announcement import Announcement
from covey.identification.rule import Rule, ScoreRule, build_rule, goes_with
from covey.parts import ANNOUNCEMENTS, NEEDS, RULES, Registry
from covey.scenario import load_scenario

#: Where parts are made to see what they cost, with as many tasks and as large a batch as it says.
_SCENARIO: Final = "quick"
_BATCH: Final = 64
_SAMPLES: Final = 3 * _BATCH
_UNKNOWN: Final = "not said"


@dataclass(frozen=True)
class Method:
    """A rule or an announcement, in a few words each.

    kind: `rule` or `announcement`; name, key: what to set; goes_with: announcements of a rule, or rules of an
    announcement; passes: forward-plus-backward passes of a sample and round, or the samples that are looked at;
    problem: why nothing is known of a part, empty where something is.
    """

    kind: str
    name: str
    key: str
    about: str = ""
    paper: str = _UNKNOWN
    computes: str = _UNKNOWN
    sees: str = _UNKNOWN
    rho: str = _UNKNOWN
    air: str = _UNKNOWN
    passes: str = _UNKNOWN
    suits: str = _UNKNOWN
    limits: str = _UNKNOWN
    goes_with: tuple[str, ...] = ()
    problem: str = ""

    @property
    def line(self) -> str:
        """What to add to a command."""
        return f"--set {self.key}={self.name}"

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**asdict(self), "goes_with": [*self.goes_with], "set": self.line}


def methods(*, builtin: bool = False) -> list[Method]:
    """All rules, then all announcements: registered, offered by installed packages or, with `builtin`, covey's own."""
    rules = [_rule(name) for name in _names(RULES, builtin)]
    return rules + [_announcement(name, rules) for name in _names(ANNOUNCEMENTS, builtin)]


def _names(registry: Registry, builtin: bool) -> Sequence[str]:
    return registry.builtin if builtin else registry.names


def _rule(name: str) -> Method:
    try:
        part = RULES.get(name)
    except CoveyError as error:
        return Method("rule", name, RULES.key, problem=str(error))
    needs, uploads = frozenset(_of(part, "needs", frozenset())), int(_of(part, "uploads", 0))
    announcements = tuple(_of(part, "announcements", ())) if _tells(part) else ()
    return Method(
        "rule",
        name,
        RULES.key,
        about=_about(part),
        paper=_of(part, "paper") or _UNKNOWN,
        computes=_of(part, "computes") or _needed(needs & {"losses", "gradients"}) or _UNKNOWN,
        sees=_of(part, "sees") or _needed(needs - {"losses", "gradients", "charge"}) or _UNKNOWN,
        rho=_of(part, "costs") or _rule_costs(needs, uploads, announcements),
        air=_of(part, "air") or (_count(uploads, "upload") + " per user" if uploads else "none"),
        passes=_passes(name, uploads),
        suits=_of(part, "suits") or _UNKNOWN,
        limits=_of(part, "limits") or _UNKNOWN,
        goes_with=announcements,
    )


def _announcement(name: str, rules: Sequence[Method]) -> Method:
    try:
        part = ANNOUNCEMENTS.get(name)
    except CoveyError as error:
        return Method("announcement", name, ANNOUNCEMENTS.key, problem=str(error))
    with_rules = tuple(rule.name for rule in rules if rule.goes_with and goes_with(RULES.get(rule.name), name))
    made = _made(name, with_rules)
    needs = frozenset(_of(part, "needs", frozenset()))
    return Method(
        "announcement",
        name,
        ANNOUNCEMENTS.key,
        about=_about(part),
        paper=_of(part, "paper") or _UNKNOWN,
        computes=_of(part, "computes") or _UNKNOWN,
        sees=_of(part, "sees") or _needed(needs - {"charge"}) or _UNKNOWN,
        rho=_of(part, "costs") or _announcement_costs(made),
        air=_of(part, "air") or _UNKNOWN,
        passes=_scored(made),
        suits=_of(part, "suits") or _UNKNOWN,
        limits=_of(part, "limits") or _UNKNOWN,
        goes_with=with_rules,
    )


def _of(part: Any, name: str, otherwise: Any = "") -> Any:
    """What a part declares; parts of others may declare nothing, or derive from nothing."""
    return getattr(part, name, otherwise)


def _tells(part: Any) -> bool:
    """Whether `privacy.identity` matters to a rule."""
    return isinstance(part, type) and issubclass(part, ScoreRule)


def _about(part: Any) -> str:
    """The first sentence of a part's docstring."""
    first = (getattr(part, "__doc__", None) or "").strip().split("\n\n")[0]
    return " ".join(first.split())


def _needed(needs: frozenset[str]) -> str:
    """Needs in the words of `covey.parts.NEEDS`; others by their names."""
    known = [words for need, words in NEEDS.items() if need in needs]
    return ", ".join([*known, *sorted(needs - set(NEEDS))])


def _rule_costs(needs: frozenset[str], uploads: int, announcements: tuple[str, ...]) -> str:
    if uploads:
        return f"{_count(uploads, 'noised upload')} per user and announcement"
    if announcements:
        return "that of privacy.identity"
    return "a charge of its own" if "charge" in needs else "0"


def _passes(name: str, uploads: int) -> str:
    """Passes of one sample in a round with an announcement; an upload takes a pass of every sample."""
    rule = _built([f"clustering.rule={name}"])
    if rule is None:
        return _UNKNOWN
    tasks = rule.scenario.network.tasks
    scored = float(rule.passes(1, np.array([_SAMPLES]))[0]) / _SAMPLES
    share = "" if scored == tasks else f"{scored / tasks:.2g} "
    words = [f"{share}K"] * (scored > 0) + [f"{uploads}"] * (uploads > 0)
    return f"{' + '.join(words)} per sample" if words else "none"


def _made(name: str, rules: Sequence[str]) -> Announcement | None:
    """The announcement as made for the first rule that it goes with."""
    for rule in rules:
        built = _built([f"clustering.rule={rule}", f"privacy.identity={name}", f"clustering.batch={_BATCH}"])
        if isinstance(built, ScoreRule):
            return built.announcement
    return None


def _built(overrides: list[str]) -> Rule | None:
    try:
        return build_rule(load_scenario(_SCENARIO, overrides))
    except Exception:  # a part of somebody else may do anything wrong; the table goes on without its numbers
        return None


def _announcement_costs(made: Announcement | None) -> str:
    if made is None:
        return _UNKNOWN
    if not made.protected:
        return "nothing is charged, and nothing is protected"
    return f"{made.rho:g} per announcement with the defaults" if made.rho > 0 else "0"


def _scored(made: Announcement | None) -> str:
    """The samples that are looked at."""
    if made is None:
        return _UNKNOWN
    scored = int(made.scored(np.array([_SAMPLES]))[0])
    return {0: "none", _BATCH: "on clustering.batch samples", _SAMPLES: "on all samples"}.get(scored, _UNKNOWN)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
