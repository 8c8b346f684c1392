from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from psycopg import sql

from penstock.postgres.connection import Connection, connect
from penstock.testing.embedded_postgres import EmbeddedPostgres


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    """A session of ours on the test's own database: autocommit, with an empty search_path."""
    with connect(database) as session:
        yield session


@pytest.fixture
def guest(connection: Connection) -> Iterator[str]:
    """A role that may log in and nothing else."""
    name = f"Guest {uuid.uuid4().hex[:8]}"
    connection.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    yield name
    connection.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def standby18(postgres18: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A hot standby of ``postgres18``."""
    with postgres18.standby() as server:
        yield server
