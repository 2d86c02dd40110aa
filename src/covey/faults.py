"""Faults of parts that others wrote: one sentence that names the key, the part and what it raised.

Errors of covey's own parts are mistakes in covey and pass through unchanged, as do all errors raised on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
        key = self.registry.key
        subject = f'{key} = "{self.name}"' if "." in key else f'the {self.registry.words} "{self.name}"'
        return self.registry.error(
            f"{subject} failed {when}: {type(error).__name__}: {said}{hint}; COVEY_DEBUG=1 shows where"
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


def _blamed(parts: Sequence[Named], traceback: TracebackType | None) -> Named | None:
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    return next((named for frame in reversed(frames) for named in parts if named.runs(frame)), None)
