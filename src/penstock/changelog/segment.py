"""One segment of the change log: an Arrow IPC file that any executor can decode alone.

Rows are pgoutput's messages, one record batch per relation, so that a reader takes one table without the rest. The
schema's metadata lists the relations with their definitions, counts and checksums. The file's name says which part of
the log it holds; the directory listing is the log's index:

    <start>-<end>-<part>-<flags>.arrow       LSNs as 16 hexadecimal digits

A *complete* segment (flag c) holds the transactions that end after ``start`` and not after ``end``; ``start`` is the
``end`` of the segment before it, so that a missing file shows as a hole. A transaction larger than a segment begins with
*partial* segments (flag p, parts 0, 1, …) and ends in a complete one with the same ``start``: without that one, readers
do not see the parts. Flag s: a table's definition changed just before this segment, so no batch goes across.

Small segments are merged into larger ones (``upkeep.py``): a complete segment may be the union of several others, which
are deleted a little later. So a reader that planned with one of those finds its rows in the merged segment, by their LSNs.
"""

from __future__ import annotations

import errno
import json
import re
import zlib
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.changes.batch import Relation
from penstock.errors import LogCorrupt, SegmentMissing
from penstock.lsn import LSN
from penstock.storage import Directory

ROWS = pa.schema(
    [
        ("payload", pa.binary()),
        ("commit_lsn", pa.uint64()),
        ("sequence", pa.uint32()),
        ("xid", pa.uint32()),
        ("commit_time", pa.int64()),
    ]
)
_VERSION = 2
_METADATA, _CHECKSUM = b"penstock", b"penstock.checksum"  # the latter is that of the former
# What Arrow raises on reading bytes that are not what was written.
_DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, MemoryError)
_NAME = re.compile(r"([0-9A-F]{16})-([0-9A-F]{16})-(\d{6})-([cp])(s?)\.arrow")


@dataclass(frozen=True, order=True)
class SegmentName:
    start: LSN
    end: LSN  # of a partial segment: the LSN of its transaction's commit record
    part: int
    complete: bool
    schema_change: bool

    def __str__(self) -> str:
        flags = ("c" if self.complete else "p") + ("s" if self.schema_change else "")
        return f"{self.start:016X}-{self.end:016X}-{self.part:06d}-{flags}.arrow"

    @classmethod
    def parse(cls, text: str) -> SegmentName | None:
        match = _NAME.fullmatch(text)
        if match is None:
            return None
        return cls(LSN(match[1], 16), LSN(match[2], 16), int(match[3]), match[4] == "c", match[5] == "s")

    @property
    def whole(self) -> bool:
        """It holds all of its transactions, without any partial segment before it."""
        return self.complete and self.part == 0

    def covers(self, other: SegmentName) -> bool:
        """Whether it is the union of ``other`` and more."""
        return self.whole and other.whole and self.start <= other.start and other.end <= self.end


@dataclass(frozen=True)
class RelationRows:
    """What a segment holds of one relation: what readers plan by."""

    relation: Relation
    first_batch: int
    batches: int
    rows: int
    bytes: int
    inserts: int  # as many as rows: then the order within the table does not matter
    truncates: int  # more than none: then all of the table's rows belong together
    checksum: int


@dataclass(frozen=True)
class SegmentContent:
    """A segment before it is written: record batches of ROWS, those of a relation together."""

    name: SegmentName
    relations: Sequence[tuple[Relation, Sequence[pa.RecordBatch]]]
    last_commit_time: int

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for _, batches in self.relations for batch in batches)

    def write(self, stream: Any) -> None:
        listing: list[dict[str, Any]] = []
        first_batch = 0
        for relation, batches in self.relations:
            listing.append(_describe(relation, first_batch, batches))
            first_batch += len(batches)
        metadata = {"version": _VERSION, "last_commit_time": self.last_commit_time, "relations": listing}
        encoded = json.dumps(metadata).encode()
        schema = ROWS.with_metadata({_METADATA: encoded, _CHECKSUM: str(zlib.crc32(encoded)).encode()})
        with pa.ipc.new_file(stream, schema) as writer:
            for _relation, batches in self.relations:
                for batch in batches:
                    writer.write_batch(batch)


def _describe(relation: Relation, first_batch: int, batches: Sequence[pa.RecordBatch]) -> dict[str, Any]:
    return {
        "relation": json.dumps(relation.to_json()),
        "first_batch": first_batch,
        "batches": len(batches),
        "rows": sum(batch.num_rows for batch in batches),
        "bytes": sum(batch.nbytes for batch in batches),
        "inserts": sum(_count(batch, b"I") for batch in batches),
        "truncates": sum(_count(batch, b"T") for batch in batches),
        "checksum": _checksum(batches),
    }


def _count(batch: pa.RecordBatch, kind: bytes) -> int:
    """The messages of a kind, by their first byte."""
    payload = batch.column("payload")
    _validity, offsets, raw = payload.buffers()
    places = np.frombuffer(offsets, np.int32)[payload.offset : payload.offset + batch.num_rows]
    return int(np.count_nonzero(np.frombuffer(raw, np.uint8)[places] == ord(kind)))


