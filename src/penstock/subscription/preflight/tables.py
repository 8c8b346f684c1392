"""The part of ``preflight`` that looks at tables: which are captured, how far, and what of them stays text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from psycopg import sql

from penstock.findings import Finding
from penstock.postgres.catalog import TypeInfo, resolve_types
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.tables import Survey, Table, survey
from penstock.settings.tables import Selection, TableSelection
from penstock.subscription.ownership import foreign_tables, remedy

_SHOWN = 20


def check_tables(
    connection: Connection, selection: Selection, publications: Sequence[str], copies: bool = False
) -> Iterator[Finding]:
    """``copies``: the tables' rows are to be copied, so that not being able to read one is a failure."""
    found = survey(connection, TableSelection(include=("*.*",)) if publications else selection)
    tables = published_tables(connection, found.tables, publications) if publications else list(found.tables)
    yield _count(tables, publications)
    yield from _identities(connection, tables)
    if not publications:
        yield from _left_out(found)
        yield from check_owners(connection, tables)
    if copies:
        yield from _keys(tables)
    yield from _readable(connection, tables, copies)
    yield from _row_security(connection, tables, copies)
    yield from _types(connection, tables)


def published_tables(connection: Connection, tables: Sequence[Table], publications: Sequence[str]) -> list[Table]:
    with translated_errors("Reading the tables of the publications"):
        rows = connection.execute(
            "select distinct schemaname, tablename from pg_publication_tables where pubname = any(%s)",
            [list(publications)],
        ).fetchall()
    names = set(rows)
    return [table for table in tables if (table.schema, table.table) in names]


def _count(tables: Sequence[Table], publications: Sequence[str]) -> Finding:
    if tables:
        return Finding("tables", True, f"Tables captured: {len(tables)}.")
    remedy = "Add tables to the publication." if publications else "Correct source.tables, or create the tables."
    return Finding("tables", None, "No table is captured.", remedy)


def _identities(connection: Connection, tables: Sequence[Table]) -> Iterator[Finding]:
    for table in tables:
        if not table.has_usable_identity:
            name = sql.Identifier(table.schema, table.table).as_string(connection)
            yield Finding(
                "identity", None,
                f"{table.qualified_name} has no usable replica identity: of its changes only inserts are captured.",
                f"Give it a primary key, or run: ALTER TABLE {name} REPLICA IDENTITY FULL;",
            )  # fmt: skip


def _left_out(found: Survey) -> Iterator[Finding]:
    ordered = sorted(found.left_out, key=lambda left: (left.reason, left.qualified_name))
    for reason, group in groupby(ordered, key=lambda left: left.reason):
        names = [left.qualified_name for left in group]
        yield Finding("left out", None, f"Not captured: {_some(names)} ({reason}).")


def check_owners(connection: Connection, tables: Sequence[Table]) -> Iterator[Finding]:
    """Only its owner may publish a table."""
    foreign = foreign_tables(connection, [table.oid for table in tables])
    for owner, group in groupby(sorted(foreign, key=lambda table: table.owner), key=lambda table: table.owner):
        some = list(group)
        names = _some([table.qualified_name for table in some])
        message = f"The role {some[0].role} does not own {names} (of {owner}), and only its owner may publish a table."
        yield Finding("ownership", False, message, remedy(some[:_SHOWN]))


def _keys(tables: Sequence[Table]) -> Iterator[Finding]:
    if names := [table.qualified_name for table in tables if not table.has_key]:
        message = (
            f"Without a key: {_some(names)}. Such a table is copied in one transaction, which takes as long as the copy and "
            "holds back vacuum meanwhile."
        )
        yield Finding("key", None, message, "Give it a primary key, or a unique index as its replica identity.")


def _readable(connection: Connection, tables: Sequence[Table], copies: bool) -> Iterator[Finding]:
    rows = _ask(
        connection,
        "select n.nspname, c.relname, current_user, has_schema_privilege(n.oid, 'usage') from pg_class c "
        "join pg_namespace n on n.oid = c.relnamespace "
        "where c.oid = any(%s::oid[]) and not (has_table_privilege(c.oid, 'select') "
        "and has_schema_privilege(n.oid, 'usage')) order by 1, 2",
        tables,
    )
    if rows:
        names = _some([f"{schema}.{table}" for schema, table, *_ in rows])
        message = f"The role may not read {names}: it cannot be copied."
        remedy = f"As an administrator run: {_reading_grants(connection, rows[:_SHOWN])}"
        yield Finding("reading", False if copies else None, message, remedy)


def _reading_grants(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> str:
    """One statement for the schemas that may not be used, and one for the tables."""
    role = sql.Identifier(rows[0][2])
    schemas = [sql.Identifier(name) for name in dict.fromkeys(schema for schema, _, _, usable in rows if not usable)]
    tables = [sql.Identifier(schema, table) for schema, table, *_ in rows]
    usage = sql.SQL("GRANT USAGE ON SCHEMA {} TO {}; ").format(sql.SQL(", ").join(schemas), role)
    select = sql.SQL("GRANT SELECT ON {} TO {};").format(sql.SQL(", ").join(tables), role)
    return ((usage if schemas else sql.SQL("")) + select).as_string(connection)


def _row_security(connection: Connection, tables: Sequence[Table], copies: bool) -> Iterator[Finding]:
    """A policy that applies to the role would make the copy smaller than the table; we are refused instead."""
    rows = _ask(
        connection,
        "select n.nspname || '.' || c.relname, current_user from pg_class c "
        "join pg_namespace n on n.oid = c.relnamespace "
        "where c.oid = any(%s::oid[]) and row_security_active(c.oid) order by 1",
        tables,
    )
    if rows:
        names, role = _some([name for name, _ in rows]), sql.Identifier(rows[0][1])
        message = f"Row security hides rows of {names} from the role: it cannot be copied."
        grant = sql.SQL("ALTER ROLE {} BYPASSRLS;").format(role).as_string(connection)
        yield Finding("row security", False if copies else None, message, f"As an administrator run: {grant}")


def _types(connection: Connection, tables: Sequence[Table]) -> Iterator[Finding]:
    """Types that no sink has a type of its own for: their values arrive as Postgres's text, which loses nothing."""
    rows = _ask(
        connection,
        "select n.nspname || '.' || c.relname || '.' || a.attname, a.atttypid from pg_attribute a "
        "join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace "
        "where c.oid = any(%s::oid[]) and a.attnum > 0 and not a.attisdropped order by n.nspname, c.relname, a.attnum",
        tables,
    )
    types = resolve_types(connection, {oid for _, oid in rows})
    text = [f"{column} ({types[oid].name})" for column, oid in rows if oid in types and "other" in _bases(types[oid])]
    if text:
        yield Finding("types", True, f"These columns are delivered as text: {_some(text)}.")


def _bases(resolved: TypeInfo) -> tuple[str, str | None]:
    return resolved.base, resolved.element


def _ask(connection: Connection, query: str, tables: Sequence[Table]) -> list[tuple[Any, ...]]:
    with translated_errors("Checking the tables of the source"):
        return connection.execute(query, [[table.oid for table in tables]]).fetchall()


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
