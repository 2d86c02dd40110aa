"""Content hashes of policies, parts and scenarios, for cache keys.

The digest of a function covers its bytecode (comments and line numbers do not count), its defaults, its closure, and
the globals that its code names, functions of the user's other modules included. An object is hashed as its class and
the state that pickling would save. Code of covey, of Python and of installed packages is hashed by name: the versions
of covey and of the packages that its results depend on are part of every record (`covey.jobs.store`), and other
packages are hashed with their version.

Not covered: attributes accessed by computed names, files and environment variables that the code reads, and
changes to covey's own source without a new version. State that cannot be pickled gets a unique random digest,
so that its result is never taken from the cache.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, Final

from pydantic import BaseModel

from covey.errors import CoveyError
from covey.parts import REGISTRIES
from covey.scenario.first_values import not_at_first

#: Attributes of a class that do not affect its behaviour, or are derived from its methods.
_INCIDENTAL: Final = frozenset({
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__firstlineno__", "__static_attributes__",
    "__dataclass_fields__", "__dataclass_params__", "__match_args__", "__parameters__", "__orig_bases__",
    "__abstractmethods__", "_abc_impl", "__hash__",
})  # fmt: skip


def digest(value: Any) -> str:
    """A digest of JSON-serialisable data, the same in every process."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def identity(value: Any) -> str:
    """A digest of a callable, an object or data; see the module docstring for what it covers.

    Take it before the object is used: mutable state is part of it.
    """
    try:
        return _Walk().of(value).hex()[:16]
    except Exception:
        # Any error: __reduce_ex__ runs arbitrary code.
        return f"unseen-{uuid.uuid4().hex}"


def scenario_digest(scenario: BaseModel) -> str:
    """A digest of a scenario, with the code of its custom parts (`module:attribute`).

    Names, descriptions and values at their defaults do not count, so that a new option keeps the digest. Options whose
    default has changed do not count at their first value (`covey.scenario.first_values`).
    """
    return digest([not_at_first(scenario), dict(_own_parts(scenario.model_dump(mode="json")))])


def _own_parts(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Keys and digests of the custom parts of a scenario, those not built into covey."""
    for registry in REGISTRIES:
        section, _, key = registry.key.partition(".")
        name = (table.get(section) or {}).get(key) if key else None
        if isinstance(name, str) and name not in registry.builtin:
            try:
                part = registry.get(name)
            except CoveyError:
                part = object.__new__(_Unseen)  # the error is reported when the scenario is used
            yield registry.key, identity(part)


class _Unseen:
    """An object that cannot be hashed."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("cannot be hashed")


class _Walk:
    """Hashes an object graph; an object visited before is hashed as the index of its first visit."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[int, Any]] = {}  # holds the values too: an id is unique only while its object lives

    def of(self, value: Any) -> bytes:
        """The digest of a value."""
        if value is None or value is Ellipsis or isinstance(value, (bool, int, float, complex, str, bytes)):
            return _hash(type(value).__name__, repr(value))
        if type(value) is tuple:  # by value: whether equal tuples are one object is incidental
            return _hash("tuple", *map(self.of, value))
        if id(value) in self._met:
            return _hash("met", self._met[id(value)][0])
        self._met[id(value)] = (len(self._met), value)
        if type(value) is list:
            return _hash("list", *map(self.of, value))
        if type(value) is dict:
            return _hash("dict", *(self.of(one) for pair in sorted(value.items(), key=_by_name) for one in pair))
        if isinstance(value, (set, frozenset)):
            return _hash(type(value).__name__, *sorted(_Walk().of(one) for one in value))
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, ModuleType):
            return self._module(value)
        if isinstance(value, (staticmethod, classmethod)):
            return _hash(type(value).__name__, self.of(value.__func__))
        if isinstance(value, property):
            return _hash("property", *map(self.of, (value.fget, value.fset)))
        return self._object(value)

    def _code(self, code: CodeType) -> bytes:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return _hash("code", code.co_code, code.co_exceptiontable, code.co_flags, repr(names), self.of(code.co_consts))

    def _function(self, function: FunctionType) -> bytes:
        named = _known_name(function)
        if named is not None and len(self._met) > 1:
            return named
        bound = [cell.cell_contents if _filled(cell) else None for cell in function.__closure__ or ()]
        used = {
            name: function.__globals__[name] for name in sorted(_names(function.__code__) & set(function.__globals__))
        }
        if named is not None:
            used = {}  # a reference policy of covey: the rest of covey is covered by its version
        attributes = {name: value for name, value in vars(function).items() if name != "__wrapped__"}
        parts = (function.__code__, function.__defaults__, function.__kwdefaults__, bound, attributes, used)
        return _hash("function", function.__module__, function.__qualname__, *map(self.of, parts))

    def _class(self, kind: type) -> bytes:
        named = _known_name(kind)
        if named is not None:
            return named
        own = {
            name: value
            for name, value in sorted(vars(kind).items())
            if name not in _INCIDENTAL and not isinstance(value, (GetSetDescriptorType, MemberDescriptorType))
        }
        return _hash("class", kind.__module__, kind.__qualname__, *map(self.of, kind.__bases__), self.of(own))

    def _module(self, module: ModuleType) -> bytes:
        known = _known(module.__name__)
        if known is not None:
            return _hash("module", known)
        return _hash("module", module.__name__, Path(str(module.__file__)).read_bytes())

    def _object(self, value: Any) -> bytes:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return _hash("tensor", str(value.dtype), self.of(value.detach().cpu().numpy()))
        if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, (ModuleType, type(None))):
            return _hash("builtin", str(value.__module__), value.__qualname__)
        # Compiled or cached functions are hashed as the function they wrap.
        for name in ("py_func", "__wrapped__"):
            if callable(inner := getattr(value, name, None)):
                return _hash(type(value).__qualname__, self.of(inner))
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):
            return _hash("global", type(value).__module__, reduced)
        parts = [list(part) if isinstance(part, Iterator) else part for part in reduced]
        return _hash("object", self.of(type(value)), *map(self.of, parts))


def _hash(*parts: object) -> bytes:
    found = hashlib.sha256()
    for part in parts:
        text = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        found.update(len(text).to_bytes(8, "big") + text)
    return found.digest()


def _by_name(pair: tuple[Any, Any]) -> tuple[str, str]:
    return type(pair[0]).__name__, repr(pair[0])


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _names(code: CodeType) -> set[str]:
    """Names of globals and attributes in a function and its nested functions."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _known_name(value: Any) -> bytes | None:
    """The digest of a function or class that is hashed by name; None for user code."""
    known = _known(str(value.__module__))
    return None if known is None else _hash("known", known, value.__module__, value.__qualname__)


@cache
def _known(module: str) -> str | None:
    """The name a module is hashed by: its package, with the version unless records have it; None for user code."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in ("builtins", "covey"):
        return top
    file = str(getattr(sys.modules.get(module), "__file__", None) or "")
    if "site-packages" not in file and "dist-packages" not in file:
        return None
    versions = [f"{name} {metadata.version(name)}" for name in metadata.packages_distributions().get(top, ())]
    return ", ".join([top, *sorted(set(versions))])
