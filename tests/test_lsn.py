from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.lsn import LSN, ZERO

POSITIONS = st.integers(0, 2**64 - 1)


@given(POSITIONS)
def test_a_position_survives_being_printed_and_read(position: int) -> None:
    assert LSN.parse(str(LSN(position))) == position


@given(POSITIONS, POSITIONS)
def test_positions_order_as_numbers_do(one: int, other: int) -> None:
    assert (LSN(one) < LSN(other)) == (one < other)


@given(POSITIONS)
def test_a_position_pickles_as_what_it_is(position: int) -> None:
    arrived = pickle.loads(pickle.dumps(LSN(position)))
    assert type(arrived) is LSN
    assert arrived == position


def test_it_prints_as_postgres_prints_it() -> None:
    assert str(LSN(0x16B3748)) == "0/16B3748"
    assert str(LSN(0x1_0000_002A)) == "1/2A"
    assert str(LSN(2**64 - 1)) == "FFFFFFFF/FFFFFFFF"
    assert repr(LSN(0x16B3748)) == "LSN(0/16B3748)"
    assert f"{ZERO}" == "0/0"


def test_lower_case_and_leading_zeros_are_read() -> None:
    assert LSN.parse("0/16b3748") == LSN.parse("00000000/016B3748") == 0x16B3748


@pytest.mark.parametrize(
    "text",
    ["", "/", "0", "0/", "/0", "0/G", "0/123456789", "123456789/0", "-1/0", "0/0 ", " 0/0", "0/0\n", "0x1/0", "1/2/3"],
)
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an LSN"):
        LSN.parse(text)


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        position = LSN.parse(text)
    except ValueError:
        return
    assert 0 <= position < 2**64
