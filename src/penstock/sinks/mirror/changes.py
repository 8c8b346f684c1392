"""Staged changes of tables: what every mirror decides about them in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from penstock.changes.batch import MESSAGES, ChangeBatch, Relation
from penstock.changes.net import Position
from penstock.sinks.contract import Batch


class StagedChanges(Protocol):
    """Net changes of one table that an executor has made ready. Each mirror has its own form of the rows."""

    @property
    def relation(self) -> Relation: ...
    @property
    def truncated_at(self) -> Position | None: ...
    @property
    def last_at(self) -> Position: ...


C = TypeVar("C", bound=StagedChanges)


def of_tables(changes: Iterator[ChangeBatch]) -> Iterator[ChangeBatch]:
    """Without empty batches and logical decoding messages, which belong to no table."""
    return (change for change in changes if len(change) and change.relation.oid != MESSAGES.oid)


def rows_may_exist(batch: Batch) -> bool:
    """Whether the target may already hold rows that an INSERT of this batch brings: ``net`` then deletes them first."""
    return batch.part is not None and (batch.part.phase == "changes" or batch.part.replaces)


def last_at(changes: Sequence[StagedChanges]) -> Position:
    """The position of the last change."""
    return max(change.last_at for change in changes)


def since_truncate(changes: Sequence[C]) -> tuple[Position | None, list[C]]:
    """The position of the last TRUNCATE of a table, and the changes that it leaves in force.

    Changes that lie wholly before it are void. Where it lies within staged changes, ``net`` has left out what was before it.
    """
    truncated_at = max((change.truncated_at for change in changes if change.truncated_at), default=None)
    if truncated_at is None:
        return None, list(changes)
    return truncated_at, [change for change in changes if change.last_at >= truncated_at]


def missing_row(relation: Relation, key: Sequence[object], kept: Sequence[int]) -> tuple[str, str]:
    """Message and advice for an update that keeps a value (unchanged TOAST) of a row which the target does not hold.

    ``kept``: the indexes of the columns with such values.
    """
    row = ", ".join(f"{name} = {value}" for name, value in zip(relation.key, key, strict=True))
    columns = ", ".join(relation.columns[index].name for index in kept)
    return (
        f"An update of {relation.qualified_name} where {row} keeps a value of {columns} that Postgres did not send again "
        "(unchanged TOAST), and the target has no such row to keep it from.",
        "The row is older than the subscription, was removed from the target, or comes in by a rule's filter (then set "
        "REPLICA IDENTITY FULL). Resync the table, or write the column again in the source (for text: set it to itself || '') "
        "and start again.",
    )
