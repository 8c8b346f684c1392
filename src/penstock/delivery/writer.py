"""What runs in the executors: work units ▶ change batches ▶ ``sink.write`` ▶ a receipt. Imports nothing of Spark."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.changelog.log import ChangeLog
from penstock.changelog.segment import SegmentName
from penstock.changelog.units import WorkUnit, change_batches
from penstock.changes.batch import ChangeBatch, Relation
from penstock.errors import PenstockError, SinkError
from penstock.lsn import LSN
from penstock.rules.passage import NO_RULES, Passage
from penstock.schema.log.row import SCHEMA_LOG, logged_commands
from penstock.sinks.contract import Batch, Sink
from penstock.state.pipeline_state import staged_batch_uri

RECEIPTS = (
    "batch_start string, batch_end string, admission long, changes long, bytes long, commit_time long, receipt binary, "
    "schema_log binary, framed binary"
)


@dataclass(frozen=True)
class Writer:
    """What runs in the executors. Pickled once per query."""

    sink: Sink[Any, Any]
    log_uri: str
    staging_uri: str
    rules: Passage = NO_RULES

    def __call__(self, units: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [row for batch in units for row in batch.to_pylist()]  # one row per work unit
        if rows:
            yield self._write(rows)

    def _write(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        start, end, admission = (rows[0][name] for name in ("batch_start", "batch_end", "admission"))
        units = [WorkUnit(**{k: v for k, v in row.items() if k in WorkUnit.__dataclass_fields__}) for row in rows]
        upto = LSN.parse(end)
        batch = Batch(-1, LSN.parse(start), upto, staged_batch_uri(self.staging_uri, upto))
        log = ChangeLog(self.log_uri)
        of_tables = [unit for unit in units if unit.segment and unit.table != SCHEMA_LOG]
        framed = self._for_frames(log, of_tables)
        if framed:
            of_tables = [unit for unit in of_tables if all(unit is not other for _, other in framed)]
        of_schema_log = [unit for unit in units if unit.table == SCHEMA_LOG]
        logged = logged_commands(change_batches(log, of_schema_log, batch.start, batch.end))
        counted = Counted(change_batches(log, of_tables, batch.start, batch.end))
        receipt = pickle.dumps(outcome(self.sink, batch, iter(counted), self.rules))
        return pa.RecordBatch.from_arrays(
            [
                pa.array([start]), pa.array([end]), pa.array([admission]), pa.array([counted.changes]),
                pa.array([sum(unit.bytes for unit in units)]), pa.array([counted.commit_time]),
                pa.array([receipt]), pa.array([pickle.dumps(logged)]),
                pa.array([pickle.dumps(framed) if framed else None], pa.binary()),
            ],
            names=[name.split()[0] for name in RECEIPTS.split(", ")],
        )  # fmt: skip

    def _for_frames(self, log: ChangeLog, units: Sequence[WorkUnit]) -> list[tuple[Relation, WorkUnit]]:
        """Those of tables whose rules have code that runs in Spark: they are the driver's to deal with."""
        if not self.rules.has_frames:
            return []
        found = []
        for unit in units:
            name = SegmentName.parse(unit.segment)
            entries = log.relations(name) if name is not None else []
            relation = next((entry.relation for entry in entries if entry.relation.oid == unit.oid), None)
            if relation is not None and self.rules.runs_in_frame(relation):
                found.append((relation, unit))
        return found


def outcome(sink: Sink[Any, Any], batch: Batch, changes: Iterator[ChangeBatch], rules: Passage = NO_RULES) -> Any:
    """The sink's receipt of what the rules let pass, or the error that it is to be raised as on the driver: Spark would keep
    only its text."""
    try:
        receipt = sink.write(rules.batch(batch), rules.changes(changes))
        pickle.dumps(receipt)  # one that does not pickle is a fault of the sink as well
        return receipt
    except PenstockError as error:
        return error
    except Exception as error:  # noqa: BLE001  whatever else a sink raises is a fault of the sink, not of Spark
        return fault(sink, error)


def fault(sink: Sink[Any, Any], error: Exception) -> SinkError:
    """What a sink raised that is not in its contract. The traceback is a note, which pickles, unlike the cause."""
    fault = SinkError(
        f"Sink {sink.settings.name} failed: {error!r}.",
        "This is a fault in the sink; nothing was skipped. Run with --debug to see where.",
    )
    fault.add_note("".join(traceback.format_exception(error)))
    return fault


class Counted:
    """Counts what passes."""

    def __init__(self, batches: Iterator[ChangeBatch]) -> None:
        self._batches, self.changes, self.commit_time = batches, 0, 0

    def __iter__(self) -> Iterator[ChangeBatch]:
        for batch in self._batches:
            self.changes += len(batch)
            self.commit_time = max(self.commit_time, int(batch.commit_time[-1]))
            yield batch
