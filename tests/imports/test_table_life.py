"""Tables come in, leave, come back, are renamed, dropped and made anew, while the pipeline runs and while it does not."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.sinks.duckdb.file import CATALOG, DuckDBFile
from penstock.testing.conditions import wait_until
from tests.imports.living_pipeline import HeldCopies, LivingPipeline
from tests.recovery.workload import Table

pytestmark = pytest.mark.spark

_THERE = f"select 1 from duckdb_tables() where database_name = '{CATALOG}' and table_name = '{{table}}'"
SOME = 'tables: {include: ["in_*"]}'
ITEM = "(id int primary key, v text, body text)"


def item(name: str) -> Table:
    return Table("public", name, ("id", "v", "body"), ("id",))


def fill(table: str, first: int, last: int) -> str:
    """Rows whose last column is kept out of line."""
    return (
        f"insert into {table} select n, 'v' || n, (select string_agg(md5((n + m)::text), '') from generate_series(1, 90) m) "
        f"from generate_series({first}, {last}) n"
    )


def churn(table: str) -> str:
    """Everything that a sink which was not told would have wrong in the end."""
    return (
        f"delete from {table} where mod(id, 5) = 0; update {table} set v = v || '!' where mod(id, 3) = 0; "
        f"update {table} set id = -id where mod(id, 7) = 0; {fill(table, 500, 510)} on conflict (id) do nothing"
    )


@pytest.fixture
def pipeline(database: str, tmp_path: Path) -> LivingPipeline:
    return LivingPipeline(database, tmp_path / "p", source=SOME, copy="workers: 2, chunk_bytes: 64KiB")


def test_tables_come_in_leave_and_come_back_while_it_runs(pipeline: LivingPipeline, spark: SparkSession) -> None:
    pipeline.execute(f"create table in_first {ITEM}; create table other {ITEM}")
    pipeline.execute(f"{fill('in_first', 1, 60)}; {fill('other', 1, 60)}")
    first, other, new = item("in_first"), item("other"), item("in_new")
    with pipeline.running(spark):
        pipeline.await_streaming()
        assert {name for name, _ in pipeline.states()} == {"public.in_first"}

        # One that matches no pattern, and a brand-new one that does.
        (said,) = pipeline.pipeline.add_tables(["other"])
        assert "public.other" in said
        pipeline.execute(f"create table in_new {ITEM}; {fill('in_new', 1, 60)}")
        pipeline.pipeline.reconcile()
        pipeline.execute(f"{churn('other')}; {churn('in_new')}")
        pipeline.await_state("streaming", "public.other", "public.in_new")
        pipeline.await_arrival()
        assert pipeline.wrong([first, other, new]) == []

        # It leaves: what was committed before still comes, nothing after it.
        pipeline.execute(fill("other", 2001, 2010))
        rows = pipeline.execute("select count(*), min(id), max(id) from other")
        (said,) = pipeline.pipeline.remove_tables(["other"])
        assert '"lake", "events" hold' in said
        pipeline.execute(f"delete from other where id < 30; {fill('other', 3001, 3010)}; {fill('in_first', 101, 110)}")
        pipeline.await_arrival()
        assert pipeline.states()["public.other", "lake"] == "removed"
        assert pipeline.lake("select count(*), min(id), max(id) from public.other") == rows
        assert pipeline.wrong([first, new]) == []

        # It comes back, and nobody can tell that it was away.
        pipeline.execute(churn("other"))
        pipeline.pipeline.add_tables(["public.other"])
        pipeline.await_streaming()
        pipeline.await_arrival()
        assert pipeline.wrong([first, other, new]) == []


def test_a_table_is_dropped_and_another_takes_its_name_while_it_runs(
    pipeline: LivingPipeline, spark: SparkSession
) -> None:
    pipeline.execute(f"create table in_t {ITEM}; {fill('in_t', 1, 60)}; create table in_named {ITEM}")
    pipeline.execute(f"{fill('in_named', 1, 30)}")
    with pipeline.running(spark):
        pipeline.await_streaming()
        pipeline.execute("drop table in_t; create table in_t (a text, id int primary key)")
        pipeline.execute("insert into in_t select 'new', n from generate_series(40, 80) n")
        pipeline.execute("alter table in_named rename to in_renamed")
        pipeline.execute(f"update in_renamed set v = 'renamed' where id = 1; {fill('in_renamed', 31, 40)}")
        pipeline.pipeline.reconcile()
        pipeline.await_state("streaming", "public.in_t", "public.in_renamed")
        pipeline.execute("delete from in_t where id = 50")
        pipeline.await_arrival()
        anew = Table("public", "in_t", ("a", "id"), ("id",))
        assert pipeline.wrong([anew]) == []
        assert pipeline.wrong_in("lake", [item("in_renamed")]) == []
        names = [(table.qualified_name, table.state) for table in pipeline.pipeline.tables() if table.sink == "lake"]
        assert names == [("public.in_renamed", "streaming"), ("public.in_t", "streaming")]


def test_a_pattern_that_is_edited_and_what_was_said_meanwhile_take_effect_at_the_next_start(
    pipeline: LivingPipeline, spark: SparkSession
) -> None:
    names = ("in_kept", "in_excluded", "in_resynced", "in_removed", "added")
    for name in names:
        pipeline.execute(f"create table {name} {ITEM}; {fill(name, 1, 40)}")
    with pipeline.running(spark):
        pipeline.await_streaming()
    pipeline.execute("; ".join(churn(name) for name in names))
    pipeline.configure(source='tables: {include: ["in_*"], exclude: ["in_excluded"]}')
    pipeline.pipeline.add_tables(["added"])
    pipeline.pipeline.remove_tables(["in_removed"])
    pipeline.pipeline.resync_tables(["in_resynced"])
    pipeline.execute("; ".join(f"delete from {name} where mod(id, 4) = 1" for name in names))
    with pipeline.running(spark):
        pipeline.await_settled()
        pipeline.await_arrival()
        states = {table: state for (table, _), state in pipeline.states().items()}
        assert states == {
            "public.added": "streaming", "public.in_excluded": "removed", "public.in_kept": "streaming",
            "public.in_removed": "removed", "public.in_resynced": "streaming",
        }  # fmt: skip
        assert pipeline.wrong([item("in_kept"), item("in_resynced"), item("added")]) == []
    pipeline.configure(source=SOME)
    with pipeline.running(spark):
        pipeline.await_settled()
        pipeline.await_arrival()
        assert pipeline.wrong([item("in_kept"), item("in_resynced"), item("added"), item("in_excluded")]) == []


def test_an_import_that_is_called_off_while_nobody_copies_leaves_nothing_behind(
    pipeline: LivingPipeline, spark: SparkSession
) -> None:
    pipeline.configure(copy="workers: 1, chunk_bytes: 8KiB, rows_per_second: 1")  # after a chunk, there is a long pause
    for number in range(3):
        pipeline.execute(f"create table in_{number} (id int primary key, v text)")
        pipeline.execute(f"insert into in_{number} select n, repeat('x', 300) from generate_series(1, 60) n")
    with pipeline.running(spark):
        wait_until(lambda: pipeline.status("public.in_0").rows_copied, what="a chunk to be copied")
        wait_until(lambda: {*pipeline.states().values()} == {"copying"}, what="all imports to have begun")
    pipeline.pipeline.remove_tables(["in_0"])
    pipeline.pipeline.resync_tables(["in_1"])
    pipeline.execute("drop table in_2")
    pipeline.configure(copy="workers: 1, chunk_bytes: 8KiB")
    with pipeline.running(spark):
        pipeline.await_settled()
        pipeline.await_arrival()
        assert pipeline.wrong(pipeline.tables("in_1")) == []
        assert list(pipeline.directory.glob("state/imports/*/*.json")) == [], "these would keep the log"


def test_a_target_that_somebody_damaged_is_mended_by_a_resync(pipeline: LivingPipeline, spark: SparkSession) -> None:
    names = ("in_changed", "in_gone", "in_altered")
    for name in names:
        pipeline.execute(f"create table {name} {ITEM}; {fill(name, 1, 40)}")
    with pipeline.running(spark):
        pipeline.await_streaming()
    pipeline.damage(
        "delete from in_changed where id < 10", "update in_changed set v = 'x' where id = 20",
        "insert into in_changed values (777, 'x', 'x')", "drop table in_gone", "alter table in_altered drop column v",
    )  # fmt: skip
    assert pipeline.wrong([item("in_changed")]) != []
    pipeline.pipeline.resync_tables(names, ["lake"])
    with pipeline.running(spark):
        pipeline.await_streaming()
        pipeline.execute("; ".join(churn(name) for name in names))
        pipeline.await_arrival()
        assert pipeline.wrong([item(name) for name in names]) == []


def test_at_no_moment_of_a_resync_is_the_target_empty_or_half_old(
    pipeline: LivingPipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every state that a reader of the file could ever meet is looked at: after each commit to it."""
    pipeline.execute("create table in_t (id int primary key, generation int)")
    pipeline.execute("insert into in_t select n, 0 from generate_series(1, 500) n")
    seen: list[list[tuple[int, int]]] = []
    let_go, one_at_a_time = DuckDBFile._let_go, threading.Lock()

    def look(file: DuckDBFile) -> None:
        assert file._engine is not None
        with one_at_a_time, file._engine.cursor() as connection:
            if connection.execute(_THERE.format(table="in_t")).fetchall():
                query = f"select generation, count(*) from {CATALOG}.public.in_t group by generation"
                seen.append(connection.execute(query).fetchall())
        let_go(file)

    with pipeline.running(spark):
        pipeline.await_streaming()
        monkeypatch.setattr(DuckDBFile, "_let_go", look)
        generation = 0
        for _ in range(2):
            pipeline.pipeline.resync_tables(["in_t"])
            before = generation
            while not pipeline.all_streaming() or generation < before + 3:
                generation, commits = generation + 1, len(seen)
                pipeline.execute("update in_t set generation = generation + 1")
                wait_until(lambda known=commits: len(seen) > known, what="a commit to the file")  # type: ignore[misc]
        pipeline.await_arrival()
        assert pipeline.wrong([Table("public", "in_t", ("id", "generation"), ("id",))]) == []
    assert [state for state in seen if len(state) != 1 or state[0][1] != 500] == []
    generations = [state[0][0] for state in seen]
    assert generations == sorted(generations)
    assert len(set(generations)) > 3


