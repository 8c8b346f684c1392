"""How tables came to be what they are: their versions over time, read from the source's schema log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import dict_row

from penstock.errors import ConfigError
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, translated_errors
from penstock.schema.definitions import Definition
from penstock.schema.kinds import SchemaChange, TableChange
from penstock.schema.log.row import SchemaLogRow, changes
from penstock.schema.words import in_words

_COLUMNS = 'id, at, lsn, xid, "role", tag, statement, search_path, objects, "tables", types, error'
_ROWS = f"select {_COLUMNS} from penstock.schema_log order by id"
# By the table's oid, so that renames do not break its history.
_NAMED = """
select distinct t ->> 'oid' as oid from penstock.schema_log l, jsonb_array_elements(l.tables) as t, lateral (
    values (t -> 'before'), (t -> 'after')) as d (definition)
where (d.definition ->> 'schema') || '.' || (d.definition ->> 'table') = %(table)s
union
select oid::text from penstock.table_definitions
where (definition ->> 'schema') || '.' || (definition ->> 'table') = %(table)s
"""
_ROWS_OF_TABLE = f"""
with named as ({_NAMED})
select {_COLUMNS} from penstock.schema_log l
where exists (select from jsonb_array_elements(l.tables) as t join named on named.oid = t ->> 'oid')
order by id
"""


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
    oids = oids_of(connection, name) if name is not None else None
    if oids is not None and not oids:
        raise ConfigError(f'The schema log knows no table "{name}".', "Write it as schema.table, without quotes.")
    for row in rows(connection, name):
        yield _version(row, oids)


def definition_at(connection: Connection, table: str, lsn: LSN) -> Definition | None:
    """The table of this name as of a position; None if there was none of that name then."""
    _require_log(connection)
    name = _qualified(table)
    for oid in oids_of(connection, name):
        found = _definition_at(connection, oid, name, lsn)
        if found is not None and str(found.name) == name:
            return found
    return None


def _definition_at(connection: Connection, oid: int, name: str, lsn: LSN) -> Definition | None:
    """What the last command up to there left; before the first one, what that found; without any, what there is."""
    told = [(row.lsn, entry) for row in rows(connection, name) for entry in row.tables if entry.oid == oid]
    if not told:
        return known_definitions(connection).get(oid)
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
    if not present(connection):
        raise ConfigError(
            "The source has no schema log.", "Run `penstock init` with a role that may create event triggers."
        )


def rows(connection: Connection, table: str | None = None) -> Iterator[SchemaLogRow]:
    """The log in its order; with ``table``, only what concerns a table that is, or was once, called ``schema.table``."""
    query = _ROWS if table is None else _ROWS_OF_TABLE
    with translated_errors("Reading the schema log"), connection.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(query.encode(), {"table": table}):
            yield SchemaLogRow.parse(row)


def present(connection: Connection) -> bool:
    """Whether there is a log to read; it may be that no triggers write it."""
    with translated_errors("Looking for the schema log"):
        query = (
            "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace "
            "where n.nspname = 'penstock' and c.relname = 'schema_log')"
        )
        return connection.execute(query).fetchone() == (True,)


def oids_of(connection: Connection, table: str) -> set[int]:
    """The tables that are, or were once, called ``schema.table``. There may be several: dropped, renamed, made anew."""
    with translated_errors("Reading the schema log"):
        return {int(oid) for (oid,) in connection.execute(_NAMED.encode(), {"table": table})}


def known_definitions(connection: Connection) -> dict[int, Definition]:
    """Every user table as of the last command, by oid."""
    with translated_errors("Reading the definitions of tables"):
        found = connection.execute("select oid, definition from penstock.table_definitions")
        return {oid: Definition.from_json(definition) for oid, definition in found}
