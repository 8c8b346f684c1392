"""Values that Postgres did not send again (unchanged TOAST), looked up for changes that are to be applied row by row.

As long as a batch is applied in one go, the target's statements do it. Row by row, a value may have to be taken from

1. the latest version of the row that the target refused: what the target holds is older than that;
2. the target's row, before the row's key changes or another row takes its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from penstock.changes.batch import Bools, Relation
from penstock.postgres.connection import Connection
from penstock.sinks.postgres.changes import Applier
from penstock.sinks.postgres.refusals import is_of_a_row
from penstock.sinks.postgres.rows import (  # fmt: skip
    HeldLines,
    RowChange,
    Rows,
    Values,
    fields,
    held_row,
    kept_keys_of,
    key_line,
    own_keys_of_kept,
)
from penstock.sinks.postgres.staging import StagedChanges
from penstock.sinks.postgres.target import Target, as_written

Held = Mapping[str, RowChange]  # the latest refused version of a row, by its key as a line


class KeptValues:
    def __init__(self, connection: Connection, applier: Applier) -> None:
        self._connection, self._applier = connection, applier

    def settled(self, change: StagedChanges, target: Target, held: Held) -> tuple[StagedChanges, list[RowChange]]:
        """The changes without a value to be kept of another row; and those whose values are nowhere."""
        if change.partly_kept is None:
            return change, []
        wanted = self._to_look_up(change, held)
        if not wanted.any():
            return change, []
        rows = Rows(replace(change, removed=None, deletes=None, updates=None, inserts=None))
        under = np.concatenate([keys.to_numpy(zero_copy_only=False) for keys in kept_keys_of(change)])
        found = [self._found(rows.at(n), str(under[n]), target, held) for n in map(int, np.flatnonzero(wanted))]
        whole = [held_row(row).table() for row in found if not row.unchanged]
        before = [change.updates.table()] if change.updates else []
        rest = change.partly_kept.table().filter(pa.array(~wanted))
        return (
            replace(
                change,
                updates=HeldLines.of(pa.concat_tables([*before, *whole])) if before or whole else None,
                partly_kept=HeldLines.of(rest) if len(rest) else None,
            ),
            [row for row in found if row.unchanged],
        )

    def completed(self, row: RowChange, target: Target) -> RowChange:
        """With the values that the target's row has."""
        line = key_line(row.key, row.relation)
        return self._found(row, line, target, {}) if row.unchanged and line is not None else row

    def _to_look_up(self, change: StagedChanges, held: Held) -> Bools:
        assert change.partly_kept is not None
        own = list(own_keys_of_kept(change))
        masks = []
        for key, under in zip(own, kept_keys_of(change), strict=True):
            mask = pc.not_equal(key, under)
            if held:
                mask = pc.or_(mask, pc.is_in(under, pa.array(list(held), pa.string())))
            masks.append(mask.to_numpy(zero_copy_only=False))
        return np.concatenate(masks)

    def _found(self, row: RowChange, under: str, target: Target, held: Held) -> RowChange:
        assert row.row is not None
        refused = held.get(under)
        known: dict[str, str | None] = {}
        if refused is not None and refused.row is not None:
            known = {name: value for name, value in refused.row.items() if name not in refused.unchanged}
        if lacking := [name for name in row.unchanged if name not in known]:
            known |= self._of_target(row.relation, under, lacking, target)
        filled = {name: known[name] for name in row.unchanged if name in known}
        left = tuple(name for name in row.unchanged if name not in known)
        return replace(row, row={**row.row, **filled}, unchanged=left)

    def _of_target(self, relation: Relation, under: str, columns: Sequence[str], target: Target) -> Values:
        values = sql.SQL(", ").join(map(as_written, columns))
        key = [(f"k{place}", name) for place, name in enumerate(relation.key)]
        looked_for = sql.SQL(", ").join(
            sql.SQL("CAST({} AS {}) AS {}").format(sql.Literal(value), sql.SQL(column.type), sql.Identifier(alias))
            for (alias, name), value in zip(key, fields(under), strict=True)
            if (column := target.column(name)) is not None
        )
        query = sql.SQL("SELECT {} FROM {} t, (SELECT {}) s WHERE {}").format(
            values, target.rows, looked_for, target.same(key, "s")
        )
        try:
            with self._applier.attempt():
                row = self._connection.execute(query).fetchone()
        except psycopg.Error as error:  # a key that the target's type does not have
            if not is_of_a_row(error):
                raise
            return {}
        return dict(zip(columns, row, strict=True)) if row is not None else {}


def names_kept_of(change: StagedChanges, held: Held) -> bool:
    """Whether values are kept of rows that the target has refused the latest version of."""
    keys = pa.array(list(held), pa.string())
    return any(pc.any(pc.is_in(under, keys)).as_py() for under in kept_keys_of(change))
