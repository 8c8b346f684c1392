"""What it costs to cast Postgres text to typed columns: ns per value. Run it as ``python -m bench.decode_types``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa

from penstock.changes.batch import Column
from penstock.pgoutput.types import typed

NUMERIC_12_2 = (12 << 16 | 2) + 4


def _column(base: str, modifier: int = -1, element: str | None = None) -> Column:
    return Column("value", 0, f"{element}[]" if element else base, base, modifier, element)


def _moment(microseconds: int) -> str:
    return f"{datetime(2020, 1, 1) + timedelta(microseconds=microseconds)}"


def _time(number: int) -> str:
    return f"{number % 24:02}:{number % 60:02}:{number % 59:02}.{number % 999999 + 1:06}"


# Name, column, and the text of a value from a random number below 10**14.
CASES: list[tuple[str, Column, Callable[[int], str]]] = [
    ("bool", _column("bool"), lambda n: "tf"[n % 2]),
    ("int4", _column("int4"), lambda n: str(n % 2_000_000)),
    ("int8", _column("int8"), lambda n: str(n % 10_000_000_000)),
    ("float8", _column("float8"), lambda n: repr(n / 1e7)),
    ("numeric(12,2)", _column("numeric", NUMERIC_12_2), lambda n: f"{n % 10_000_000 / 100:.2f}"),
    ("text", _column("text"), lambda n: f"customer {n}"),
    ("jsonb", _column("jsonb"), lambda n: f'{{"a": {n}, "tags": ["x", "y"]}}'),
    ("uuid", _column("uuid"), lambda n: f"{n:032x}"),
    ("bytea, 16 bytes", _column("bytea"), lambda n: f"\\x{n:032x}"),
    ("date", _column("date"), lambda n: _moment(n)[:10]),
    ("time", _column("time"), _time),
    ("timestamp", _column("timestamp"), _moment),
    ("timestamptz", _column("timestamptz"), lambda n: f"{_moment(n)}+00"),
    ("timestamptz, 1 % infinity", _column("timestamptz"), lambda n: f"{_moment(n)}+00" if n % 100 else "infinity"),
    ("interval", _column("interval"), lambda n: f"{n % 9 + 2} mons {n % 20 + 2} days {_time(n)}"),
    ("int4[], 3 elements", _column("array", element="int4"), lambda n: f"{{{n % 1000},{n % 7},NULL}}"),
    ("text[], 3 quoted", _column("array", element="text"), lambda n: f'{{"a \\"{n}\\"","b c",""}}'),
]
DESIGN_ROW = ("int8", "int4", "text", "numeric(12,2)", "timestamptz", "bool", "jsonb")


def seconds(text: pa.StringArray, column: Column, rounds: int = 5) -> float:
    """The best of several rounds, since other processes only ever make it slower."""
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        typed(text, column, "null")
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    pa.set_cpu_count(1)
    numbers = np.random.default_rng(7).integers(0, 10**14, rows).tolist()
    taken: dict[str, float] = {}
    print(f"{rows:,} rows\n{'type':<28}{'ns/value':>10}")
    for name, column, write in CASES:
        text = pa.array([write(number) for number in numbers], pa.string())
        taken[name] = seconds(text, column)
        print(f"{name:<28}{taken[name] / rows * 1e9:>10.1f}")
    print(f"{', '.join(DESIGN_ROW)}: {sum(taken[name] for name in DESIGN_ROW):.3f} s")


if __name__ == "__main__":
    main()
