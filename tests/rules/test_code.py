"""Code in rules over batches of changes: which rows it sees, and what becomes of those that come out and those that do not."""

from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.changes.batch import Relation
from penstock.errors import ConfigError, RuleError
from penstock.rules.code.code import Code, Results
from penstock.rules.code.rows import lsn_text, lsns_of, rows_of, schema_of
from penstock.rules.compiled import CompiledRules
from penstock.rules.model import Function, RuleSettings
from penstock.testing.change_batches import UNCHANGED, changes, relation
from tests.rules.test_compiled import events

ORDERS = relation("public", "orders", id="int8", amount="numeric(10,2)", note="text", key=("id",))
FULL = relation("public", "orders", id="int8", amount="numeric(10,2)", note="text", key=("id",), identity="f")


def rules(function: str, **more: Any) -> CompiledRules:
    rule = {"tables": ["public.orders"], "python": f"tests.rules.coded:{function}", **more}
    return CompiledRules([RuleSettings.model_validate(rule)])


def outcome(function: str, rows: Sequence[tuple[Any, ...]], table: Relation = ORDERS, **more: Any) -> list[Any]:
    return events(rules(function, **more).apply(changes(table, rows)))


def test_rows_that_come_out_have_the_columns_of_the_result() -> None:
    rows = [("insert", {"id": 1, "amount": "1.50", "note": "a"}), ("read", {"id": 2, "amount": "0.10", "note": None})]
    assert outcome("positive_cents", rows) == [
        ("insert", {"id": "1", "amount": "1.50", "note": "a", "cents": "150"}, None),
        ("read", {"id": "2", "amount": "0.10", "note": None, "cents": "10"}, None),
    ]


def test_a_row_that_does_not_come_out_is_dropped_and_an_update_of_one_is_a_delete_by_key() -> None:
    rows = [
        ("insert", {"id": 1, "amount": "-1.00"}),
        ("read", {"id": 2, "amount": "0.00"}),
        ("update", {"id": 3, "amount": "0.00"}),
        ("update", {"id": 4, "amount": "2.00"}),
    ]
    assert [(op, new and new["id"], old) for op, new, old in outcome("positive_cents", rows)] == [
        ("delete", None, {"id": "3"}),
        ("update", "4", None),
    ]


@pytest.mark.parametrize("table", [ORDERS, FULL], ids=["key", "full"])
def test_a_key_that_changes_goes_on_with_the_old_one(table: Relation) -> None:
    rows = [
        ("update", {"id": 2, "amount": "1.00"}, {"id": 1}),
        ("update", {"id": 4, "amount": "-1.00"}, {"id": 3}),
    ]
    assert [(op, new and new["id"], old) for op, new, old in outcome("positive_cents", rows, table)] == [
        ("update", "2", {"id": "1"}),
        ("delete", None, {"id": "3"}),
    ]


def test_of_a_whole_old_row_the_key_goes_on_and_only_where_it_changed() -> None:
    old = {"id": 1, "amount": "5.00", "note": "before"}
    rows = [("update", {"id": 1, "amount": "6.00", "note": "now"}, old), ("delete", None, old)]
    assert [(op, old) for op, _, old in outcome("positive_cents", rows, FULL)] == [
        ("update", None),
        ("delete", {"id": "1"}),
    ]


def test_deletes_and_truncates_go_past_the_code() -> None:
    rows = [("delete", None, {"id": 1}), ("truncate",)]
    assert [(op, old) for op, _, old in outcome("unchanged", rows)] == [("delete", {"id": "1"}), ("truncate", None)]


def test_a_value_that_is_left_alone_arrives_as_postgres_wrote_it() -> None:
    table = relation(
        "public", "orders", id="int8", n="numeric", f="float8", t="timestamptz", j="jsonb", a="int4[]", d="date", key=("id",)
    )  # fmt: skip
    row = {
        "id": "7", "n": "1.10", "f": "1e+25", "t": "2024-01-01 00:00:00.1+00", "j": '{"a": 1.0}', "a": "{1,NULL}",
        "d": "2024-02-29",
    }  # fmt: skip
    assert outcome("unchanged", [("insert", row)], table) == [("insert", row, None)]
    assert rules("unchanged").output_relation(table).columns == table.columns


