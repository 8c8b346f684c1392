"""Commands of the schema log among the changes of a batch: what all sinks that follow them do alike.

A command is followed when the changes that came before it to its table are applied, and before those that came after.

A column of the schema log as changes of its table have it.

Which new types of a column leave the values of rows as they are, or change them by a cast that is the same everywhere.

Only what is listed here counts as exact. Whatever else a sink holds is imported again after ``ALTER COLUMN … TYPE``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, Protocol, TypeVar

import psycopg

from penstock import failpoints
from penstock.changes.batch import Column
from penstock.pgoutput.types.arrays import element
from penstock.pgoutput.types.numbers import precision_and_scale
from penstock.schema import kinds
from penstock.schema.definitions import ColumnDefinition
from penstock.schema.kinds import SchemaChange, TableChange, TypeChange
from penstock.schema.log.row import LoggedCommand
from penstock.schema.words import in_words
from penstock.sinks.mirror.changes import StagedChanges

logger = logging.getLogger(__name__)


S = TypeVar("S", bound=StagedChanges)


def in_their_place(
    commands: Sequence[LoggedCommand], staged: Sequence[S], apply: Callable[[Sequence[S]], None]
) -> Iterator[SchemaChange]:
    """Each change of the schema when it is due; ``apply`` applies changes of tables, all of them by the end."""
    left = list(staged)
    for command in commands:
        for change in command.changes:
            if isinstance(change, TableChange | TypeChange):
                due = [some for some in left if _is_before(some, command, change)]
                if due:
                    apply(due)
                    left = [some for some in left if not _is_before(some, command, change)]
            yield change
            failpoints.reach(failpoints.SCHEMA_FOLLOWED)
        _tell_of_unknown(command)
    apply(left)


def _is_before(staged: StagedChanges, command: LoggedCommand, change: TableChange | TypeChange) -> bool:
    """Of the table; a type may be in a column of any table."""
    concerned = not isinstance(change, TableChange) or staged.relation.oid == change.table.oid
    return concerned and staged.last_at < command.at


def _tell_of_unknown(command: LoggedCommand) -> None:
    for change in command.changes:
        if isinstance(change, kinds.OtherCommand) and change.error:
            logger.warning(
                "What %s did in the source is not known (%s), so it is not followed.", change.tag, change.error
            )
        if isinstance(change, kinds.RewriteTable) and {"type", "default"} & set(change.reasons):
            logger.warning(
                "%s was rewritten in the source. If the sink cannot compute the new values itself (USING, a volatile default, "
                "a cast that it lacks), the table is imported again; with mode: stream run: penstock tables FILE resync %s.",
                change.table, change.table,
            )  # fmt: skip


class FollowingTables(Protocol):
    """The tables of a target, by the oids of the source's. Each method says whether there was anything to do."""

    def has(self, oid: int) -> bool: ...
    def rename(self, oid: int, now: tuple[str, str]) -> bool: ...
    def drop(self, oid: int) -> bool:
        """With its rows. False: it is not the sink's to drop."""
        ...

    def alter(self, change: TableChange) -> bool:
        """A change within a table that keeps its name."""
        ...


def follow_in_table(
    tables: FollowingTables, change: TableChange, on_drop: Literal["keep", "drop"], target: str = "target"
) -> None:
    """``target``: what the log calls it. A table that is not mirrored is left alone."""
    table = change.table
    if not tables.has(table.oid):
        return
    if isinstance(change, kinds.DropTable):
        if on_drop == "drop" and tables.drop(table.oid):
            logger.info("%s was dropped in the source, and so in the %s.", table, target)
        else:
            logger.info("%s was dropped in the source. It stays in the %s, as it is.", table, target)
        return
    if isinstance(change, kinds.RenameTable):
        followed = tables.rename(table.oid, (table.schema, change.after))
    elif isinstance(change, kinds.MoveTable):
        followed = tables.rename(table.oid, (change.after, table.table))
    else:
        followed = tables.alter(change)
    if followed:
        logger.info("%s of the %s follows: %s.", table, target, in_words(change))


