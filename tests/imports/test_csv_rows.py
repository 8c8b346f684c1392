from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.changes.batch import OLD_NONE, READ, Relation
from penstock.errors import DecodeError
from penstock.lsn import LSN
from penstock.postgres.reading import csv_rows as module
from penstock.postgres.reading.csv_rows import csv_rows, read_rows
from penstock.testing.change_batches import relation

steady = settings(derandomize=True, deadline=None, max_examples=300)

VALUES = st.one_of(
    st.none(),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12),
    st.text(st.sampled_from(',"\n\r\\. \tNULLé\ufeff'), max_size=8),
    st.sampled_from(["", "NULL", "null", "\\N", "\\.", '"', '""', "\r\n", "#N/A", "nan", "\ufeff", "  ", "\x1a"]),
)
TABLES = st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(VALUES, min_size=width, max_size=width), min_size=1))
BATCH = LSN(0x16B3748)


def table_of(width: int) -> Relation:
    return relation("public", "t", {f"c{index}": "text" for index in range(width)})


def written(rows: Sequence[Sequence[str | None]]) -> bytes:
    """As Postgres writes CSV (CopyAttributeOutCSV)."""
    return "".join(",".join(_field(value, len(row) == 1) for value in row) + "\n" for row in rows).encode()


def _field(value: str | None, alone: bool) -> str:
    if value is None:
        return ""
    quoted = value == "" or (alone and value == "\\.") or set(value) & set(',"\n\r')
    return '"' + value.replace('"', '""') + '"' if quoted else value


def rows_of(columns: Sequence[pa.Array]) -> list[list[str | None]]:
    return [list(row) for row in zip(*(column.to_pylist() for column in columns), strict=True)]


@steady
@given(rows=TABLES)
@example(rows=[[None]])
@example(rows=[[None], [None], ["a"], [None]])
@example(rows=[["\ufeff"]])
@example(rows=[["\ufeff\ufeffa", None], ["\ufeff", ""]])
def test_rows_are_what_postgres_wrote(rows: list[list[str | None]]) -> None:
    columns = csv_rows(table_of(len(rows[0])), pa.py_buffer(written(rows)))
    assert [column.type for column in columns] == [pa.string()] * len(rows[0])
    assert rows_of(columns) == rows


@steady
@given(rows=TABLES, cuts=st.lists(st.integers(0, 200), max_size=3))
def test_batches_hold_all_rows_in_order_however_the_pieces_are_cut(
    rows: list[list[str | None]], cuts: list[int]
) -> None:
    places = sorted({0, len(rows), *(cut % (len(rows) + 1) for cut in cuts)})
    pieces = [pa.py_buffer(written(rows[a:b])) for a, b in pairwise(places)]
    batches = list(read_rows(table_of(len(rows[0])), iter(pieces), BATCH, 7, 1_763_190_160_290_389))
    assert [row for batch in batches for row in rows_of(batch.new)] == rows
    assert [number for batch in batches for number in batch.sequence] == list(range(7, 7 + len(rows)))


def test_a_row_is_a_read_at_the_imports_lsn_without_an_old_row() -> None:
    table = table_of(2)
    (batch,) = read_rows(table, iter([pa.py_buffer(b"1,a\n2,\n")]), BATCH, 1, 1_763_190_160_290_389)
    assert batch.relation is table
    assert batch.op.tolist() == [READ] * 2
    assert batch.commit_lsn.tolist() == [BATCH] * 2
    assert batch.sequence.tolist() == [1, 2]
    assert batch.xid.tolist() == [0, 0]
    assert batch.commit_time.tolist() == [1_763_190_160_290_389] * 2
    assert batch.old_kind.tolist() == [OLD_NONE] * 2
    members = (batch.op, batch.commit_lsn, batch.sequence, batch.xid, batch.commit_time, batch.old_kind)
    assert [str(member.dtype) for member in members] == ["uint8", "uint64", "uint32", "uint32", "int64", "uint8"]
    assert [array.to_pylist() for array in batch.old] == [[None, None], [None, None]]
    assert batch.unchanged == {}


def test_no_rows_make_no_batch() -> None:
    assert list(read_rows(table_of(2), iter([]), BATCH, 1, 0)) == []


def test_a_table_without_columns_has_rows_all_the_same() -> None:
    pieces = [pa.py_buffer(b"\n" * 3), pa.py_buffer(b"\n" * 2)]
    (batch,) = read_rows(table_of(0), iter(pieces), BATCH, 1, 0)
    assert (len(batch), batch.new, batch.old, batch.sequence.tolist()) == (5, [], [], [1, 2, 3, 4, 5])


def test_batches_are_bounded_and_their_numbers_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 40)
    pieces = [pa.py_buffer(b"a\nb\nc\nd\ne\nf\ng\nh\n")] * 7
    batches = list(read_rows(table_of(1), iter(pieces), BATCH, 1, 0))
    assert [(len(batch), int(batch.sequence[0])) for batch in batches] == [(24, 1), (24, 25), (8, 49)]


def test_pieces_are_parsed_only_when_their_batch_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 1)
    pieces = iter([pa.py_buffer(b"a\n"), pa.py_buffer(b"b\n")])
    batches = read_rows(table_of(1), pieces, BATCH, 1, 0)
    next(batches)
    assert next(pieces).to_pybytes() == b"b\n"


def test_a_large_row_is_read_whole() -> None:
    value = 'x",\n' * 5_000_000
    columns = csv_rows(table_of(2), pa.py_buffer(written([["1", "a"], ["2", value], ["3", None]])))
    assert rows_of(columns) == [["1", "a"], ["2", value], ["3", None]]


def test_as_many_columns_as_a_table_can_have() -> None:
    row = [str(index) if index % 3 else None for index in range(1600)]
    assert rows_of(csv_rows(table_of(1600), pa.py_buffer(written([row])))) == [row]


def test_text_that_is_not_utf8_is_refused_by_its_column() -> None:
    table = relation("public", "orders", {"id": "int8", "note": "text"})
    with pytest.raises(
        DecodeError, match=r"table public\.orders cannot be read: column note holds text that is not UTF"
    ):
        csv_rows(table, pa.py_buffer(b"1,caf\xe9\n"))


def test_rows_of_another_width_are_refused() -> None:
    with pytest.raises(DecodeError) as refused:
        csv_rows(table_of(2), pa.py_buffer(b"1,s3cr3t,3\n"))
    assert (
        str(refused.value) == "Rows of table public.t cannot be read: Expected 2 columns, got 3."
    )  # and shows no value
