from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.postgres.connection import Connection, connect
from penstock.testing.embedded_postgres import EmbeddedPostgres


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """A session of ours on the test's own database: autocommit, with an empty search_path."""
    with connect(database) as session:
        yield session


@pytest.fixture(scope="session")
def standby18(postgres18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A hot standby of ``postgres18``."""
    directory = tmp_path_factory.mktemp("standby")
    with postgres18.standby(directory) as server:
        yield server
