"""What Penstock keeps about itself in the target of a Postgres sink: the tables of schema ``penstock``.

``penstock.tables`` of a Postgres target: which source table (its oid, which survives a new name) is which target table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.postgres.connection import Connection
from penstock.sinks.mirror.owner import Owner
from penstock.sinks.mirror.records import Dialect, Records

RECORDS = {
    # Up to where the target holds all changes.
    "progress": """pipeline text, sink text, lsn pg_lsn NOT NULL, committed_at timestamptz NOT NULL, source text NOT NULL,
        PRIMARY KEY (pipeline, sink)""",
    # Which source table is which target table, and whether the sink has made it: what somebody else made is never dropped.
    "tables": """pipeline text, sink text, oid bigint, source_schema text NOT NULL, source_table text NOT NULL,
        target_schema text NOT NULL, target_table text NOT NULL, made bool NOT NULL, PRIMARY KEY (pipeline, sink, oid),
        UNIQUE (target_schema, target_table)""",
    # Tables whose import is complete, and up to where that brought them.
    "imports": """pipeline text, sink text, source text NOT NULL, subscription text NOT NULL, oid bigint, job bigint NOT NULL,
        lsn pg_lsn NOT NULL, PRIMARY KEY (pipeline, sink, oid)""",
    # Imports under way, each with the table that it fills, and the numbers of the parts which that table holds.
    "imports_under_way": """pipeline text, sink text, job bigint, source text NOT NULL, subscription text NOT NULL,
        oid bigint NOT NULL, source_schema text NOT NULL, source_table text NOT NULL, target_schema text NOT NULL,
        target_table text NOT NULL, details text NOT NULL, replayed pg_lsn, PRIMARY KEY (pipeline, sink, job)""",
    "import_parts": "pipeline text, sink text, job bigint, number bigint, PRIMARY KEY (pipeline, sink, job, number)",
    # Rows that the target refused. Values are Postgres's texts; a state is open, replayed or superseded.
    "dead_letters": """id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, pipeline text NOT NULL, sink text NOT NULL,
        state text NOT NULL DEFAULT 'open', oid bigint NOT NULL, source_schema text NOT NULL, source_table text NOT NULL,
        op text NOT NULL, key jsonb NOT NULL, "row" jsonb, unchanged text[] NOT NULL, relation jsonb NOT NULL,
        lsn pg_lsn NOT NULL, sequence bigint NOT NULL, reason text NOT NULL, sqlstate text, constraint_name text,
        at timestamptz NOT NULL DEFAULT clock_timestamp(), settled_at timestamptz""",
}
_INDEXES = {"dead_letters": "(pipeline, sink, oid) WHERE state = 'open'"}


def create_records(connection: Connection) -> None:
    """Looks first: to create what is there needs a right that whoever fills it may lack."""
    if _missing(connection):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('penstock.progress'))")
            if "" in _missing(connection):
                connection.execute("CREATE SCHEMA penstock")
            for name in filter(None, _missing(connection)):
                connection.execute(f"CREATE TABLE penstock.{name} ({RECORDS[name]})".encode())
                if name in _INDEXES:
                    connection.execute(f"CREATE INDEX ON penstock.{name} {_INDEXES[name]}".encode())


def has_records(connection: Connection) -> bool:
    return not _missing(connection)


def _missing(connection: Connection) -> list[str]:
    """Of schema (the empty name) and tables."""
    found = {
        name
        for (name,) in connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace('penstock') "
            "UNION ALL SELECT '' FROM pg_namespace WHERE nspname = 'penstock'"
        )
    }
    return [name for name in ("", *RECORDS) if name not in found]


_DIALECT = Dialect(placeholder="%s", row_lock="FOR UPDATE", if_absent="ON CONFLICT DO NOTHING")


def records_of(connection: Connection, owner: Owner, origin: str = "", subscription: str = "") -> Records:
    def execute(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description is not None else []

    return Records(execute, _DIALECT, owner, origin, subscription)


Name = tuple[str, str]  # schema and table


class Record(NamedTuple):
    schema: str
    table: str
    made: bool  # by the sink: what somebody else made is never dropped

    @property
    def name(self) -> Name:
        return self.schema, self.table


class TableRecords:
    """Those of one sink, inside the caller's transaction."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def of_oid(self, connection: Connection, oid: int) -> Record | None:
        row = connection.execute(
            "SELECT target_schema, target_table, made FROM penstock.tables "
            "WHERE (pipeline, sink) = (%s, %s) AND oid = %s",
            [*self.owner, oid],
        ).fetchone()
        return Record(*row) if row is not None else None

    def of_name(self, connection: Connection, name: Name) -> tuple[int, bool] | None:
        """The oid of the source's table that is there, and whether the sink has made it."""
        row = connection.execute(
            "SELECT oid::bigint, made FROM penstock.tables "
            "WHERE (pipeline, sink) = (%s, %s) AND target_schema = %s AND target_table = %s",
            [*self.owner, *name],
        ).fetchone()
        return (row[0], row[1]) if row is not None else None

    def all(self, connection: Connection) -> dict[int, Name]:
        """By the source's oid, under the source's names."""
        found = connection.execute(
            "SELECT oid, source_schema, source_table FROM penstock.tables WHERE (pipeline, sink) = (%s, %s)",
            list(self.owner),
        )
        return {oid: (schema, table) for oid, schema, table in found}

    def put(self, connection: Connection, oid: int, name: Name, made: bool) -> None:
        """Under the same name on both sides."""
        records_of(connection, self.owner).refuse_table_of_another(name, name[1])
        connection.execute(
            "DELETE FROM penstock.tables "
            "WHERE (pipeline, sink) = (%s, %s) AND target_schema = %s AND target_table = %s AND oid <> %s",
            [*self.owner, *name, oid],
        )
        connection.execute(
            "INSERT INTO penstock.tables VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (pipeline, sink, oid) DO UPDATE "
            "SET source_schema = excluded.source_schema, source_table = excluded.source_table, "
            "target_schema = excluded.target_schema, target_table = excluded.target_table, made = excluded.made",
            [*self.owner, oid, *name, *name, made],
        )

    def move(self, connection: Connection, oid: int, name: Name) -> None:
        """The table is under another name in the target alone."""
        connection.execute(
            "UPDATE penstock.tables SET target_schema = %s, target_table = %s "
            "WHERE (pipeline, sink) = (%s, %s) AND oid = %s",
            [*name, *self.owner, oid],
        )

    def remove(self, connection: Connection, oid: int) -> None:
        connection.execute(
            "DELETE FROM penstock.tables WHERE (pipeline, sink) = (%s, %s) AND oid = %s", [*self.owner, oid]
        )
