"""Code of rules that runs in Spark, over rows that were staged: what goes in comes out once at most, and nothing leaks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from penstock.changelog.units import WorkUnit
from penstock.changes.batch import ChangeBatch
from penstock.delivery.frame_parts import StagedRows, in_order
from penstock.errors import ConfigError, RuleError
from penstock.lsn import ZERO
from penstock.rules.model import RuleSettings
from penstock.rules.passage import Passage
from penstock.sinks.contract import Batch, Sink
from penstock.sinks.settings import SinkSettings
from penstock.spark.frames import Frames
from penstock.testing.change_batches import changes, relation
from tests.rules.test_compiled import events

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

ORDERS = relation("public", "orders", id="int8", amount="numeric(10,2)", note="text", made="timestamp", key=("id",))
ROWS: list[tuple[Any, ...]] = [
    ("insert", {"id": 1, "amount": "1.50", "note": "a", "made": "2024-01-01 00:00:00"}),
    ("insert", {"id": 2, "amount": "-1.00", "note": "b"}),
    ("update", {"id": 3, "amount": "0.00", "note": "c"}),
    ("delete", None, {"id": 4}),
    ("update", {"id": 6, "amount": "2.00", "note": "d"}, {"id": 5}),
    ("update", {"id": 8, "amount": "-2.00", "note": "e"}, {"id": 7}),
]


class KeepingSink(Sink[SinkSettings, Any]):
    """Its receipt is what it was given."""

    def __init__(self) -> None:
        super().__init__(SinkSettings(name="keeping", type="test"))

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> list[ChangeBatch]:
        return list(changes)


def through(
    spark: SparkSession, place: Path, rule: dict[str, Any], rows: Sequence[tuple[Any, ...]] = ROWS, parts: int = 1
) -> list[Any]:
    """The events that come to a sink, from ``parts`` batches."""
    rules = Passage([RuleSettings.model_validate({"tables": ["public.orders"], **rule})])
    frames = Frames(spark, KeepingSink(), rules)
    rules.frame(ORDERS)
    staged = StagedRows(str(place / "rows"))
    size = -(-len(rows) // parts)
    staged.store(rules, (changes(ORDERS, rows[at : at + size], lsn=0x100 + at) for at in range(0, len(rows), size)))
    receipt = frames.write([(ORDERS, staged)], Batch(-1, ZERO, ZERO, str(place / "staging")))
    assert receipt.changes == len(rows)
    assert not (place / "staging" / "frames").exists()
    return [event for batch in receipt.outcome for event in events(batch)]


def sql(query: str) -> dict[str, Any]:
    return {"sql": query}


@pytest.mark.parametrize("parts", [1, 3])
def test_rows_of_a_query_go_back_to_their_changes(spark: SparkSession, tmp_path: Path, parts: int) -> None:
    query = "select *, cast(amount * 100 as bigint) as cents from changes where amount > 0"
    found = through(spark, tmp_path, sql(query), parts=parts)
    assert found == [
        ("insert", {"id": "1", "amount": "1.50", "note": "a", "made": "2024-01-01 00:00:00", "cents": "150"}, None),
        ("delete", None, {"id": "3"}),
        ("delete", None, {"id": "4"}),
        ("update", {"id": "6", "amount": "2.00", "note": "d", "made": None, "cents": "200"}, {"id": "5"}),
        ("delete", None, {"id": "7"}),
    ]


def test_a_query_that_lets_nothing_pass_leaves_deletes(spark: SparkSession, tmp_path: Path) -> None:
    found = through(spark, tmp_path, sql("select * from changes where false"))
    assert [(op, old) for op, _, old in found] == [("delete", {"id": key}) for key in ("3", "4", "5", "7")]


def test_a_query_joins_files_and_views_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    pyarrow.csv.write_csv(pa.table({"_c0": ["a", "d"], "_c1": ["first", "fourth"]}), tmp_path / "labels.csv")
    spark.createDataFrame([(1, "one")], "id long, word string").createOrReplaceTempView("words_of_the_test")
    query = (
        "select c.id, c._lsn, c._sequence, f._c1 as label, w.word from changes c "
        f"join csv.`{tmp_path / 'labels.csv'}` f on f._c0 = c.note left join words_of_the_test w on w.id = c.id"
    )
    found = through(spark, tmp_path, sql(query))
    assert [new for _, new, _ in found if new] == [
        {"id": "1", "label": "first", "word": "one"},
        {"id": "6", "label": "fourth", "word": None},
    ]


def test_a_function_over_a_frame_does_the_same(spark: SparkSession, tmp_path: Path) -> None:
    assert len(through(spark, tmp_path, {"python_frame": "tests.rules.coded:as_it_is"})) == len(ROWS)


def test_other_rules_come_before_and_after(spark: SparkSession, tmp_path: Path) -> None:
    rule = {
        "where": {"column": "id", "lt": 6}, "columns": {"note": {"exclude": True}, "made": {"exclude": True}},
        **sql("select *, concat(note, '!') as loud from changes"), "rename": {"columns": {"loud": "words"}},
    }  # fmt: skip
    found = through(spark, tmp_path, rule, ROWS[:2])
    assert [new for _, new, _ in found] == [
        {"id": "1", "amount": "1.50", "words": "a!"},
        {"id": "2", "amount": "-1.00", "words": "b!"},
    ]


MISTAKES = [
    (sql("select nope from changes"), "Spark does not understand it for public.orders: [UNRESOLVED_COLUMN"),
    (sql("select from from changes changes changes"), "Spark does not understand it for public.orders: ["),
    (sql("select * from changes join nowhere"), "[TABLE_OR_VIEW_NOT_FOUND]"),
    (sql("select id, amount from changes"), "lacks _lsn, what tells changes apart"),
    (sql("select amount, _lsn, _sequence from changes"), "lacks id, the key of the table"),
    (sql("select *, 1 as id from changes"), "has two columns called id"),
    (sql("select *, array(1) as many from changes"), "column many of the result for public.orders is list<"),
    ({"python_frame": "tests.rules.coded:always_raising"}, "raised KeyError for public.orders"),
    ({"python_frame": "tests.rules.coded:no_frame"}, "returned int"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "said"), MISTAKES)
def test_a_mistake_is_told_before_any_row_comes(
    spark: SparkSession, tmp_path: Path, rule: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as error:
        through(spark, tmp_path, rule)
    assert str(error.value).startswith(f"rules[0].{next(iter(rule))}: ")
    assert said in str(error.value)
    assert error.value.advice
    assert "\n" not in str(error.value)


ROW_FAILURES = [
    ("select *, cast(note as int) as n from changes", "CAST_INVALID_INPUT"),
    ("select *, 1 / (id - 1) as n from changes", "DIVIDE_BY_ZERO"),
]


@pytest.mark.parametrize(("query", "name"), ROW_FAILURES)
def test_a_query_that_fails_on_a_row_is_told_by_sparks_name_for_it_and_no_value(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], query: str, name: str
) -> None:
    rows = [("insert", {"id": 1, "amount": "1.00", "note": "a secret"})]
    with pytest.raises(RuleError) as error:
        through(spark, tmp_path, sql(query), rows)
    assert str(error.value) == f"rules[0].sql: it fails on a row of public.orders: {name}."
    said = capfd.readouterr()
    assert "secret" not in f"{error.value} {error.value.__cause__} {said.out} {said.err}"


def test_a_join_that_finds_several_rows_for_a_change_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"has a change \(commit 0/100\) more than once"):
        through(spark, tmp_path, sql("select c.* from changes c cross join (values (1), (2)) as v (n)"))


def test_a_value_that_code_cannot_be_given_is_told_as_such(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("insert", {"id": 1, "amount": "1.00", "made": "infinity"})]
    with pytest.raises(RuleError, match=r"a value of public.orders.made \(commits 0/100\) has no place in timestamp"):
        through(spark, tmp_path, sql("select * from changes"), rows)


def test_units_from_any_tasks_are_whole_and_in_order_again() -> None:
    def unit(segment: str, entry: int = 0, bucket: int = 0, buckets: int = 1) -> WorkUnit:
        return WorkUnit(segment, "public.orders", entry, bucket, buckets, 1, 1)

    other = relation("public", "orders", id="int8", key=("id",), oid=ORDERS.oid)
    given = [
        (ORDERS, unit("2", bucket=1, buckets=2)), (ORDERS, unit("1", bucket=1, buckets=2)), (other, unit("3")),
        (ORDERS, unit("1", bucket=0, buckets=2)), (ORDERS, unit("2", bucket=0, buckets=2)),
    ]  # fmt: skip
    ((first, second),) = in_order(given)
    assert (first[0], [(one.segment, one.buckets) for one in first[1]]) == (ORDERS, [("1", 1), ("2", 1)])
    assert (second[0], [one.segment for one in second[1]]) == (other, ["3"])
