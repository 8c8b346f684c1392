"""The other way: typed Arrow columns as Postgres would write their values, and the Postgres types that hold them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import Column
from penstock.pgoutput.types.flat import flatten, validity

_HEADER = 4  # what Postgres adds to a type modifier (VARHDRSZ)
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, in days from 1970
_NULL = pa.scalar(None, pa.string())


class NoPostgresType(Exception):
    """An Arrow type that no Postgres type stands for here."""


class NotWritable(Exception):
    """A value that Postgres has no place for, or that Arrow would write otherwise."""


def column_for(name: str, kind: pa.DataType, in_identity: bool = False) -> Column:
    """A column of the Postgres type that holds every value of the Arrow type."""
    oid, declared, base, modifier = _postgres_type(plain(kind))
    return Column(name, oid, declared, base, modifier, in_identity=in_identity)


def written(values: pa.Array) -> pa.StringArray:
    """As Postgres writes them under the settings that capture uses. NotWritable where it cannot be."""
    values = values.cast(plain(values.type))
    writer = next((writer for is_one, writer in _WRITERS if is_one(values.type)), None)
    if writer is None:
        raise NoPostgresType(str(values.type))
    return writer(values)


def plain(kind: pa.DataType) -> pa.DataType:
    """One Arrow type for all that mean the same."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain(kind.value_type)
    if types.is_null(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if types.is_date(kind):
        return pa.date32()
    if types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}.get(kind.bit_width, pa.decimal128(20, 0))
    if types.is_int8(kind):
        return pa.int16()
    return pa.float32() if types.is_float16(kind) else kind


_SIMPLE = {
    pa.bool_(): (16, "boolean", "bool"), pa.int16(): (21, "smallint", "int2"), pa.int32(): (23, "integer", "int4"),
    pa.int64(): (20, "bigint", "int8"), pa.float32(): (700, "real", "float4"),
    pa.float64(): (701, "double precision", "float8"), pa.string(): (25, "text", "text"),
    pa.binary(): (17, "bytea", "bytea"), pa.date32(): (1082, "date", "date"),
    pa.timestamp("us"): (1114, "timestamp without time zone", "timestamp"),
    pa.timestamp("us", "UTC"): (1184, "timestamp with time zone", "timestamptz"),
}  # fmt: skip


def _postgres_type(kind: pa.DataType) -> tuple[int, str, str, int]:
    if kind in _SIMPLE:
        return *_SIMPLE[kind], -1
    if pa.types.is_decimal(kind) and kind.scale >= 0:
        modifier = (kind.precision << 16 | kind.scale) + _HEADER
        return 1700, f"numeric({kind.precision},{kind.scale})", "numeric", modifier
    raise NoPostgresType(str(kind))


def _booleans(values: pa.Array) -> pa.StringArray:
    return pc.if_else(values, "t", "f")


def _as_arrow(values: pa.Array) -> pa.StringArray:
    return values.cast(pa.string())


def _floats(values: pa.Array) -> pa.StringArray:
    text = values.cast(pa.string())
    for number, word in ((float("inf"), "Infinity"), (float("-inf"), "-Infinity")):
        text = pc.if_else(pc.fill_null(pc.equal(values, number), False), word, text)
    return pc.if_else(pc.fill_null(pc.is_nan(values), False), "NaN", text)


def _decimals(values: pa.Array) -> pa.StringArray:
    """All digits: Arrow would write small numbers with an exponent."""
    scale = values.type.scale
    whole = pa.decimal256(76, 0) if pa.types.is_decimal256(values.type) else pa.decimal128(38, 0)
    unscaled = pa.Array.from_buffers(whole, len(values), values.buffers(), offset=values.offset).cast(pa.string())
    if scale == 0:
        return unscaled
    negative = pc.starts_with(unscaled, "-")
    digits = pc.utf8_lpad(pc.utf8_ltrim(unscaled, "-"), scale + 1, "0")
    before = pc.utf8_slice_codeunits(digits, 0, -scale)
    after = pc.utf8_slice_codeunits(digits, -scale)
    return pc.binary_join_element_wise(pc.if_else(negative, "-", ""), before, ".", after, "")


def _dates(values: pa.Array) -> pa.StringArray:
    _refuse_far(values.view(pa.int32()), 1)
    return values.cast(pa.string())


def _timestamps(values: pa.Array) -> pa.StringArray:
    """Postgres writes no zeros at the end of a fraction."""
    _refuse_far(values.view(pa.int64()), 86_400_000_000)
    text = pc.utf8_rtrim(pc.utf8_rtrim(values.cast(pa.timestamp("us")).cast(pa.string()), "0"), ".")
    return pc.binary_join_element_wise(text, "+00", "") if values.type.tz else text


def _refuse_far(counts: pa.Array, per_day: int) -> None:
    ends = pc.min_max(counts).as_py()
    if ends["min"] is None:
        return
    if ends["min"] < _FIRST_DAY * per_day or ends["max"] >= (_LAST_DAY + 1) * per_day:
        raise NotWritable("a date before the year 1 or after 9999")


def _bytes(values: pa.Array) -> pa.StringArray:
    data, offsets = flatten(values)
    digits = np.frombuffer(data.tobytes().hex().encode(), np.uint8)
    doubled = pa.py_buffer(np.ascontiguousarray(offsets * 2, np.int32))
    text = pa.StringArray.from_buffers(len(values), doubled, pa.py_buffer(digits), validity(values))
    return pc.binary_join_element_wise("\\x", text, "")


_WRITERS: list[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array], pa.StringArray]]] = [
    (pa.types.is_string, lambda values: values),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _as_arrow),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_date, _dates),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_binary, _bytes),
]
