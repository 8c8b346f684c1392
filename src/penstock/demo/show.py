"""The demo, top to bottom."""

from __future__ import annotations

import contextlib
import io
import logging
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import duckdb
import psycopg
from rich.console import Console

from penstock.config.load import load_config
from penstock.demo import shop
from penstock.demo.background import BackgroundPipeline
from penstock.demo.comparison import compare
from penstock.demo.display import Display, Figures, Meter
from penstock.errors import PenstockError
from penstock.imports.progress import read_progress
from penstock.pipeline import Pipeline
from penstock.postgres import catalog
from penstock.postgres.connection import Connection
from penstock.testing.embedded_postgres import EmbeddedPostgres

_TICK_SECONDS = 0.1  # between two transactions of the traffic
_COPY_TICK_SECONDS = 0.5  # while there is much else to do
_LOOK_SECONDS = 0.2  # between two looks at the figures
_PATIENCE_SECONDS = 180.0
_SINK = "lake"

_CONFIG = """\
name: shop
state_dir: .penstock
source:
  url: {url}
  mode: copy_and_stream
log: {{retention: 1h}}
sinks:
  - {{name: lake, type: duckdb, path: shop.duckdb}}
"""

_QUERY = """\
SELECT p.title, sum(i.quantity) AS sold, sum(i.quantity * i.price) AS revenue
FROM public.order_items i JOIN public.products p USING (sku) GROUP BY ALL ORDER BY revenue DESC, title LIMIT 5"""

_NEXT = """\
Next: the same with your own database, in five minutes:
  1. write a config like examples/shop.yaml and set source.url
  2. penstock check shop.yaml      what your database lacks, if anything
  3. penstock run shop.yaml        until you press Ctrl-C; penstock status shop.yaml shows how far it is
README.md walks you through it."""


