"""A run of messages as NumPy vectors, and the changes in it with their transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.changelog.segment import ROWS
from penstock.changes.batch import MESSAGES, Bools, Int64s, UInt8s
from penstock.errors import DecodeError
from penstock.pgoutput import messages as pgoutput
from penstock.pgoutput.columns import BigEndian, gather

HEADER = 25  # XLogData: w, start LSN, end LSN, clock; then pgoutput's message
OWN_PREFIX = b"penstock\0"  # of pg_logical_emit_message: our heartbeats and marks, never delivered
_MOST_PAYLOAD = 1 << 30  # of one record batch: its offsets are 32-bit
# Whole messages of each kind are at least so long; the fields that are read for many at once lie within.
_SHORTEST = np.zeros(256, np.int64)
_SHORTEST[[ord(kind) for kind in "BCORYIUDTM"]] = [21, 26, 10, 10, 7, 8, 8, 8, 6, 15]

Chunk = tuple[bytes, Int64s]  # messages laid end to end, each with its header, and their lengths


def chunk(messages: list[bytes]) -> Chunk:
    """Packs messages, so that no object per message is kept."""
    return b"".join(messages), np.fromiter(map(len, messages), np.int64, len(messages))


@dataclass
class OpenTransaction:
    """The transaction that the last run ended in."""

    commit_lsn: int = 0
    xid: int = 0
    commit_time: int = 0
    rows: int = 0  # that came before


class Run:
    """Messages laid end to end, with vectors over them."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._bytes = b"".join([data for data, _ in chunks]) if len(chunks) > 1 else chunks[0][0]
        self.raw = pa.py_buffer(self._bytes)
        self.data: UInt8s = np.frombuffer(self._bytes, np.uint8)
        lengths = np.concatenate([lengths for _, lengths in chunks])
        self.offsets: Int64s = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=self.offsets[1:])
        self.begins = self.offsets[:-1] + HEADER
        self.kinds: UInt8s = self.data.take(self.begins, mode="clip")
        self.numbers = BigEndian(self.data)
        known = np.frombuffer(pgoutput.KINDS, np.uint8)
        if not np.isin(self.kinds, known).all():
            unknown = self.kinds[~np.isin(self.kinds, known)][0]
            raise DecodeError(f"Postgres sent a message of unknown kind {chr(unknown)!r}.")
        if (self.offsets[1:] - self.begins < _SHORTEST[self.kinds]).any():
            raise DecodeError("Postgres sent a message that ends too early.")
        self._ends = np.flatnonzero((self.kinds == pgoutput.COMMIT) | self._standalone()) + 1

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def _standalone(self) -> Bools:
        """Logical messages outside any transaction."""
        mask: Bools = self.kinds == pgoutput.MESSAGE
        places = np.flatnonzero(mask)
        if len(places):
            mask[places] = (self.data[self.begins[places] + 1] & 1) == 0
        return mask

    def payload(self, index: int) -> bytes:
        return self._bytes[self.begins[index] : self.offsets[index + 1]]

    def rest(self, first: int) -> Chunk:
        return self._bytes[self.offsets[first] :], np.diff(self.offsets[first:])

    def last_end(self, first: int, last: int | None = None) -> int:
        """One past the last message before ``last`` that ends a transaction; ``first`` if there is none."""
        place = np.searchsorted(self._ends, len(self) if last is None else last, "right")
        return max(int(self._ends[place - 1]), first) if place else first

    def end_lsn(self, index: int) -> int:
        """The end of the transaction whose last message this is."""
        payload = self.payload(index)
        message = pgoutput.parse(payload)
        if isinstance(message, pgoutput.Commit):
            return message.end_lsn
        assert isinstance(message, pgoutput.LogicalMessage)
        return message.lsn  # the end of its record, and not a byte more: a commit may begin right there


