"""Work units: how a range of the log is divided among executors.

A unit is what one segment holds of one table, or of one bucket of its keys. All units of the same (table, bucket) go to
the same task, in the order of the log, so that each key's changes are applied in order without a shuffle. A hot table
whose changes are inserts only has no order to keep and is divided by segments; any other hot table by the hash of its key,
unless it has no key. A table that was truncated or whose definition changed stays whole: that concerns all keys at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from penstock.buckets import told_apart_by_text
from penstock.changelog.log import ChangeLog
from penstock.changelog.segment import RelationRows, SegmentName
from penstock.changes import Relation
from penstock.lsn import LSN, ZERO

HOT_BYTES = 16 << 20  # of one table in one batch: below this, dividing costs more than it gains
BUCKET_BYTES = 64 << 20  # the same where all tasks must look at all keys: two of them do 1.7 times the work of one
SMALL_BYTES = 1 << 20  # a whole batch below this is one task


@dataclass(frozen=True)
class WorkUnit:
    segment: str
    table: str
    oid: int  # which of the segment's relations
    bucket: int
    buckets: int  # 1: the whole table
    rows: int
    bytes: int
    after: str = "0/0"  # of these rows, only those of transactions that end after it
    section: int = 0  # counts the schema changes before it: changes of one relation may differ in their types' values


@dataclass(frozen=True)
class _Found:
    segment: SegmentName
    rows: RelationRows
    after: LSN
    section: int

    def unit(self, bucket: int = 0, buckets: int = 1) -> WorkUnit:
        return WorkUnit(
            str(self.segment), self.rows.relation.qualified_name, self.rows.relation.oid, bucket, buckets,
            self.rows.rows, self.rows.bytes // buckets, str(self.after), self.section,
        )  # fmt: skip


def everything(relation: Relation) -> LSN | None:
    """Admits all tables from the beginning; of Penstock's own, the schema log alone."""
    return None if relation.is_own and not relation.is_schema_log else ZERO


def only(table: str) -> Callable[[Relation], LSN | None]:
    """Admits the one table of this qualified name."""
    return lambda relation: ZERO if relation.qualified_name == table else None


def plan(
    log: ChangeLog, start: LSN, end: LSN, parallelism: int, admit: Callable[[Relation], LSN | None] = everything
) -> list[list[WorkUnit]]:
    """The units of every transaction after ``start`` up to ``end``, as at most ``parallelism`` tasks.

    ``admit`` says for each table from where on its changes are wanted; None: not at all.
    """
    found: list[_Found] = []
    section = 0
    for stretch in log.after(start, end):
        for name in stretch.segments:
            section += name.schema_change
            for rows in log.relations(name):
                after = admit(rows.relation)
                if after is not None and after < stretch.end:
                    found.append(_Found(name, rows, after, section))
    tasks = 1 if sum(unit.rows.bytes for unit in found) < SMALL_BYTES else parallelism
    groups = [group for units in _by_table(found) for group in _divide(units, tasks)]
    return _pack(groups, tasks)


def _by_table(found: list[_Found]) -> list[list[_Found]]:
    """In order. A table stays together under whatever names it had, and with others that had one of them."""
    first: dict[int | str, int | str] = {}  # of tables that belong together, the one that all lead to

    def lead(table: int | str) -> int | str:
        while first.setdefault(table, table) != table:
            table = first[table]
        return table

    for relation in {unit.rows.relation for unit in found}:
        first[lead(relation.qualified_name)] = lead(relation.oid)
    tables: dict[int | str, list[_Found]] = defaultdict(list)
    for unit in found:
        tables[lead(unit.rows.relation.oid)].append(unit)
    return list(tables.values())


def _divide(units: list[_Found], parts: int) -> list[list[WorkUnit]]:
    size = sum(found.rows.bytes for found in units)
    if parts == 1 or size < HOT_BYTES or _concern_all_keys(units):
        return [[found.unit() for found in units]]
    if all(found.rows.inserts == found.rows.rows for found in units):
        return [[found.unit() for found in some] for some in _runs(units, -(-len(units) // parts))]
    if size < BUCKET_BYTES or not all(_may_be_divided(found.rows.relation) for found in units):
        return [[found.unit() for found in units]]
    return [[found.unit(bucket, parts) for found in units] for bucket in range(parts)]


def _may_be_divided(relation: Relation) -> bool:
    return bool(relation.key) and told_apart_by_text(relation)


def _concern_all_keys(units: list[_Found]) -> bool:
    """A transaction that truncates or alters the table: the target changes once, between what came before and after."""
    return any(found.rows.truncates for found in units) or len({found.rows.relation for found in units}) > 1


def _runs(units: list[_Found], size: int) -> list[list[_Found]]:
    return [list(islice(units, at, at + size)) for at in range(0, len(units), size)]


def _pack(groups: list[list[WorkUnit]], tasks: int) -> list[list[WorkUnit]]:
    """Largest group first, each to the task with the least to do. Groups stay whole and in order."""
    packed: list[list[list[WorkUnit]]] = [[] for _ in range(min(tasks, len(groups)))]
    load = [0] * len(packed)
    for group in sorted(groups, key=lambda group: -sum(unit.bytes for unit in group)):
        least = load.index(min(load))
        packed[least].append(group)
        load[least] += sum(unit.bytes for unit in group)
    return [[unit for group in task for unit in group] for task in packed]
