from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.lsn import LSN
from penstock.sinks.events.formats.json import Transactions, lsn_text, timestamp_text
from penstock.testing.change_batches import changes, relation
from tests.sinks.events.properties import steady
from tests.sinks.events.reference_encoder import timestamp


@steady
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
@example([0, 1, 0xFFFFFFFF, 0x1_0000_0000, 2**64 - 1])
def test_an_lsn_prints_as_postgres_prints_it(lsns: list[int]) -> None:
    assert lsn_text(np.array(lsns, np.uint64)).to_pylist() == [str(LSN(lsn)) for lsn in lsns]


@steady
@given(st.lists(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999), min_size=1))
@example([0, -1, 86_399_999_999, 86_400_000_000])
def test_a_timestamp_is_iso_with_microseconds(times: list[int]) -> None:
    assert timestamp_text(np.array(times, np.int64)).to_pylist() == [timestamp(time) for time in times]


def test_each_change_gets_the_text_of_its_own_transaction() -> None:
    table = relation("public", "t", id="int8")
    batch = changes(table, [("insert", {"id": i}) for i in range(5)], lsn=[1, 1, 2, 2, 1])
    assert Transactions(batch).lsn().to_pylist() == ["0/1", "0/1", "0/2", "0/2", "0/1"]
