"""Reads a chunk of a table in one short transaction, and knows whether it may be used.

1. A transaction begins, read only. For a table that is read whole it keeps one snapshot, which the reader reports: the
   transactions that it saw are left out when the table's changes are replayed.
2. COPY takes the rows. From its first moment until the transaction ends, its lock (ACCESS SHARE) keeps the table from
   being rewritten, altered, truncated or dropped. It waits for that lock only briefly.
3. Under that lock the layout is looked up again. If the heaps or the definition are no longer those that the chunk was
   planned for, rows may be missing, since pages move when a table is rewritten: LayoutChanged. This also covers what
   happened while COPY waited for its lock, when its snapshot was taken already.
4. The transaction ends. Only now are the rows parsed and handed out, so that nothing that a sink does makes it longer;
   unless there is more than ``most_bytes``, which would take too much memory.

Which transactions a snapshot saw. https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-SNAPSHOT
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.changes.batch import Bools, ChangeBatch, UInt32s
from penstock.errors import SourceError, SourceRefused, SourceUnavailable
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, connect, source_error, translated_errors
from penstock.postgres.reading.chunks import Chunk, chunk_query
from penstock.postgres.reading.copy_out import copy_out
from penstock.postgres.reading.csv_rows import csv_rows, read_rows
from penstock.postgres.reading.layout import Leaf, TableLayout, table_layout
from penstock.postgres.replication_stream import PINNED_SETTINGS

__all__ = ["MOST_BYTES", "ChunkReader", "LayoutChanged", "csv_rows", "read_rows"]

MOST_BYTES = 96 << 20  # of CSV held in memory until the transaction has ended

_LOCK_TIMEOUT = "5s"
_SETTINGS = f"{PINNED_SETTINGS}; set max_parallel_workers_per_gather = 0; set jit = off"  # one backend for one chunk
_TIMEOUTS = """
select set_config(name, case name when 'lock_timeout' then %s else '0' end, false) from pg_settings
where name in ('lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
"""


class LayoutChanged(SourceError):
    """A chunk was planned for a table that is not the same any more. The import begins anew."""


class ChunkReader:
    """Reads one chunk, once. ``snapshot``: that of a chunk of kind "whole", known when the first batch is.

    ``publications``: those that the layout was made with. ``first_sequence``: the number of the first row.
    """

    def __init__(
        self,
        url: str,
        layout: TableLayout,
        chunk: Chunk,
        from_lsn: LSN,
        publications: Sequence[str],
        *,
        first_sequence: int = 1,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._url, self._layout, self._chunk, self._from_lsn = url, layout, chunk, from_lsn
        self._publications, self._first_sequence, self._most_bytes = publications, first_sequence, most_bytes
        self.snapshot: str | None = None

    def batches(self) -> Generator[ChangeBatch, None, None]:
        """The chunk's rows as changes with op READ at the import's LSN. Whatever happens, the connection is closed."""
        with closing(connect(self._url, application_name="penstock copy")) as connection:
            commit_time = self._begin(connection)
            with closing(self._pieces(connection)) as pieces:
                yield from read_rows(self._layout.relation, pieces, self._from_lsn, self._first_sequence, commit_time)

    @property
    def _leaves(self) -> tuple[Leaf, ...]:
        """The heaps that the chunk's rows lie in."""
        leaves, index = self._layout.leaves, self._chunk.leaf
        return leaves if index is None else (leaves[index],)

    @property
    def _source(self) -> tuple[int, str, str]:
        """Oid, schema and name of the table that the query names."""
        if self._chunk.leaf is None:
            relation = self._layout.relation
            return relation.oid, relation.schema, relation.table
        leaf = self._layout.leaves[self._chunk.leaf]
        return leaf.oid, leaf.schema, leaf.table

    @property
    def _doing(self) -> str:
        return f"Reading table {self._layout.relation.qualified_name}"

    def _begin(self, connection: Connection) -> int:
        """Returns the time of the transaction's beginning, in microseconds."""
        whole = self._chunk.kind == "whole"
        with translated_errors(self._doing):
            connection.execute(_SETTINGS)
            connection.execute(_TIMEOUTS, [_LOCK_TIMEOUT])
            level = "repeatable read" if whole else "read committed"
            connection.execute(f"begin transaction isolation level {level}, read only")
            row = connection.execute(
                "select (extract(epoch from transaction_timestamp()) * 1000000)::bigint, pg_current_snapshot()::text"
            ).fetchone()
        assert row is not None
        self.snapshot = row[1] if whole else None
        return int(row[0])

    def _pieces(self, connection: Connection) -> Generator[pa.Buffer, None, None]:
        """CSV; all of it from memory once the transaction has ended, if it is not too much."""
        held: deque[pa.Buffer] = deque()
        size = 0
        with closing(self._copied(connection)) as pieces:
            for piece in pieces:
                held.append(piece)
                size += piece.size
                while size >= self._most_bytes:
                    size -= held[0].size
                    yield held.popleft()
        self._check_layout(connection)
        with translated_errors(self._doing):
            connection.execute("commit")
        connection.close()
        while held:
            yield held.popleft()

    def _copied(self, connection: Connection) -> Generator[pa.Buffer, None, None]:
        try:
            with closing(copy_out(connection, chunk_query(self._layout, self._chunk))) as pieces:
                yield from pieces
        except psycopg.Error as error:
            raise self._explained(connection, error) from error

    def _check_layout(self, connection: Connection) -> None:
        now = table_layout(connection, self._layout.relation.oid, self._publications)
        if now is None or not self._holds(now) or not self._name_holds(connection):
            raise LayoutChanged(
                f"Table {self._layout.relation.qualified_name} was altered, rewritten, truncated or dropped while it "
                "was copied."
            )

    def _holds(self, now: TableLayout) -> bool:
        """Partitions that were attached since do not matter to this chunk."""
        before = self._layout
        heaps = {_heap(leaf) for leaf in now.leaves}
        return (
            now.relation == before.relation
            and (now.row_filter, now.leaves_out, now.key_order)
            == (before.row_filter, before.leaves_out, before.key_order)
            and all(_heap(leaf) in heaps for leaf in self._leaves)
        )

    def _name_holds(self, connection: Connection) -> bool:
        """Whether the name that COPY went by is that of our table. Looked up as COPY does, not by the snapshot."""
        oid, schema, table = self._source
        name = sql.Identifier(schema, table).as_string(connection)
        with translated_errors(self._doing):
            row = connection.execute("select to_regclass(%s)::oid", [name]).fetchone()
        return row == (oid,)

    def _explained(self, connection: Connection, error: psycopg.Error) -> SourceError:
        """What an error of COPY comes from: a table that is not the same any more, or missing rights."""
        meant = source_error(error, self._doing)
        if isinstance(meant, SourceUnavailable) or connection.closed:
            return meant
        with translated_errors(self._doing):
            connection.execute("rollback")
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return SourceRefused(meant.message, self._missing_right(connection))
        try:
            self._check_layout(connection)
        except LayoutChanged as changed:
            return changed
        return meant

    def _missing_right(self, connection: Connection) -> str | None:
        oid, schema, table = self._source
        with translated_errors(self._doing):
            row = connection.execute(
                "select current_user::text, has_schema_privilege(relnamespace, 'usage'), "
                "has_table_privilege(oid, 'select'), row_security_active(oid) from pg_class where oid = %s",
                [oid],
            ).fetchone()
        if row is None:
            return None
        user, may_use, may_select, hidden = row
        role, schema_name = sql.Identifier(user).as_string(connection), sql.Identifier(schema).as_string(connection)
        name = sql.Identifier(schema, table).as_string(connection)
        if not may_use:
            return f"Run as the owner of the schema: GRANT USAGE ON SCHEMA {schema_name} TO {role}."
        if not may_select:
            return f"Run as the owner of the table: GRANT SELECT ON {name} TO {role}."
        if hidden:
            return (
                f"Row-level security would hide rows of it. Connect as the owner of the table, or run as a superuser: "
                f"ALTER ROLE {role} BYPASSRLS."
            )
        return None


def _heap(leaf: Leaf) -> tuple[int, int, str, str]:
    return leaf.oid, leaf.filenode, leaf.schema, leaf.table


def seen_by(snapshot: str, xids: UInt32s) -> Bools:
    """Of committed transactions: whether the snapshot (``xmin:xmax:xip,…``, 64 bits each) sees what they wrote.

    The ids in the WAL have 32 bits and wrap around; two that are compared are never half of the circle apart.
    """
    _xmin, xmax, running = snapshot.split(":")
    distance = (np.uint64(int(xmax)).astype(np.uint32) - xids).astype(np.int32)
    in_progress = np.array([int(xid) & 0xFFFFFFFF for xid in running.split(",") if xid], np.uint32)
    seen: Bools = (distance > 0) & ~np.isin(xids, in_progress)
    return seen
