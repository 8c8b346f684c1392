"""What docs/operating.md tells an operator of imports to type, as written, on a real database."""

from __future__ import annotations

from pathlib import Path

import duckdb
import psycopg
import pytest

from tests.docs.pages import ROOT, blocks, section
from tests.docs.test_walk import EARLIER, TABLES, Walk

PAGE = ROOT / "docs" / "operating.md"
TITLES = ("Imports", "Copy a table again", "Stop taking a table")


def told_to_type() -> list[str]:
    return [line for title in TITLES for line in section(PAGE, title).splitlines() if line.startswith("penstock ")]


@pytest.mark.spark
def test_every_command_on_imports_works_and_the_table_is_copied_in_the_end(database: str, tmp_path: Path) -> None:
    walk = Walk(tmp_path, database)
    (tmp_path / "shop.yaml").write_text(blocks("yaml", ROOT / "README.md")[0].text)
    with psycopg.connect(database) as connection:
        connection.execute(TABLES)
        connection.execute(EARLIER)
    lines = ["penstock init shop.yaml", *told_to_type(), "penstock copy shop.yaml", "penstock status shop.yaml"]
    assert len(lines) == 9
    for line in lines:
        done = walk.type(line)
        assert done.returncode == 0, f"{line}: {done.stderr}"
    with duckdb.connect(str(tmp_path / "shop.duckdb"), read_only=True) as mirror:
        assert mirror.execute("SELECT count(*), min(id), max(id) FROM public.orders").fetchone() == (10, 101, 110)
    assert walk.type("penstock destroy shop.yaml").returncode == 0


@pytest.mark.parametrize("block", blocks("sql", PAGE), ids=str)
def test_queries_for_the_source_run(block: object, database: str) -> None:
    statements = getattr(block, "text", "").splitlines()
    assert statements
    with psycopg.connect(database) as connection:
        for statement in statements:
            assert connection.execute(statement.encode()).description is not None
