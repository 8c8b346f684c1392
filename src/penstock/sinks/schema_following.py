"""Commands of the schema log among the changes of a batch: what all sinks that follow them do alike.

A command is followed when the changes that came before it to its table are applied, and before those that came after.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from penstock import failpoints
from penstock.changes import Relation
from penstock.schema_changes import kinds
from penstock.schema_changes.kinds import SchemaChange, TableChange, TypeChange
from penstock.schema_changes.logged import LoggedCommand

logger = logging.getLogger(__name__)


class Staged(Protocol):
    """Changes of one table, made ready by an executor."""

    @property
    def relation(self) -> Relation: ...
    @property
    def last_at(self) -> tuple[int, int]: ...


S = TypeVar("S", bound=Staged)


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


def _is_before(staged: Staged, command: LoggedCommand, change: TableChange | TypeChange) -> bool:
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
