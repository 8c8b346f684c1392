"""Rules of other tools as ours. What has no equivalent is noted, and never silently dropped.

A column whose transform cannot be carried over is excluded: it was to be hidden, and stays so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import ConfigError
from penstock.rules.convert import pg_flo, pgstream
from penstock.rules.convert.converted import Converted, as_yaml
from penstock.settings.document import parse_document

TOOLS: dict[str, Callable[[Any], Converted]] = {"pg_flo": pg_flo.converted, "pgstream": pgstream.converted}

__all__ = ["TOOLS", "Converted", "as_yaml", "convert"]


def convert(tool: str, text: str) -> Converted:
    """ConfigError if the text is not a rules file of that tool."""
    document = parse_document(text)
    if not isinstance(document, dict):
        raise ConfigError(f"is not a rules file of {tool}: expected a mapping")
    return TOOLS[tool](document)
