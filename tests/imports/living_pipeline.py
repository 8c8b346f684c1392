"""A pipeline with imports whose config can be changed, whose copies can be held in the middle, and whose tables tell
their own columns and keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import duckdb
import psycopg
from psycopg import sql

from penstock.config.load import load_config
from penstock.imports.progress import TableStatus
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.sinks.settings import SinkSettings
from penstock.testing.conditions import wait_until
from tests.imports.pipeline_with_imports import PipelineWithImports
from tests.recovery.workload import Table

EVERYTHING = 'tables: {include: ["*.*"]}'

_CONFIG = """
name: {name}
state_dir: state
source: {{url: "{url}", mode: {mode}, copy: {{{copy}}}, {source}}}
log: {{segment_bytes: 64KiB}}
sinks:
  - {{name: lake{suffix}, type: duckdb, path: lake.duckdb{lake}}}
  - {{name: events{suffix}, type: file, path: events}}
"""


class LivingPipeline(PipelineWithImports):
    """``source``, ``copy`` and ``lake`` are (parts of) the insides of the config's sections, ``suffix`` the end of its sinks'
    names: two queries of one Spark session cannot be called alike."""

    def __init__(
        self,
        url: str,
        directory: Path,
        source: str = EVERYTHING,
        copy: str = "workers: 1, chunk_bytes: 8KiB",
        lake: str = "",
        name: str = "imports",
        mode: str = "copy_and_stream",
        suffix: str = "",
    ) -> None:
        super().__init__(url, directory, name=name)
        self._settings = {"url": url, "source": source, "copy": copy, "lake": lake and f", {lake}"}
        self._settings |= {"name": name, "mode": mode, "suffix": suffix}
        self.configure()

    def configure(self, **settings: str) -> None:
        """As if somebody had edited the file before the next command."""
        self._settings.update(settings)
        self.file.write_text(_CONFIG.format(**self._settings))
        self.pipeline = Pipeline(load_config(self.file))
        self.state = self.pipeline.state

    def tables(self, *names: str, schema: str = "public") -> list[Table]:
        """With the columns and keys that they have in the source now."""
        with psycopg.connect(self.url) as connection:
            return [Table(schema, name, *_definition(connection, schema, name)) for name in names]

    def await_arrival(self, timeout: float = 240) -> None:
        """Until both sinks hold what is committed now. By something that they get after it: over WAL with nothing for them
        they move on seldom."""
        ((place,),) = self.execute("select pg_logical_emit_message(true, 'arrival', '')::text")
        after, known = LSN.parse(str(place)), self.state.sink
        wait_until(
            lambda: all((state := known(sink.name)) and state.lsn and state.lsn >= after for sink in self.sinks),
            timeout=timeout,
            what=f"the sinks to reach {after}",
        )

    @property
    def sinks(self) -> Sequence[SinkSettings]:
        return self.pipeline.config.sinks

    def status(self, table: str, sink: str = "lake") -> TableStatus:
        (found,) = [t for t in self.pipeline.tables() if (t.qualified_name, t.sink) == (table, sink)]
        return found

    def await_state(self, state: str, *tables: str, timeout: float = 240) -> None:
        """Until these tables are in this state, with both sinks."""

        def reached() -> bool:
            found = {t.state for t in self.pipeline.tables() if t.qualified_name in tables}
            return found == {state}

        wait_until(reached, timeout=timeout, what=f"{', '.join(tables)} to be {state}")

    def await_one_of(self, states: set[str], table: str) -> None:
        """Until the table is in one of these states, with any of the sinks."""
        wait_until(
            lambda: {t.state for t in self.pipeline.tables() if t.qualified_name == table} & states,
            what=f"{table} to be {' or '.join(sorted(states))}",
        )

    def await_settled(self, timeout: float = 240) -> None:
        """Until every table streams or has left."""
        wait_until(
            lambda: {table.state for table in self.pipeline.tables()} <= {"streaming", "removed"},
            timeout=timeout,
            what="all tables to stream",
        )

    def wrong_in(self, sink: str, tables: Sequence[Table]) -> list[str]:
        """How one of the sinks differs from the source."""
        kind = {"lake": "DuckDB", "events": "replayed events"}[sink]
        return [words for words in self.wrong(tables) if words.startswith(kind)]

    def lake(self, query: str) -> list[tuple[object, ...]]:
        """Waits for the moment between two commits, when nobody has the file locked."""
        with wait_until(self._opened, what="the DuckDB file to be readable") as connection:
            return connection.execute(query).fetchall()

    def damage(self, *statements: str) -> None:
        """What somebody does to the DuckDB file while the pipeline is stopped."""
        with duckdb.connect(str(self.directory / "lake.duckdb")) as connection:
            for statement in statements:
                connection.execute(f"use lake.public; {statement}")

    def _opened(self) -> duckdb.DuckDBPyConnection | None:
        try:
            return duckdb.connect(str(self.directory / "lake.duckdb"), read_only=True)
        except duckdb.OperationalError:  # whoever writes to it has it open
            return None


def _definition(connection: psycopg.Connection, schema: str, table: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    name = sql.Identifier(schema, table).as_string(connection)
    columns = connection.execute(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped "
        "order by attnum",
        [name],
    )
    key = connection.execute(
        "select a.attname from pg_index i cross join unnest(i.indkey::int2[]) with ordinality as k (attnum, position) "
        "join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum "
        "where i.indrelid = %s::regclass and (i.indisprimary or i.indisreplident) and i.indimmediate "
        "order by k.position",
        [name],
    )
    return tuple(name for (name,) in columns), tuple(name for (name,) in key)


_HOLDING = """
create function public.hold_copy() returns trigger language plpgsql as $$
declare job penstock.import_jobs;
begin
    select * into strict job from penstock.import_jobs where id = new.job_id;
    perform pg_advisory_xact_lock_shared(4711, hashtext(format('%s %s %s', job.table_name, job.sink, new.number)));
    return new;
