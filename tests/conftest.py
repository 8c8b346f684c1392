"""Fixtures that every test may use: Postgres servers, one per version for the whole run, and a database per test."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.embedded_postgres import EmbeddedPostgres


@pytest.fixture(scope="session")
def postgres18() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(version=18) as server:
        yield server


@pytest.fixture(scope="session")
def postgres16() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(version=16) as server:
        yield server


@pytest.fixture
def server_directory() -> Iterator[Path]:
    """For a server whose directory must outlive it. Not tmp_path, which every run of pytest closes to other users, and
    as root the server is another user."""
    with tempfile.TemporaryDirectory(prefix="penstock-test-") as directory:
        yield Path(directory)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a fresh, empty database. On other versions: ``parametrize("database", [16, 18], indirect=True)``."""
    server: EmbeddedPostgres = request.getfixturevalue(f"postgres{getattr(request, 'param', 18)}")
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture
def target_database(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of another one, for a replica of the first; on the server that the first is on by default."""
    server: EmbeddedPostgres = request.getfixturevalue("postgres18")
    name = f"target_{uuid.uuid4().hex[:12]}"
    yield server.create_database(name)
    server.drop_database(name)
