"""From the stream of messages to segments: whole transactions, clustered by relation, one definition per table.

Works on runs of some ten thousand messages at once, as NumPy vectors (``runs.py``); only Relation, Type and Truncate
messages, which are rare, are looked at one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from penstock.changelog.runs import Chunk, OpenTransaction, Rows, Run, chunk
from penstock.changelog.segment import SegmentContent, SegmentName
from penstock.changes.batch import MESSAGES, Bools, Relation, is_schema_log
from penstock.errors import DecodeError
from penstock.lsn import LSN
from penstock.pgoutput import messages as pgoutput

__all__ = ["Chunk", "Clusterer", "chunk"]

_CARRY_BYTES = 4 << 20  # of a begun transaction: kept as it is until its end comes

DescribeRelation = Callable[[pgoutput.RelationMessage, dict[int, pgoutput.TypeMessage]], Relation]


class Clusterer:
    """Stateful: give it every message in order, and it gives out segments.

    Rows gather in ``_gathered`` until a segment is cut: at ``segment_bytes``, before a schema change, or when asked to
    flush. What has gathered is either whole transactions or, of one larger than a segment, a part.
    """

    def __init__(self, position: LSN, describe: DescribeRelation, segment_bytes: int) -> None:
        self.position = position  # end of the last complete segment: the next one's start
        self.seen = position  # end of the last transaction, also of those without a row
        self.last_transaction: pgoutput.Begin | None = None
        self._describe = describe
        self._segment_bytes = segment_bytes
        self._relations: dict[int, tuple[bytes, Relation]] = {}
        self._types: dict[int, pgoutput.TypeMessage] = {}
        self._carry: list[Chunk] = []
        self._open = OpenTransaction()
        self._gathered: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._gathered_bytes = 0
        self._gathered_is_part = False  # of a transaction whose end has not come
        self._last_commit_time = 0
        self._parts = 0  # partial segments given out since the last complete one
        self._schema_change = True  # after a start nobody knows which definitions came before

    @property
    def in_transaction(self) -> bool:
        return bool(self._carry) or self._gathered_is_part or self._parts > 0

    @property
    def unflushed(self) -> bool:
        """Whole transactions that wait for more company."""
        return bool(self._gathered) and not self._gathered_is_part

    def add(self, received: list[Chunk], flush: bool = True) -> Iterator[SegmentContent]:
        """The segments that are cut with these messages. Empties ``received``: memory is for one copy."""
        chunks, self._carry = self._carry + received, []
        received.clear()
        if chunks:
            run = Run(chunks)
            chunks.clear()
            yield from self._take_in(run)
        if flush and not self._gathered_is_part:
            yield from self._cut_complete()

    def _take_in(self, run: Run) -> Iterator[SegmentContent]:
        done = 0
        for change in self._schema_changes(run):
            yield from self._gather(run, done, change)
            yield from self._cut()
            self._schema_change, done = True, change
            if run.kinds[change] == pgoutput.RELATION:
                self._adopt(run, change)
        ended = run.last_end(done)
        yield from self._gather_complete(run, done, ended)
        rest = int(run.offsets[-1] - run.offsets[ended])
        if rest >= min(_CARRY_BYTES, self._segment_bytes) or (rest and self._gathered_is_part):
            yield from self._gather_part(run, ended, len(run))
        elif rest:
            self._carry = [run.rest(ended)]

    def _schema_changes(self, run: Run) -> Iterator[int]:
        """Where a known table's definition changes, or a row of the schema log comes, which tells so beforehand; adopts first
        definitions on the way."""
        described = (run.kinds == pgoutput.RELATION) | (run.kinds == pgoutput.TYPE)
        for index in np.flatnonzero(described | self._schema_log_rows(run)).tolist():
            payload = run.payload(index)
            if run.kinds[index] == pgoutput.INSERT:
                yield index
                continue
            if run.kinds[index] == pgoutput.TYPE:
                message = pgoutput.parse(payload)
                assert isinstance(message, pgoutput.TypeMessage)
                self._types[message.oid] = message
                continue
            known = self._relations.get(int.from_bytes(payload[1:5]))
            if known is None and self._name_taken(payload):
                yield index
            elif known is None:
                self._adopt(run, index)
            elif known[0] != payload or self._key_changed(payload, known[1]):
                yield index

    def _schema_log_rows(self, run: Run) -> Bools:
        found = np.flatnonzero(run.kinds == pgoutput.RELATION).tolist()
        described = [pgoutput.parse(run.payload(index)) for index in found]
        logs = {oid for oid, (_, relation) in self._relations.items() if relation.is_schema_log}
        logs |= {
            m.oid for m in described if isinstance(m, pgoutput.RelationMessage) and is_schema_log(m.schema, m.table)
        }
        rows: Bools = run.kinds == pgoutput.INSERT
        if not logs:
            return np.zeros(len(run), np.bool_)
        inserts = np.flatnonzero(rows)
        rows[inserts] = np.isin(run.numbers.u32(run.begins[inserts] + 1), list(logs))
        return rows

    def _name_taken(self, payload: bytes) -> bool:
        """Another table had this name until now: it was dropped, or the two were swapped by renaming."""
        message = pgoutput.parse(payload)
        assert isinstance(message, pgoutput.RelationMessage)
        return any((r.schema, r.table) == (message.schema, message.table) for _, r in self._relations.values())

    def _key_changed(self, payload: bytes, known: Relation) -> bool:
        """With REPLICA IDENTITY FULL a message does not tell the primary key, which may have come or gone."""
        if known.identity != "f":
            return False
        message = pgoutput.parse(payload)
        assert isinstance(message, pgoutput.RelationMessage)
        return self._describe(message, self._types) != known

    def _adopt(self, run: Run, index: int) -> None:
        payload = run.payload(index)
        message = pgoutput.parse(payload)
        assert isinstance(message, pgoutput.RelationMessage)
        self._relations[message.oid] = (payload, self._describe(message, self._types))

    def _gather(self, run: Run, first: int, last: int) -> Iterator[SegmentContent]:
        ended = run.last_end(first, last)
        yield from self._gather_complete(run, first, ended)
        yield from self._gather_part(run, ended, last)

    def _gather_complete(self, run: Run, first: int, last: int) -> Iterator[SegmentContent]:
        """Messages up to the end of a transaction."""
        if last <= first:
            return
        rows = Rows(run, first, last, self._open)
        self._keep(rows)
        self.seen = max(self.seen, LSN(run.end_lsn(last - 1)))
        commit_lsn, xid, commit_time = rows.begun
        if xid:  # otherwise there are but messages outside transactions
            self.last_transaction = pgoutput.Begin(LSN(commit_lsn), commit_time, xid)
        self._open = OpenTransaction()
        self._gathered_is_part = False
        if self._gathered_bytes >= self._segment_bytes:
            yield from self._cut_complete()

    def _gather_part(self, run: Run, first: int, last: int) -> Iterator[SegmentContent]:
        """Messages of a transaction that goes on. They do not share a segment with whole transactions before them."""
        if last <= first:
            return
        if not self._gathered_is_part:
            yield from self._cut_complete()
        rows = Rows(run, first, last, self._open)
        self._keep(rows)
        self._open = OpenTransaction(*rows.begun, self._open.rows + rows.in_last_transaction)
        self._gathered_is_part = True
        if self._gathered_bytes >= self._segment_bytes:
            yield from self._cut_part()

    def _keep(self, rows: Rows) -> None:
        for oid, batch in rows.by_relation():
            self._gathered[oid].append(batch)
            self._gathered_bytes += batch.nbytes
        self._last_commit_time = rows.last_commit_time

    def _cut(self) -> Iterator[SegmentContent]:
        yield from self._cut_part() if self._gathered_is_part else self._cut_complete()

    def _cut_complete(self) -> Iterator[SegmentContent]:
        if self._gathered or self._parts:
            name = SegmentName(self.position, self.seen, self._parts, True, self._take_schema_change())
            self.position, self._parts = self.seen, 0
            yield self._content(name)

    def _cut_part(self) -> Iterator[SegmentContent]:
        if self._gathered:
            commit = LSN(self._open.commit_lsn)
            name = SegmentName(self.position, commit, self._parts, False, self._take_schema_change())
            self._parts += 1
            yield self._content(name)

    def _take_schema_change(self) -> bool:
        taken, self._schema_change = self._schema_change, False
        return taken

    def _content(self, name: SegmentName) -> SegmentContent:
        gathered = self._gathered
        self._gathered, self._gathered_bytes = defaultdict(list), 0
        relations = [(self._relation(oid), batches) for oid, batches in sorted(gathered.items())]
        return SegmentContent(name, relations, self._last_commit_time)

    def _relation(self, oid: int) -> Relation:
        if oid == MESSAGES.oid:
            return MESSAGES
        if oid not in self._relations:
            raise DecodeError(f"Postgres sent a change of relation {oid} without having described it.")
        return self._relations[oid][1]
