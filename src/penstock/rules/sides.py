"""The two sides of changes, new values and old ones, as transforms read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import OLD_FULL, Bools, ChangeBatch, Relation


@dataclass(frozen=True)
class Side:
    """New or old values of a batch. What a transform may read besides its own column: the rule's input, in the same rows.

    A value that was not sent again is taken from the old row where that was sent whole.
    """

    relation: Relation
    side: Sequence[pa.Array]
    old: Sequence[pa.Array] | None
    old_kind: Any
    masks: Mapping[int, Bools]

    def _index(self, name: str) -> int:
        return next(index for index, column in enumerate(self.relation.columns) if column.name == name)

    def column(self, name: str) -> pa.Array:
        index = self._index(name)
        mask = self.masks.get(index)
        if mask is None or self.old is None:
            return self.side[index]
        return pc.if_else(pa.array(mask & (self.old_kind == OLD_FULL)), self.old[index], self.side[index])

    def unchanged(self, name: str) -> Bools | None:
        """Where the value is not known; None: nowhere."""
        mask = self.masks.get(self._index(name))
        return None if mask is None else mask & (self.old_kind != OLD_FULL)


def new_side(batch: ChangeBatch) -> Side:
    return Side(batch.relation, batch.new, batch.old if batch.unchanged else None, batch.old_kind, batch.unchanged)


def old_side(batch: ChangeBatch) -> Side:
    return Side(batch.relation, batch.old, None, batch.old_kind, {})
