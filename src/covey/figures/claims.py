"""The paper's claims, our estimates, and the verdict rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from covey.evaluation import Estimate

Verdict = Literal["reproduced", "direction only", "not reproduced", "not testable"]

#: Differences smaller than this, in the unit of the claim, count as none.
SAME = 5.0

#: Verdicts on our own claims: there is no published number to reproduce.
OWN: dict[Verdict, str] = {
    "reproduced": "holds",
    "direction only": "holds",
    "not reproduced": "does not hold",
    "not testable": "not decided",
}

#: The verdict rules, for the results page.
RULES = (
    "A claim with a number is *reproduced* if our whole 95 % interval is on the claimed side of zero and reaches the"
    " number, *direction only* if it is on that side but stays short of the number, *not testable* if it holds both"
    " zero and the number, so that nothing can be said, and *not reproduced* otherwise. Without a number, a difference"
    f" below {SAME:g} points or per cent counts as none. A claim of equality is *reproduced* if the whole interval is"
    f" within {SAME:g} of zero, *not reproduced* if all of it is outside, and *not testable* otherwise. One seed makes"
    " no interval, so nothing can be tested with it."
)


@dataclass(frozen=True)
class Claim:
    """One claim.

    figure: of the paper; claim: in our words; paper: its number with unit, as text; quantity: what `estimate` measures;
    unit: of the estimate; reason: evidence from our data, with numbers; setting: data and size of the experiment;
    level: whether the estimate is a level, which needs no sign, instead of a difference.
    """

    figure: str
    claim: str
    paper: str
    quantity: str
    unit: str
    estimate: Estimate | None
    verdict: Verdict
    reason: str
    setting: str
    level: bool = False

    @property
    def here(self) -> str:
        """The estimate as text."""
        return words(self.estimate, self.unit, signed=not self.level)

    @property
    def said(self) -> str:
        """The verdict as text; our own claims hold or do not hold."""
        return self.verdict if self.figure.isdigit() else OWN[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-serialisable dictionary."""
        values = {key: value for key, value in vars(self).items() if key != "estimate"}
        return values | {"estimate": None if self.estimate is None else self.estimate.to_dict()}


def judge(estimate: Estimate | None, claimed: float) -> Verdict:
    """The verdict on a claimed difference, whose sign is the sign of `claimed`."""
    if estimate is None or estimate.n < 2:
        return "not testable"
    low, high = _towards(estimate, claimed)
    if low > 0.0:
        return "reproduced" if high >= abs(claimed) else "direction only"
    return "not testable" if high >= abs(claimed) else "not reproduced"


def judge_side(estimate: Estimate | None, side: int, margin: float = SAME) -> Verdict:
    """The verdict on a claim that something is higher (1) or lower (-1), without a number."""
    if estimate is None or estimate.n < 2:
        return "not testable"
    low, high = _towards(estimate, side)
    if low > 0.0:
        return "reproduced"
    return "not testable" if high >= margin else "not reproduced"


def _towards(estimate: Estimate, side: float) -> tuple[float, float]:
    """The interval, with its sign flipped if the claimed direction is negative."""
    return (estimate.low, estimate.high) if side > 0 else (-estimate.high, -estimate.low)


def judge_equal(estimate: Estimate | None, margin: float = SAME) -> Verdict:
    """The verdict on a claimed equality."""
    if estimate is None or estimate.n < 2:
        return "not testable"
    if -margin <= estimate.low and estimate.high <= margin:
        return "reproduced"
    if estimate.low > margin or estimate.high < -margin:
        return "not reproduced"
    return "not testable"


def words(estimate: Estimate | None, unit: str, digits: int = 1, *, signed: bool = True) -> str:
    """An estimate as text: +3.4 ± 1.3 %, n = 10."""
    if estimate is None:
        return "no data"
    value = f"{estimate.value:{'+' if signed else ''},.{digits}f}"
    half = f" ± {estimate.half_width:,.{digits}f}" if estimate.n > 1 else ""
    return f"{value}{half} {unit}".rstrip() + f", n = {estimate.n}"
