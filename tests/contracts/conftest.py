"""Runs every test of this directory against every sink."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.event_sink_under_test import EventSinkUnderTest
from tests.contracts.sink_under_test import SinkUnderTest


def adapters_beside_this_file() -> Iterator[type[SinkUnderTest]]:
    for file in sorted(Path(__file__).parent.glob("*_adapter.py")):
        module = importlib.import_module(f"tests.contracts.{file.stem}")
        for member in vars(module).values():
            if isinstance(member, type) and issubclass(member, SinkUnderTest) and "name" in vars(member):
                yield member


ADAPTERS = list(adapters_beside_this_file())


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
            metafunc.parametrize(fixture, [_parameter(adapter) for adapter in adapters], indirect=True)


def _parameter(adapter: type[SinkUnderTest]) -> pytest.ParameterSet:
    return pytest.param(adapter, id=adapter.name, marks=[pytest.mark.server] if adapter.fixtures else [])


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
    adapter: SinkUnderTest = request.param(directory, *map(request.getfixturevalue, request.param.fixtures))
    yield adapter
    adapter.dispose()
