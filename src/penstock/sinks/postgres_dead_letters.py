"""``penstock.dead_letters`` in the target: rows that it refused, written in the transaction that writes all others.

There is at most one open letter of a key, and it is newer than what the target holds of that row: any later change of the
key, whether the target takes it or not, supersedes the letter. So an open letter can be applied at any time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from psycopg.types.json import Jsonb

from penstock.changes import Relation
from penstock.lsn import LSN
from penstock.postgres.connection import Connection
from penstock.sinks.contract import FailedChange, Merged
from penstock.sinks.postgres_bisect import RefusedRow
from penstock.sinks.postgres_kept import names_kept_of
from penstock.sinks.postgres_refusals import Refusal
from penstock.sinks.postgres_rows import RowChange, key_line, mentioned
from penstock.sinks.postgres_staging import StagedChanges
from penstock.sinks.target_owner import Owner

logger = logging.getLogger(__name__)


class LetterBox:
    """The dead letters of one sink, as its commits see them. Where there are none, they cost nothing."""

    def __init__(self, owner: Owner) -> None:
        self._owner, self._sink = owner, owner.sink
        self._tables: set[int] = set()  # with open letters, by the source's oid; or with some that are closed by now

    def look(self, connection: Connection) -> None:
        found = connection.execute(
            "SELECT DISTINCT oid FROM penstock.dead_letters WHERE (pipeline, sink) = (%s, %s) AND state = 'open'",
            list(self._owner),
        )
        self._tables = {oid for (oid,) in found}

    def held(self, connection: Connection, relation: Relation) -> dict[str, RowChange]:
        """The open ones of a table by key, each as the line that COPY would read."""
        return {line: change for line, (_, change) in self._by_key(connection, relation).items()}

    def hold_values_for(self, connection: Connection, staged: Iterable[StagedChanges]) -> bool:
        """Changes keep values of rows whose latest version is a letter: not the target has those values."""
        return any(
            names_kept_of(change, self.held(connection, change.relation))
            for change in staged
            if change.partly_kept and change.relation.oid in self._tables
        )

    def supersede(self, connection: Connection, staged: Iterable[StagedChanges]) -> None:
        """All letters of keys that these changes speak of, and those that a TRUNCATE has left behind."""
        for change in staged:
            if change.relation.oid not in self._tables:
                continue
            if change.truncated_at is not None:
                lsn, sequence = change.truncated_at
                self._settle(
                    connection, "oid = %s AND (lsn, sequence) < (%s, %s)", change.relation.oid, str(LSN(lsn)), sequence
                )
            letters = self._by_key(connection, change.relation)
            if gone := [letters[key][0] for key in mentioned(change, letters)]:
                self._settle(connection, "id = ANY (%s)", gone)

    def supersede_table(self, connection: Connection, oid: int, upto: LSN, merged: Merged | None) -> None:
        """The table was copied anew. Of merged tables, the letters of the others stay."""
        if merged is None:
            self._settle(connection, "oid = %s AND lsn <= %s", oid, str(upto))
        elif merged.origin is not None:
            self._settle(connection, "oid = %s AND lsn <= %s AND row->>%s = %s", oid, str(upto), *merged.origin)

    def put(self, connection: Connection, refused: Sequence[RefusedRow], failed: Sequence[FailedChange] = ()) -> None:
        """``failed``: rows that a rule's code could not make; letters without a row."""
        refused = [*refused, *map(_of_failed, failed)]
        if not refused:
            return
        self._tables |= {row.change.relation.oid for row in refused}
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO penstock.dead_letters (pipeline, sink, oid, source_schema, source_table, op, key, row, "
                "unchanged, relation, lsn, sequence, reason, sqlstate, constraint_name) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                [
                    [
                        *self._owner, change.relation.oid, change.relation.schema, change.relation.table, change.op,
                        Jsonb(dict(change.key)), Jsonb(dict(change.row)) if change.row is not None else None,
                        list(change.unchanged), Jsonb(change.relation.to_json()), str(change.lsn), change.sequence,
                        refusal.reason, refusal.sqlstate, refusal.constraint,
                    ]
                    for change, refusal in ((row.change, row.refusal) for row in refused)
                ],
            )  # fmt: skip

    def tell(self, refused: Sequence[RefusedRow], failed: Sequence[FailedChange] = ()) -> None:
        if failed:
            rows = f"{len(failed):,} rows" if len(failed) > 1 else "a row"
            logger.warning(
                "Sink %s: the rules could make nothing of %s, the first of %s, now dead letters: see `penstock dead-letters "
                "FILE list --sink %s`.", self._sink, rows, failed[0].relation.qualified_name, self._sink,
            )  # fmt: skip
        if not refused:
            return
        tables = Counter(row.change.relation.qualified_name for row in refused)
        logger.warning(
            "Sink %s: the target refused %s (%s), now %s: see `penstock dead-letters FILE list --sink %s`.",
            self._sink,
            f"{len(refused):,} rows" if len(refused) > 1 else "a row",
            ", ".join(f"{count:,} of {name}" for name, count in tables.items()),
            "dead letters" if len(refused) > 1 else "a dead letter",
            self._sink,
        )

    def _by_key(self, connection: Connection, relation: Relation) -> dict[str, tuple[int, RowChange]]:
        if relation.oid not in self._tables:
            return {}
        found = connection.execute(
            "SELECT id, op, key, row, unchanged, relation, lsn::text, sequence FROM penstock.dead_letters "
            "WHERE (pipeline, sink) = (%s, %s) AND oid = %s AND state = 'open' AND key <> '{}' ORDER BY id",
            [*self._owner, relation.oid],
        ).fetchall()
        letters = {}
        for id, op, key, row, unchanged, definition, lsn, sequence in found:
            line = key_line(key, relation)
            if line is not None:
                then = Relation.from_json(definition)
                letters[line] = id, RowChange(then, op, key, row, LSN.parse(lsn), sequence, tuple(unchanged))
        return letters

    def _settle(self, connection: Connection, which: str, *parameters: object) -> None:
        connection.execute(
            "UPDATE penstock.dead_letters SET state = 'superseded', settled_at = clock_timestamp() "
            f"WHERE (pipeline, sink) = (%s, %s) AND state = 'open' AND {which}".encode(),
            [*self._owner, *parameters],
        )


def _of_failed(failed: FailedChange) -> RefusedRow:
    change = RowChange(failed.relation, failed.op, failed.key, None, failed.lsn, failed.sequence)
    return RefusedRow(change, Refusal(failed.reason))