end $$;
create trigger hold_copy before update on penstock.import_chunks
for each row when (old.state = 'todo' and new.state = 'copying') execute function public.hold_copy();
"""


class HeldCopies:
    """Whoever takes a chunk from the queue waits there as long as this holds it. Made after ``init``."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute(_HOLDING)

    def __enter__(self) -> HeldCopies:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()  # and lets go of everything

    def hold(self, table: str, sink: str, number: int) -> None:
        self._connection.execute("select pg_advisory_lock(4711, hashtext(%s))", [_chunk(table, sink, number)])

    def release(self, table: str, sink: str, number: int) -> None:
        row = self._connection.execute("select pg_advisory_unlock(4711, hashtext(%s))", [_chunk(table, sink, number)])
        assert row.fetchone() == (True,), "it was not held"

    def await_copier(self, *chunks: tuple[str, str, int]) -> tuple[str, str, int]:
        """Until one of the chunks is about to be read, and which it is."""
        query = (
            "select position - 1 from unnest(%s::text[]) with ordinality as held (chunk, position) join pg_locks "
            "on objid::bigint = hashtext(chunk)::bigint & 4294967295 "
            "where locktype = 'advisory' and classid = 4711 and not granted order by position limit 1"
        )
        names = [_chunk(*chunk) for chunk in chunks]
        found = wait_until(
            lambda: self._connection.execute(query, [names]).fetchone(),
            what=f"one of {', '.join(names)} to be claimed",
            timeout=240,
        )
        return chunks[found[0]]

    @contextmanager
    def held(self, table: str, sink: str, number: int) -> Iterator[None]:
        """The block runs while the chunk is about to be read; ``hold`` came before."""
        self.await_copier((table, sink, number))
        try:
            yield
        finally:
            self.release(table, sink, number)


def _chunk(table: str, sink: str, number: int) -> str:
    return f"{table} {sink} {number}"
