"""The type of keys that name a part: accepts known names and `module:attribute`, otherwise suggests a name."""

from __future__ import annotations

from typing import Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler

from covey.errors import CoveyError
from covey.parts import Registry


class PartName:
    """Annotates a string that names a part of `registry`; nothing is imported to check it.

    Without `own`, `module:attribute` is refused. In the JSON schema, `examples` are the names known when it is
    generated.
    """

    def __init__(self, registry: Registry, *, own: bool = True) -> None:
        self._registry, self._own = registry, own

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """The schema of a string, followed by the check of the name."""
        return AfterValidator(self._known).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """A string with the known names as examples."""
        return {**handler(schema), "examples": list(self._registry.names)}

    def _known(self, name: str) -> str:
        try:
            return self._registry.check(name, own=self._own)
        except CoveyError as error:
            raise ValueError(str(error)) from None
