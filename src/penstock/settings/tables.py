"""Which tables a pipeline takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Protocol

from pydantic import AfterValidator

from penstock.errors import ConfigError
from penstock.settings.base import Section
from penstock.settings.mistakes import mistake


def _qualified(pattern: str) -> str:
    qualified = pattern if "." in pattern else f"public.{pattern}"
    schema, _, table = qualified.partition(".")
    if not schema or not table:
        raise mistake("not a table pattern; write it like public.orders or public.*")
    return qualified


def table_names(names: Sequence[str]) -> list[tuple[str, str]]:
    """Schema and table of names as people type them; unqualified means public."""
    found = []
    for name in names:
        schema, _, table = (name if "." in name else f"public.{name}").partition(".")
        if not schema or not table:
            raise ConfigError(f'"{name}" is not a table\'s name.', "Write it like orders or sales.orders.")
        found.append((schema, table))
    return found


def _matches(pattern: str, name: str) -> bool:
    # Not fnmatch: `?` and `[` are ordinary characters of a table's name.
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


TablePattern = Annotated[str, AfterValidator(_qualified)]


# From a table's columns, by number, to those that are not to be published, with the names that they are left out by.
LeftOut = Callable[[Mapping[int, str]], Mapping[int, str]]


class Selection(Protocol):
    """Whatever says which tables are wanted, and which of their columns."""

    def selects(self, schema: str, table: str) -> bool: ...

    def left_out(self, oid: int, schema: str, table: str) -> LeftOut | None:
        """None: all columns of the table are wanted."""


class TableSelection(Section):
    """Patterns ``schema.table`` in which ``*`` stands for any characters; unqualified means public."""

    include: tuple[TablePattern, ...] = ("public.*",)
    exclude: tuple[TablePattern, ...] = ()

    def selects(self, schema: str, table: str) -> bool:
        return any(_selects(p, schema, table) for p in self.include) and not any(
            _selects(p, schema, table) for p in self.exclude
        )

    def left_out(self, oid: int, schema: str, table: str) -> LeftOut | None:
        return None


def _selects(pattern: str, schema: str, table: str) -> bool:
    # Part by part, so that `public.*` cannot reach into a schema called "public.old".
    schema_pattern, _, table_pattern = pattern.partition(".")
    return _matches(schema_pattern, schema) and _matches(table_pattern, table)
