"""Faults of parts that others wrote: one sentence that names the key, the part and what it raised.

Errors of covey's own parts are mistakes in covey and pass through unchanged, as do all errors raised on purpose.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import FrameType, TracebackType
from typing import Any, Self

from covey.errors import CoveyError
from covey.parts import Registry


@dataclass(frozen=True)
class Named:
    """A part of a run: of which kind, called what, and the object or function itself."""

    registry: Registry
    name: str
    part: Any

    @classmethod
    def of(cls, registry: Registry, part: Any, scenario: Any = None) -> Self:
        """A part with the name that the scenario gives it; where it gives none, with module and class."""
        section, _, key = registry.key.partition(".")
        name = getattr(getattr(scenario, section, None), key, None)
        owner = part if hasattr(part, "__qualname__") else type(part)
        stranger = isinstance(name, str) and name not in registry.builtin
        return cls(registry, str(name) if stranger else f"{owner.__module__}:{owner.__qualname__}", part)

    @property
    def own(self) -> bool:
        """Whether somebody else than covey wrote it."""
        owner = self.part if hasattr(self.part, "__qualname__") else type(self.part)
        return not str(owner.__module__).startswith("covey.")

    @property
    def subject(self) -> str:
        """The part as the beginning of a sentence, with its key where it has one."""
        key = self.registry.key
        return f'{key} = "{self.name}"' if "." in key else f'the {self.registry.words} "{self.name}"'

    def runs(self, frame: FrameType) -> bool:
        """Whether a frame is of this function, or of a method of this object."""
        code = frame.f_code
        if getattr(self.part, "__code__", None) is code:
            return True
        first = code.co_varnames[0] if code.co_argcount else None
        return first is not None and frame.f_locals.get(first) is self.part

    def failed(self, when: str, error: BaseException) -> CoveyError:
        """The error for what this part raised."""
        said = " ".join(str(error).split())
        hint = ""
        if isinstance(error, ValueError) and "read-only" in said:
            hint = "; it wrote into an array of the run, which is read-only: let it change a copy"
        return self.registry.error(
            f"{self.subject} failed {when}: {type(error).__name__}: {said}{hint}; COVEY_DEBUG=1 shows where"
        )


@contextmanager
def named_faults(parts: Callable[[], Sequence[Named]], when: str) -> Iterator[None]:
    """Turn whatever one of these parts raises into an error that names it; `when` is as in "in round 3".

    The innermost call of a part that is not covey's own is to blame.
    """
    try:
        yield
    except CoveyError:
        raise
    except (Exception, SystemExit) as error:  # sys.exit in a part would end the run as if it had succeeded
        strangers = [named for named in parts() if named.own]
        blamed = _blamed(strangers, error.__traceback__)
        if blamed is None:
            raise
        raise blamed.failed(when, error) from error


@contextmanager
def unchanged(named: Named, called: str) -> Iterator[None]:
    """Refuse a part whose attributes change in its method `called`, where the change would be lost.

    What an object remembers is neither saved with a run nor known to other worker processes. Values of
    `functools.cached_property` are no memory.
    """
    before = _attributes(named.part)
    yield
    after = _attributes(named.part)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if changed:
        raise named.registry.error(
            f"{named.subject} changed its attribute '{changed[0]}' in `{called}`, which is lost in other worker"
            f" processes and when a run is resumed; let `{called}` depend on its argument alone, and keep caches"
            " outside of the object"
        )


def _attributes(part: Any) -> dict[str, Any]:
    """What tells the values of an object's attributes, by name: pickled, or their identity where that fails."""
    found: dict[str, Any] = {}
    for name, value in getattr(part, "__dict__", {}).items():
        if name == "scenario" or isinstance(getattr(type(part), name, None), cached_property):
            continue
        try:
            found[name] = pickle.dumps(value)
        except Exception:  # whatever somebody's `__reduce__` raises
            found[name] = id(value)
    return found


def _blamed(parts: Sequence[Named], traceback: TracebackType | None) -> Named | None:
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return next((named for frame in reversed(frames) for named in parts if named.runs(frame)), None)
