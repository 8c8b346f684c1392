"""``penstock verify``, as it is typed; on a pipeline whose file was filled by the sink itself, without Spark."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from penstock.changelog.admission import Ready, write_holds, write_ready
from penstock.cli import verify_command as verify_verb
from penstock.lsn import LSN
from penstock.pipeline import Pipeline
from penstock.postgres.connection import connect
from penstock.testing.embedded_postgres import EmbeddedPostgres
from penstock.verify.comparison import TableComparison
from penstock.verify.report import TableReport
from tests.cli.command import Here, Outcome, write_config
from tests.docs.pages import ROOT, blocks, section
from tests.verify.duckdb_mirror import Mirror

LAKE = {"name": "lake", "type": "duckdb", "path": "lake.duckdb"}
FILES = {"name": "files", "type": "file", "path": "events"}
TABLES = """
create table public.orders (id int primary key, status text);
create table public.notes (id int primary key, body text);
insert into public.orders select n, 'new' from generate_series(1, 1000) n;
insert into public.notes values (1, 'hello')
"""


@dataclass(frozen=True)
class Shop:
    file: Path
    mirror: Mirror
    penstock: Here

    def verify(self, *words: str) -> Outcome:
        return self.penstock("verify", self.file, *words)


@pytest.fixture
def shop(database: str, tmp_path: Path, penstock: Here, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A pipeline that ran up to here, and does not run any more."""
    file = write_config(tmp_path, database, [LAKE, FILES]).rename(tmp_path / "shop.yaml")
    monkeypatch.chdir(tmp_path)
    pipeline = Pipeline.from_file(file)
    with connect(database) as connection:
        connection.execute(TABLES.encode())
        pipeline.init()
        mirror = Mirror(connection, database, tmp_path, ("shop", "shop_inserts"))
        mirror.fill("orders", "notes")
        yield Shop(file, mirror, penstock)
        mirror.close()
        pipeline.destroy()


def test_equal_tables_are_a_line_each_and_exit_code_0(shop: Shop) -> None:
    outcome = shop.verify()
    assert (outcome.code, outcome.err) == (0, "")
    assert [line.split() for line in outcome.out.splitlines()] == [
        ["equal", "lake", "public.notes", "1", "rows"],
        ["equal", "lake", "public.orders", "1,000", "rows"],
    ]


def test_where_nobody_watches_long_work_is_told_in_lines(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_verb, "LINE_SECONDS", 0.0)
    outcome = shop.verify("--table", "orders")
    assert outcome.code == 0
    assert "public.orders in lake: 1,000 rows compared" in outcome.err
    assert "compared" not in outcome.out


def test_differences_are_named_and_exit_code_1(shop: Shop) -> None:
    shop.mirror.lake("update public.orders set status = null where id = 7; delete from public.orders where id = 8")
    outcome = shop.verify("--sink", "lake")
    assert (outcome.code, outcome.err) == (1, "")
    assert [line.strip() for line in outcome.out.splitlines()[1:]] == [
        "differs  lake  public.orders  1,000 rows",
        "id=7: differs in status",
        "id=8: missing in the sink",
    ]
    assert shop.verify("--table", "notes").code == 0
    limited = shop.verify("--table", "public.orders", "--keys", "1")
    assert limited.out.splitlines()[-1].strip() == "and more than these 1"


def test_json_has_it_all_and_nothing_else_is_on_standard_output(shop: Shop) -> None:
    shop.mirror.lake("update public.orders set status = 'x' where id = 7")
    (orders,) = shop.penstock.json("verify", shop.file, "--table", "orders", "--json")
    assert (orders["sink"], orders["schema"], orders["table"], orders["rows"]) == ("lake", "public", "orders", 1000)
    assert orders["state"] == "differs"
    assert orders["differences"] == [{"key": {"id": "7"}, "kind": "differs", "columns": ["status"], "rows": 1}]


def test_a_sink_behind_the_source_is_told_from_one_that_differs(shop: Shop) -> None:
    shop.mirror.source("insert into public.orders values (2000, 'on its way')")
    outcome = shop.verify()
    assert outcome.code == 1
    assert 'Sink "lake" stands at' in outcome.errors[0]
    assert "penstock run FILE --once" in outcome.errors[0]
    assert "2000" not in outcome.out
    shop.mirror.lake("delete from public.orders")
    shop.mirror.fill("orders")
    assert shop.verify().code == 0


def test_wrong_usage_is_exit_code_2(shop: Shop) -> None:
    for words in (["--sink", "lakes"], ["--sink", "files"], ["--table", "order"], ["--keys", "0"], ["--twice"]):
        assert shop.verify(*words).code == 2
    assert "Did you mean public.orders?" in shop.verify("--table", "order").err
    assert "only sinks of type duckdb and postgres" in shop.verify("--sink", "files").err


