"""Which row of the DuckDB file a change concerns, and what is written where that is in doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import UnrepresentableValue
from penstock.testing.change_batches import changes, relation
from tests.sinks.duckdb_files import Lake

MOMENTS = relation("public", "moments", at="timestamptz", seen="timestamptz", key=("at",))
PLAIN, INFINITE = "2020-01-01 00:00:00+00", "infinity"


@pytest.mark.parametrize(
    "change",
    [
        ("insert", {"at": INFINITE}),
        ("update", {"at": INFINITE}),
        ("update", {"at": PLAIN}, {"at": INFINITE}),
        ("delete", None, {"at": INFINITE}),
    ],
)
def test_a_key_that_cannot_be_held_stops_the_sink_though_values_become_null(
    tmp_path: Path, change: tuple[object, ...]
) -> None:
    lake = Lake(tmp_path, unrepresentable="null")
    lake.deliver(changes(MOMENTS, [("insert", {"at": PLAIN, "seen": INFINITE})]))
    with pytest.raises(UnrepresentableValue, match="part of the key") as stopped:
        lake.deliver(changes(MOMENTS, [change], lsn=0x1100))
    assert "unrepresentable: text" in (stopped.value.advice or "")
    assert lake.rows("select seen from public.moments") == [(None,)]
