"""How tables came to be what they are: their versions over time, read from the source's schema log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.errors import ConfigError
from penstock.lsn import LSN
from penstock.postgres.connection import Connection
from penstock.schema.definitions import Definition
from penstock.schema.kinds import SchemaChange, TableChange
from penstock.schema.log import triggers as schema_log
from penstock.schema.log.row import SchemaLogRow, changes
from penstock.schema.words import in_words


@dataclass(frozen=True)
class Version:
    """A command that changed something. ``lsn`` is the command's, before its transaction's commit."""

    lsn: LSN
    at: datetime | str
    role: str
    tag: str
    statement: str | None
    tables: tuple[str, ...]  # what they are called after it, or were called
    changes: tuple[SchemaChange, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "lsn": str(self.lsn),
            "at": self.at.isoformat() if isinstance(self.at, datetime) else self.at,
            "role": self.role,
            "command": self.tag,
            "statement": self.statement,
            "tables": list(self.tables),
            "changes": [{"kind": type(change).__name__, "text": in_words(change)} for change in self.changes],
        }


def versions(connection: Connection, table: str | None = None) -> Iterator[Version]:
    """Oldest first; of all tables, or of one by any name that it ever had (``orders`` is public.orders)."""
    _require_log(connection)
    name = _qualified(table) if table is not None else None
    oids = schema_log.oids_of(connection, name) if name is not None else None
    if oids is not None and not oids:
        raise ConfigError(f'The schema log knows no table "{name}".', "Write it as schema.table, without quotes.")
    for row in schema_log.rows(connection, name):
        yield _version(row, oids)


def definition_at(connection: Connection, table: str, lsn: LSN) -> Definition | None:
    """The table of this name as of a position; None if there was none of that name then."""
    _require_log(connection)
    name = _qualified(table)
    for oid in schema_log.oids_of(connection, name):
        found = _definition_at(connection, oid, name, lsn)
        if found is not None and str(found.name) == name:
            return found
    return None


def _definition_at(connection: Connection, oid: int, name: str, lsn: LSN) -> Definition | None:
    """What the last command up to there left; before the first one, what that found; without any, what there is."""
    told = [(row.lsn, entry) for row in schema_log.rows(connection, name) for entry in row.tables if entry.oid == oid]
    if not told:
        return schema_log.known_definitions(connection).get(oid)
    upto = [entry for at, entry in told if at <= lsn]
    return upto[-1].after if upto else told[0][1].before


def _version(row: SchemaLogRow, oids: set[int] | None) -> Version:
    wanted = [entry for entry in row.tables if oids is None or entry.oid in oids]
    names = tuple(str(one.name) for entry in wanted if (one := entry.after or entry.before))
    found = tuple(
        change
        for change in changes(row)
        if oids is None or (isinstance(change, TableChange) and change.table.oid in oids)
    )
    return Version(row.lsn, row.at, row.role, row.tag, row.statement, names, found)


def _qualified(table: str) -> str:
    return table if "." in table else f"public.{table}"


def _require_log(connection: Connection) -> None:
    if not schema_log.present(connection):
        raise ConfigError(
            "The source has no schema log.", "Run `penstock init` with a role that may create event triggers."
        )
