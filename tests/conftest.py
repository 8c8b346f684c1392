"""What every test may use: one Postgres server per version and one Spark session for the whole run, a database per test."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.groups import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_runtest_call,
    pytest_runtest_protocol,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_runtest_call",
    "pytest_runtest_protocol",
]

# Background work that happens every 10 seconds in production happens every second here, also in processes that tests start.
# Modules read it when they are imported, which test files do after this one.
os.environ.setdefault("PENSTOCK_INTERVAL_SCALE", "0.1")

# Processes that Penstock starts do not look for modules in the working directory, and those of tests are in ``tests``.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")])
)

# The same examples in every run, and no deadline: how long one takes depends on what else the machine does.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


_FAST = {"fsync": "off", "full_page_writes": "off"}  # what these servers hold need not outlive the machine


@pytest.fixture(scope="session")
def postgres18() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(version=18, settings=_FAST) as server:
        yield server


@pytest.fixture(scope="session")
def postgres16() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(version=16, settings=_FAST) as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for all tests: starting a JVM costs seconds. An idle query looks for changes less often than in production."""
    from penstock.settings.sections import SparkSettings
    from penstock.spark.session import close_session, open_session

    session = open_session(SparkSettings(master="local[2]", conf={"spark.sql.streaming.pollingDelay": "25ms"}))
    yield session
    close_session(session)


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
    yield from _database(server, "test")


@pytest.fixture
def target_database(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of another one, for a replica of the first; on the server that the first is on by default."""
    yield from _database(request.getfixturevalue("postgres18"), "target")


def _database(server: EmbeddedPostgres, prefix: str) -> Iterator[str]:
    name = f"{prefix}_{uuid.uuid4().hex[:12]}"
    yield server.create_database(name)
    server.drop_database(name)
