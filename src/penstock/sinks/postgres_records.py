"""What Penstock keeps about itself in the target of a Postgres sink: the tables of schema ``penstock``."""

from __future__ import annotations

from penstock.postgres.connection import Connection

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
        target_table text NOT NULL,
        indexed bool NOT NULL DEFAULT false, replayed pg_lsn, PRIMARY KEY (pipeline, sink, job)""",
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