def has_truncate(rows: pa.RecordBatch) -> bool:
    return _count(rows, b"T") > 0


def _checksum(batches: Sequence[pa.RecordBatch]) -> int:
    """Over the offsets and bytes of the messages and the columns beside them."""
    checksum = 0
    for batch in batches:
        _validity, offsets, raw = batch.column("payload").buffers()
        places = np.frombuffer(offsets, np.int32)[: batch.num_rows + 1]
        checksum = zlib.crc32(memoryview(raw)[: places[-1]], zlib.crc32(places.tobytes(), checksum))
        for column in batch.columns[1:]:
            checksum = zlib.crc32(column.to_numpy(), checksum)
    return checksum


def _metadata(schema: pa.Schema) -> dict[str, Any]:
    encoded = schema.metadata[_METADATA]
    if zlib.crc32(encoded) != int(schema.metadata[_CHECKSUM]) or not schema.equals(ROWS):
        raise ValueError("the checksum of its metadata does not match")
    metadata: dict[str, Any] = json.loads(encoded)
    if metadata["version"] != _VERSION:
        raise ValueError(f"its format is version {metadata['version']}; this Penstock reads version {_VERSION}")
    return metadata


@lru_cache(maxsize=10_000)
def _relation(encoded: str) -> Relation:
    """Segments repeat the definitions of their tables, so most have been parsed before."""
    return Relation.from_json(json.loads(encoded))


class SegmentFile:
    """A segment that is in the log. Opening reads its metadata; ``rows`` reads one relation."""

    def __init__(self, directory: Directory, name: SegmentName) -> None:
        self.name = name
        self._within: SegmentName | None = None
        self._where = f"{directory.uri}/{name}"
        self._checked: dict[int, list[pa.RecordBatch]] = {}
        try:
            self._file = pa.ipc.open_file(directory.open(str(name)))
            metadata = _metadata(self._file.schema)
            self.last_commit_time: int = metadata["last_commit_time"]
            self.relations = [
                RelationRows(**{**entry, "relation": _relation(entry["relation"])}) for entry in metadata["relations"]
            ]
        except _DAMAGE as error:
            is_stale = isinstance(error, OSError) and error.errno == errno.ESTALE  # as NFS says of a deleted file
            if is_stale or isinstance(error, FileNotFoundError):
                raise SegmentMissing(f"The segment {self._where} is missing from the change log.") from None
            raise self._corrupt(error) from None

    def entry(self, oid: int) -> RelationRows:
        """What it holds of the relation with this oid."""
        for entry in self.relations:
            if entry.relation.oid == oid:
                return entry
        raise self._corrupt(f"it has no relation {oid}")

    def rows(self, entry: RelationRows) -> list[pa.RecordBatch]:
        """The messages of one relation, checked against their checksum."""
        if self._within is None:
            return self._checked_rows(entry)
        batches = [between(batch, self._within.start, self._within.end) for batch in self._kept_rows(entry)]
        return [batch for batch in batches if batch.num_rows]

    def first_commit_time(self, after: LSN) -> int | None:
        """Of its first transaction that ended after ``after``; None if there is none."""
        batches = (batch for entry in self.relations for batch in self.rows(entry))
        times = [rows.column("commit_time")[0].as_py() for batch in batches if (rows := between(batch, after)).num_rows]
        return min(times, default=None)

    def narrowed(self, within: SegmentName) -> SegmentFile:
        """The same file, read as a segment that was merged into it.

        The numbers of rows and bytes in ``relations`` remain those of the merged segment: upper bounds.
        """
        narrowed = copy(self)
        narrowed._within = within
        return narrowed

    def _kept_rows(self, entry: RelationRows) -> list[pa.RecordBatch]:
        """Checked once, however many of the segments that were merged are read from here."""
        if entry.relation.oid not in self._checked:
            self._checked[entry.relation.oid] = self._checked_rows(entry)
        return self._checked[entry.relation.oid]

    def _checked_rows(self, entry: RelationRows) -> list[pa.RecordBatch]:
        try:
            batches = [self._file.get_batch(entry.first_batch + index) for index in range(entry.batches)]
            for batch in batches:
                batch.validate()
            intact = _checksum(batches) == entry.checksum
        except _DAMAGE as error:
            raise self._corrupt(error) from None
        if not intact or any(column.null_count for batch in batches for column in batch.columns):
            raise self._corrupt("the checksum does not match")
        return batches

    def _corrupt(self, why: object) -> LogCorrupt:
        return LogCorrupt(f"The segment {self._where} of the change log is damaged: {why}.")


def between(rows: pa.RecordBatch, start: LSN, end: LSN | None = None) -> pa.RecordBatch:
    """Of rows in commit order, those of transactions that end after ``start`` and not after ``end``.

    ``commit_lsn`` is where a commit's record begins: at or after the end of the transaction before it.
    """
    commits = rows.column("commit_lsn").to_numpy()
    if len(commits) == 0 or (commits[0] >= start and (end is None or commits[-1] < end)):
        return rows
    first = int(np.searchsorted(commits, np.uint64(start)))
    last = len(commits) if end is None else int(np.searchsorted(commits, np.uint64(end)))
    return rows.slice(first, max(last - first, 0))
