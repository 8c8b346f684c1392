"""Where a table is made in a target, and what its indexes and sequences are called there.

These share one namespace per schema with the tables, so a second table of the same definition needs other names for them.
Names of checks, foreign keys and not-null constraints are the table's own: they are always those of the source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from psycopg import sql

from penstock.schema.table_definition import TableDefinition

_LONGEST = 63  # bytes: NAMEDATALEN - 1


@dataclass(frozen=True)
class Place:
    """A table's schema and name in a target. With a ``suffix`` it stands beside the table whose place it will take."""

    schema: str
    table: str
    suffix: str = ""

    @classmethod
    def of(cls, definition: TableDefinition) -> Place:
        """The same as in the source."""
        return cls(definition.schema, definition.table)

    def beside(self, suffix: str) -> Place:
        """Of a table that will take this one's place: ``orders__import_7`` for the suffix ``__import_7``."""
        return replace(self, suffix=suffix)

    @property
    def taken(self) -> Place:
        """The place that this one will have taken."""
        return replace(self, suffix="")

    @property
    def name(self) -> str:
        return fitted(self.table, self.suffix)

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name)

    def names(self, definition: TableDefinition) -> dict[str, str]:
        """By their names in the source, those of the table's indexes (of constraints, too) and identity sequences."""
        chosen: dict[str, str] = {}
        # Those that keep their form first: ``t_a`` and ``a`` of a table t that is now called u would both be ``u_a``.
        for name in sorted(
            _shared_names(definition), key=lambda name: (not _is_named_after(name, definition.table), name)
        ):
            wanted = self._wanted(name, definition)
            if fitted(wanted, self.suffix) in chosen.values():
                wanted = f"{wanted}_{_digest(name)}"
            chosen[name] = fitted(wanted, self.suffix)
        return chosen

    def _wanted(self, name: str, definition: TableDefinition) -> str:
        if (self.schema, self.table) == (definition.schema, definition.table):
            return name
        if _is_named_after(name, definition.table):
            return self.table + name[len(definition.table) :]
        return f"{self.table}_{name}"  # two tables of different schemas may meet in one


def fitted(name: str, suffix: str = "") -> str:
    """The name with the suffix, cut to what Postgres takes (in UTF-8). What is cut off leaves a digest of the whole name."""
    if len((name + suffix).encode()) <= _LONGEST:
        return name + suffix
    tail = f"_{_digest(name)}{suffix}"
    return name.encode()[: _LONGEST - len(tail.encode())].decode(errors="ignore") + tail


def _shared_names(definition: TableDefinition) -> Iterator[str]:
    if definition.primary_key is not None:
        yield definition.primary_key.name
    yield from (key.name for key in definition.uniques)
    yield from (index.name for index in definition.indexes)
    yield from (column.identity.sequence for column in definition.columns if column.identity is not None)


def _is_named_after(name: str, table: str) -> bool:
    return name.startswith(f"{table}_")


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]
