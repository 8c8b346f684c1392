"""A pipeline of which only capture and the queue of imports run, for tests that give it other publications."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import yaml

from penstock.capture.capture import Capture
from penstock.changelog.admission import Ready, write_ready
from penstock.changelog.log import ChangeLog
from penstock.config.load import load_config
from penstock.errors import PenstockError
from penstock.imports import jobs
from penstock.imports.jobs import Job
from penstock.lsn import LSN
from penstock.pgoutput.columns import decode
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.state.publications_read import in_step, publications_read
from penstock.testing.conditions import wait_until


class Captured:
    """``publications``: of the config; none: Penstock's own."""

    def __init__(self, url: str, directory: Path, *publications: str, mode: str = "copy_and_stream") -> None:
        self.url, self.directory = url, directory
        self.use(*publications, mode=mode)

    def use(self, *publications: str, mode: str = "copy_and_stream") -> None:
        """Another config for the same pipeline."""
        source: dict[str, Any] = {"url": self.url, "mode": mode}
        if publications:
            source["publication"] = list(publications)
        config = {
            "name": "other", "state_dir": "state", "source": source, "log": {"linger": "10ms"},
            "sinks": [{"name": "files", "type": "file", "path": "events"}],
        }  # fmt: skip
        file = self.directory / "penstock.yaml"
        file.write_text(yaml.safe_dump(config))
        self.pipeline = Pipeline(load_config(file))
        self.state, self.config = self.pipeline.state, self.pipeline.config
        self.wanted = publications or ("other", "other_inserts")

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def slots(self) -> list[str]:
        with psycopg.connect(self.url) as connection:
            found = connection.execute("select slot_name from pg_replication_slots where database = current_database()")
            return [name for (name,) in found]

    def start(self) -> None:
        """As ``run`` does before it captures."""
        self.pipeline.init()
        self.pipeline.reconcile()

    @contextmanager
    def capturing(self) -> Iterator[CaptureInThread]:
        capture = CaptureInThread(self)
        try:
            yield capture
        finally:
            capture.stop()
        if capture.error is not None:
            raise capture.error

    def capture_all(self) -> None:
        with self.capturing() as capture:
            capture.reach_end()

    def why_capture_stops(self) -> PenstockError:
        capture = CaptureInThread(self)
        try:
            return wait_until(lambda: capture.error, what="capture to stop by itself")
        finally:
            capture.stop()

    def import_all(self) -> None:
        """As if all tables that are due had been imported."""
        with connect(self.url) as connection:
            found = [job for job in jobs.active_jobs(connection, "other") if job.state != "removed"]
            write_ready(self.state.parts, "files", 1, {job.table_oid: Ready(job.id, LSN(1)) for job in found}, {})
            for job in found:
                jobs.completed(connection, job.id)

    def jobs(self) -> dict[str, Job]:
        with connect(self.url) as connection:
            return {job.table_name: job for job in jobs.active_jobs(connection, "other")}

    def states(self) -> dict[str, str]:
        return {table: str(job.state) for table, job in self.jobs().items()}

    def read(self) -> set[str]:
        """The publications that the slot is read with."""
        return set(publications_read(self.state.parts, self.wanted))

    def rows(self) -> dict[str, list[int]]:
        """By table, what the log has in the column ``id``."""
        log = ChangeLog(self.state.log_uri)
        found: dict[str, list[int]] = {}
        for stretch in log.contents().stretches:
            for name in stretch.segments:
                segment = log.open(name)
                for entry in segment.relations:
                    if entry.relation.schema == "public":
                        for batch in segment.rows(entry):
                            ids = decode(entry.relation, batch).new[0].to_pylist()
                            found.setdefault(entry.relation.table, []).extend(map(int, filter(None, ids)))
        return {table: sorted(ids) for table, ids in found.items()}


class CaptureInThread:
    def __init__(self, pipeline: Captured) -> None:
        self._pipeline, self._stop = pipeline, threading.Event()
        self.error: PenstockError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            Capture(self._pipeline.config, self._stop).run()
        except PenstockError as error:
            self.error = error

    def reach_end(self) -> None:
        """Until everything that is committed now is captured."""
        with connect(self._pipeline.url) as connection:
            end = catalog.wal_marker(connection)
        state = self._pipeline.state
        wait_until(
            lambda: self.error or ((captured := state.capture()) is not None and captured.position >= end),
            what=f"capture to reach {end}",
        )

    def settle(self) -> None:
        """Until the wanted publications are read and no others, while somebody looks at the tables."""

        def settled() -> bool:
            self._pipeline.pipeline.reconcile()
            return self.error is not None or in_step(self._pipeline.state.parts, self._pipeline.wanted)

        wait_until(settled, timeout=60, what="the publications to be read")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "capture does not stop"
