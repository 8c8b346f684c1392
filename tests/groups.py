"""Which tests run with which: those of ``make unit``, soaks, and the order in which workers take files.

A unit test needs no server and no JVM and starts no process. Nobody lists them: a test is one unless it uses a fixture of a
server or of Spark, or is marked ``spark``, ``server`` or ``process``. With ``--unit`` nothing else runs, and every start of a
process is an error, so that a test in the wrong group fails there. The other way round, a test that is marked ``process`` by
itself and starts none fails in ``make test``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

FIXTURES = frozenset({"postgres18", "postgres16", "database", "spark"})  # fixtures that use these count as well
MARKS = ("spark", "server", "process")
_READERS = frozenset({"git"})  # which may start in a unit test: it reads what is committed

_starters: set[str] = set()  # tests that have started a process
_current: list[pytest.Item] = []
_unit = [False]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="only tests that need no server, no JVM and no process")


def pytest_configure(config: pytest.Config) -> None:
    _unit[0] = bool(config.getoption("--unit"))
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event not in ("subprocess.Popen", "os.posix_spawn", "os.system") or not _current:
        return
    _starters.add(_current[-1].nodeid)
    program = os.path.basename(os.fsdecode(arguments[0])) if isinstance(arguments[0], str | bytes) else ""
    if _unit[0] and program not in _READERS:
        raise RuntimeError(
            f"A unit test starts a process ({program}). Mark it: pytest.mark.process; or take the fixture of a server."
        )


def is_unit_test(item: pytest.Item) -> bool:
    marked = any(item.get_closest_marker(mark) for mark in MARKS)
    return not marked and not FIXTURES & set(getattr(item, "fixturenames", ()))


def _weight(item: pytest.Item) -> int:
    """What takes long begins first, so that no worker is left with it at the end."""
    if item.get_closest_marker("slow"):
        return 0
    if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ()):
        return 1
    return 3 if is_unit_test(item) else 2


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _unit[0]:
        chosen = [item for item in items if is_unit_test(item)]
        config.hook.pytest_deselected(items=[item for item in items if not is_unit_test(item)])
        items[:] = chosen
        return
    weights: dict[Path, int] = {}
    for item in items:
        weights[item.path] = min(_weight(item), weights.get(item.path, 3))
    items.sort(key=lambda item: weights[item.path])  # a file's tests stay together, in their order


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _current.append(item)
    try:
        return (yield)
    finally:
        _current.pop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    outcome = yield
    marked = any(mark.name == "process" for mark in item.own_markers)
    if marked and item.nodeid not in _starters:
        pytest.fail("It is marked as starting a process, and has started none.", pytrace=False)
    return outcome
