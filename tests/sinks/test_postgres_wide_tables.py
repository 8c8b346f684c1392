"""Tables as wide as Postgres has them: 1,600 columns, and rows that fill a page."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.lsn import LSN
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.sinks.test_postgres_sink import Copy, Replica

# As large as a row can be: 24 bytes, 430 bigints, 1,169 integers, and 18 bytes for a value that is stored elsewhere.
FULL = relation(
    "public", "full_rows",
    {**{f"b{n}": "bigint" for n in range(430)}, "id": "integer", **{f"i{n}": "integer" for n in range(1168)}, "body": "text"},
    key=("id",),
)  # fmt: skip
TEXTS = relation("public", "texts", {"id": "integer", **{f"t{n}": "text" for n in range(1599)}}, key=("id",))


def long_text(seed: int) -> str:
    return random.Random(seed).randbytes(1500).hex()


def full_row(id: int, body: Any, value: int = 1) -> dict[str, Any]:
    return {**{column.name: value for column in FULL.columns}, "id": id, "body": body}


@pytest.fixture
def replica(database: str, tmp_path: Path) -> Iterator[Replica]:
    with closing(Replica(database, tmp_path)) as found:
        yield found


@pytest.mark.parametrize("database", [16, 18], indirect=True)
def test_an_update_of_a_full_row_keeps_an_unchanged_value(replica: Replica) -> None:
    body = long_text(0)
    replica.deliver([changes(FULL, [("insert", full_row(1, body)), ("insert", full_row(2, "short"))])])
    updates = [("update", full_row(1, UNCHANGED, 2)), ("update", full_row(2, "b", 3))]
    replica.deliver([changes(FULL, updates, lsn=0x1010)])
    replica.deliver([changes(FULL, [("update", full_row(3, UNCHANGED, 4), {"id": 1})], lsn=0x2010)])
    assert replica.rows("select id, b0, i1167, body from full_rows order by id") == [(2, 3, 3, "b"), (3, 4, 4, body)]


def test_rows_that_keep_different_columns_together_keep_most_of_a_table(replica: Replica) -> None:
    fifths = [range(320 * n, min(320 * (n + 1), 1599)) for n in range(5)]
    rows = [{"id": n, **{f"t{column}": long_text(column) for column in some}} for n, some in enumerate(fifths)]
    replica.deliver([changes(TEXTS, [("insert", row) for row in rows])])
    updated = [{name: value if name in ("id", "t0") else UNCHANGED for name, value in row.items()} for row in rows]
    updated[1]["t0"] = "new"
    replica.deliver([changes(TEXTS, [("update", row) for row in updated], lsn=0x1010)])
    found = replica.rows("select * from texts order by id")
    rows[1]["t0"] = "new"
    assert [dict(zip(["id", *(f"t{n}" for n in range(1599))], row, strict=True)) for row in found] == [
        {column.name: row.get(column.name) for column in TEXTS.columns} for row in rows
    ]


def test_a_full_row_that_is_imported_keeps_an_unchanged_value(replica: Replica) -> None:
    body = long_text(0)
    copy = Copy(replica, table=FULL)
    copy.part("begin")
    copy.part("rows", changes(FULL, [("read", full_row(1, body))]), number=1)
    copy.part("changes", changes(FULL, [("update", full_row(1, UNCHANGED, 2))]), upto=LSN(0x200))
    copy.part("rows", changes(FULL, [("read", full_row(1, body, 3))]), number=2, replaces=True)
    copy.part("end", upto=LSN(0x200))
    assert replica.rows("select id, b0, body from full_rows") == [(1, 3, body)]


def test_a_refused_update_of_a_full_row_keeps_an_unchanged_value_when_it_is_replayed(
    database: str, tmp_path: Path
) -> None:
    body = long_text(0)
    with closing(Replica(database, tmp_path, on_error="dead_letter")) as replica:
        replica.deliver([changes(FULL, [("insert", full_row(1, body)), ("insert", full_row(2, body))])])
        replica.execute("alter table full_rows add check (b0 <> 2)")
        updates = [("update", full_row(1, UNCHANGED, 2)), ("update", full_row(2, UNCHANGED, 3))]
        replica.deliver([changes(FULL, updates, lsn=0x1010)])
        assert replica.rows("select id, b0 from full_rows order by id") == [(1, 1), (2, 3)]
        replica.execute("alter table full_rows drop constraint full_rows_b0_check")
        replica.sink.dead_letters().replay()
        assert replica.rows("select id, b0, body from full_rows order by id") == [(1, 2, body), (2, 3, body)]


def test_a_row_without_a_key_is_found_among_full_ones(database: str, tmp_path: Path) -> None:
    bag = relation("public", "full_rows", {c.name: c.type_name for c in FULL.columns}, identity="f")
    with closing(Replica(database, tmp_path)) as replica:
        replica.deliver([changes(bag, [("insert", full_row(1, "a")), ("insert", full_row(2, "b"))])])
        update = ("update", full_row(1, "a", 5), full_row(1, "a"))
        replica.deliver([changes(bag, [update, ("delete", None, full_row(2, "b"))], lsn=0x1010)])
        assert replica.rows("select id, b0 from full_rows") == [(1, 5)]
