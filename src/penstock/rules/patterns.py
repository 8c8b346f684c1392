"""Names of tables by pattern, and names made from what the patterns caught: ``tenant_*.orders`` to ``all.{1}``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w+)\}|[{}]")
NAMES = ("schema", "table")


def captures(pattern: str, schema: str, table: str) -> tuple[str, ...] | None:
    """What each ``*`` of a qualified pattern stands for, from left to right; None if the table does not match."""
    schema_pattern, _, table_pattern = pattern.partition(".")
    # Part by part, as in config.tables: `public.*` cannot reach into a schema called "public.old".
    found = _match(schema_pattern, schema), _match(table_pattern, table)
    return None if found[0] is None or found[1] is None else (*found[0], *found[1])


def _match(pattern: str, name: str) -> tuple[str, ...] | None:
    match = re.fullmatch("(.*)".join(map(re.escape, pattern.split("*"))), name, re.DOTALL)
    return None if match is None else match.groups()


def stars(pattern: str) -> tuple[int, int]:
    """How many ``*`` its schema and its table have."""
    schema, _, table = pattern.partition(".")
    return schema.count("*"), table.count("*")


def placeholders(template: str) -> list[str]:
    """The names in braces; ValueError if there are braces that are not like ``{1}``."""
    found = []
    for match in _PLACEHOLDER.finditer(template):
        if match[0] in "{}":
            raise ValueError(template)
        if match[1] is not None:
            found.append(match[1])
    return found


def filled(template: str, values: Mapping[str, str]) -> str:
    """The template with the values; ``{{`` and ``}}`` are braces."""
    return _PLACEHOLDER.sub(lambda match: values[match[1]] if match[1] is not None else match[0][0], template)


def values_for(schema: str, table: str, caught: Sequence[str]) -> dict[str, str]:
    return {"schema": schema, "table": table, **{str(number): text for number, text in enumerate(caught, 1)}}