def run_demo(seconds: float = 10, keep: bool = False) -> int:
    """Exit code: 0 when source and mirror are equal, or when somebody interrupted it; 1 when they differ.

    ``keep`` leaves a directory ``penstock-demo`` with the DuckDB file, the config and the change log where it was called;
    otherwise nothing is left.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ✓ is no reason to fail
    display = Display(Console())
    try:
        with _interruptible(), _quiet(), contextlib.ExitStack() as held:
            directory = _directory(held, keep)
            display.step("Starting Postgres …")
            postgres = EmbeddedPostgres(version=18)
            held.callback(_uninterrupted(postgres.stop))
            postgres.start()
            return _Demo(display, directory, postgres.create_database("shop")).run(seconds, keep)
    except KeyboardInterrupt:
        display.say("Stopped before the proof. Nothing is left running.")
        return 0


class _Demo:
    def __init__(self, display: Display, directory: Path, url: str) -> None:
        self._display, self._url = display, url
        self._mirror = directory / "shop.duckdb"
        config_file = directory / "penstock.yaml"
        config_file.write_text(_CONFIG.format(url=url))
        self._pipeline = Pipeline(load_config(config_file))
        self._meter = Meter(self._pipeline.state, _SINK)
        self._committed = 0

    def run(self, seconds: float, keep: bool) -> int:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(shop.SCHEMA)
            rows = sum(shop.load(connection))
            self._display.step(
                f"A shop with five tables and {rows:,} rows; a publication and a replication slot for them."
            )
            self._pipeline.init()
            self._display.step("Starting Penstock: capture as one process, Spark as another …")
            running = BackgroundPipeline(self._pipeline)
            traffic = shop.Traffic(connection)
            try:
                running.start()
                self._copy(connection, running, traffic)
                self._trade(connection, running, traffic, seconds)
            except KeyboardInterrupt:
                self._display.say("Stopping …")
                raise
            finally:
                _uninterrupted(running.stop)()
            return self._prove(connection, keep)

    def _copy(self, connection: Connection, running: BackgroundPipeline, traffic: shop.Traffic) -> None:
        """The shop is open meanwhile: what is copied changes while it is copied."""
        self._display.step("Live traffic begins, and at the same time the tables are copied.")
        begun = next_tick = time.monotonic()
        with self._display.live() as show:
            while not self._all_streaming():
                self._committed += traffic.transact()
                show(self._figures(connection))
                next_tick += _COPY_TICK_SECONDS
                running.wait(next_tick - time.monotonic())
                if time.monotonic() > begun + _PATIENCE_SECONDS:
                    raise PenstockError(f"The tables were not copied within {_PATIENCE_SECONDS:g} s.")
        copied = self._figures(connection).copied
        taken = time.monotonic() - begun
        self._display.step(
            f"{copied:,} rows are in DuckDB after {taken:.1f} s, Spark's start included; all tables stream."
        )

    def _all_streaming(self) -> bool:
        known = read_progress(self._pipeline.state.parts).tables
        return bool(known) and all(table.state == "streaming" for table in known)

    def _trade(
        self, connection: Connection, running: BackgroundPipeline, traffic: shop.Traffic, seconds: float
    ) -> None:
        self._display.step(
            f"Live traffic for {seconds:g} s more: inserts, updates, deletes, and a new column half way."
        )
        self._meter = Meter(self._pipeline.state, _SINK)
        begun = next_tick = time.monotonic()
        transactions = 0
        with self._display.live() as show:
            while time.monotonic() < begun + seconds or transactions < 2:
                if not traffic.has_new_column and time.monotonic() >= begun + seconds / 2 and transactions:
                    traffic.add_column()
                self._committed += traffic.transact()
                transactions += 1
                show(self._figures(connection))
                next_tick += _TICK_SECONDS
                running.wait(next_tick - time.monotonic())
            self._drain(connection, running, show)
        self._display.step("The traffic has ended and everything has arrived.")

    def _drain(self, connection: Connection, running: BackgroundPipeline, show: Callable[[Figures], None]) -> None:
        """Until the sink has passed what is committed now.

        The message is a change beyond that position, so that the sink's position has something to move to.
        """
        goal = catalog.current_lsn(connection)
        connection.execute("SELECT pg_logical_emit_message(true, 'demo', 'everything before this has arrived')")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self._meter.position <= goal:
            running.wait(_LOOK_SECONDS)
            show(self._figures(connection))
            if time.monotonic() > deadline:
                raise PenstockError(f"The mirror has not reached {goal} within {_PATIENCE_SECONDS:g} s.")

    def _figures(self, connection: Connection) -> Figures:
        return self._meter.read(self._committed, catalog.current_lsn(connection))

    def _prove(self, connection: Connection, keep: bool) -> int:
        self._display.step("Comparing every row of every table by value …")
        comparisons = compare(connection, self._mirror)
        self._display.comparisons(comparisons)
        if not all(comparison.equal for comparison in comparisons):
            self._display.say("The mirror differs from the source. That is a bug in Penstock: please report it.")
            return 1
        self._display.say("Source and mirror are equal.\n")
        self._show_query(keep)
        self._display.say(_NEXT)
        return 0

    def _show_query(self, keep: bool) -> None:
        self._display.say(f"A query on the DuckDB file:\n{_QUERY}")
        with duckdb.connect(str(self._mirror), read_only=True) as mirror:
            result = mirror.execute(_QUERY)
            self._display.table([name for name, *_ in result.description or ()], result.fetchall())
        if not keep:
            self._display.say("The demo's files are removed now; penstock demo --keep leaves them.\n")
            return
        folder = self._mirror.parent
        self._display.say(
            f"Kept in {folder}: shop.duckdb (the mirror), penstock.yaml (the config), .penstock (the change log).\n"
            f"  python -c \"import duckdb; duckdb.connect('{self._mirror}').sql('FROM public.orders LIMIT 10').show()\"\n"
            f"  penstock log {folder / 'penstock.yaml'} show --table customers --limit 3\n"
        )


def _directory(held: contextlib.ExitStack, keep: bool) -> Path:
    if not keep:
        return Path(
            held.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-", ignore_cleanup_errors=True))
        )
    number = 1
    while True:
        directory = Path(f"penstock-demo-{number}" if number > 1 else "penstock-demo").absolute()
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
            return directory
        number += 1


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What the pipeline says of its progress would run through the display; warnings and --debug are wanted."""
    logger = logging.getLogger("penstock")
    level = logger.level
    if logger.getEffectiveLevel() == logging.INFO:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM is taken like Ctrl-C."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    with _handling(interrupt):
        yield


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # Python lets only that one handle signals
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def _uninterrupted(action: Callable[[], None]) -> Callable[[], None]:
    """Tidying up is not cut short by a second Ctrl-C. It takes a few seconds at most."""

    def run() -> None:
        with _handling(signal.SIG_IGN):
            action()

    return run
