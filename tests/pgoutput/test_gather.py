from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pgoutput.columns import BigEndian, gather

DATA = bytes(range(64))


@settings(max_examples=150, derandomize=True, deadline=None)
@given(places=st.lists(st.integers(0, len(DATA)), max_size=20).map(sorted), mask=st.lists(st.booleans(), min_size=10))
def test_each_element_is_its_range_of_the_buffer(places: list[int], mask: list[bool]) -> None:
    ranges = list(zip(places[::2], places[1::2], strict=False))
    valid = (mask * 10)[: len(ranges)]
    starts, ends = (np.array([r[side] for r in ranges], np.int64) for side in (0, 1))
    expected = [DATA[start:end] for start, end in ranges]
    raw = pa.py_buffer(DATA)
    gathered = gather(raw, starts, ends, pa.binary())
    assert gathered.to_pylist() == expected
    some = gather(raw, starts, ends, pa.binary(), np.array(valid, np.bool_))
    some.validate(full=True)
    assert some.to_pylist() == [value if there else None for value, there in zip(expected, valid, strict=True)]


def test_numbers_are_read_at_any_place() -> None:
    numbers = BigEndian(np.frombuffer(DATA, np.uint8))
    places = np.array([0, 1, 7, 50])
    for width, read in ((2, numbers.u16), (4, numbers.u32), (8, numbers.i64)):
        assert read(places).tolist() == [int.from_bytes(DATA[p : p + width]) for p in places]


def test_a_place_past_the_end_reads_the_last_number() -> None:
    numbers = BigEndian(np.frombuffer(DATA, np.uint8))
    assert numbers.u16(np.array([63, 64, 1 << 40])).tolist() == [int.from_bytes(DATA[-2:])] * 3


def test_a_buffer_too_small_for_a_number_reads_zero() -> None:
    assert BigEndian(np.frombuffer(b"\1\2\3", np.uint8)).u32(np.array([0, 5])).tolist() == [0, 0]
