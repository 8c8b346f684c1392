from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changelog import units as planning
from penstock.changelog.log import ChangeLog
from penstock.changelog.units import change_batches, only, plan
from penstock.changes.batch import MESSAGES, OP_NAMES, TRUNCATE, ChangeBatch, Relation
from penstock.lsn import LSN
from penstock.testing import scripted_stream as script
from penstock.testing.change_batches import relation
from tests.changelog.log_scripts import START, LogScript, log_scripts, write_log

steady = settings(max_examples=80, derandomize=True, deadline=None)

Place = tuple[int, int, int]  # table, commit LSN, sequence


@pytest.fixture(autouse=True, scope="module")
def _everything_is_hot() -> Iterator[None]:
    """So that small logs are divided like large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planning, "HOT_BYTES", 1)
        patch.setattr(planning, "BUCKET_BYTES", 1)
        patch.setattr(planning, "SMALL_BYTES", 1)
        yield


def places(batches: list[ChangeBatch]) -> list[Place]:
    return [
        (batch.relation.oid, int(lsn), int(sequence))
        for batch in batches
        for lsn, sequence in zip(batch.commit_lsn, batch.sequence, strict=True)
    ]


def tasks_of(log: ChangeLog, start: int, parallelism: int) -> list[list[ChangeBatch]]:
    end = log.contents().end or LSN(start)
    tasks = plan(log, LSN(start), end, parallelism) if end > start else []
    assert len(tasks) <= parallelism
    return [list(change_batches(log, units, LSN(start))) for units in tasks]


@steady
@given(log_scripts(), st.sampled_from([1, 200, 1 << 20]), st.integers(1, 4))
def test_every_change_is_in_one_task_and_a_keys_changes_in_order(
    scripted: LogScript, size: int, parallelism: int
) -> None:
    with TemporaryDirectory() as directory:
        tasks = tasks_of(write_log(Path(directory), scripted.stream.messages, size), START, parallelism)
    found = [place for task in tasks for place in places(task)]
    assert sorted(found) == sorted((row.relation.oid, row.commit_lsn, row.sequence) for row in scripted.rows)
    changed = {row.relation.oid for row in scripted.rows if not row.payload.startswith(b"I")}
    for task in tasks:
        per_key: dict[tuple[int, str | None], list[Place]] = defaultdict(list)
        for batch in task:
            keys = zip(places([batch]), batch.new[0].to_pylist(), batch.old[0].to_pylist(), strict=True)
            for place, new, old in keys if batch.relation.oid in changed else ():
                per_key[place[0], new if new is not None else old].append(place)
        assert all(some == sorted(some) for some in per_key.values())


@steady
@given(log_scripts(), st.integers(2, 4))
def test_all_changes_of_a_key_are_in_the_same_task(scripted: LogScript, parallelism: int) -> None:
    with TemporaryDirectory() as directory:
        tasks = tasks_of(write_log(Path(directory), scripted.stream.messages, 1), START, parallelism)
    changed = {row.relation.oid for row in scripted.rows if not row.payload.startswith(b"I")}
    seen: dict[tuple[int, str], set[int]] = defaultdict(set)
    for number, task in enumerate(tasks):
        for batch in task:
            if batch.relation.oid in changed and batch.relation != MESSAGES:
                for new, old in zip(batch.new[0].to_pylist(), batch.old[0].to_pylist(), strict=True):
                    if (key := new if new is not None else old) is not None:
                        seen[batch.relation.oid, key].add(number)
    assert all(len(found) == 1 for found in seen.values())


@steady
@given(log_scripts(), st.data())
def test_a_sink_that_holds_some_transactions_gets_the_others(scripted: LogScript, data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        log = write_log(Path(directory), scripted.stream.messages, 1 << 20, flush=False)
        commits = sorted({row.commit_lsn for row in scripted.rows})
        after = data.draw(st.sampled_from(commits)) + 1 if commits else START
        tasks = tasks_of(log, after, 1)
    expected = {(r.relation.oid, r.commit_lsn, r.sequence) for r in scripted.rows if r.commit_lsn >= after}
    assert {place for task in tasks for place in places(task)} == expected


def log_of(directory: Path, stream: script.ScriptedStream, *tables: Relation) -> ChangeLog:
    return write_log(directory, stream.messages, 1, describe=script.described(*tables))


def test_tables_whose_names_only_differ_by_where_the_dot_is_stay_apart(tmp_path: Path) -> None:
    one = relation("a.b", "c", id="int8", key=("id",), oid=1)
    two = relation("a", "b.c", id="int8", key=("id",), oid=2)
    stream = script.ScriptedStream(START)
    for value in ("1", "2"):
        with stream.transaction():
            for table in (one, two):
                stream.relation(table)
                stream.insert(table, [value])
                stream.update(table, [value + "0"], [value])
    log = log_of(tmp_path, stream, one, two)
    for parallelism in (1, 3):
        batches = [batch for task in tasks_of(log, START, parallelism) for batch in task]
        for table in (one, two):
            of_table = [batch for batch in batches if batch.relation == table]
            assert [key for batch in of_table for key in batch.new[0].to_pylist()] == ["1", "10", "2", "20"]


def test_a_table_without_a_key_stays_in_one_task_when_it_has_more_than_inserts(tmp_path: Path) -> None:
    bag = relation("public", "bag", note="text", identity="f", oid=1)
    stream = script.ScriptedStream(START)
    stream.relation(bag)
    for _ in range(4):
        with stream.transaction():
            stream.insert(bag, ["x"])
            stream.delete(bag, ["x"])
    (task,) = tasks_of(log_of(tmp_path, stream, bag), START, 3)
    assert [OP_NAMES[int(op)] for batch in task for op in batch.op] == ["insert", "delete"] * 4


def test_a_truncated_table_stays_in_one_task(tmp_path: Path) -> None:
    """A truncate concerns all keys, and sinks of events must see it once."""
    table = relation("public", "t", id="int8", key=("id",), oid=1)
    stream = script.ScriptedStream(START)
    stream.relation(table)
    for number in range(9):
        with stream.transaction():
            stream.insert(table, [str(number)])
            stream.delete(table, [str(number)])
    with stream.transaction():
        stream.truncate(table)
    (task,) = tasks_of(log_of(tmp_path, stream, table), START, 3)
    assert sum((batch.op == TRUNCATE).sum() for batch in task) == 1


@steady
@given(log_scripts(), st.integers(2, 4))
def test_a_table_whose_definition_changes_stays_in_one_task(scripted: LogScript, parallelism: int) -> None:
    """The target is altered once, after all rows of the old definition and before those of the new one."""
    with TemporaryDirectory() as directory:
        tasks = tasks_of(write_log(Path(directory), scripted.stream.messages, 1), START, parallelism)
    for oid in {row.relation.oid for row in scripted.rows}:
        definitions = [[batch.relation for batch in task if batch.relation.oid == oid] for task in tasks]
        in_force = list(dict.fromkeys(row.relation for row in scripted.rows if row.relation.oid == oid))
        if len(in_force) > 1:
            (found,) = [list(dict.fromkeys(some)) for some in definitions if some]
            assert found == in_force


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_table_that_is_renamed_stays_in_order(tmp_path: Path, parallelism: int) -> None:
    before = relation("public", "orders", id="int8", key=("id",), oid=1)
    after = relation("public", "sales", id="int8", key=("id",), oid=1)
    stream = script.ScriptedStream(START)
    for table, values in ((before, "1"), (after, "2345"), (before, "6")):
        with stream.transaction():
            stream.relation(table)
            for value in values:
                stream.insert(table, [value])
    log = log_of(tmp_path, stream, before, after)
    (task,) = tasks_of(log, START, parallelism)
    assert [key for batch in task for key in batch.new[0].to_pylist()] == list("123456")


def test_a_hot_table_is_divided_by_its_key(tmp_path: Path) -> None:
    table = relation("public", "t", id="int8", key=("id",), oid=1)
    stream = script.ScriptedStream(START)
    stream.relation(table)
    for number in range(20):
        with stream.transaction():
            stream.insert(table, [str(number)])
            stream.update(table, [str(number)])
    tasks = tasks_of(log_of(tmp_path, stream, table), START, 3)
    assert [len(places(task)) > 0 for task in tasks] == [True, True, True]


@pytest.mark.parametrize("type", ["numeric", "float8", "interval", "jsonb", "text[]"])
def test_keys_that_may_be_equal_and_written_differently_stay_in_one_task(tmp_path: Path, type: str) -> None:
    table = relation("public", "t", k=type, key=("k",), oid=1)
    stream = script.ScriptedStream(START)
    stream.relation(table)
    for number in range(20):
        with stream.transaction():
            stream.insert(table, [f"{number}.0"])
            stream.delete(table, [f"{number}.0"])
            stream.insert(table, [f"{number}.00"])
    (task,) = tasks_of(log_of(tmp_path, stream, table), START, 3)
    assert len(places([*task])) == 60


def test_inserts_alone_are_divided_by_segments(tmp_path: Path) -> None:
    bag = relation("public", "bag", note="text", oid=1)
    stream = script.ScriptedStream(START)
    for number in range(4):
        with stream.transaction():
            stream.relation(bag)
            stream.insert(bag, [str(number)])
    log = write_log(tmp_path, stream.messages, 1, cuts=[4, 8, 12], describe=script.described(bag))
    tasks = tasks_of(log, START, 2)
    assert sorted(len(places(task)) for task in tasks) == [2, 2]


def test_only_the_wanted_table_is_planned(tmp_path: Path) -> None:
    scripted = LogScript()
    scripted.transaction([("insert", 0, ""), ("insert", 1, ""), ("message", 0, "")], xid=1)
    log = write_log(tmp_path, scripted.stream.messages, 1 << 20)
    units = [unit for task in plan(log, LSN(START), scripted.stream.end, 4, only("public.t1")) for unit in task]
    assert [(unit.table, unit.rows) for unit in units] == [("public.t1", 1)]


def test_a_small_batch_is_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SMALL_BYTES", 1 << 20)
    scripted = LogScript()
    scripted.transaction([("insert", 0, ""), ("insert", 1, ""), ("delete", 2, "")], xid=1)
    assert len(tasks_of(write_log(tmp_path, scripted.stream.messages, 1 << 20), START, 8)) == 1
