"""Runs every test of this directory against every sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.duckdb_adapter import DuckDBUnderTest
from tests.contracts.event_adapters import EventSinkUnderTest, FileUnderTest, StdoutUnderTest
from tests.contracts.postgres_adapter import PostgresUnderTest
from tests.contracts.sink_under_test import SinkUnderTest

ADAPTERS: list[type[SinkUnderTest]] = [FileUnderTest, StdoutUnderTest, DuckDBUnderTest, PostgresUnderTest]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``target``: every sink. ``progress_target``: those that keep a record of their position. ``event_target``: those of
    events. ``table_target``: those that keep tables."""
    for fixture, adapters in (
        ("target", ADAPTERS),
        ("progress_target", [adapter for adapter in ADAPTERS if adapter.keeps_progress]),
        ("event_target", [adapter for adapter in ADAPTERS if issubclass(adapter, EventSinkUnderTest)]),
        ("table_target", [adapter for adapter in ADAPTERS if not issubclass(adapter, EventSinkUnderTest)]),
    ):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, adapters, indirect=True, ids=[adapter.name for adapter in adapters])


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkUnderTest]:
    yield from _adapter(request, tmp_path)


@pytest.fixture
def progress_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkUnderTest]:
    yield from _adapter(request, tmp_path)


@pytest.fixture
def table_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkUnderTest]:
    yield from _adapter(request, tmp_path)


@pytest.fixture
def event_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SinkUnderTest]:
    yield from _adapter(request, tmp_path)


def _adapter(request: pytest.FixtureRequest, directory: Path) -> Iterator[SinkUnderTest]:
    more = [request.getfixturevalue("database")] if request.param is PostgresUnderTest else []
    adapter: SinkUnderTest = request.param(directory, *more)
    yield adapter
    adapter.dispose()
