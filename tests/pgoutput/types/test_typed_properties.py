"""Random values there and back, and random garbage that must never come out as a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.changes.batch import Column
from penstock.errors import DecodeError, UnrepresentableValue
from tests.pgoutput.types.postgres_text import NUMERIC_10_2, cast, column, steady, write_time, write_timestamp

Written = st.SearchStrategy[tuple[str, Any]]  # a value as Postgres writes it, and the value


def _written(values: st.SearchStrategy[Any], write: Callable[[Any], str]) -> Written:
    return values.map(lambda value: (write(value), value))


def _write_float32(value: float) -> str:
    return str(np.float32(value))


STRATEGIES: dict[str, tuple[Column, Written]] = {
    "bool": (column("bool"), _written(st.booleans(), lambda b: "ft"[b])),
    "int2": (column("int2"), _written(st.integers(-(2**15), 2**15 - 1), str)),
    "int4": (column("int4"), _written(st.integers(-(2**31), 2**31 - 1), str)),
    "int8": (column("int8"), _written(st.integers(-(2**63), 2**63 - 1), str)),
    "oid": (column("oid"), _written(st.integers(0, 2**32 - 1), str)),
    "float8": (column("float8"), _written(st.floats(allow_nan=False, allow_infinity=False), repr)),
    "float4": (column("float4"), _written(st.floats(width=32, allow_nan=False, allow_infinity=False), _write_float32)),
    "numeric": (NUMERIC_10_2, _written(st.decimals(-99999999, 99999999, places=2), lambda d: f"{d:.2f}")),
    "bytea": (column("bytea"), _written(st.binary(max_size=40), lambda b: "\\x" + b.hex())),
    "date": (column("date"), _written(st.dates(), date.isoformat)),
    "time": (column("time"), _written(st.times(), write_time)),
    "timestamp": (column("timestamp"), _written(st.datetimes(), write_timestamp)),
    "timestamptz": (
        column("timestamptz"), _written(st.datetimes(timezones=st.just(UTC)), lambda t: f"{write_timestamp(t)}+00")
    ),
    "text": (column("text"), _written(st.text(st.characters(codec="utf-8")), str)),
}  # fmt: skip


@pytest.mark.parametrize("base", STRATEGIES)
@steady
@given(data=st.data())
def test_any_values_come_back(base: str, data: st.DataObject) -> None:
    of, written = STRATEGIES[base]
    rows = data.draw(st.lists(st.none() | written, max_size=8))
    assert cast([row and row[0] for row in rows], of) == [row and row[1] for row in rows]


# What each type's text means, read in the plainest way. ValueError (or the like) if it means nothing.
READERS: dict[str, Callable[[str], Any]] = {
    "bool": {"t": True, "f": False}.__getitem__,
    "int2": int, "int4": int, "int8": int, "oid": int, "float8": float,
    "float4": lambda text: float(np.float32(text)), "numeric": Decimal,
    "bytea": lambda text: bytes.fromhex(text.removeprefix("\\x")), "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat, "timestamptz": datetime.fromisoformat,
}  # fmt: skip

GARBAGE = st.text(max_size=30) | st.text(alphabet="0123456789-+:. eETZxNaInfityBC\\tf", max_size=24)


@st.composite
def slightly_wrong(draw: st.DrawFn, written: Written) -> str:
    """A sound value with one character changed, added or taken away."""
    text: str = draw(written)[0]
    at: int = draw(st.integers(0, len(text)))
    put: str = draw(st.sampled_from([*"0123456789-+:. eTZxNI\\tf\n\té", "", "00", " BC", "+01"]))
    gone: int = draw(st.integers(0, 1))
    return text[:at] + put + text[at + gone :]


@pytest.mark.parametrize("base", READERS)
@steady
@given(data=st.data())
def test_garbage_is_refused_or_read_right(base: str, data: st.DataObject) -> None:
    of, written = STRATEGIES[base]
    text = data.draw(GARBAGE | slightly_wrong(written))
    # Python has no year above 9999; test_typed_calendar.py has those.
    assume(base not in ("date", "timestamp", "timestamptz") or not text[:5].isdecimal())
    before: list[str | None] = data.draw(st.sampled_from([[], [None], [data.draw(written)[0]]]))
    try:
        result = cast([*before, text], of)[-1]
    except (DecodeError, UnrepresentableValue):
        return
    expected = READERS[base](text)
    assert result == expected or (math.isnan(result) and math.isnan(expected))


@steady
@given(GARBAGE)
def test_garbage_is_no_interval(text: str) -> None:
    assume(not text.replace(":", "").replace(".", "").lstrip("+-").isdigit())
    with pytest.raises((DecodeError, UnrepresentableValue)):
        cast(["1 day", text], column("interval"))