def test_types_of_the_result_are_types_of_postgres() -> None:
    found = {column.name: column.type_name for column in rules("every_type").output_relation(ORDERS).columns}
    assert found == {
        "id": "int8", "amount": "numeric(10,2)", "note": "text", "a": "boolean", "b": "smallint", "c": "real",
        "d": "numeric(20,4)", "e": "date", "f": "timestamp without time zone", "g": "timestamp with time zone",
        "h": "bytea", "i": "text",
    }  # fmt: skip


def test_code_sees_what_the_rules_filter_and_transforms_leave_and_exclusion_and_names_come_after_it() -> None:
    rule = {
        "where": {"column": "id", "gt": 1},
        "columns": {"note": {"transform": "hash", "salt": "s"}, "amount": {"exclude": True}},
        "rename": {"table": "paid", "columns": {"cents": "price"}},
    }
    rows = [("insert", {"id": n, "amount": "1.00", "note": "raw"}) for n in (1, 2)]
    compiled = rules("positive_cents", **rule)
    ((_, new, _),) = events(compiled.apply(changes(ORDERS, rows)))
    assert new is not None
    assert new.pop("note") not in (None, "raw")
    assert new == {"id": "2", "price": "100"}
    assert compiled.output_relation(ORDERS).qualified_name == "public.paid"


def test_an_update_that_lacks_a_value_stops_unless_the_batch_or_the_old_row_has_it() -> None:
    lacking = ("update", {"id": 1, "amount": "1.00", "note": UNCHANGED})
    earlier = ("insert", {"id": 1, "amount": "1.00", "note": "long"})
    assert outcome("unchanged", [earlier, lacking])[1][1]["note"] == "long"
    whole = (*lacking, {"id": 1, "amount": "1.00", "note": "old"})
    assert outcome("unchanged", [whole], FULL)[0][1]["note"] == "old"
    with pytest.raises(
        RuleError, match=r"rules\[0\].python: an update of public.orders \(commit 0/100\) does not say what note is"
    ):
        outcome("unchanged", [lacking])


MISTAKES = [
    ("without_sequence", ConfigError, "lacks _sequence, what tells changes apart"),
    ("without_key", ConfigError, "lacks id, the key of the table"),
    ("twice", RuleError, "has a change (commit 0/100) more than once"),
    ("other_keys", RuleError, "has other values in id, which is in the key"),
    ("other_changes", RuleError, "has rows with _lsn and _sequence of no change that went in"),
    ("only_with_rows", RuleError, "has a column late, other than for other rows"),
    ("lists", ConfigError, "column many of the result for public.orders is list<"),
    ("no_table", ConfigError, "tests.rules.coded:no_table returned list"),
    ("always_raising", ConfigError, "raised KeyError with no rows of public.orders"),
    ("absent", ConfigError, "module tests.rules.coded has no function absent"),
]


