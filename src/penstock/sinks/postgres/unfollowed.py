"""A schema change that a Postgres target does not take: which table, which change, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from penstock.errors import SinkRefused
from penstock.schema.kinds import OtherCommand, SchemaChange, TableChange
from penstock.schema.words import in_words
from penstock.sinks.postgres.refusals import words
from penstock.sinks.postgres.session import is_passing
from penstock.sinks.postgres.target import Target

_REMEDY = (
    "Take away what is in its way{}, then start again; or make the change there yourself, and start once with "
    "schema_changes: ignore."
)


@contextmanager
def following(sink: str, change: SchemaChange) -> Iterator[None]:
    """What the target answers while it follows the change. A right that is missing, or what passes, is told as such."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege:
        raise
    except psycopg.Error as error:
        if is_passing(error) or isinstance(change, OtherCommand):
            raise
        about = change.table if isinstance(change, TableChange) else change.type
        raise SinkRefused(
            f"Sink {sink}: {about} of the target cannot follow the source ({in_words(change)}): {words(error, where=False)}.",
            _REMEDY.format(_hint(error)),
        ) from error


@contextmanager
def fitting(sink: str, target: Target, changes: Sequence[sql.Composed]) -> Iterator[None]:
    """The same while a table is altered to what its changes show of it: ``changes`` are the parts of an ALTER TABLE."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege:
        raise
    except psycopg.Error as error:
        if is_passing(error):
            raise
        wanted = sql.SQL(", ").join(changes).as_string()
        raise SinkRefused(
            f"Sink {sink}: {target.schema}.{target.table} of the target cannot be altered to fit the source's ({wanted}): "
            f"{words(error, where=False)}.",
            f"Take away what is in its way{_hint(error)}, or alter the table there yourself; then start again.",
        ) from error


def _hint(error: psycopg.Error) -> str:
    return f" ({error.diag.message_hint.rstrip('.')})" if error.diag.message_hint else ""
