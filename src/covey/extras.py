"""Extras: packages that only some commands and settings need, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from covey.errors import MissingExtraError

#: Modules that every extra brings, for those a user can meet; `pyproject.toml` has the versions.
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "fast": ("numba", "llvmlite"),
    "dashboard": ("fastapi", "starlette", "uvicorn"),
    "board": ("tensorboard",),
    "masks": ("cryptography",),
    "flower": ("flwr", "httpx", "cryptography"),
    "ray": ("ray",),
}


def has_extra(extra: str) -> bool:
    """Whether all modules of an extra can be imported; none is."""
    return all(_is_there(module) for module in EXTRAS[extra])


def require_extra(extra: str, wanted_by: str) -> None:
    """Raise one sentence with the command that installs `extra`, which `wanted_by` needs, unless it is there."""
    missing = [module for module in EXTRAS[extra] if not _is_there(module)]
    if missing:
        raise MissingExtraError(
            f"{wanted_by} needs {missing[0]}, which is not installed; get it with: pip install 'covey[{extra}]'"
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: somebody has put None in its place in sys.modules
        return False
