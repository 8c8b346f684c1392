"""Functions that rules of tests name."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def positive_cents(table: pa.Table) -> pa.Table:
    """``select *, amount * 100 as cents from changes where amount > 0``"""
    kept = table.filter(pc.greater(table["amount"], 0))
    return kept.append_column("cents", pc.cast(pc.multiply(kept["amount"], pa.scalar(100)), pa.int64(), safe=False))


def unchanged(table: pa.Table) -> pa.Table:
    return table


def as_it_is(frame: Any) -> Any:
    return frame


def without_sequence(table: pa.Table) -> pa.Table:
    return table.drop_columns(["_sequence"])


def without_key(table: pa.Table) -> pa.Table:
    return table.drop_columns(["id"])


def twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table])


def other_keys(table: pa.Table) -> pa.Table:
    return table.set_column(0, "id", pc.add(table["id"], 1))


def other_changes(table: pa.Table) -> pa.Table:
    place = table.schema.get_field_index("_sequence")
    return table.set_column(place, "_sequence", pc.add(table["_sequence"], 1000))


def raising(table: pa.Table) -> pa.Table:
    if len(table):
        raise ValueError(str(table["note"].to_pylist()))
    return table


def always_raising(table: pa.Table) -> pa.Table:
    raise KeyError("secret")


def no_table(table: pa.Table) -> Any:
    return table.to_pylist()


def lists(table: pa.Table) -> pa.Table:
    return table.append_column("many", pa.array([[1]] * len(table), pa.list_(pa.int64())))


def only_with_rows(table: pa.Table) -> pa.Table:
    return table.append_column("late", table["id"]) if len(table) else table


def every_type(table: pa.Table) -> pa.Table:
    """A column more of each type that there is a Postgres type for."""
    count = len(table)
    for name, kind in {
        "a": pa.bool_(), "b": pa.int8(), "c": pa.float32(), "d": pa.decimal128(20, 4), "e": pa.date32(),
        "f": pa.timestamp("ms"), "g": pa.timestamp("ns", "Europe/Berlin"), "h": pa.large_binary(), "i": pa.large_string(),
    }.items():  # fmt: skip
        table = table.append_column(name, pa.nulls(count, kind))
    return table


def no_frame(frame: Any) -> Any:
    return 7
