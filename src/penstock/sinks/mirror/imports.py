"""Imports into a sink that records which of their parts it holds.

``ImportRecord`` is that record as a value, with the rules of an import: which part is due, and what holding it changes. A sink
that keeps a document replaces it as a whole; a mirror whose target has transactions writes the difference (``records.py``).

``commit_part`` commits a part of an import into a mirror: each import fills a table of its own, the shadow, which takes the
place of the target's table at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from penstock import failpoints
from penstock.changelog.admission import Ready
from penstock.errors import SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks.contract import Imported, ImportPart, UnderWay
from penstock.sinks.mirror.changes import StagedChanges


@dataclass(frozen=True)
class ImportRecord:
    """``ready`` by the table's oid, ``under_way`` by job, ``tables``: the oid of each job under way."""

    subscription: str = ""
    ready: Mapping[int, Ready] = field(default_factory=dict)
    under_way: Mapping[int, UnderWay] = field(default_factory=dict)
    tables: Mapping[int, int] = field(default_factory=dict)

    def imported(self) -> Imported:
        return Imported(self.subscription, self.ready, self.under_way)

    def of(self, subscription: str) -> ImportRecord:
        """What another subscription recorded means nothing."""
        return self if self.subscription == subscription else ImportRecord(subscription)

    def holds(self, part: ImportPart) -> bool:
        """Whether there is nothing left to do for a part. SinkUnavailable for one of an import that is not known."""
        ready, under_way = self.ready.get(part.oid), self.under_way.get(part.job)
        if ready is not None and ready.job >= part.job:
            return True  # complete, or followed by a newer import that is
        if part.phase == "begin":
            return under_way is not None
        if under_way is None:
            raise SinkUnavailable(
                f"The sink has no record of import {part.job} of {part.relation.qualified_name}, which has begun: its target "
                "was replaced while Penstock was running.",
                "Delivery asks the sink again which imports it holds.",
            )
        if part.phase == "rows":
            return part.number in under_way.rows
        return part.phase == "changes" and under_way.replayed is not None and _upto(part) <= under_way.replayed

    def with_part(self, part: ImportPart) -> ImportRecord:
        """The record once the sink holds this part, too. ``begin`` ends what other imports of the table have begun."""
        oid, under_way = part.oid, self.under_way.get(part.job, UnderWay())
        if part.phase == "begin":
            return self.without_table(oid)._with(part, UnderWay())
        if part.phase == "rows":
            return self._with(part, replace(under_way, rows=under_way.rows | {part.number}))
        if part.phase == "changes":
            return self._with(part, replace(under_way, replayed=_upto(part)))
        return replace(self._without({part.job}), ready={**self.ready, oid: Ready(part.job, _upto(part))})

    def without_table(self, oid: int) -> ImportRecord:
        """Without imports of this table that did not come to an end."""
        return self._without({job for job, table in self.tables.items() if table == oid})

    def _with(self, part: ImportPart, under_way: UnderWay) -> ImportRecord:
        return replace(
            self,
            under_way={**self.under_way, part.job: under_way},
            tables={**self.tables, part.job: part.oid},
        )

    def _without(self, jobs: set[int]) -> ImportRecord:
        return replace(
            self,
            under_way={job: under_way for job, under_way in self.under_way.items() if job not in jobs},
            tables={job: oid for job, oid in self.tables.items() if job not in jobs},
        )

    def to_json(self) -> dict[str, Any]:
        under_way = {
            str(job): {
                "oid": self.tables[job],
                "rows": sorted(known.rows),
                "replayed": None if known.replayed is None else str(known.replayed),
            }
            for job, known in self.under_way.items()
        }
        ready = {str(oid): {"job": table.job, "lsn": str(table.lsn)} for oid, table in self.ready.items()}
        return {"subscription": self.subscription, "ready": ready, "under_way": under_way}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ImportRecord:
        under_way = {
            int(job): UnderWay(
                frozenset(known["rows"]), None if known["replayed"] is None else LSN.parse(known["replayed"])
            )
            for job, known in data["under_way"].items()
        }
        ready = {int(oid): Ready(table["job"], LSN.parse(table["lsn"])) for oid, table in data["ready"].items()}
        tables = {int(job): known["oid"] for job, known in data["under_way"].items()}
        return cls(data["subscription"], ready, under_way, tables)


def _upto(part: ImportPart) -> LSN:
    assert part.upto is not None
    return part.upto


@dataclass(frozen=True)
class Shadow:
    """The table that an import fills. ``details``: what the store needs to know of it, as text."""

    job: int
    oid: int  # of the source's table
    source: tuple[str, str]  # what the source's table was called in the latest of its changes
    name: tuple[str, str]  # of the shadow: schema and table in the target
    details: str = ""


T_contra = TypeVar("T_contra", bound=StagedChanges, contravariant=True)


class ShadowStore(Protocol[T_contra]):
    """What differs from target to target. All of it happens inside one transaction; ``T_contra``: staged changes."""

    def create_shadow(self, part: ImportPart) -> Shadow: ...
    def fill(self, shadow: Shadow, part: ImportPart, staged: Sequence[T_contra]) -> Shadow:
        """Applies rows or changes of the import to the shadow. The source's table may have been altered in between."""
        ...

    def put_in_place(self, shadow: Shadow, part: ImportPart) -> None:
        """The shadow takes the place of the target's table, or its rows go there."""
        ...

    def drop_shadow(self, shadow: Shadow) -> None: ...


class ImportRecords(Protocol):
    subscription: str

    def imports(self, part: ImportPart) -> ImportRecord: ...
    def put_imports(self, before: ImportRecord, after: ImportRecord) -> None: ...
    def shadow(self, job: int) -> Shadow:
        """Of an import under way."""
        ...

    def put_shadow(self, shadow: Shadow) -> None: ...


def commit_part(
    records: ImportRecords, store: ShadowStore[T_contra], part: ImportPart, staged: Sequence[T_contra]
) -> bool:
    """Commits each part once, however often it comes, inside the caller's transaction. False: there was nothing left to do.

    1. A part that the record says is held is left alone. A record of another subscription means nothing.
    2. ``begin`` removes imports that did not come to an end: those of the table, and all of another subscription.
    3. ``begin`` creates the shadow, ``rows`` and ``changes`` fill it, ``end`` puts it in its place.
    4. The record says so.
    """
    recorded = records.imports(part)
    record = recorded.of(records.subscription)
    if record.holds(part):
        return False
    if part.phase == "begin":
        record = record.without_table(part.oid)
        for job in recorded.under_way.keys() - record.under_way.keys():
            store.drop_shadow(records.shadow(job))
        records.put_imports(recorded, record)
        records.put_shadow(store.create_shadow(part))
    elif part.phase == "end":
        store.put_in_place(records.shadow(part.job), part)
    else:
        shadow = records.shadow(part.job)
        if part.phase == "changes" and staged:
            # Rows may still come under the name that the table had when the import began: only changes have its name now.
            latest = max(staged, key=lambda change: change.last_at).relation
            shadow = replace(shadow, source=(latest.schema, latest.table))
        records.put_shadow(store.fill(shadow, part, staged))
    records.put_imports(record, record.with_part(part))
    if part.phase == "end":
        failpoints.reach(failpoints.TABLE_SWAPPED)
    return True
