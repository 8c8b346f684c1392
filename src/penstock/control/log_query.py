"""SQL over the change log, by DuckDB.

``changes``: schema, table, op, lsn, sequence, xid, commit_time, and key, after and before as JSON; ``position`` is the LSN
as a number, to compare and to sort by. ``segments``: name, start, end, rows, bytes, tables.

Both are read from the log each time that a query scans them, a segment at a time, so a query may join them as it likes;
what DuckDB itself has to keep beyond its limit goes to a temporary directory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from penstock.changelog.log import ChangeLog
from penstock.changes.batch import MESSAGES, OP_NAMES, ChangeBatch
from penstock.control.log_events import LogRange, segment_lines
from penstock.errors import ConfigError, PenstockError
from penstock.sinks.events.formats.json import Transactions, append_key, append_new_row, append_old_row
from penstock.sinks.events.json_text import LARGE, Line
from penstock.sinks.events.values import Shape, Values, lines_by_shape, slices

MEMORY = "1GB"

_CHANGES = pa.schema(
    [
        ("schema", pa.string()), ("table", pa.string()), ("op", pa.string()), ("lsn", LARGE),
        ("position", pa.uint64()), ("sequence", pa.uint32()), ("xid", pa.uint32()),
        ("commit_time", pa.timestamp("us", "UTC")), ("key", LARGE), ("after", LARGE), ("before", LARGE),
    ]
)  # fmt: skip
_SEGMENTS = pa.schema(
    [
        ("name", pa.string()), ("start", pa.string()), ("end", pa.string()), ("rows", pa.int64()),
        ("bytes", pa.int64()), ("tables", pa.list_(pa.string())),
    ]
)  # fmt: skip
_VIEWS = """
    CREATE VIEW changes AS SELECT * REPLACE (
        nullif("key", 'null')::JSON AS "key", nullif("after", 'null')::JSON AS "after",
        nullif("before", 'null')::JSON AS "before") FROM log_changes;
    CREATE VIEW segments AS SELECT * FROM log_segments;
"""


@dataclass(frozen=True)
class Answer:
    """The rows come as they are asked for."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def query(log: ChangeLog, sql: str, wanted: LogRange, as_json: bool = False) -> Iterator[Answer]:
    """The answer to a query over the wanted part of the log. ``as_json``: one column, each row a JSON object."""
    changes = _Scans(_CHANGES, lambda: _change_rows(log, wanted))
    segments = _Scans(_SEGMENTS, lambda: _segment_rows(log, wanted))
    statement = sql.strip().rstrip(";")
    with tempfile.TemporaryDirectory(prefix="penstock-query-") as spill, _opened(spill) as connection:
        connection.register("log_changes", changes)
        connection.register("log_segments", segments)
        try:
            connection.execute(_VIEWS)
            connection.execute(f"SELECT to_json(answer)::VARCHAR FROM (\n{statement}\n) AS answer" if as_json else sql)
            columns = [column[0] for column in connection.description or ()]
            yield Answer(columns, _rows(connection))
        except duckdb.Error as error:
            failure = changes.error or segments.error
            if failure is not None:
                raise failure from error
            raise ConfigError(f"DuckDB refused the query: {str(error).strip().splitlines()[0]}") from error


@contextmanager
def _opened(spill: str) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(
        config={"autoinstall_known_extensions": "false", "memory_limit": MEMORY, "temp_directory": spill}
    )
    try:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.unregister("log_changes")
        connection.unregister("log_segments")
        connection.close()


def _rows(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := connection.fetchmany(1000):
        yield from rows


class _Scans:
    """An Arrow stream that DuckDB may read any number of times. An error on the way is kept: DuckDB keeps its text only."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._schema, self._batches = schema, batches
        self.error: PenstockError | None = None

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.RecordBatchReader.from_batches(self._schema, self._kept()).__arrow_c_stream__(requested_schema)

    def _kept(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches()
        except PenstockError as error:
            self.error = error
            raise


def _change_rows(log: ChangeLog, wanted: LogRange) -> Iterator[pa.RecordBatch]:
    for segments in wanted.segments(log):
        for changes in wanted.changes(segments):
            if changes.relation != MESSAGES:
                for some in slices(changes):
                    yield _record_batch(some)


def _record_batch(changes: ChangeBatch) -> pa.RecordBatch:
    relation, count = changes.relation, len(changes)
    names = np.full(256, "", dtype=object)
    names[list(OP_NAMES)] = list(OP_NAMES.values())
    texts = [_texts(changes, append) for append in (append_key, append_new_row, append_old_row)]
    columns = [
        pa.repeat(relation.schema, count), pa.repeat(relation.table, count), pa.array(names[changes.op], pa.string()),
        Transactions(changes).lsn(), pa.array(changes.commit_lsn), pa.array(changes.sequence), pa.array(changes.xid),
        pa.array(changes.commit_time).cast(pa.timestamp("us", "UTC")), *texts,
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=_CHANGES)


def _texts(changes: ChangeBatch, append: Callable[[Line, Shape, Values], None]) -> pa.Array:
    values = Values("string")

    def encode(shape: Shape) -> pa.Array:
        line = Line()
        append(line, shape, values)
        line.values(pa.repeat(pa.scalar("", LARGE), len(shape.changes)))  # so that a line of constants has a length
        return line.build()

    return lines_by_shape(changes, encode)


def _segment_rows(log: ChangeLog, wanted: LogRange) -> Iterator[pa.RecordBatch]:
    lines = segment_lines(log, wanted)
    while rows := list(islice(lines, 1000)):
        yield pa.RecordBatch.from_pylist(rows, _SEGMENTS)
