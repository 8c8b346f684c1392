"""``penstock tables`` and ``penstock copy``: what is typed reaches the pipeline, and what it says is shown."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ImportFailed
from penstock.imports.progress import TableStatus
from penstock.pipeline import Pipeline
from penstock.postgres.connection import connect
from penstock.state.lifecycle import TableState
from tests.cli.command import Here, write_config

NOWHERE = "postgresql://me@127.0.0.1:1/shop"
SOURCE = {"url": NOWHERE, "mode": "copy_and_stream"}
ORDERS = TableStatus("public", "orders", "files", TableState.COPYING, 40, 100, 1 << 20, 2 << 20, 10.0, 6.0)
NOTES = TableStatus("Odd", 'no"tes.old', "files", TableState.FAILED, error="no right to read it")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """A pipeline that does nothing but write down what it was asked for."""
    calls: list[tuple[Any, ...]] = []

    def add(_: Pipeline, names: Sequence[str]) -> list[str]:
        calls.append(("add", list(names)))
        return [f"Added {name}." for name in names]

    def remove(_: Pipeline, names: Sequence[str]) -> list[str]:
        calls.append(("remove", list(names)))
        return [f"Removed {name}." for name in names]

    def resync(_: Pipeline, names: Sequence[str], sinks: Sequence[str] = ()) -> list[str]:
        calls.append(("resync", list(names), list(sinks)))
        return []

    def copy(_: Pipeline, tables: Sequence[str] = (), stop: threading.Event | None = None) -> None:
        calls.append(("copy", list(tables), stop is not None and not stop.is_set()))

    def run(
        _: Pipeline,
        once: bool = False,
        sinks: Sequence[str] = (),
        stop: object = None,
        copy: bool = True,
        begun: bool = False,
    ) -> None:
        assert begun
        calls.append(("run", once, list(sinks), copy))

    for name, stub in {"add_tables": add, "remove_tables": remove, "resync_tables": resync, "copy": copy}.items():
        monkeypatch.setattr(Pipeline, name, stub)
    monkeypatch.setattr(Pipeline, "run", run)
    monkeypatch.setattr(Pipeline, "tables", lambda _: [ORDERS, NOTES])
    return calls


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_config(tmp_path, NOWHERE, source=SOURCE)


def test_list_shows_each_table_with_its_figures_on_standard_output(
    asked: list[tuple[Any, ...]], file: Path, penstock: Here
) -> None:
    outcome = penstock("tables", file, "list")
    assert (outcome.code, outcome.err) == (0, "")
    _, orders, notes = outcome.out.splitlines()
    assert orders.split()[:5] == ["public.orders", "files", "copying", "40", "100"]
    assert notes.startswith('Odd.no"tes.old')
    assert notes.rstrip().endswith("no right to read it")


def test_list_as_json_has_the_members_of_status(asked: list[tuple[Any, ...]], file: Path, penstock: Here) -> None:
    found = penstock.json("tables", file, "list", "--json")
    assert found[0] == {
        "schema": "public", "table": "orders", "sink": "files", "state": "copying", "rows_copied": 40,
        "rows_estimated": 100, "bytes_copied": 1 << 20, "bytes_estimated": 2 << 20, "rows_per_second": 10.0,
        "seconds_left": 6.0, "phase": None, "waiting_for": None, "error": None,
    }  # fmt: skip
    assert found[1]["table"] == 'no"tes.old'


def test_a_subscription_without_tables_has_an_empty_list(
    asked: list[tuple[Any, ...]], file: Path, penstock: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pipeline, "tables", lambda _: [])
    assert penstock.json("tables", file, "list", "--json") == []
    outcome = penstock("tables", file, "list")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "There are no tables in the subscription.\n")


@pytest.mark.parametrize(("verb", "said"), [("add", "Added"), ("remove", "Removed")])
def test_add_and_remove_take_names_as_they_are_and_say_what_they_did(
    verb: str, said: str, asked: list[tuple[Any, ...]], file: Path, penstock: Here
) -> None:
    outcome = penstock("tables", file, verb, "orders", "Sales.Two.Dots")
    assert asked == [(verb, ["orders", "Sales.Two.Dots"])]
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err.splitlines() == [f"{said} orders.", f"{said} Sales.Two.Dots."]


def test_resync_is_of_all_sinks_or_of_those_named(asked: list[tuple[Any, ...]], file: Path, penstock: Here) -> None:
    assert penstock("tables", file, "resync", "orders").code == 0
    assert penstock("tables", file, "resync", "orders", "lines", "--sink", "files").code == 0
    assert asked == [("resync", ["orders"], []), ("resync", ["orders", "lines"], ["files"])]


def test_resync_for_a_sink_that_is_not_there_is_refused(
    asked: list[tuple[Any, ...]], file: Path, penstock: Here
) -> None:
    outcome = penstock("tables", file, "resync", "orders", "--sink", "lake")
    assert (outcome.code, asked) == (2, [])
    assert 'There is no sink "lake" in the config' in outcome.err


@pytest.mark.parametrize("verb", ["add", "remove", "resync"])
def test_a_verb_without_a_table_is_bad_usage(
    verb: str, asked: list[tuple[Any, ...]], file: Path, penstock: Here
) -> None:
    outcome = penstock("tables", file, verb)
    assert (outcome.code, asked) == (2, [])
    assert "TABLE" in outcome.err


def test_copy_takes_all_tables_or_those_named_and_heeds_signals(
    asked: list[tuple[Any, ...]], file: Path, penstock: Here
) -> None:
    outcome = penstock("copy", file)
    assert outcome.code == 0
    assert outcome.err.splitlines()[-1].endswith("info: Done.")
    assert penstock("copy", file, "--table", "orders", "--table", "sales.lines").code == 0
    assert asked == [("copy", [], True), ("copy", ["orders", "sales.lines"], True)]


def test_an_import_that_failed_is_exit_code_1_with_its_reason(
    file: Path, penstock: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Pipeline, tables: Sequence[str] = (), stop: object = None) -> None:
        raise ImportFailed("public.notes: no right to read it.")

    monkeypatch.setattr(Pipeline, "copy", failing)
    outcome = penstock("copy", file)
    assert outcome.code == 1
    assert "public.notes: no right to read it. Mend what the message names." in outcome.errors[0]


def test_run_copies_unless_told_otherwise(
    asked: list[tuple[Any, ...]], database: str, tmp_path: Path, penstock: Here
) -> None:
    file = write_config(tmp_path, database)
    assert penstock("run", file, "--once").code == 0
    assert penstock("run", file, "--no-copy").code == 0
    assert asked == [("run", True, [], True), ("run", False, [], False)]


# The real pipeline, as far as it goes without Spark.


@pytest.fixture
def shop(database: str, tmp_path: Path) -> Path:
    with connect(database) as connection:
        connection.execute(
            "create table public.orders (id int primary key); create table public.hidden (id int primary key);"
            "create view public.looked as select 1 as id"
        )
    source = {"url": database, "mode": "copy_and_stream", "tables": {"exclude": ["hidden"]}}
    return write_config(tmp_path, database, source=source)


def states(penstock: Here, file: Path) -> dict[str, str]:
    return {table["table"]: table["state"] for table in penstock.json("tables", file, "list", "--json")}


def test_tables_come_in_and_leave_while_the_pipeline_is_stopped(shop: Path, penstock: Here) -> None:
    assert penstock("init", shop).code == 0
    assert states(penstock, shop) == {"orders": "pending"}
    added = penstock("tables", shop, "add", "hidden")
    assert (added.code, "public.hidden" in added.err) == (0, True)
    removed = penstock("tables", shop, "remove", "public.orders")
    assert (removed.code, '"files"' in removed.err) == (0, True)
    assert states(penstock, shop) == {"hidden": "pending", "orders": "removed"}
    assert {f["message"] for f in penstock.json("check", shop, "--json") if f["name"] == "tables"} == {
        "Tables captured: 1."
    }
    assert penstock("tables", shop, "add", "orders").code == 0
    assert states(penstock, shop) == {"hidden": "pending", "orders": "pending"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tables", "add", "nosuch"], "nosuch"),
        (["tables", "add", "looked"], "a view"),
        (["tables", "add", "Orders"], "public.orders"),
        (["tables", "remove", "nosuch"], "nosuch"),
        (["tables", "remove", "hidden"], "hidden"),
        (["tables", "resync", "nosuch"], "nosuch"),
        (["copy", "--table", "nosuch"], "nosuch"),
    ],
)
def test_a_table_that_is_not_there_is_one_clear_line_and_exit_code_2(
    arguments: list[str], said: str, shop: Path, penstock: Here
) -> None:
    assert penstock("init", shop).code == 0
    verb, *rest = arguments
    outcome = penstock(verb, shop, *rest)
    assert outcome.code == 2, outcome.err
    (line,) = outcome.errors
    assert said in line
    assert states(penstock, shop) == {"orders": "pending"}


@pytest.mark.parametrize("arguments", [["copy"], ["tables", "resync", "orders"]])
def test_in_mode_stream_nothing_is_copied(arguments: list[str], database: str, tmp_path: Path, penstock: Here) -> None:
    with connect(database) as connection:
        connection.execute("create table public.orders (id int primary key)")
    file = write_config(tmp_path, database)
    assert penstock("init", file).code == 0
    verb, *rest = arguments
    outcome = penstock(verb, file, *rest)
    assert outcome.code == 2
    (line,) = outcome.errors
    assert "mode" in line
    assert "stream" in line


def test_before_init_there_is_no_subscription_to_edit(shop: Path, penstock: Here) -> None:
    outcome = penstock("tables", shop, "add", "hidden")
    assert outcome.code == 2
    assert "`penstock init`" in outcome.errors[0]
    assert penstock.json("tables", shop, "list", "--json") == []


def test_status_tells_of_a_table_that_failed_and_is_not_healthy(shop: Path, database: str, penstock: Here) -> None:
    assert penstock("init", shop).code == 0
    assert penstock("tables", shop, "add", "hidden").code == 0
    assert penstock("status", shop).code == 0
    with connect(database) as connection:
        connection.execute(
            "update penstock.import_jobs set state = 'failed', error = 'no right to read it' where table_name = 'hidden'"
        )
    outcome = penstock("status", shop)
    assert outcome.code == 1
    assert "tables  1 failed, 1 pending" in outcome.out
    assert "no right to read it" in outcome.out
    found = json.loads(penstock("status", shop, "--json").out)
    assert found["healthy"] is False
    assert {table["table"]: table["error"] for table in found["tables"]} == {
        "hidden": "no right to read it", "orders": None,
    }  # fmt: skip
