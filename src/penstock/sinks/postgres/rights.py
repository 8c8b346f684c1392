"""The rights that a Postgres sink's role needs on the target, and the GRANTs for those it lacks.

Whether a Postgres sink's target is the source's own database, by whatever name or address it is reached.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Literal

import psycopg
from psycopg import sql

from penstock.errors import SinkRefused, SourceError
from penstock.postgres.connection import Connection, connect, redacted, translated_errors
from penstock.sinks.postgres.records import RECORDS, has_records

Mode = Literal["create", "existing"]
_OF_TABLE = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE")
_OF_RECORD = ("SELECT", "INSERT", "UPDATE", "DELETE")


class Rights:
    """What the role of this connection lacks, as statements that give it; each question is one or two short queries."""

    def __init__(self, connection: Connection, sink: str) -> None:
        self._connection, self._sink = connection, sink

    def require(self, statements: Iterable[str]) -> None:
        """SinkRefused if there are any."""
        if advice := self.advice(statements):
            role = self._connection.info.user
            raise SinkRefused(f'Sink {self._sink}: role "{role}" lacks rights in the target.', advice)

    @staticmethod
    def advice(statements: Iterable[str]) -> str | None:
        """What to do about rights that are lacking; None if there are none."""
        lacking = "; ".join(dict.fromkeys(statements))
        return f"Run there, as owner or superuser: {lacking}; then start again." if lacking else None

    def on_database(self) -> list[str]:
        """For the records in schema penstock, and for temporary tables."""
        lacking = self._lacking("has_database_privilege(current_database(), {})", ("TEMPORARY",))
        if not self._schema_exists("penstock"):
            lacking += self._lacking("has_database_privilege(current_database(), {})", ("CREATE",))
        found = [_grant(lacking, "DATABASE", self._connection.info.dbname, self._role)] if lacking else []
        if self._schema_exists("penstock"):
            found += self.on_schema("penstock", create=not has_records(self._connection))
            for record in RECORDS:
                found += self._on("penstock", record, _OF_RECORD)
        return found

    def on_schema(self, schema: str, create: bool) -> list[str]:
        """``create``: tables are made in it, or the schema itself."""
        if not self._schema_exists(schema):
            lacking = self._lacking("has_database_privilege(current_database(), {})", ("CREATE",))
            return [_grant(lacking, "DATABASE", self._connection.info.dbname, self._role)] if lacking else []
        wanted = ("USAGE", "CREATE") if create else ("USAGE",)
        lacking = self._lacking(
            "has_schema_privilege((SELECT oid FROM pg_namespace WHERE nspname = %s), {})", wanted, schema
        )
        return [_grant(lacking, "SCHEMA", schema, self._role)] if lacking else []

    def on_table(self, schema: str, table: str) -> list[str]:
        """To change its rows; nothing if it does not exist."""
        return [*self.on_schema(schema, create=False), *self._on(schema, table, _OF_TABLE)]

    def for_tables(self, tables: Iterable[tuple[str, str]], mode: Mode, copies: bool) -> list[str]:
        """For the source's tables under the same names, before any of them is there. ``copies``: imports fill tables that
        stand beside them."""
        found = []
        for schema, table in tables:
            there = self._oid(schema, table) is not None
            found += self.on_schema(schema, create=copies or (not there and mode == "create"))
            found += self._on(schema, table, _OF_TABLE)
        return found

    def require_owner(self, schema: str, table: str, alter: sql.Composed) -> None:
        """Only a table's owner may alter it."""
        row = self._connection.execute(
            "SELECT pg_has_role(relowner, 'USAGE'), pg_get_userbyid(relowner)::text FROM pg_class WHERE oid = %s",
            [self._oid(schema, table)],
        ).fetchone()
        if row is not None and not row[0]:
            owner = sql.SQL("ALTER TABLE {} OWNER TO {}").format(sql.Identifier(schema, table), self._role)
            raise SinkRefused(
                f"Sink {self._sink}: table {schema}.{table} of the target has to be altered to fit the source's, and belongs "
                f'to role "{row[1]}", not to "{self._connection.info.user}".',
                f"Run there: {alter.as_string(self._connection)} (or {owner.as_string(self._connection)}); then start again.",
            )

    @property
    def _role(self) -> sql.Identifier:
        return sql.Identifier(self._connection.info.user)

    def _on(self, schema: str, table: str, wanted: Sequence[str]) -> list[str]:
        oid = self._oid(schema, table)
        if oid is None:
            return []
        lacking = self._lacking("has_table_privilege(%s::oid, {})", wanted, oid)
        return [_grant(lacking, "TABLE", (schema, table), self._role)] if lacking else []

    def _lacking(self, question: str, rights: Sequence[str], *of: object) -> list[str]:
        wanted = "SELECT name FROM unnest(%s::text[]) WITH ORDINALITY w (name, place)"
        query = f"{wanted} WHERE NOT {question.format('name')} ORDER BY place"
        return [name for (name,) in self._connection.execute(query.encode(), [list(rights), *of])]

    def _schema_exists(self, schema: str) -> bool:
        query = "SELECT 1 FROM pg_namespace WHERE nspname = %s"
        return self._connection.execute(query, [schema]).fetchone() is not None

    def _oid(self, schema: str, table: str) -> int | None:
        row = self._connection.execute(
            "SELECT c.oid::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname = %s AND relname = %s",
            [schema, table],
        ).fetchone()
        return row[0] if row is not None else None


def _grant(rights: Sequence[str], kind: str, name: str | tuple[str, str], role: sql.Identifier) -> str:
    on = sql.Identifier(name) if isinstance(name, str) else sql.Identifier(*name)
    statement = sql.SQL("GRANT {} ON {} {} TO {}").format(
        sql.SQL(", ").join(sql.SQL(right) for right in rights),
        sql.SQL(kind), on, role,
    )  # fmt: skip
    return statement.as_string()


_SEEN = """
SELECT EXISTS (
    SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
        AND classid = %(high)s::bigint::oid AND objid = %(low)s::bigint::oid
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
"""
_WHICH = "SELECT system_identifier, d.oid FROM pg_control_system(), pg_database d WHERE datname = current_database()"


def refuse_source_as_target(target: Connection, source: str, sink: str) -> bool:
    """SinkRefused if they are the same; False if the source did not answer, so that it is not known yet.

    A lock that is taken here and seen there tells them apart from a server that was made as a copy of the other. A standby
    shows no locks of its primary, which it is still a part of: there, system and database have to differ.
    """
    try:
        with connect(source, application_name=f"penstock {sink}") as connection:
            same = _is_seen(connection, target) or _is_standby_of(connection, target)
    except SourceError:
        return False
    if same:
        raise SinkRefused(
            f"Sink {sink}: the target {redacted(source)} is the source's own database: every change that is written there "
            "would be captured and written again.",
            "Let the sink's `url` name another database.",
        )
    return True


def _is_seen(source: Connection, target: Connection) -> bool:
    high, low = secrets.randbits(31), secrets.randbits(32)
    with translated_errors("Taking a lock on the source"), source.transaction():
        source.execute("SELECT pg_advisory_xact_lock(%s::bigint)", [high << 32 | low])
        row = target.execute(_SEEN, {"high": high, "low": low}).fetchone()
    return bool(row and row[0])


def _is_standby_of(source: Connection, target: Connection) -> bool:
    with translated_errors("Asking the source who it is"):
        row = source.execute("SELECT pg_is_in_recovery()").fetchone()
    if not (row and row[0]):
        return False
    try:
        return source.execute(_WHICH).fetchone() == target.execute(_WHICH).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return False  # neither of them says who it is
