"""Looks through a table's changes in the log for rows that a chunk may have missed, as one Spark job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from penstock.changelog.log import ChangeLog
from penstock.changelog.units import WorkUnit, change_batches, plan
from penstock.changes.batch import Relation
from penstock.imports.moved_rows import Keys, key_changes, keys_to_read_again, moved_on
from penstock.lsn import LSN, ZERO


def moved_keys(
    spark: SparkSession, log: ChangeLog, oid: int, start: LSN, end: LSN, asked: Keys | None
) -> Sequence[Keys]:
    """The keys of rows to read again, by the table's changes after ``start`` and up to ``end``.

    ``asked``: the keys of rows that were just read again; then only those that have another key since.
    """

    def admit(relation: Relation) -> LSN | None:
        return start if relation.oid == oid else None

    last = log.contents().end or ZERO
    tasks = plan(log, start, min(end, last), spark.sparkContext.defaultParallelism, admit) if last > start else []
    if not tasks:
        return []
    looker = _Looker(log.directory.uri, start, end, only_key_changes=asked is not None)
    results = spark.sparkContext.parallelize(tasks, len(tasks)).map(looker).collect()
    found = [result for result in results if result is not None]
    if asked is None:
        return found
    moved = moved_on(asked, found)
    return [] if moved is None else [moved]


@dataclass(frozen=True)
class _Looker:
    log_uri: str
    start: LSN
    end: LSN
    only_key_changes: bool

    def __call__(self, units: Sequence[WorkUnit]) -> Any:
        changes = change_batches(ChangeLog(self.log_uri), units, self.start, self.end)
        return key_changes(changes) if self.only_key_changes else keys_to_read_again(changes)