def test_a_name_without_its_schema_is_found_in_another_and_one_like_nothing_is_not(shop: Shop) -> None:
    shop.mirror.source("create schema sales; create table sales.items (id int primary key)")
    pipeline = Pipeline.from_file(shop.file)
    pipeline.init()
    pipeline.add_tables(["sales.items"])
    assert "Did you mean sales.items?" in shop.verify("--table", "items").err
    assert "`penstock tables FILE list` shows" in shop.verify("--table", "xyz").err


def test_a_table_that_the_sink_has_not_got_is_a_difference_if_it_has_rows(shop: Shop) -> None:
    # Logged, it would be a change that the sink has not got.
    shop.mirror.source("set penstock.skip_schema_log = on; create table public.late (id int primary key)")
    pipeline = Pipeline.from_file(shop.file)
    pipeline.reconcile()
    assert "neither side has rows" in shop.verify("--table", "late").out
    shop.mirror.source("insert into public.late values (1)")
    assert "nothing delivers to it" in shop.verify("--table", "late").err
    shop.mirror.fill("notes")  # moves the position past it
    outcome = shop.verify("--table", "late")
    assert (outcome.code, "the sink has no such table" in outcome.out) == (1, True)


def test_a_table_that_somebody_dropped_in_the_file_is_a_difference(shop: Shop) -> None:
    shop.mirror.lake("drop table public.orders")
    outcome = shop.verify()
    assert (outcome.code, outcome.out.count("the sink has no such table")) == (1, 1)


def test_a_table_whose_import_is_not_complete_is_named_and_left_out(shop: Shop) -> None:
    document = yaml.safe_load(shop.file.read_text())
    document["source"]["mode"] = "copy_and_stream"
    shop.file.write_text(yaml.safe_dump(document))
    pipeline = Pipeline.from_file(shop.file)
    row = shop.mirror.connection.execute("select 'public.orders'::regclass::oid").fetchone()
    assert row is not None
    write_ready(pipeline.state.parts, "lake", 1, {row[0]: Ready(1, LSN(1))}, {})
    outcome = shop.verify()
    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["left", "equal"]
    assert "public.notes in lake was not compared: its import is not complete" in outcome.err
    assert shop.verify("--table", "notes").code == 1


def imports_of(shop: Shop, mode: str = "copy_and_stream") -> tuple[Pipeline, int, int]:
    """The pipeline with imports, and the oids of orders and notes."""
    document = yaml.safe_load(shop.file.read_text())
    document["source"]["mode"] = mode
    shop.file.write_text(yaml.safe_dump(document))
    query = "select 'public.orders'::regclass::oid, 'public.notes'::regclass::oid"
    row = shop.mirror.connection.execute(query.encode()).fetchone()
    assert row is not None
    return Pipeline.from_file(shop.file), row[0], row[1]


def test_a_table_that_joins_the_stream_is_left_out_until_the_sink_shows_it(shop: Shop) -> None:
    pipeline, orders, notes = imports_of(shop)
    shop.mirror.lake("drop table public.notes")  # its import fills a table beside it
    write_ready(pipeline.state.parts, "lake", 1, {orders: Ready(1, LSN(1))}, {notes: LSN(1)})
    outcome = shop.verify()
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["left", "equal"]
    assert "its import is not complete" in outcome.err
    assert outcome.code == 0


