"""``penstock`` in this process, without a trace afterwards; and a log that capture has written."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.cli.command import Here, write_config


@pytest.fixture
def penstock(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    logger = logging.getLogger("penstock")
    before = logger.handlers[:], logger.level, logger.propagate
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setenv("PENSTOCK_LOG_FORMAT", "text")
    yield Here(capfd)
    logger.handlers[:], logger.level, logger.propagate = before


HISTORY = """
    create table public.t (id int primary key, v text);
    create table public."Other One" (id int primary key, n numeric);
"""
CHANGES = (
    "insert into public.t values (1, 'one'), (2, 'two')",
    'insert into public."Other One" values (7, 1.50)',
    "update public.t set id = 3 where id = 2",
    "delete from public.t where id = 1",
    "select pg_logical_emit_message(true, 'hello', 'world')",
)


@pytest.fixture(scope="module")
def captured(postgres18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The config of a pipeline whose log holds CHANGES. Nothing was delivered."""
    url = postgres18.create_database("captured")
    file = write_config(tmp_path_factory.mktemp("captured"), url)
    pipeline = Pipeline.from_file(file)
    with connect(url) as connection:
        connection.execute(HISTORY.encode())
        pipeline.init()
        for change in CHANGES:
            connection.execute(change.encode())
        upto = catalog.wal_marker(connection)
    capture_until(pipeline, upto)
    yield file
    postgres18.drop_database("captured")


def capture_until(pipeline: Pipeline, upto: int) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=pipeline.capture, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: (state := pipeline.state.capture()) and state.position >= upto, what="capture")
    finally:
        stop.set()
        thread.join()