def column_of(definition: ColumnDefinition) -> Column:
    """The oids of Postgres's own types are the same everywhere; of others the log tells what is below them."""
    name, oid, type_name, modifier = definition.name, definition.type_oid, definition.type, definition.modifier
    if definition.base is not None:
        below = definition.base
        return Column(name, oid, type_name, below.base, below.modifier, below.element)
    known = psycopg.postgres.types.get(oid)
    if known is None or known.delimiter != ",":
        return Column(name, oid, type_name, "other", modifier)
    if oid == known.array_oid:
        return Column(name, oid, type_name, "array", modifier, known.name)
    return Column(name, oid, type_name, known.name, modifier)


INTEGERS = frozenset({"int2", "int4", "int8"})
TEXTS = frozenset({"text", "varchar"})
_WITH_LENGTH = frozenset({"varchar", "varbit"})
_WITH_PRECISION = frozenset({"time", "timetz", "timestamp", "timestamptz"})
_NUMBERS = INTEGERS | {"numeric", "float4", "float8"}
_CHARACTERS = TEXTS | {"bpchar", "name"}
# By what they come from: casts that neither the session's settings nor the server's version have a part in. Not among them:
# all between timestamps with and without time zone (TimeZone), and texts of dates, intervals, bytea and floats (their styles).
_IMMUTABLE: dict[str, frozenset[str]] = {
    **dict.fromkeys(INTEGERS, _NUMBERS | _CHARACTERS),
    "numeric": _NUMBERS | _CHARACTERS,
    "float4": _NUMBERS,
    "float8": _NUMBERS,
    **dict.fromkeys(_CHARACTERS, _CHARACTERS),
    "bool": _CHARACTERS | {"int4"},
    "uuid": _CHARACTERS,
    "enum": _CHARACTERS,
    "json": _CHARACTERS | {"jsonb"},
    "jsonb": _CHARACTERS | {"json"},
    "date": frozenset({"timestamp"}),
    "timestamp": frozenset({"date", "time"}),
    "bit": frozenset({"varbit"}),
    "varbit": frozenset({"bit"}),
    "inet": frozenset({"cidr"}),
    "cidr": frozenset({"inet"}),
}


def leaves_values(before: Column, after: Column) -> bool:
    """Whether every value keeps its text: the type is the same, and its modifier as wide as before or wider."""
    if before.base == "array" and after.base == "array":
        return leaves_values(element(before), element(after))
    if before.base in TEXTS and after.base in TEXTS:
        return _fits_length(before, after)
    if before.base != after.base or (before.base in ("other", "enum") and before.type_oid != after.type_oid):
        return False
    if before.modifier == after.modifier:
        return True
    if after.base == "bpchar":
        return False  # padded
    if after.modifier == -1:
        return True
    if after.base in _WITH_LENGTH or after.base in _WITH_PRECISION:
        return _fits_length(before, after)
    return after.base == "numeric" and _has_its_scale(before, after)


def is_same_cast(before: Column, after: Column) -> bool:
    """Whether Postgres makes the same of every value wherever it casts it: in the source and in a target."""
    if leaves_values(before, after):
        return True
    if before.base == "array" and after.base == "array":
        return is_same_cast(element(before), element(after))
    if before.base == after.base:
        return before.base not in ("other", "array", "enum")
    return after.base in _IMMUTABLE.get(before.base, ())


def _fits_length(before: Column, after: Column) -> bool:
    """A shorter one cuts blanks off, or rounds."""
    return after.modifier == -1 or (before.modifier != -1 and after.modifier >= before.modifier)


def _has_its_scale(before: Column, after: Column) -> bool:
    old, new = precision_and_scale(before.modifier), precision_and_scale(after.modifier)
    return old is not None and new is not None and old[1] == new[1] and old[0] <= new[0]
