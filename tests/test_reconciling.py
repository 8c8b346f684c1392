"""While a pipeline runs, its publication follows the tables."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from penstock.config.model import Config
from penstock.control.supervision import repeated
from penstock.pipeline import Pipeline
from penstock.postgres.connection import connect
from penstock.subscription.publication import published
from penstock.testing.conditions import wait_until


def a_pipeline(url: str, directory: Path) -> Pipeline:
    source, sinks = {"url": url}, [{"name": "out", "type": "stdout"}]
    return Pipeline(
        Config.model_validate({"name": "shop", "state_dir": str(directory), "source": source, "sinks": sinks})
    )


def test_a_table_without_its_key_moves_and_a_new_one_comes_in(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock")
    pipeline = a_pipeline(database, tmp_path)
    with connect(database) as connection:
        connection.execute("create table public.t (id int constraint k primary key)")
        pipeline.init()
        caplog.clear()
        connection.execute("alter table public.t drop constraint k; create table public.new (id int primary key)")
        pipeline.keep_tables_in_step()
        connection.execute("update public.t set id = 2")  # which Postgres refuses as long as the table has not moved
        held = {(entry.publication, entry.table) for entry in published(connection, ("shop", "shop_inserts"))}
    assert held == {("shop", "new"), ("shop_inserts", "t")}
    assert caplog.messages == [
        "Publication: added public.new.",
        "Publication: moved public.t.",
        "What was written to public.new before now is not captured.",
    ]


def test_a_source_that_is_away_for_a_while_is_no_reason_to_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a_pipeline("postgresql://me@127.0.0.1:1/shop", tmp_path).keep_tables_in_step()
    assert "could not be compared" in caplog.messages[0]


def test_repeated_goes_on_until_it_is_left() -> None:
    calls: list[str] = []
    with repeated(lambda: calls.append(threading.current_thread().name), 0.001, "often"):
        wait_until(lambda: len(calls) >= 3, what="three calls")
    assert set(calls) == {"often"}
    assert "often" not in [thread.name for thread in threading.enumerate()]
