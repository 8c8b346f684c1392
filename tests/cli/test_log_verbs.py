"""``penstock log``: the changes of the log as events, and SQL over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.log import ChangeLog
from penstock.control.log_events import LogRange
from penstock.control.log_query import query
from penstock.errors import LogCorrupt
from penstock.pipeline import Pipeline
from tests.cli.command import Here, write_config


def events(penstock: Here, captured: Path, *options: str) -> list[dict[str, Any]]:
    outcome = penstock("log", captured, "show", *options)
    assert (outcome.code, outcome.err) == (0, "")
    return [json.loads(line) for line in outcome.out.splitlines()]


def answers(penstock: Here, captured: Path, sql: str, *options: str) -> list[dict[str, Any]]:
    outcome = penstock("log", captured, "query", sql, "--json", *options)
    assert (outcome.code, outcome.err) == (0, "")
    return [json.loads(line) for line in outcome.out.splitlines()]


def test_show_prints_every_change_in_commit_order(captured: Path, penstock: Here) -> None:
    shown = events(penstock, captured)
    assert [(event["op"], event.get("table"), event.get("key")) for event in shown] == [
        ("insert", "t", {"id": 1}), ("insert", "t", {"id": 2}), ("insert", "Other One", {"id": 7}),
        ("update", "t", {"id": 3}), ("delete", "t", {"id": 1}), ("message", None, None),
    ]  # fmt: skip
    assert shown[3]["before"] == {"id": 2}
    assert shown[2]["after"] == {"id": 7, "n": "1.50"}


def test_show_takes_one_table(captured: Path, penstock: Here) -> None:
    assert {event["table"] for event in events(penstock, captured, "--table", "t")} == {"t"}
    assert {event["table"] for event in events(penstock, captured, "--table", "public.Other*")} == {"Other One"}
    assert events(penstock, captured, "--table", "absent") == []


def test_show_takes_a_range_with_both_its_ends(captured: Path, penstock: Here) -> None:
    shown = events(penstock, captured)
    first, last = shown[2]["lsn"], shown[3]["lsn"]
    assert events(penstock, captured, "--from", first, "--to", last) == shown[2:4]


@pytest.mark.parametrize("limit", [0, 1, 3, 100])
def test_show_takes_a_limit(limit: int, captured: Path, penstock: Here) -> None:
    assert events(penstock, captured, "--limit", str(limit)) == events(penstock, captured)[:limit]


def test_show_segments_is_a_line_for_each(captured: Path, penstock: Here) -> None:
    log = ChangeLog(Pipeline.from_file(captured).state.log_uri)
    names = [str(name) for stretch in log.contents().stretches for name in stretch.segments]
    lines = penstock("log", captured, "show", "--segments").out.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert "public.Other One" in "".join(lines)


def test_query_sees_each_change_with_its_rows_as_json(captured: Path, penstock: Here) -> None:
    found = answers(
        penstock, captured, 'select op, "table", key, after, before from changes order by position, sequence'
    )
    assert found[0] == {"op": "insert", "table": "t", "key": {"id": 1}, "after": {"id": 1, "v": "one"}, "before": None}
    assert found[3]["before"] == {"id": 2}
    assert (found[4]["op"], found[4]["after"]) == ("delete", None)
    assert len(found) == 5


def test_query_may_read_the_log_more_than_once(captured: Path, penstock: Here) -> None:
    sql = (
        "select count(*) as n from changes a join changes b using (position, sequence), (select count(*) from segments)"
    )
    assert answers(penstock, captured, sql) == [{"n": 5}]


def test_query_reads_only_the_table_that_is_asked_for(captured: Path, penstock: Here) -> None:
    sql = 'select distinct "table" from changes;'
    assert answers(penstock, captured, sql, "--table", "t") == [{"table": "t"}]


def test_segments_add_up_to_the_changes(captured: Path, penstock: Here) -> None:
    (found,) = answers(penstock, captured, 'select sum(rows)::int as rows, min(start) as "from" from segments')
    assert found["rows"] == 6
    assert "/" in found["from"]


def test_for_people_the_answer_is_a_table(captured: Path, penstock: Here) -> None:
    outcome = penstock("log", captured, "query", "select op, count(*) as n from changes group by op order by op")
    assert [line.split() for line in outcome.out.splitlines()] == [
        ["op", "n"], ["delete", "1"], ["insert", "3"], ["update", "1"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["query", "select nothing_like_it from changes"], "nothing_like_it"),
        (["query", "selec"], "DuckDB refused the query"),
        (["show", "--from", "yesterday"], "--from: 'yesterday' is not an LSN"),
        (["show", "--table", "a."], "--table: not a table pattern; write it like public.orders"),
    ],
)
def test_a_question_that_makes_no_sense_is_exit_code_2(
    arguments: list[str], said: str, captured: Path, penstock: Here
) -> None:
    outcome = penstock("log", captured, *arguments)
    assert outcome.code == 2
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_damaged_segment_is_told_as_such(captured: Path, tmp_path: Path, penstock: Here) -> None:
    log = ChangeLog(Pipeline.from_file(captured).state.log_uri)
    for entry in log.directory.entries():
        content = Path(log.directory.path, entry.name).read_bytes()
        (tmp_path / entry.name).write_bytes(content[: len(content) // 2])
    with pytest.raises(LogCorrupt), query(ChangeLog(str(tmp_path)), "select * from changes", LogRange()) as answer:
        list(answer.rows)


def test_the_log_of_a_pipeline_that_never_ran_is_empty(database: str, tmp_path: Path, penstock: Here) -> None:
    file = write_config(tmp_path, database)
    assert events(penstock, file) == []
    assert answers(penstock, file, "select count(*) as n from changes") == [{"n": 0}]