def test_a_difference_of_a_table_that_is_imported_again_meanwhile_is_none(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, orders, notes = imports_of(shop)
    ready = {orders: Ready(1, LSN(1)), notes: Ready(1, LSN(1))}
    write_ready(pipeline.state.parts, "lake", 1, ready, {})
    shop.mirror.lake("delete from public.orders where id = 7")
    assert shop.verify().code == 1
    compare = TableComparison.run

    def resynced_meanwhile(comparison: TableComparison) -> TableReport:
        write_holds(pipeline.state.parts, "lake", {orders: 2})
        return compare(comparison)

    monkeypatch.setattr(TableComparison, "run", resynced_meanwhile)
    outcome = shop.verify("--table", "orders")
    assert "imported again while it was compared" in outcome.out
    assert "id=7" not in outcome.out


def test_strict_wants_every_table_compared(shop: Shop) -> None:
    assert shop.verify("--strict").code == 0
    pipeline, orders, _ = imports_of(shop)
    write_ready(pipeline.state.parts, "lake", 1, {orders: Ready(1, LSN(1))}, {})
    assert (shop.verify().code, shop.verify("--strict").code) == (0, 1)
    assert shop.verify("--strict", "--table", "orders").code == 0


def test_a_postgres_sink_is_compared_by_both_servers(shop: Shop, postgres18: EmbeddedPostgres) -> None:
    name = f"replica_{uuid.uuid4().hex[:12]}"
    url = postgres18.create_database(name)
    document = yaml.safe_load(shop.file.read_text())
    document["sinks"] = [
        {"name": "replica", "type": "postgres", "url": url.replace("postgres@", "postgres:hidden-word@")}
    ]
    shop.file.write_text(yaml.safe_dump(document))
    with connect(url) as target:
        target.execute(TABLES.encode())
        target.execute("create schema penstock; create table penstock.progress (pipeline text, sink text, lsn pg_lsn)")
        position = str(shop.mirror.fill("notes"))
        target.execute("insert into penstock.progress values (%s, 'replica', %s)", [document["name"], position])
        assert shop.verify().code == 0
        target.execute("update public.orders set status = '' where id = 999")
        outcome = shop.verify()
        assert outcome.code == 1
        assert "id=999: differs in status" in outcome.out
        shop.mirror.source("insert into public.orders values (2000, 'on its way')")
        behind = shop.verify("--debug")
    postgres18.drop_database(name)
    assert behind.code == 1
    assert 'Sink "replica" stands at' in behind.err
    assert "hidden-word" not in behind.out + behind.err


def test_before_init_there_is_nothing_to_compare(database: str, tmp_path: Path, penstock: Here) -> None:
    outcome = penstock("verify", write_config(tmp_path, database, [LAKE]))
    assert outcome.code == 1
    assert "does not exist on the source" in outcome.errors[0]


def test_passwords_are_never_shown(tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, "postgresql://me:hidden-word@127.0.0.1:1/shop", [LAKE])
    outcome = penstock("verify", file, "--debug")
    assert outcome.code == 1
    assert "hidden-word" not in outcome.out + outcome.err


def test_what_the_pages_tell_to_type_works(shop: Shop) -> None:
    typed = [line for block in blocks("sh", ROOT / "docs" / "verify.md") for line in block.text.splitlines()]
    typed += [
        line
        for line in section(ROOT / "docs" / "commands.md", "penstock verify").splitlines()
        if line.startswith("penstock ")
    ]
    assert len(typed) >= 3
    for line in typed:
        program, *words = shlex.split(line)
        assert program == "penstock"
        outcome = shop.penstock(*words)
        assert outcome.code == 0, f"{line}: {outcome.err}"


def test_the_output_on_the_page_is_what_is_printed(shop: Shop) -> None:
    shop.mirror.lake("update public.orders set status = null where id = 7; delete from public.orders where id = 8")
    shop.mirror.lake("insert into public.orders values (5000, 'x')")
    (shown,) = blocks("text", ROOT / "docs" / "verify.md")
    assert shop.verify().out == shown.text


@pytest.mark.parametrize(
    ("kind", "value", "said"), [("date", "infinity", "DuckDB's DATE"), ("time", "24:00:00", "DuckDB's TIME")]
)
def test_a_value_that_the_sink_cannot_hold_concerns_its_table_alone(
    shop: Shop, database: str, kind: str, value: str, said: str
) -> None:
    with connect(database) as connection:
        connection.execute(
            f"create table public.days (id int primary key, d {kind}); alter publication shop add table public.days"
        )
        connection.execute("insert into public.days values (1, null)")
        shop.mirror.fill("days")
        connection.execute("update public.days set d = %s", [value])
    outcome = shop.verify("--strict")
    assert outcome.code == 1
    assert "equal    lake  public.orders" in outcome.out
    assert "equal    lake  public.notes" in outcome.out
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("not comparable lake  public.days")]
    assert f"holds '{value}', which {said} cannot represent" in line
    assert "unrepresentable: {tables: {public.days: {d: text}}}" in line
    assert "Arrow" not in outcome.out
    assert shop.verify().code == 1
    days = {report["table"]: report["state"] for report in shop.penstock.json("verify", shop.file, "--json")}
    assert days == {"orders": "equal", "notes": "equal", "days": "not_comparable"}


def test_json_that_the_sink_cannot_hold_is_no_fault(shop: Shop, database: str) -> None:
    with connect(database) as connection:
        connection.execute("create table public.docs (id int primary key, j json)")
        connection.execute("alter publication shop add table public.docs; insert into public.docs values (1, '{}')")
        shop.mirror.fill("docs")
        connection.execute(r"""update public.docs set j = '"\ud800"'""")
    outcome = shop.verify()
    assert outcome.code == 1
    assert "fault" not in outcome.err
    assert "not comparable lake  public.docs" in outcome.out
    assert "unrepresentable: {tables: {public.docs: {j: text}}}" in outcome.out