def test_tables_without_a_key_are_exact_whatever_was_running_while_they_were_read(
    database: str, tmp_path: Path, spark: SparkSession
) -> None:
    """The rows are seen by one snapshot. What committed before it must not come again, what came after it must come."""
    pipeline = LivingPipeline(database, tmp_path / "p")
    pipeline.execute("create table bag (a int, v text); alter table bag replica identity full")
    pipeline.execute("create table lines (v text); create table other (id int primary key)")
    pipeline.execute("insert into bag select mod(n, 3), 'same' from generate_series(1, 30) n")
    pipeline.execute("insert into lines select 'same' from generate_series(1, 30)")
    one = "(select ctid from bag where a = {a} limit 1)"
    pipeline.pipeline.init()
    with HeldCopies(database) as copies, psycopg.connect(database) as running:
        for sink, table in (("lake", "bag"), ("events", "bag"), ("lake", "lines"), ("events", "lines")):
            copies.hold(table, sink, 1)
        with pipeline.running(spark):
            for sink, number in (("lake", 1), ("events", 2)):
                with copies.held("bag", sink, 1):  # after the LSN from which changes are replayed, before the snapshot
                    pipeline.execute("insert into bag values (0, 'same'), (7, 'seen')")
                    pipeline.execute(f"delete from bag where ctid = {one.format(a=1)}")
                    pipeline.execute(f"update bag set v = 'changed' where ctid = {one.format(a=2)}")
                    running.execute(f"insert into bag values (0, 'same'), ({number}, 'not seen')")
                    running.execute(f"delete from bag where ctid = {one.format(a=0)}".encode())
                wait_until(lambda to=sink: pipeline.status("public.bag", to).rows_copied, what="it to be read")  # type: ignore[misc]
                running.commit()
                with copies.held("lines", sink, 1):
                    pipeline.execute("insert into lines values ('same'), ('seen')")
                    running.execute("insert into lines values ('same'), ('not seen')")
                wait_until(lambda to=sink: pipeline.status("public.lines", to).rows_copied, what="it to be read")  # type: ignore[misc]
                running.commit()
            pipeline.await_streaming()
            pipeline.execute(f"delete from bag where ctid = {one.format(a=0)}; insert into lines values ('same')")
            pipeline.await_arrival()
            assert pipeline.wrong(pipeline.tables("bag", "lines")) == []
            pipeline.pipeline.resync_tables(["bag", "lines"])
            pipeline.execute(f"delete from bag where ctid = {one.format(a=0)}; insert into lines values ('same')")
            pipeline.await_streaming()
            pipeline.await_arrival()
            assert pipeline.wrong(pipeline.tables("bag", "lines")) == []
