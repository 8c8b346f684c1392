"""Commands about what is no table (views, functions, triggers, rights), carried to a Postgres target as their text.

A client may send several commands in one string, or run them in a function or a DO block; the log then has the whole of it
with each of them. To run that would do the other things twice, so only a string that is the one command is carried: Postgres
refuses several by the extended protocol, and says of what it ran which kind of command it was.

Nobody's rows wait for such a thing: what does not work in the target is a warning.
"""

from __future__ import annotations

import logging
import re

import psycopg

from penstock.postgres.connection import Connection
from penstock.schema_changes.kinds import OtherCommand
from penstock.schema_changes.words import in_words
from penstock.sinks.postgres_session import is_passing

logger = logging.getLogger(__name__)

_BEFORE_THE_FIRST_WORD = re.compile(r"(?:\s+|--[^\n]*(?:\n|$)|/\*.*?\*/)*", re.DOTALL)
_FILLED = ("CREATE MATERIALIZED VIEW",)  # Postgres says with how many rows
_SEVERAL = "it came with others in one string, or from within a function; such a one cannot be told from its text"


def carry(connection: Connection, sink: str, command: OtherCommand) -> None:
    """In the caller's transaction, with the search_path that it was run with. Nothing if the log lacks what it did."""
    if command.error is not None:
        return
    try:
        if command.statement is None or not _begins_like(command.statement, command.tag):
            raise _NotAlone
        _run(connection, command.statement, command.tag, command.search_path)
    except psycopg.errors.SyntaxError as error:
        several = "multiple commands" in str(error)
        _tell(sink, command, _SEVERAL if several else error.diag.message_primary or "")
    except _NotAlone:
        _tell(sink, command, _SEVERAL)
    except psycopg.Error as error:
        if is_passing(error):
            raise
        _tell(sink, command, error.diag.message_primary or str(error))
    else:
        logger.info("Sink %s: the target follows: %s, %s.", sink, command.tag, in_words(command))


class _NotAlone(Exception):
    """The text is not, or not only, the command."""


def _run(connection: Connection, statement: str, tag: str, path: str | None) -> None:
    with connection.transaction():
        row = connection.execute("SELECT current_setting('search_path')").fetchone()
        _set_path(connection, path or "")
        ran = connection.execute(statement.encode(), binary=True)  # by the extended protocol
        if ran.statusmessage != tag and not (tag in _FILLED and (ran.statusmessage or "").startswith("SELECT ")):
            raise _NotAlone
        _set_path(connection, row[0] if row is not None else "")


def _set_path(connection: Connection, path: str) -> None:
    connection.execute("SELECT set_config('search_path', %s, true)", [path])


def _begins_like(statement: str, tag: str) -> bool:
    before = _BEFORE_THE_FIRST_WORD.match(statement)
    rest = statement[before.end() :] if before is not None else statement
    return rest.upper().startswith(tag.split(" ", maxsplit=1)[0])


def _tell(sink: str, command: OtherCommand, why: str) -> None:
    logger.warning(
        "Sink %s: %s of the source (%s) is not in the target: %s. Run it there yourself if you want it.",
        sink, command.tag, in_words(command), why,
    )  # fmt: skip
