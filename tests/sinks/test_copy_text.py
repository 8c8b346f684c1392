"""Text for COPY … FROM STDIN."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.sinks.postgres.staging import copy_lines, pieces

_VALUES = st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["\\", "\\N", "\\.", "a\tb", "a\nb", "\r\n", "", "\\t", "é", "N"]
)  # fmt: skip
_UNESCAPED = {"t": "\t", "n": "\n", "r": "\r", "\\": "\\"}


def _read(text: str, width: int) -> list[list[str | None]]:
    """As Postgres reads it: a line feed ends a row, a tab a value, unless they come after a backslash."""
    rows: list[list[str | None]] = []
    for line in text.split("\n")[:-1]:
        values = line.split("\t")
        assert len(values) == width
        rows.append([None if value == "\\N" else _unescaped(value) for value in values])
    return rows


def _unescaped(value: str) -> str:
    out, characters = "", iter(value)
    for character in characters:
        out += _UNESCAPED[next(characters)] if character == "\\" else character
    return out


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(_VALUES, min_size=width, max_size=width), max_size=6)))
def test_what_postgres_reads_is_what_was_written(rows: list[list[str | None]]) -> None:
    width = len(rows[0]) if rows else 1
    columns = [pa.array([row[index] for row in rows], pa.string()) for index in range(width)]
    text = b"".join(pieces(copy_lines(columns))).decode()
    assert _read(text, width) == rows


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_slice_gives_only_its_own_rows(start: int) -> None:
    column = pa.array(["a\tb", None, "c", "\\"]).slice(start, 2)
    assert b"".join(pieces(copy_lines([column]))).decode() == ["a\\tb\n\\N\n", "\\N\nc\n", "c\n\\\\\n"][start]


def test_long_text_comes_in_pieces_and_whole() -> None:
    column = pa.array(["x" * 700_000] * 5)
    parts = list(pieces(copy_lines([column])))
    assert len(parts) == 4
    assert b"".join(parts) == (b"x" * 700_000 + b"\n") * 5
