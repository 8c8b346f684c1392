from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.postgres.connection import Connection, connect
from tests.cli.conftest import penstock as penstock
from tests.verify.duckdb_mirror import PUBLICATION, Mirror


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """On a database all of whose tables are published."""
    with connect(database) as session:
        session.execute(f"create publication {PUBLICATION} for all tables".encode())
        yield session


@pytest.fixture
def mirror(connection: Connection, database: str, tmp_path: Path) -> Iterator[Mirror]:
    made = Mirror(connection, database, tmp_path)
    yield made
    made.close()
