"""Extras: optional dependencies of some commands and settings, and the error when one is missing."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from covey.errors import MissingExtraError

#: Modules of each user-facing extra; `pyproject.toml` has the versions.
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "fast": ("numba", "llvmlite"),
    "dashboard": ("fastapi", "starlette", "uvicorn"),
    "board": ("tensorboard",),
    "masks": ("cryptography",),
    "flower": ("flwr", "httpx", "cryptography"),
    "ray": ("ray",),
}


def has_extra(extra: str) -> bool:
    """Whether all modules of an extra are installed; imports none of them."""
    return all(_is_installed(module) for module in EXTRAS[extra])


def require_extra(extra: str, wanted_by: str) -> None:
    """Raise `MissingExtraError` with the install command unless `extra`, which `wanted_by` needs, is installed."""
    missing = [module for module in EXTRAS[extra] if not _is_installed(module)]
    if missing:
        raise MissingExtraError(
            f"{wanted_by} needs {missing[0]}, which is not installed; get it with: pip install 'covey[{extra}]'"
        )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # ValueError: the module in sys.modules has no __spec__
        return False
