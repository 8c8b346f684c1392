"""``spark.readStream.format("penstock")``: the change log as a stream of work units, or of one table's typed rows.

Options: ``path`` (the log's URI, required), ``table`` (``schema.table``: a typed stream of that table),
``startingLsn`` (default: where the log begins), ``maxBytesPerBatch``, ``parallelism`` (tasks per batch, default 2),
``unrepresentable`` (error, null, text; with ``table``). Delivery's own: ``resumeLsn``, and ``tablesOf``, the name of a
sink whose imports say which tables are read (``changelog/admission.py``).

An offset is an LSN: every transaction that ends at or below it has been read. A batch never splits a transaction, and
never goes across a schema change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import astuple
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.changelog.admission import read_admission
from penstock.changelog.log import ChangeLog
from penstock.changelog.units import WorkUnit, everything, only, plan
from penstock.changes.batch import Relation
from penstock.lsn import LSN, ZERO
from penstock.spark.typed_rows import TypedTable

DEFAULT_BATCH_BYTES = 128 << 20
UNIT_SCHEMA = (
    "batch_start string, batch_end string, admission long, segment string, table string, oid long, bucket int, "
    "buckets int, rows long, bytes long, after string, section int"
)
_MUCH_BYTES = 128 << 10  # waiting for the next batch
_ENOUGH_BYTES = 24 << 20
_GATHER_SECONDS = 0.6  # between the beginnings of two batches, where much is coming
_QUIET_SECONDS = 0.11  # longer than capture takes to the next segment (log.linger): nothing more is coming
_LOOK_SECONDS = 0.02
_NO_UNIT = WorkUnit("", "", 0, 0, 1, 0, 0)


class ChangeSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        if "path" not in options:
            raise ValueError('option "path" is missing: the URI of the change log, <state_dir>/log')
        self._log = ChangeLog(options["path"])

    def schema(self) -> str | StructType:
        if "table" not in self.options:
            return UNIT_SCHEMA
        from pyspark.sql.pandas.types import from_arrow_schema  # brings pandas, which nobody else here needs

        return from_arrow_schema(self._table().arrow_schema())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        table = self._table() if "table" in self.options else None
        return ChangeStreamReader(self.options, self._log, table)  # no dict of it: that would lose capitals

    def _table(self) -> TypedTable:
        return TypedTable.find(self._log, self.options["table"], self.options.get("unrepresentable", "error"))


class UnitsPartition(InputPartition):
    def __init__(self, start: LSN, end: LSN, units: Sequence[WorkUnit], admission: int) -> None:
        super().__init__(None)
        self.start, self.end, self.units, self.admission = start, end, units, admission


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str], log: ChangeLog, table: TypedTable | None) -> None:
        self._log, self._table = log, table
        self._starting = LSN.parse(options.get("startingLsn", str(ZERO)))
        self._resume = LSN.parse(options.get("resumeLsn", str(ZERO)))
        self._max_bytes = int(options.get("maxBytesPerBatch", DEFAULT_BATCH_BYTES))
        self._parallelism = int(options.get("parallelism", 2))
        self._target: LSN | None = None
        self._begun = 0.0  # when the last batch did
        self._tables_of = options.get("tablesOf")

    def initialOffset(self) -> dict[str, str]:
        return _offset(self._starting)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxBytes(self._max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._log.contents().end or ZERO

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        begin = _lsn(start)
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if self._target is not None:
            if begin >= self._target:
                return start
            self._target = self._log.end_of_stretch_at(self._target)
        begin = max(begin, self._resume)
        self._let_gather(begin)
        return _offset(self._log.end_of_next_batch(begin, most, self._target))

    def _let_gather(self, begin: LSN) -> None:
        """Where much is coming, the next batch does not begin at once: each costs Spark the same, whatever is in it."""
        bytes, seen = self._log.bytes_after(begin), time.monotonic()
        while bytes >= _MUCH_BYTES and (now := time.monotonic()) < self._begun + _GATHER_SECONDS:
            if bytes >= _ENOUGH_BYTES or now > seen + _QUIET_SECONDS:
                break
            time.sleep(_LOOK_SECONDS)
            more = self._log.bytes_after(begin)
            bytes, seen = more, time.monotonic() if more > bytes else seen
        if bytes:
            self._begun = time.monotonic()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """What the sink holds already (``resumeLsn``) is not read again: the log may have let go of it."""
        begin, upto = max(_lsn(start), self._resume), _lsn(end)
        if _lsn(start) == upto:
            return []
        admission, admit = self._admission()
        tasks = plan(self._log, begin, upto, self._parallelism, admit) if begin < upto else []
        return [UnitsPartition(begin, upto, units, admission) for units in tasks or [[]]]

    def _admission(self) -> tuple[int, Callable[[Relation], LSN | None]]:
        """Which tables are wanted as of now, and by which version of the sink's record."""
        if self._table is not None:
            return 0, only(self._table.name)
        if self._tables_of is None:
            return 0, everything
        admission = read_admission(self._log.directory.sibling("parts"), self._tables_of)
        return (
            admission.version,
            lambda relation: everything(relation) if relation.is_own else admission.after(relation.oid),
        )

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]] | Iterator[pa.RecordBatch]:
        part = cast(UnitsPartition, partition)
        if self._table is not None:
            yield from self._table.read(self._log, part.units, part.start, part.end)
        else:
            for unit in part.units or [_NO_UNIT]:  # so that the batch has a row that says where it ends
                yield str(part.start), str(part.end), part.admission, *astuple(unit)


def _offset(lsn: LSN) -> dict[str, str]:
    return {"lsn": str(lsn)}


def _lsn(offset: dict[str, str]) -> LSN:
    return LSN.parse(offset["lsn"])
