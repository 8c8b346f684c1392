"""Which rows of two lists differ, found by DuckDB in memory that is bounded."""

from __future__ import annotations

from collections import Counter

import duckdb
import pyarrow as pa

from penstock.verify.target import Key


def suspects(source: pa.Table, target: pa.Table, of_source: bool = False) -> list[Key]:
    """The keys that only one of the two has, or has more often, or with another hash. Columns k0, k1, …, h. ``of_source``: not
    those that the target alone has."""
    names = [name for name in source.column_names if name != "h"]
    same = " AND ".join(f"a.{name} IS NOT DISTINCT FROM b.{name}" for name in names)
    keys = ", ".join(f"coalesce(a.{name}, b.{name})" for name in names)
    rows = f"SELECT {', '.join(names)}, (count(*), min(h), max(h)) AS seen FROM {{}} GROUP BY ALL"
    join = "LEFT JOIN" if of_source else "FULL JOIN"
    query = (
        f"SELECT {keys} FROM ({rows.format('s')}) AS a {join} ({rows.format('t')}) AS b ON {same} "
        "WHERE a.seen IS DISTINCT FROM b.seen ORDER BY ALL"
    )
    return _asked(query, source, target)


def bag_differences(source: pa.Table, target: pa.Table) -> tuple[Counter[Key], Counter[Key]]:
    """Of rows without a key: those that the source has more often, and those that the target has. By all columns but h."""
    names = ", ".join(name for name in source.column_names if name != "h")
    one, other = (
        Counter(_asked(f"SELECT {names} FROM {this} EXCEPT ALL SELECT {names} FROM {that}", source, target))
        for this, that in (("s", "t"), ("t", "s"))
    )
    return one, other


def _asked(query: str, source: pa.Table, target: pa.Table) -> list[Key]:
    with duckdb.connect(config={"autoinstall_known_extensions": "false", "memory_limit": "1GB"}) as engine:
        engine.register("s", source)
        engine.register("t", target)
        return [tuple(row) for row in engine.execute(query).fetchall()]
