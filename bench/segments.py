"""The same changes in thousands of small segments and in a few large ones: what readers of the log pay for the files."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow as pa
from pyspark.sql import SparkSession

from bench.backlog import create_table, fill
from bench.imports import import_seconds
from bench.parts import Part
from penstock.changelog.admission import read_admission
from penstock.changelog.segment import SegmentContent, SegmentFile, SegmentName, between
from penstock.config.load import load_config
from penstock.lsn import LSN, ZERO
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import connect
from penstock.settings.sections import SparkSettings
from penstock.spark import ChangeSource
from penstock.spark.session import open_session
from penstock.testing.embedded_postgres import EmbeddedPostgres

ROWS = 20  # per transaction
_CONFIG = """
name: {name}
state_dir: state
source: {{url: "{url}", mode: copy_and_stream, tables: {{include: [public.ticks]}}}}
log: {{linger: {linger}, retention: 1d}}
sinks: [{{name: lake, type: duckdb, path: lake.duckdb}}]
"""
_QUERY = "select count(*), max(lsn) from changes where \"table\" = 'events'"


@dataclass
class Trickled:
    """A pipeline whose log holds ``transactions`` small transactions of one table, besides what it was copied with."""

    postgres: EmbeddedPostgres
    file: Path
    pipeline: Pipeline

    @property
    def log_uri(self) -> str:
        return self.pipeline.state.log_uri

    @property
    def files(self) -> int:
        return len(self.pipeline.state.log.directory.entries())

    def query_seconds(self) -> float:
        begun = time.monotonic()
        command = [sys.executable, "-m", "penstock", "log", str(self.file), "query", _QUERY]
        subprocess.run(command, check=True, capture_output=True)
        return time.monotonic() - begun

    def stream_seconds(self, spark: SparkSession) -> float:
        begun = time.monotonic()
        stream = (
            spark.readStream.format("penstock").option("path", self.log_uri).option("table", "public.events").load()
        )
        query = stream.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        return time.monotonic() - begun

    def capture_start_seconds(self) -> float:
        """Until capture has compared positions and its state says so."""
        begun = time.time()
        with Part("capture", self.pipeline):
            while (captured := self.pipeline.state.capture()) is None or captured.updated_at < begun:
                time.sleep(0.01)
            return time.time() - begun


def trickled(postgres: EmbeddedPostgres, directory: Path, name: str, linger: str) -> Trickled:
    directory.mkdir(mode=0o755)
    file = directory / "penstock.yaml"
    file.write_text(_CONFIG.format(name=name, url=postgres.url, linger=linger))
    made = Trickled(postgres, file, Pipeline(load_config(file)))
    made.pipeline.init()
    made.pipeline.reconcile()
    return made


def create_tables(postgres: EmbeddedPostgres, rows: int) -> None:
    create_table(postgres, "events")
    fill(postgres, "events", rows)
    postgres.execute("CREATE TABLE ticks (id bigint PRIMARY KEY, value text)")


def warm_up(trickled: Trickled) -> None:
    """Until the first table, which is empty, streams."""
    sink = trickled.pipeline.config.sinks[0].name
    while not read_admission(trickled.pipeline.state.parts, sink).ready or not trickled.files:
        trickled.postgres.execute("INSERT INTO ticks SELECT coalesce(max(id), 0) + 1, 'value' FROM ticks")
        time.sleep(0.2)


def catch_up_seconds(trickled: Trickled, transactions: int, first: int) -> float:
    """An import that an open transaction holds up, while others write; from the end of that transaction on."""
    pipeline, seconds = trickled.pipeline, list[float]()
    held = threading.Thread(target=lambda: seconds.append(import_seconds(trickled.postgres, pipeline, "events")))
    with psycopg.connect(trickled.postgres.url) as holder, Part("deliver", pipeline), Part("capture", pipeline):
        warm_up(trickled)
        holder.execute("select pg_current_xact_id()")
        held.start()
        trickle(trickled, transactions, first)
        released = time.monotonic()
        holder.commit()
        held.join()
        return time.monotonic() - released


def trickle(trickled: Trickled, transactions: int, first: int) -> None:
    """Small transactions, one after the other, until the log has them."""
    insert = (
        "INSERT INTO events SELECT g, g %% 1000, 'customer ' || g, g / 100.0, now(), true, '{}' "
        "FROM generate_series(%s::bigint, %s::bigint) g"
    )
    with psycopg.connect(trickled.postgres.url, autocommit=True, prepare_threshold=0) as connection:
        for number in range(transactions):
            start = first + number * ROWS
            connection.execute(insert, [start, start + ROWS - 1])
            time.sleep(0.002)  # so that capture has made a segment of it
    with connect(trickled.postgres.url) as connection:
        mark = catalog.wal_marker(connection)
    while _position(trickled.pipeline) < mark:
        time.sleep(0.01)


def _position(pipeline: Pipeline) -> LSN:
    captured = pipeline.state.capture()
    return captured.position if captured else ZERO


def cut_small(whole: Trickled, directory: Path) -> Trickled:
    """The same pipeline with a copy of its state, in which each transaction has a segment of its own: as if capture had been
    killed before it could merge any."""
    shutil.copytree(whole.file.parent, directory)
    file = directory / whole.file.name
    made = Trickled(whole.postgres, file, Pipeline(load_config(file)))
    log = made.pipeline.state.log
    contents = log.contents()
    log.delete(contents.merged)
    for stretch in contents.stretches:
        for name in stretch.segments:
            for content in _transactions(log.open(name)):
                with open(f"{log.directory.path}/{content.name}", "wb") as stream:
                    content.write(stream)
            log.delete([name])
    return made


def _transactions(segment: SegmentFile) -> Iterator[SegmentContent]:
    rows = {entry.relation: pa.concat_batches(segment.rows(entry)) for entry in segment.relations}
    commits = sorted({lsn for batch in rows.values() for lsn in batch.column("commit_lsn").to_pylist()})
    ends = [*map(LSN, commits[1:]), segment.name.end]
    start = segment.name.start
    for number, end in enumerate(ends):
        some = [(relation, [part]) for relation, batch in rows.items() if (part := between(batch, start, end)).num_rows]
        copied = [
            (relation, [pa.concat_batches([part, part.slice(0, 0)]) for part in parts]) for relation, parts in some
        ]
        name = SegmentName(start, end, 0, True, segment.name.schema_change and number == 0)
        yield SegmentContent(name, copied, segment.last_commit_time)
        start = end


def spark_session() -> SparkSession:
    spark = open_session(SparkSettings())
    spark.dataSource.register(ChangeSource)
    return spark
