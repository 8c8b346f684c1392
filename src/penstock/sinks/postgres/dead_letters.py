"""``penstock.dead_letters`` in the target: rows that it refused, written in the transaction that writes all others.

There is at most one open letter of a key, and it is newer than what the target holds of that row: any later change of the
key, whether the target takes it or not, supersedes the letter. So an open letter can be applied at any time.

Dead letters of a Postgres sink, listed, and tried again in short transactions, also beside a pipeline that runs.

A letter goes into the table that its source table has in the target now. Whoever commits a batch holds the lock on the
sink's position; so does each of these transactions: a letter that is open then is newer than what the target holds of the row.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.types.json import Jsonb

from penstock.changes.batch import Relation
from penstock.errors import SinkRefused
from penstock.lsn import LSN
from penstock.postgres.connection import Connection
from penstock.sinks.contract import FailedChange, Merged
from penstock.sinks.dead_letters import DeadLetter, Replayed
from penstock.sinks.mirror.owner import Owner
from penstock.sinks.postgres.bisect import RefusedRow
from penstock.sinks.postgres.changes import Applier
from penstock.sinks.postgres.kept import names_kept_of
from penstock.sinks.postgres.refusals import Refusal, RowRefused, is_of_a_row, refusal_of
from penstock.sinks.postgres.rows import HeldLines, RowChange, Values, held_row, key_line, line, mentioned
from penstock.sinks.postgres.session import Session
from penstock.sinks.postgres.staging import KEPT, LINES, StagedChanges
from penstock.sinks.postgres.target import Target, find

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


_LETTERS = sql.SQL(
    "SELECT id, sink, source_schema, source_table, op, key, row, lsn::text, sequence, reason, sqlstate, constraint_name, at "
    "FROM penstock.dead_letters WHERE (pipeline, sink) = (%(pipeline)s, %(sink)s) AND state = 'open' "
    "AND (%(schemas)s::text[] = '{}' OR (source_schema, source_table) IN "
    "(SELECT * FROM unnest(%(schemas)s::text[], %(tables)s::text[]))) ORDER BY id"
)


class PostgresDeadLetters:
    """Those of one sink."""

    def __init__(self, owner: Owner, session: Session, applier_of: Callable[[Connection], Applier]) -> None:
        self._owner, self._session, self._applier_of = owner, session, applier_of

    def count(self) -> int:
        with self._session.opened() as connection:
            if not _there(connection):
                return 0
            row = connection.execute(
                "SELECT count(*) FROM penstock.dead_letters WHERE (pipeline, sink) = (%s, %s) AND state = 'open'",
                list(self._owner),
            ).fetchone()
        return int(row[0]) if row is not None else 0

    def listed(self, tables: Sequence[tuple[str, str]] = ()) -> list[DeadLetter]:
        wanted = {"schemas": [schema for schema, _ in tables], "tables": [table for _, table in tables]}
        with self._session.opened() as connection:
            found = (
                connection.execute(_LETTERS, {**self._owner._asdict(), **wanted}).fetchall()
                if _there(connection)
                else []
            )
        return [replace(letter, lsn=LSN.parse(str(letter.lsn))) for letter in (DeadLetter(*row) for row in found)]

    def replay(self, tables: Sequence[tuple[str, str]] = ()) -> Replayed:
        """In the order of their commits. Rows that wait for others (foreign keys) are tried until nothing more goes in."""
        replayed: list[DeadLetter] = []
        waiting = self.listed(tables)
        while waiting:
            refused, went = [], len(replayed)
            for letter in waiting:
                refusal = self._tried(letter)
                if refusal is None:
                    replayed.append(letter)
                elif refusal.may_pass:
                    refused.append(letter)
            if len(replayed) == went:
                break
            waiting = refused
        left = self.listed(tables)
        return Replayed([letter for letter in replayed if letter.id not in {other.id for other in left}], left)

    def _tried(self, letter: DeadLetter) -> Refusal | None:
        """None: it went in, or was superseded meanwhile."""
        if letter.row is None and letter.op != "delete":
            return Refusal(letter.reason)  # a rule's code could make no row of it: the next change of the row may
        with self._session.transaction() as connection:
            connection.execute(
                "SELECT FROM penstock.progress WHERE (pipeline, sink) = (%s, %s) FOR UPDATE", list(self._owner)
            )
            row = connection.execute(
                "SELECT oid, unchanged, relation FROM penstock.dead_letters WHERE id = %s AND state = 'open' FOR UPDATE",
                [letter.id],
            ).fetchone()
            if row is None:
                return None
            relation = Relation.from_json(row[2])
            change = RowChange(relation, letter.op, letter.key, letter.row, letter.lsn, letter.sequence, tuple(row[1]))
            refusal = self._applied(connection, change, self._target(connection, row[0]))
            self._record(connection, letter.id, refusal)
        return refusal

    def _target(self, connection: Connection, oid: int) -> Target | None:
        place = connection.execute(
            "SELECT target_schema, target_table FROM penstock.tables WHERE (pipeline, sink) = (%s, %s) AND oid = %s",
            [*self._owner, oid],
        ).fetchone()
        return find(connection, *place) if place is not None else None

    def _applied(self, connection: Connection, change: RowChange, target: Target | None) -> Refusal | None:
        if target is None:
            return Refusal(f"{change.relation.qualified_name} is not in the target any more")
        applier = self._applier_of(connection)
        try:
            with applier.attempt():
                target.writable(change.relation)
                applier.apply([staged(change)], lambda _connection, _relation: target)
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        except psycopg.Error as error:
            if not is_of_a_row(error):
                raise
            return refusal_of(error).about(change.relation)
        except SinkRefused as error:
            return error.refusal if isinstance(error, RowRefused) else Refusal(error.message.rstrip("."))
        return None

    def _record(self, connection: Connection, id: int, refusal: Refusal | None) -> None:
        if refusal is None:
            connection.execute(
                "UPDATE penstock.dead_letters SET state = 'replayed', settled_at = clock_timestamp() WHERE id = %s",
                [id],
            )
        else:
            connection.execute(
                "UPDATE penstock.dead_letters SET reason = %s, sqlstate = %s, constraint_name = %s WHERE id = %s",
                [refusal.reason, refusal.sqlstate, refusal.constraint, id],
            )


def _there(connection: Connection) -> bool:
    """A sink that has never run has none."""
    return connection.execute("SELECT to_regclass('penstock.dead_letters')::oid").fetchone() != (None,)


def staged(change: RowChange) -> StagedChanges:
    """The one row, the way it came: an insert does not replace a row that somebody else has put there."""
    relation, at = change.relation, (int(change.lsn), change.sequence)
    nothing = StagedChanges(relation, None, at)
    if change.row is None:
        key = [change.key[name] for name in relation.key]
        return replace(nothing, deletes=_lines(key))
    if change.op == "delete":
        return replace(nothing, removed=held_row(change))
    if change.unchanged:
        kept = [index for index, column in enumerate(relation.columns) if column.name in change.unchanged]
        return _with_kept(replace(nothing, kept=tuple(kept)), change, change.row)
    kinds: dict[str, Any] = {"updates" if change.op == "update" and relation.key else "inserts": held_row(change)}
    return replace(nothing, **kinds)


def _with_kept(nothing: StagedChanges, change: RowChange, row: Values) -> StagedChanges:
    columns = change.relation.columns
    keys = [row[name] for name in change.relation.key] + [change.key[name] for name in change.relation.key]
    lines = {LINES: [line([row[columns[index].name] for index in nothing.never_kept])]}
    for number, group in enumerate(nothing.kept_groups):
        lines[f"{KEPT}{number}"] = [line([*keys, "1" * len(group), *(None for _ in group)])]
    return replace(nothing, partly_kept=HeldLines.of(pa.table(lines)))


def _lines(values: list[str | None]) -> HeldLines:
    return HeldLines.of(pa.table({LINES: [line(values)]}))
