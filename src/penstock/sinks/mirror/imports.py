"""Which parts of imports a sink holds: the record of a sink that keeps it in one document, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.changelog.admission import Ready
from penstock.errors import SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks.contract import Imported, ImportPart, UnderWay


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
        ready, known = self.ready.get(part.oid), self.under_way.get(part.job)
        if ready is not None and ready.job >= part.job:
            return True
        if part.phase == "begin":
            return known is not None
        if known is None:
            raise SinkUnavailable(
                f"There is no record of import {part.job} of {part.relation.qualified_name}, which has begun: what the sink "
                "holds was replaced while we were running.",
                "Delivery looks anew which imports the sink holds.",
            )
        if part.phase == "rows":
            return part.number in known.rows
        return part.phase == "changes" and known.replayed is not None and _upto(part) <= known.replayed

    def with_part(self, part: ImportPart) -> ImportRecord:
        """The record once the sink holds this part, too. ``begin`` ends what other imports of the table have begun."""
        oid, known = part.oid, self.under_way.get(part.job, UnderWay())
        if part.phase == "begin":
            others = self._without({job for job, table in self.tables.items() if table == oid})
            return others._with(part, UnderWay())
        if part.phase == "rows":
            return self._with(part, replace(known, rows=known.rows | {part.number}))
        if part.phase == "changes":
            return self._with(part, replace(known, replayed=_upto(part)))
        return replace(self._without({part.job}), ready={**self.ready, oid: Ready(part.job, _upto(part))})

    def _with(self, part: ImportPart, known: UnderWay) -> ImportRecord:
        return replace(
            self,
            under_way={**self.under_way, part.job: known},
            tables={**self.tables, part.job: part.oid},
        )

    def _without(self, jobs: set[int]) -> ImportRecord:
        return replace(
            self,
            under_way={job: known for job, known in self.under_way.items() if job not in jobs},
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
