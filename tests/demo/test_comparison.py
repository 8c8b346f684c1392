"""The demo's proof has to notice every difference."""

from __future__ import annotations

from pathlib import Path

import duckdb
import psycopg
import pytest

from penstock.demo.comparison import TableComparison, compare

SOURCE = """
CREATE TABLE items (id int PRIMARY KEY, price numeric(10,2), note text, seen_at timestamptz);
INSERT INTO items VALUES (1, 1.50, '', '2026-01-01 00:00+00'), (2, NULL, NULL, NULL), (3, 9.99, E'a\\n"b",c', 'now');
CREATE TABLE bag (word text);
INSERT INTO bag VALUES ('a'), ('a'), ('b')
"""
MIRROR = "CREATE SCHEMA public; CREATE TABLE public.items (id INTEGER, price DECIMAL(10,2), note VARCHAR, seen_at TIMESTAMPTZ)"


@pytest.fixture
def mirror(tmp_path: Path, database: str) -> Path:
    """Equal to the source, made by hand."""
    file = tmp_path / "it's a mirror.duckdb"
    with psycopg.connect(database, autocommit=True) as source, duckdb.connect(str(file)) as target:
        source.execute(SOURCE)
        target.execute(MIRROR)
        now = source.execute("SELECT seen_at::text FROM items WHERE id = 3").fetchone()
        assert now is not None
        target.execute("INSERT INTO public.items VALUES (3, 9.99, ?, ?::TIMESTAMPTZ)", ['a\n"b",c', now[0]])
        target.execute("INSERT INTO public.items VALUES (1, 1.5, '', '2026-01-01 00:00+00'), (2, NULL, NULL, NULL)")
        target.execute("CREATE TABLE public.bag (word VARCHAR); INSERT INTO public.bag VALUES ('b'), ('a'), ('a')")
    return file


def compared(database: str, mirror: Path) -> dict[str, TableComparison]:
    with psycopg.connect(database, autocommit=True) as source:
        return {comparison.table: comparison for comparison in compare(source, mirror)}


def test_equal_tables_are_equal_in_whatever_order_their_rows_are(database: str, mirror: Path) -> None:
    assert compared(database, mirror) == {
        "public.bag": TableComparison("public.bag", 3, 3, 0, 0),
        "public.items": TableComparison("public.items", 3, 3, 0, 0),
    }


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE public.items SET note = NULL WHERE id = 1",
        "UPDATE public.items SET note = '' WHERE id = 2",
        "UPDATE public.items SET price = 1.51 WHERE id = 1",
        "UPDATE public.items SET seen_at = seen_at + INTERVAL 1 MICROSECOND WHERE id = 3",
        "DELETE FROM public.items WHERE id = 1",
        "INSERT INTO public.items SELECT * FROM public.items WHERE id = 1",
        "ALTER TABLE public.items DROP COLUMN price",
        "ALTER TABLE public.items ADD COLUMN more INTEGER",
        "DROP TABLE public.items",
    ],
)
def test_any_difference_is_noticed(database: str, mirror: Path, change: str) -> None:
    with duckdb.connect(str(mirror)) as target:
        target.execute(change)
    found = compared(database, mirror)
    assert not found["public.items"].equal
    assert found["public.bag"].equal


def test_a_row_that_is_there_once_too_often_is_noticed_without_a_key(database: str, mirror: Path) -> None:
    with duckdb.connect(str(mirror)) as target:
        target.execute("UPDATE public.bag SET word = 'b' WHERE rowid = (SELECT max(rowid) FROM public.bag)")
    assert compared(database, mirror)["public.bag"] == TableComparison("public.bag", 3, 3, 1, 1)
