"""Penstock's own tables on the source, in schema ``penstock``: made and brought up to date by numbered SQL files.

The files are ``migrations/0001_….sql`` and on; which of them a database has is recorded in ``penstock.migrations``. All
pipelines that read a database share these tables.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files

import psycopg
from psycopg import sql

from penstock.changes.batch import OWN_SCHEMA
from penstock.errors import SourceRefused
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.transactions import gently
from penstock.schema.log import triggers as schema_log
from penstock.subscription.ownership import schema_grants
from penstock.subscription.publication import create_grant
from penstock.subscription.subscription import Leftover, lacks_right

_FILE = re.compile(r"(\d{4})_\w+\.sql")
_LOCK = int.from_bytes(hashlib.sha256(b"penstock migrations").digest()[:8], "big", signed=True)
# What belongs to pipelines, by the words for it.
_KEPT = {"import jobs": "import_jobs", "table choices": "table_choices"}
_OTHERS = (
    "select exists (select from penstock.import_jobs) or exists (select from penstock.table_choices) "
    "or exists (select from penstock.pipelines)"
)


def migrate(connection: Connection) -> list[int]:
    """Brings the schema to the newest version, and says which migrations that took. Two at once wait for each other."""
    if installed(connection):
        return []
    with _advising(connection):
        return gently(connection, f"Creating the schema {OWN_SCHEMA}", lambda: _migrate(connection))


def installed(connection: Connection) -> bool:
    """Whether the schema is there, in the newest version."""
    with _advising(connection), translated_errors(f"Looking for the schema {OWN_SCHEMA}"):
        done = _versions(connection)
    newest = max(_migrations())
    if done and max(done) > newest:
        raise SourceRefused(
            f"The schema {OWN_SCHEMA} on the source is of a newer Penstock: its version is {max(done)}, and this one "
            f"knows up to {newest}.",
            "Use the same version of Penstock for all pipelines of this database.",
        )
    return done >= _migrations().keys()


def register(connection: Connection, pipeline: str) -> None:
    """Notes that the pipeline uses the schema, which stays as long as any does."""
    with _advising(connection), translated_errors(f"Registering the pipeline {pipeline}"):
        connection.execute("insert into penstock.pipelines (name) values (%s) on conflict do nothing", [pipeline])


def remove(connection: Connection, pipeline: str, leftovers: list[Leftover] | None = None) -> list[str]:
    """Removes what the pipeline has in the tables and, if no other has anything there, the tables and the schema.

    Says what it removed. A schema in which there is something else stays. ``leftovers``: takes what the role may not
    remove, which is an error otherwise.
    """
    with translated_errors(f"Looking for the schema {OWN_SCHEMA}"):
        if not _present(connection):
            return []
    try:
        migrate(connection)
        with _advising(connection):
            return gently(
                connection, f"Emptying the schema {OWN_SCHEMA}", lambda: _remove(connection, pipeline, leftovers)
            )
    except SourceRefused as error:
        if leftovers is None or not lacks_right(error):
            raise
    leftovers.append(_rows_left(connection, pipeline))
    return []


def _rows_left(connection: Connection, pipeline: str) -> Leftover:
    """For a role that may not even look into the schema."""
    columns = {**dict.fromkeys(_KEPT.values(), "pipeline"), "pipelines": "name"}
    deletes = (
        sql.SQL("DELETE FROM {} WHERE {} = {};").format(
            sql.Identifier(OWN_SCHEMA, table), sql.Identifier(column), sql.Literal(pipeline)
        )
        for table, column in columns.items()
    )
    statement = sql.SQL(" ").join(deletes).as_string(connection)
    return Leftover(f"what {pipeline} has in the schema {OWN_SCHEMA}", _owner(connection), statement)


def _owner(connection: Connection) -> str:
    row = connection.execute(
        "select pg_get_userbyid(nspowner)::text from pg_namespace where nspname = %s", [OWN_SCHEMA]
    ).fetchone()
    return str(row[0]) if row else ""


@contextmanager
def _advising(connection: Connection) -> Iterator[None]:
    """Says what to do where the role lacks a right, or the server takes no writes."""
    try:
        yield
    except SourceRefused as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            raise SourceRefused(error.message, f"As an administrator run: {_grant(connection)}") from error
        if isinstance(error.__cause__, psycopg.errors.ReadOnlySqlTransaction):
            raise SourceRefused(error.message, "Use the URL of a primary: imports keep their queue there.") from error
        raise


@cache
def _migrations() -> dict[int, str]:
    """By version, the SQL."""
    folder = files("penstock.subscription").joinpath("migrations")
    found = {int(name[1]): file for file in folder.iterdir() if (name := _FILE.fullmatch(file.name))}
    return {version: found[version].read_text("utf-8") for version in sorted(found)}


def _present(connection: Connection) -> bool:
    """Whether the schema is there, in any version. Not by to_regclass, which fails where the role may not use it."""
    query = (
        "select exists (select from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = 'migrations')"
    )
    return connection.execute(query, [OWN_SCHEMA]).fetchone() == (True,)


def _versions(connection: Connection) -> set[int]:
    """Those that the database has."""
    if not _present(connection):
        return set()
    return {version for (version,) in connection.execute("select version from penstock.migrations")}


def _migrate(connection: Connection) -> list[int]:
    connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
    # CREATE SCHEMA IF NOT EXISTS asks for the right to create one even if it exists.
    if connection.execute("select from pg_namespace where nspname = %s", [OWN_SCHEMA]).fetchone() is None:
        connection.execute(sql.SQL("create schema {}").format(sql.Identifier(OWN_SCHEMA)))
    done = _versions(connection)
    if not done:
        connection.execute(
            "create table if not exists penstock.migrations "
            "(version integer primary key, applied_at timestamptz not null default now())"
        )
    missing = [version for version in _migrations() if version not in done]
    for version in missing:
        connection.execute(_migrations()[version])
        connection.execute("insert into penstock.migrations (version) values (%s)", [version])
    return missing


def _remove(connection: Connection, pipeline: str, leftovers: list[Leftover] | None) -> list[str]:
    connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
    # Nobody may add a row between the look for rows and the drop.
    connection.execute(
        "lock table penstock.import_jobs, penstock.table_choices, penstock.pipelines in access exclusive mode"
    )
    removed = []
    for words, table in _KEPT.items():
        name = sql.Identifier(OWN_SCHEMA, table)
        if connection.execute(sql.SQL("delete from {} where pipeline = %s").format(name), [pipeline]).rowcount:
            removed.append(f"{words} of {pipeline}")
    connection.execute("delete from penstock.pipelines where name = %s", [pipeline])
    if connection.execute(_OTHERS).fetchone() == (True,):
        return removed
    try:
        with connection.transaction():  # a savepoint: what concerns the pipeline alone is gone either way
            return removed + _remove_schema(connection)
    except (psycopg.errors.InsufficientPrivilege, SourceRefused) as error:
        if leftovers is None or not lacks_right(error):
            raise
    leftovers.append(_schema_left(connection))
    return removed


def _schema_left(connection: Connection) -> Leftover:
    """As a whole: event triggers without the tables that they write to would break every command on the source's schema."""
    triggers, owner = schema_log.triggers_of(connection)
    what = f"event triggers {', '.join(triggers)} and the schema {OWN_SCHEMA}" if triggers else f"schema {OWN_SCHEMA}"
    drop_triggers = f"{schema_log.REMOVAL} " if triggers else ""
    drop_schema = sql.SQL("DROP SCHEMA {} CASCADE;").format(sql.Identifier(OWN_SCHEMA)).as_string(connection)
    return Leftover(what, owner or _owner(connection), drop_triggers + drop_schema)


def _remove_schema(connection: Connection) -> list[str]:
    removed = schema_log.remove(connection)
    connection.execute(
        "drop table penstock.import_chunks, penstock.import_jobs, penstock.table_choices, penstock.pipelines, "
        "penstock.migrations; drop sequence penstock.import_claims"
    )
    return [*removed, _drop_schema(connection)]


def _drop_schema(connection: Connection) -> str:
    try:
        with connection.transaction():  # a savepoint
            connection.execute(sql.SQL("drop schema {}").format(sql.Identifier(OWN_SCHEMA)))
    except (psycopg.errors.DependentObjectsStillExist, psycopg.errors.InsufficientPrivilege):
        return f"Penstock's tables in schema {OWN_SCHEMA}"
    return f"schema {OWN_SCHEMA}"


def _grant(connection: Connection) -> str:
    """What lets the role make the schema or, where another role has made it, work in it."""
    owner = _owner(connection)
    return schema_grants(connection, OWN_SCHEMA, owner) if owner else create_grant(connection)
