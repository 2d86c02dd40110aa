"""Whether an object has the interface of its kind of part: base class, methods, and what they can be called with."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def why_not_callable(part: object, given: int, named: tuple[str, ...] = ()) -> str:
    """Why `part` cannot be called with that many arguments and these named ones, as the end of a sentence; or ''."""
    if not callable(part):
        return f"is {part!r}, which cannot be called"
    try:
        inspect.signature(part).bind(*[None] * given, **dict.fromkeys(named))
    except TypeError as error:
        more = f" and {', '.join(named)}" if named else ""
        return f"cannot be called with {given} arguments{more} ({error})"
    except ValueError:
        pass  # a callable without a signature, of a compiled module
    return ""


def why_not(part: object, interface: str) -> str:
    """Why `part` is not an object of `interface`, a class as `module:Class`, as the end of a sentence; or ''.

    A protocol asks for its methods only, any other class for objects derived from it. Methods must take the arguments
    of the method that they stand for.
    """
    kind, expected = _expected(interface)
    if not getattr(kind, "_is_protocol", False) and not isinstance(part, kind):
        made = part.__name__ if isinstance(part, type) else type(part).__name__
        return f"gives {made}, which is not derived from {kind.__module__}.{kind.__name__}"
    for known in type(part).__mro__:
        if known.__module__.startswith("covey."):
            expected = {**_methods(known), **expected}
    for name, (given, named) in expected.items():
        if not hasattr(part, name):
            return f"has no `{name}`"
        if why := why_not_callable(getattr(part, name), given, named):
            return f"has a `{name}` that {why}"
    return ""


@cache
def _expected(interface: str) -> tuple[type, dict[str, tuple[int, tuple[str, ...]]]]:
    """The class, and the methods that any object of it has."""
    module, _, name = interface.partition(":")
    kind: type = getattr(import_module(module), name)
    methods = {name: call for known in reversed(kind.__mro__) for name, call in _methods(known).items()}
    return kind, methods


@cache
def _methods(kind: type) -> dict[str, tuple[int, tuple[str, ...]]]:
    """For each public method that a class of covey defines: number of arguments after self, and names of others."""
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for name, method in vars(kind).items():
        if name.startswith("_") or not inspect.isfunction(method) or not kind.__module__.startswith("covey."):
            continue
        found[name] = _call(method)
    return found


def _call(method: Callable[..., Any]) -> tuple[int, tuple[str, ...]]:
    parameters = list(inspect.signature(method).parameters.values())[1:]
    ordered = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = tuple(one.name for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY)
    return sum(one.kind in ordered for one in parameters), named
