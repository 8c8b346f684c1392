"""Commands about what is no table (views, functions, triggers, rights), carried to a Postgres target as their text.

A client may send several commands in one string, or run them in a function or a DO block; the log then has the whole of it
with each of them. To run that would do the other things twice, so only a string that is the one command is carried: Postgres
refuses several by the extended protocol, and says of what it ran which kind of command it was.

Nobody's rows wait for such a thing: what does not work in the target is a warning.

``replicate_ddl``: which kinds of things a replica has of the source's, besides tables, columns and their keys.

What belongs to a table is left out of definitions that a table is made from, and of commands that are followed. What does not
(views, functions, …) is carried as the text of its command: ``carried_ddl.py``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import psycopg
from pydantic import Field, field_validator

from penstock.postgres.connection import Connection
from penstock.schema import kinds
from penstock.schema.kinds import OtherCommand, SchemaChange
from penstock.schema.log.row import LoggedCommand
from penstock.schema.table_definition import TableDefinition
from penstock.schema.words import in_words
from penstock.settings.base import Settings
from penstock.settings.mistakes import mistake, nearest, quoted
from penstock.sinks.postgres.session import is_passing

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


PARTS = ("index", "unique", "check", "foreign_key", "not_null", "default", "comment")
GROUPS = {"constraint": ("unique", "check", "foreign_key")}
CARRIED = ("view", "materialized_view", "function", "trigger", "rule", "policy", "grant")
ALWAYS = ("table", "column", "primary_key", "type", "sequence")  # rows need them

_KINDS: dict[type, str] = {
    kinds.AddUnique: "unique",
    kinds.DropUnique: "unique",
    kinds.AddCheck: "check",
    kinds.DropCheck: "check",
    kinds.AddForeignKey: "foreign_key",
    kinds.DropForeignKey: "foreign_key",
    kinds.CreateIndex: "index",
    kinds.DropIndex: "index",
    kinds.SetNotNull: "not_null",
    kinds.DropNotNull: "not_null",
    kinds.SetDefault: "default",
    kinds.DropDefault: "default",
    kinds.SetComment: "comment",
    kinds.SetTypeComment: "comment",
}
_OBJECT_TYPES = {
    "view": "view",
    "materialized view": "materialized_view",
    "function": "function",
    "procedure": "function",
    "aggregate": "function",
    "trigger": "trigger",
    "rule": "rule",
    "policy": "policy",
}
_GRANTS = ("GRANT", "REVOKE", "ALTER DEFAULT PRIVILEGES")


class ReplicateDdl(Settings):
    """``include`` names the only ones among what belongs to tables, or what is carried besides; ``exclude`` takes away."""

    include: tuple[str, ...] = Field(default=(), description="Kinds that the target has.")
    exclude: tuple[str, ...] = Field(default=(), description="Kinds that the target has not.")

    @field_validator("include", "exclude")
    @classmethod
    def _known(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        known = (*PARTS, *GROUPS, *CARRIED, *ALWAYS)
        for kind in given:
            if kind not in known:
                raise mistake(f"unknown kind{quoted(kind)}; {nearest(kind, known)}")
        return given

    @field_validator("exclude")
    @classmethod
    def _can_be_left_out(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for kind in given:
            if kind in ALWAYS:
                raise mistake(f'"{kind}" always follows, since rows need it; schema_changes: ignore follows nothing')
        return given

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Each group of kinds has its own default: all that belongs to tables, nothing of what is carried."""
        included, excluded = set(_single(self.include)), set(_single(self.exclude))
        parts = included & {*PARTS} if included & {*PARTS, *ALWAYS} else {*PARTS}
        return frozenset((parts | included & {*CARRIED}) - excluded)

    def definition(self, whole: TableDefinition) -> TableDefinition:
        """Of a table that is to be made."""
        if self.wanted >= {*PARTS}:
            return whole
        columns = tuple(
            replace(
                column,
                not_null=column.not_null and ("not_null" in self.wanted or column.identity is not None),
                default=column.default if "default" in self.wanted else None,
                comment=column.comment if "comment" in self.wanted else None,
            )
            for column in whole.columns
        )
        return replace(
            whole,
            columns=columns,
            uniques=whole.uniques if "unique" in self.wanted else (),
            checks=whole.checks if "check" in self.wanted else (),
            foreign_keys=whole.foreign_keys if "foreign_key" in self.wanted else (),
            indexes=whole.indexes if "index" in self.wanted else (),
            comment=whole.comment if "comment" in self.wanted else None,
        )

    def commands(self, logged: Sequence[LoggedCommand]) -> tuple[LoggedCommand, ...]:
        """The same commands, each with the changes that are to be followed."""
        return tuple(
            SelectedCommand(command.at, command.row, selected=tuple(self._selected(command.changes)))
            for command in logged
        )

    def _selected(self, changes: Sequence[SchemaChange]) -> Iterator[SchemaChange]:
        for change in changes:
            if isinstance(change, kinds.AddColumn):
                yield from self._column(change)
            elif isinstance(change, kinds.OtherCommand):
                if change.error or carried_kind(change) in self.wanted:
                    yield change
            elif (kind := _kind(change)) is None or kind in self.wanted:
                yield change

    def _column(self, change: kinds.AddColumn) -> Iterator[SchemaChange]:
        """Rows that are there get the default's value, also where the column does not keep the default."""
        column = change.column
        if "not_null" not in self.wanted:
            column = replace(column, not_null=False)
        yield replace(change, column=column)
        if "default" not in self.wanted and column.default is not None and column.generated is None:
            yield kinds.DropDefault(change.table, column.id, column.name)


@dataclass(frozen=True)
class SelectedCommand(LoggedCommand):
    """Of whose changes only some are followed."""

    selected: tuple[SchemaChange, ...] = ()

    @cached_property
    def changes(self) -> tuple[SchemaChange, ...]:
        return self.selected


def carried_kind(command: kinds.OtherCommand) -> str | None:
    """By the object that it is about, which comes first; None for a kind that is not carried."""
    if command.tag in _GRANTS:
        return "grant"
    return _OBJECT_TYPES.get(command.objects[0]["type"]) if command.objects else None


def _kind(change: SchemaChange) -> str | None:
    """None for what always follows."""
    if isinstance(change, kinds.RenamePart | kinds.AlterPart | kinds.RewordPart):
        return change.part if change.part != "primary_key" else None
    return _KINDS.get(type(change))


def _single(given: Sequence[str]) -> Iterator[str]:
    for kind in given:
        yield from GROUPS.get(kind, (kind,))
