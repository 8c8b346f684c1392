"""A whole pipeline in this process: capture in a thread, then delivery on the shared Spark session, into DuckDB and files."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from pyspark.sql import SparkSession

from penstock.capture.capture import Capture
from penstock.config.model import Config
from penstock.errors import PenstockError
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.spark.deliveries import Deliveries
from penstock.testing.conditions import wait_until


class Mirrored:
    """``source`` after ``sync()`` should be what ``lake`` and ``events`` say."""

    def __init__(self, spark: SparkSession, url: str, directory: Path, lake: Mapping[str, Any] | None = None) -> None:
        self.url, self._spark, self._directory = url, spark, directory
        self.lake, self.files = directory / "lake.duckdb", directory / "events"
        self._lake_settings = dict(lake or {})

    @property
    def pipeline(self) -> Pipeline:
        sinks = [
            {"name": "lake", "type": "duckdb", "path": str(self.lake), **self._lake_settings},
            {"name": "events", "type": "file", "path": str(self.files)},
        ]
        tables = {"include": ["*.*"]}
        config = {"name": "awkward", "state_dir": str(self._directory / "state dir, #1 ü%41"), "sinks": sinks,
                  "source": {"url": self.url, "tables": tables}}  # fmt: skip
        return Pipeline(Config.model_validate(config))

    def configure_lake(self, **settings: Any) -> None:
        self._lake_settings.update(settings)

    def execute(self, *statements: str) -> None:
        """Each in a transaction of its own; several in one are separated by semicolons."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def init(self) -> None:
        self.pipeline.init()

    def capture(self) -> None:
        """All that is committed now is in the log."""
        pipeline, stop, errors = self.pipeline, threading.Event(), list[PenstockError]()
        pipeline.reconcile()
        with connect(self.url) as connection:
            until = catalog.wal_marker(connection)

        def run() -> None:
            try:
                Capture(pipeline.config, stop).run()
            except PenstockError as error:
                errors.append(error)

        def reached() -> bool:
            known = pipeline.state.capture()
            return bool(errors) or (known is not None and known.position >= until)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            wait_until(reached, what=f"capture to reach {until}")
        finally:
            stop.set()
            thread.join()
        if errors:
            raise errors[0]

    def deliver(self) -> None:
        """All that is in the log is in the sinks. Raises the error of a sink that stopped."""
        pipeline = self.pipeline
        Deliveries(self._spark, pipeline.sinks(), pipeline.state).run(threading.Event(), available_now=True)

    def sync(self) -> None:
        self.capture()
        self.deliver()

    def differences(self, schema: str = "public", without: Sequence[str] = ()) -> dict[str, Counter[Any]]:
        """By table: the rows as text that one side has and the other has not. Only what was compared is in there."""
        columns = self.source(
            "select table_name, array_agg(column_name::text order by ordinal_position) from information_schema.columns "
            f"where table_schema = {_literal(schema)} group by 1"
        )
        return {table: self._difference(schema, table, names) for table, names in columns if table not in without}

    def _difference(self, schema: str, table: str, names: list[str]) -> Counter[Any]:
        found = self.target(
            "select target_table, columns from lake.penstock.tables "
            f"where source_schema = {_literal(schema)} and source_table = {_literal(table)}"
        )
        assert found, f"{schema}.{table} is not in the target"
        ((name, mapped),) = found
        target_names = [json.loads(mapped)[column][0] for column in names]
        ours, theirs = (
            Counter(read(f"select {_texts(some, kind)} from {_quoted(schema)}.{_quoted(where)}"))
            for read, some, kind, where in (
                (self.source, names, "text", table), (self.target, target_names, "varchar", name),
            )
        )  # fmt: skip
        return (ours - theirs) + (theirs - ours)

    def source(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode()).fetchall()

    def target(self, query: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(self.lake, read_only=True) as connection:
            connection.execute("set search_path = 'public'")
            return connection.execute(query).fetchall()

    def events(self, table: str | None = None, ops: Sequence[str] = ()) -> list[dict[str, Any]]:
        """In order, without those of table definitions."""
        found = []
        for path in sorted(self.files.glob("*.jsonl")):
            with path.open() as lines:
                found += [json.loads(line) for line in lines]
        return [
            event for event in found
            if event["op"] != "schema" and (table is None or event.get("table") == table) and (not ops or event["op"] in ops)
        ]  # fmt: skip


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _texts(names: Sequence[str], kind: str) -> str:
    return ", ".join(f"cast({_quoted(name)} as {kind})" for name in names)