@pytest.mark.parametrize(("function", "kind", "said"), MISTAKES)
def test_a_mistake_in_the_code_is_told_with_its_place(function: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as error:
        outcome(function, [("insert", {"id": 1, "amount": "1.00"}), ("insert", {"id": 2, "amount": "1.00"})])
    assert str(error.value).startswith("rules[0].python: ")
    assert said in str(error.value)
    assert error.value.advice  # type: ignore[attr-defined]


def test_what_a_function_raises_is_told_by_its_type_and_place_and_never_by_its_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(RuleError) as error:
        outcome("raising", [("insert", {"id": 1, "note": "a secret"})])
    assert "tests.rules.coded:raising raised ValueError with public.orders (commits 0/100)" in str(error.value)
    assert error.value.__cause__ is None
    assert "secret" not in f"{error.value} {caplog.text}"
    assert re.search(r"\(\S*coded[.]py:\d+, in raising\)", str(error.value))
    assert "coded.py:" in caplog.text


def test_a_value_without_a_place_in_its_type_stops_and_is_not_shown() -> None:
    with pytest.raises(
        RuleError, match=r"a value of public.orders.amount \(commits 0/100\) has no place in decimal128"
    ):
        outcome("unchanged", [("insert", {"id": 1, "amount": "NaN"})])


def test_a_table_without_a_key_takes_no_code() -> None:
    bare = relation("public", "orders", id="int8", identity="f")
    with pytest.raises(ConfigError, match=r"rules\[0\].python: public.orders has no key"):
        outcome("unchanged", [("insert", {"id": 1})], bare)


def test_a_table_with_a_column_of_a_name_that_is_taken_takes_no_code_until_it_is_renamed() -> None:
    odd = relation("public", "orders", {"_lsn": "text"}, id="int8", key=("id",))
    with pytest.raises(ConfigError, match=r"public.orders has a column _lsn"):
        outcome("unchanged", [("insert", {"id": 1, "_lsn": "x"})], odd)
    renaming = RuleSettings.model_validate({"tables": ["*.*"], "rename": {"columns": {"_lsn": "lsn"}}})
    coded_rule = RuleSettings.model_validate({"tables": ["*.*"], "python": "tests.rules.coded:unchanged"})
    made = CompiledRules([renaming, coded_rule]).apply(changes(odd, [("insert", {"id": 1, "_lsn": "x"})]))
    assert events(made) == [("insert", {"lsn": "x", "id": "1"}, None)]


def test_rules_with_code_pickle() -> None:
    again = pickle.loads(pickle.dumps(rules("positive_cents")))
    assert len(events(again.apply(changes(ORDERS, [("insert", {"id": 1, "amount": "1.00"})])))) == 1


def test_a_position_is_written_as_postgres_does_and_read_again() -> None:
    numbers = np.array([0, 1, 0x16B3748, 0xABC_00000000, 2**64 - 1], np.uint64)
    text = lsn_text(numbers)
    assert text.to_pylist() == ["0/0", "0/1", "0/16B3748", "ABC/0", "FFFFFFFF/FFFFFFFF"]
    read = lsns_of(text)
    assert read is not None
    assert read.tolist() == numbers.tolist()
    assert lsns_of(pa.array(["0/1", "nonsense"])) is None
    assert lsns_of(pa.array(["0/1", None])) is None


def _of_frame() -> Code:
    function = Function("tests.rules.coded", "as_it_is")
    return Code.of("python_frame", function, "rules[0].python_frame", ORDERS, schema_of(ORDERS))


def test_batches_take_their_rows_from_a_sorted_result_one_after_the_other() -> None:
    rows = [("insert", {"id": n, "amount": "1.00", "note": f"n{n}"}) for n in range(6)]
    batch = changes(ORDERS, rows, lsn=[0x10, 0x10, 0x20, 0x20, 0x20, 0x30], sequence=[1, 2, 1, 2, 3, 1])
    whole = rows_of(batch)
    kept = whole.take([0, 2, 4, 5])
    results = Results(_of_frame(), iter([kept.slice(0, 1), kept.slice(1, 0), kept.slice(1)]))
    parts = [batch.take(np.arange(3)), batch.take(np.arange(3, 4)), batch.take(np.arange(4, 6))]
    found = [[new["id"] for _, new, _ in events(results.apply(part)) if new] for part in parts]
    assert found == [["0", "2"], [], ["4", "5"]]
    results.refuse_leftovers()


def test_rows_of_a_result_that_belong_to_no_change_are_refused() -> None:
    batch = changes(ORDERS, [("insert", {"id": n, "amount": "1.00"}) for n in range(2)])
    results = Results(_of_frame(), iter([rows_of(batch)]))
    results.apply(batch.take(np.arange(1)))
    with pytest.raises(RuleError, match="of no change that went in"):
        results.refuse_leftovers()
