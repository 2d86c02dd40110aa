"""Formatting of numbers, units and counts; NaN and infinity get a word."""

from __future__ import annotations

import math

#: Description of each kind of violation, in the order of `VIOLATION_KINDS`.
VIOLATION_WORDS: dict[str, str] = {
    "unable": "chosen by a station that cannot run the task",
    "beyond_blocks": "chosen beyond the station's number of blocks",
    "selected_twice": "chosen by more than one station",
    "no_block": "left without a block at the rate floor",
    "no_broadcast": "in a broadcast beyond the downlink limit",
}

#: Short names for legends.
VIOLATION_NAMES: dict[str, str] = {
    "unable": "task not run there",
    "beyond_blocks": "more users than blocks",
    "selected_twice": "chosen twice",
    "no_block": "no block",
    "no_broadcast": "no broadcast slot",
}

_PREFIXES = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "\N{MICRO SIGN}"), (1e-9, "n"))


def number(value: float | None, digits: int = 3) -> str:
    """`digits` significant digits; "none" for None or NaN, "unlimited" for infinity."""
    if value is None or math.isnan(value):
        return "none"
    if math.isinf(value):
        return "unlimited" if value > 0 else "minus unlimited"
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        return f"{value:,.{decimals}f}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def whole(value: float) -> str:
    """A count."""
    return f"{value:,.0f}"


def percent(share: float | None) -> str:
    """A fraction as a percentage."""
    if share is None or math.isnan(share):
        return "none"
    return f"{100 * share:.1f} %"


def quantity(value: float | None, unit: str) -> str:
    """A value with its SI prefix, e.g. "12.3 ms"."""
    if value is None or not math.isfinite(value):
        return number(value)
    if value == 0:
        return f"0 {unit}"
    size, prefix = prefix_of(value)
    return f"{number(value / size)} {prefix}{unit}"


def prefix_of(value: float) -> tuple[float, str]:
    """The SI prefix for a value, as (factor, symbol); (1, "") for 0."""
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return size, prefix
    return (1.0, "") if value == 0 else _PREFIXES[-1]


def seconds(value: float | None) -> str:
    """A duration: milliseconds and seconds, minutes and hours from two minutes on."""
    if value is None or not math.isfinite(value) or value < 120:
        return quantity(value, "s")
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def count(amount: int, noun: str, plural: str | None = None) -> str:
    """ "1 user", "3 users", "no users"."""
    word = noun if amount == 1 else plural or f"{noun}s"
    return f"{amount:,} {word}" if amount else f"no {word}"


def listed(items: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""
