"""Code in rules from the command line: a mistake is found before anything is delivered, and modules beside the config work."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.postgres.connection import connect
from tests.cli.command import Here, run_to_end, write_config

MODULE = """
import pyarrow as pa
import pyarrow.compute as pc


def doubled(table):
    return table.append_column("double", pc.multiply(table["amount"], 2))


def bad(table):
    raise LookupError("secret words")
"""


@pytest.fixture
def orders(database: str, tmp_path: Path) -> str:
    with connect(database) as connection:
        connection.execute("create table public.orders (id int primary key, amount int)")
        connection.execute("create table public.bare (amount int)")
        connection.execute("insert into public.orders values (1, 5), (2, -5)")
    (tmp_path / "code_beside_it.py").write_text(MODULE)
    return database


def rule(**members: Any) -> list[dict[str, Any]]:
    return [{"tables": ["orders"], **members}]


MISTAKES = [
    (rule(python="nowhere_at_all:f"), "rules[0].python", "There is no module nowhere_at_all."),
    (rule(python="code_beside_it:absent"), "rules[0].python", "Module code_beside_it has no function absent."),
    (rule(python="code_beside_it:bad"), "rules[0].python",
     "The function code_beside_it:bad raised LookupError with no rows of public.orders."),
    (rule(python_frame="code_beside_it:absent"), "rules[0].python_frame", "Module code_beside_it has no function absent."),
    ([{"tables": ["bare"], "sql": "select * from changes"}], "rules[0].sql",
     "public.bare has no key, by which a change would find what code made of a row."),
    ([*rule(sql="select * from changes"), *rule(sql="select * from changes")], "rules[1].sql",
     "Another rule has sql or python_frame for public.orders."),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "place", "said"), MISTAKES)
def test_validate_finds_a_mistake_without_spark(
    orders: str, tmp_path: Path, penstock: Here, rules: list[dict[str, Any]], place: str, said: str
) -> None:
    file = write_config(tmp_path, orders, rules=rules)
    (finding,) = penstock.json("rules", file, "validate", "--json")
    assert (finding["name"], finding["ok"]) == (place, False)
    assert re.sub(r" \(\S+code_beside_it[.]py:\d+, in \w+\)", "", finding["message"]) == said
    assert finding["remedy"]
    outcome = penstock("run", file, "--once")
    assert outcome.code == 2
    assert place in outcome.err


def test_rules_with_code_that_fit_are_exit_code_0(orders: str, tmp_path: Path, penstock: Here) -> None:
    fitting = [
        *rule(python="code_beside_it:doubled", rename={"columns": {"double": "twice"}}),
        *rule(sql="from changes"),
    ]
    outcome = penstock("rules", write_config(tmp_path, orders, rules=fitting), "validate")
    assert (outcome.code, outcome.err) == (0, "")


def test_preview_shows_what_a_function_makes(orders: str, tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, orders, rules=rule(python="code_beside_it:doubled"))
    lines = penstock("rules", file, "preview", "orders", "--json").out.splitlines()
    assert [json.loads(line)["after"] for line in lines] == [
        {"id": 1, "amount": 5, "double": 10},
        {"id": 2, "amount": -5, "double": -10},
    ]


@pytest.mark.spark
def test_preview_shows_what_a_query_makes(orders: str, tmp_path: Path) -> None:
    rules = [
        *rule(sql="select id, amount * 3 as thrice, _lsn, _sequence from changes where amount > 0"),
        *rule(rename={"columns": {"thrice": "triple"}}),
    ]
    file = write_config(tmp_path, orders, rules=rules)
    shown = run_to_end("rules", file, "preview", "orders", "--json")
    assert shown.code == 0, shown.err
    assert [json.loads(line)["after"] for line in shown.out.splitlines()] == [{"id": 1, "triple": 15}, None]


@pytest.mark.spark
def test_preview_says_what_spark_does_not_understand(orders: str, tmp_path: Path) -> None:
    outcome = run_to_end(
        "rules", write_config(tmp_path, orders, rules=rule(sql="select nope from changes")), "preview", "orders"
    )
    assert outcome.code == 2
    assert "rules[0].sql: Spark does not understand it for public.orders" in outcome.errors[0]


def test_a_query_that_spark_does_not_understand_ends_with_2_before_anything_is_delivered(
    orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_config(tmp_path, orders, rules=rule(sql="select nope from changes"))
    monkeypatch.chdir(tmp_path)
    outcome = run_to_end("run", file, "--once")
    assert outcome.code == 2
    (error,) = outcome.errors
    assert "rules[0].sql: Spark does not understand it for public.orders: [UNRESOLVED_COLUMN" in error
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "spark-warehouse").exists()
    assert not list((tmp_path / "events").glob("*"))


def test_code_of_both_kinds_runs_in_processes_of_its_own(orders: str, tmp_path: Path) -> None:
    with connect(orders) as connection:
        connection.execute("create table public.lines (id int primary key, amount int)")
        connection.execute("insert into public.lines select 1, 3")
    rules = [
        *rule(python="code_beside_it:doubled"),
        {"tables": ["lines"], "sql": "select *, amount * 10 as ten from changes"},
    ]
    source = {"url": orders, "mode": "copy_and_stream"}
    out = [{"name": "out", "type": "stdout"}]
    outcome = run_to_end("run", write_config(tmp_path, orders, out, rules=rules, source=source), "--once")
    assert outcome.code == 0, outcome.err
    events = [json.loads(line) for line in outcome.out.splitlines()]
    rows = {(event["table"], event["after"]["id"]): event["after"] for event in events if event["op"] == "read"}
    assert rows[("orders", 1)] == {"id": 1, "amount": 5, "double": 10}
    assert rows[("lines", 1)] == {"id": 1, "amount": 3, "ten": 30}


REPEATING = """

def repeating(table):
    if len(table):
        raise ValueError(table["note"])
    return table
"""
FAILING = [
    ({"sql": "select *, cast(note as int) as n from changes"},
     "rules[0].sql: it fails on a row of public.notes: CAST_INVALID_INPUT."),
    ({"python": "code_beside_it:repeating"}, "rules[0].python: the function code_beside_it:repeating raised ValueError with"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "said"), FAILING, ids=["sql", "python"])
def test_code_that_fails_on_a_row_stops_the_sink_and_shows_no_value(
    orders: str, tmp_path: Path, code: dict[str, Any], said: str
) -> None:
    with (tmp_path / "code_beside_it.py").open("a") as module:
        module.write(REPEATING)
    with connect(orders) as connection:
        connection.execute("create table public.notes (id int primary key, note text)")
    file = write_config(tmp_path, orders, rules=[{"tables": ["notes"], **code}])
    assert run_to_end("init", file).code == 0
    with connect(orders) as connection:
        connection.execute("insert into public.notes values (1, 'a secret')")
    outcome = run_to_end("run", file, "--once")
    assert outcome.code == 1
    assert said in outcome.err
    assert "secret" not in outcome.err + outcome.out
    state = tmp_path / ".penstock"
    kept = [file for file in state.rglob("*") if file.is_file() and not file.is_relative_to(state / "log")]
    assert kept
    assert [file for file in kept if b"a secret" in file.read_bytes()] == []