class Rows:
    """The changes among some messages of a run, each with its transaction's commit and its sequence."""

    def __init__(self, run: Run, first: int, last: int, open_transaction: OpenTransaction) -> None:
        self._run = run
        kinds = run.kinds[first:last]
        begins = run.begins[first:last]
        is_row = np.isin(kinds, np.frombuffer(b"IUDTM", np.uint8))
        self._drop_own_messages(kinds, begins, is_row)
        transactions = np.flatnonzero(kinds == pgoutput.BEGIN)
        places = begins[transactions]
        commit_lsns = np.append(open_transaction.commit_lsn, run.numbers.i64(places + 1))
        times = np.append(open_transaction.commit_time, run.numbers.i64(places + 9) + pgoutput.POSTGRES_EPOCH)
        xids = np.append(open_transaction.xid, run.numbers.u32(places + 17))
        self.begun = (int(commit_lsns[-1]), int(xids[-1]), int(times[-1]))

        self._index = np.flatnonzero(is_row)
        transaction = np.searchsorted(transactions, self._index, "right")  # 0: the one that was open before
        rows_before = np.append(0, np.cumsum(is_row)[transactions]) if len(kinds) else np.zeros(1, np.int64)
        position = np.arange(1, len(self._index) + 1)
        self._sequence = position - rows_before[transaction]
        self._sequence[transaction == 0] += open_transaction.rows
        self.in_last_transaction = int(np.count_nonzero(transaction == len(transactions)))
        self._commit_lsn, self._xid, self._commit_time = commit_lsns[transaction], xids[transaction], times[transaction]
        self._kinds, self._begins = kinds[self._index], begins[self._index]
        self._ends = run.offsets[first + 1 : last + 1][self._index]
        self._date_standalone_messages()
        self.count = len(self._index)
        self.last_commit_time = int(self._commit_time.max()) if self.count else int(times[-1])

    def _drop_own_messages(self, kinds: UInt8s, begins: Int64s, is_row: Bools) -> None:
        for index in np.flatnonzero(kinds == pgoutput.MESSAGE):
            prefix_at = begins[index] + 10
            if self._run.data[prefix_at : prefix_at + len(OWN_PREFIX)].tobytes() == OWN_PREFIX:
                is_row[index] = False

    def _date_standalone_messages(self) -> None:
        """A message outside a transaction has its own LSN, no xid, and the time at which the server sent it.

        Postgres gives the LSN at which its record ends. One less lies within the record, as a commit's LSN does: below
        the segment's end, and apart from a commit that begins right there.
        """
        message = np.flatnonzero(self._kinds == pgoutput.MESSAGE)
        alone = message[(self._run.data[self._begins[message] + 1] & 1) == 0]
        places = self._begins[alone]
        self._commit_lsn[alone] = self._run.numbers.i64(places + 2) - 1
        self._commit_time[alone] = self._run.numbers.i64(places - 8) + pgoutput.POSTGRES_EPOCH
        self._xid[alone], self._sequence[alone] = 0, 1

    def by_relation(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(relation oid, its rows in order); a Truncate goes to each of its relations."""
        if self.count == 0:
            return
        oids = self._run.numbers.u32(self._begins + 1)
        oids[self._kinds == pgoutput.MESSAGE] = MESSAGES.oid
        rows = np.arange(self.count)
        truncates = np.flatnonzero(self._kinds == pgoutput.TRUNCATE)
        if len(truncates):
            oids, rows = self._expand_truncates(truncates, oids, rows)
        order = np.argsort(oids, kind="stable")
        distinct, starts = np.unique(oids[order], return_index=True)
        for oid, members in zip(distinct, np.split(rows[order], starts[1:]), strict=True):
            for some in self._bounded(members):
                yield int(oid), self._record_batch(some)

    def _expand_truncates(self, truncates: Int64s, oids: Int64s, rows: Int64s) -> tuple[Int64s, Int64s]:
        pairs = []
        for row in truncates:
            message = pgoutput.parse(self._run.data[self._begins[row] : self._ends[row]].tobytes())
            assert isinstance(message, pgoutput.Truncate)
            pairs += [(oid, row) for oid in message.relation_oids]
        others = self._kinds != pgoutput.TRUNCATE
        all_oids = np.append(oids[others], [oid for oid, _ in pairs]).astype(np.int64)
        all_rows = np.append(rows[others], [row for _, row in pairs]).astype(np.int64)
        order = np.argsort(all_rows, kind="stable")
        return all_oids[order], all_rows[order]

    def _bounded(self, rows: Int64s) -> Sequence[Int64s]:
        total = np.cumsum(self._ends[rows] - self._begins[rows])
        if total[-1] <= _MOST_PAYLOAD:
            return [rows]
        return np.split(rows, np.searchsorted(total, np.arange(_MOST_PAYLOAD, total[-1], _MOST_PAYLOAD)))

    def _record_batch(self, rows: Int64s) -> pa.RecordBatch:
        payload = gather(self._run.raw, self._begins[rows], self._ends[rows], pa.binary())
        columns = [
            payload,
            pa.array(self._commit_lsn[rows].astype(np.uint64)),
            pa.array(self._sequence[rows].astype(np.uint32)),
            pa.array(self._xid[rows].astype(np.uint32)),
            pa.array(self._commit_time[rows]),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROWS)
