"""``${VAR}`` and ``${VAR:-default}`` in the values of a parsed document, so that a value never alters its structure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from penstock.config.mistakes import Path
from penstock.errors import ConfigError

_REFERENCE = re.compile(r"\$(?:\$|\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}|\{)", re.ASCII)


class Expansion:
    """Expands a document. ``mistakes``: what could not be expanded, by its path."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.mistakes: dict[Path, str] = {}
        self._environ = environ
        self._open: set[int] = set()  # containers being walked: an anchor can make one contain itself

    def expand(self, value: Any, path: Path = ()) -> Any:
        if isinstance(value, str):
            return self._expand_text(value, path)
        if not isinstance(value, dict | list):
            return value
        if id(value) in self._open:
            raise ConfigError("an anchor contains an alias of itself; write it out")
        self._open.add(id(value))
        try:
            if isinstance(value, dict):
                return {key: self.expand(item, (*path, str(key))) for key, item in value.items()}
            return [self.expand(item, (*path, index)) for index, item in enumerate(value)]
        finally:
            self._open.discard(id(value))

    def _expand_text(self, text: str, path: Path) -> str:
        missing: list[str] = []

        def replacement(match: re.Match[str]) -> str:
            name, has_default, default = match.groups()
            if match[0] == "$$":
                return "$"
            if name is None:
                missing.append("not a variable; write ${NAME} or ${NAME:-default}, or $$ for a dollar sign")
                return match[0]
            # As in a shell, `:-` stands in for an empty variable too.
            value = self._environ.get(name, "") or default if has_default else self._environ.get(name)
            if value is None:
                missing.append(f"variable {name} is not set; set it or write ${{{name}:-default}}")
                return match[0]
            return value

        expanded = _REFERENCE.sub(replacement, text)
        if missing:
            self.mistakes[path] = missing[0]
        return expanded
