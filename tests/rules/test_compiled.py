"""Rules over batches: what random histories come to, and what happens to single changes."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changes.batch import MESSAGES, OLD_FULL, OLD_KEY, OLD_NONE, OP_NAMES, ChangeBatch, Relation
from penstock.changes.net import net
from penstock.errors import ConfigError, RuleError
from penstock.rules.compiled import CompiledRules
from penstock.rules.model import RuleSettings
from penstock.testing.change_batches import UNCHANGED, changes, messages, relation
from tests.rules import member_histories as members
from tests.rules.conditions import holds
from tests.rules.member_histories import CONDITIONS, member_histories
from tests.rules.shout import Shout
from tests.table_histories import COMPOSITE, FULL, SINGLE, History, Row, Rows, bag, histories
from tests.test_net import NoRowToKeepFrom, applied, chunks_of

steady = settings(max_examples=300, derandomize=True, deadline=None)

USERS = relation("public", "users", id="int8", name="text", bio="text", key=("id",))
WHOLE = relation("public", "users", id="int8", name="text", bio="text", key=("id",), identity="f")


def rules(*some: Mapping[str, Any], tables: str = "*.*") -> CompiledRules:
    return CompiledRules([RuleSettings.model_validate({"tables": [tables], **rule}) for rule in some])


def applied_rules(compiled: CompiledRules, batch: ChangeBatch) -> list[ChangeBatch]:
    outcome = compiled.apply(batch)
    return [] if outcome is None else [outcome]


def passing(where: Any, rows: Rows, table: Relation) -> Rows:
    wanted = RuleSettings.model_validate({"tables": ["*.*"], "where": where}).where
    assert wanted is not None
    return [row for row in rows if holds(wanted, row, {column.name: column.base for column in table.columns}) is True]


def events(batch: ChangeBatch | None) -> list[tuple[str, Row | None, Row | None]]:
    """Operation, new row, old row as far as it was sent; a value that was not sent again is absent."""
    if batch is None:
        return []
    columns = batch.relation.columns
    found = []
    for at in range(len(batch)):
        name, kind = OP_NAMES[int(batch.op[at])], batch.old_kind[at]
        new = {
            column.name: batch.new[index][at].as_py()
            for index, column in enumerate(columns)
            if not (index in batch.unchanged and batch.unchanged[index][at])
        }
        old = {
            column.name: batch.old[index][at].as_py()
            for index, column in enumerate(columns)
            if kind == OLD_FULL or (kind == OLD_KEY and column.in_identity)
        }
        found.append((name, new if name in ("insert", "update", "read") else None, old if kind != OLD_NONE else None))
    return found


def operations(batch: ChangeBatch | None) -> list[str]:
    return [operation for operation, *_ in events(batch)]


def outcome_of(history: History, where: Any, cuts: list[int]) -> Rows:
    """What a sink holds that had the rows that pass, and got the changes that the filter lets through."""
    whole = changes(history.table, history.changes, lsn=list(range(1, history.length + 1)))
    compiled = rules({"where": where})
    parts = [out for part in chunks_of(whole, cuts) if len(part) for out in applied_rules(compiled, part)]
    return applied(passing(where, history.start, history.table), [net(part) for part in parts])


some_cuts = st.lists(st.integers(0, 100), max_size=2)
some_condition = st.sampled_from(CONDITIONS)


@steady
@given(member_histories(members.WHOLE) | member_histories(members.WITHOUT_KEY), some_condition, some_cuts)
def test_with_whole_old_rows_a_sink_ends_with_just_the_rows_that_pass(
    history: History, where: Any, cuts: list[int]
) -> None:
    assert bag(outcome_of(history, where, cuts)) == bag(passing(where, history.end, history.table))


@settings(steady, max_examples=1500)
@given(member_histories(members.BY_KEY) | member_histories(members.BY_INDEX), some_condition, some_cuts)
def test_with_keys_of_old_rows_a_sink_ends_with_just_the_rows_that_pass(
    history: History, where: Any, cuts: list[int]
) -> None:
    """Where a value was held back it may be that nobody can tell: then that is said, and never is anything silently wrong."""
    held_back = any(UNCHANGED in (change[1] or {}).values() for change in history.changes if len(change) > 1)
    try:
        state = outcome_of(history, where, cuts)
    except (RuleError, NoRowToKeepFrom):
        assert held_back
        return
    assert bag(state) == bag(passing(where, history.end, history.table))


@steady
@given(histories((SINGLE, COMPOSITE, FULL)))
def test_a_rule_that_changes_nothing_changes_nothing(history: History) -> None:
    batch = changes(history.table, history.changes)
    if history.changes:
        assert events(rules({}).apply(batch)) == events(batch)


@steady
@given(histories((SINGLE, FULL)))
def test_transformed_keys_still_match_and_the_target_is_the_transformed_source(history: History) -> None:
    if not history.changes:
        return
    compiled = rules({"columns": {"id": Shout(), "note": Shout(), "bio": {"exclude": True}}})
    outcome = compiled.apply(changes(history.table, history.changes))
    assert outcome is not None

    def shouted(rows: Rows) -> Rows:
        return [{name: value and value.upper() for name, value in row.items() if name != "bio"} for row in rows]

    assert bag(applied(shouted(history.start), [net(outcome)])) == bag(shouted(history.end))


def test_an_update_across_the_filter_is_a_delete_or_an_insert() -> None:
    batch = changes(
        WHOLE,
        [
            ("update", {"id": 1, "name": "x", "bio": "b"}, {"id": 1, "name": "x", "bio": "a"}),
            ("update", {"id": 1, "name": "y", "bio": "b"}, {"id": 1, "name": "x", "bio": "b"}),
            ("update", {"id": 1, "name": "y", "bio": "c"}, {"id": 1, "name": "y", "bio": "b"}),
            ("update", {"id": 1, "name": "x", "bio": UNCHANGED}, {"id": 1, "name": "y", "bio": "c"}),
        ],
    )
    assert events(rules({"where": {"column": "name", "eq": "x"}}).apply(batch)) == [
        ("update", {"id": "1", "name": "x", "bio": "b"}, {"id": "1", "name": "x", "bio": "a"}),
        ("delete", None, {"id": "1", "name": "x", "bio": "b"}),
        ("insert", {"id": "1", "name": "x", "bio": "c"}, None),
    ]


def test_with_the_key_alone_leaving_is_a_delete_by_key_and_entering_an_update() -> None:
    batch = changes(
        USERS,
        [
            ("update", {"id": 1, "name": "y"}),
            ("update", {"id": 3, "name": "y"}, {"id": 2}),
            ("update", {"id": 1, "name": "x"}),
            ("delete", None, {"id": 7}),
        ],
    )
    assert events(rules({"where": {"column": "name", "eq": "x"}}).apply(batch)) == [
        ("delete", None, {"id": "1"}),
        ("delete", None, {"id": "2"}),
        ("update", {"id": "1", "name": "x", "bio": None}, None),
        ("delete", None, {"id": "7"}),
    ]


def test_a_filter_on_the_key_knows_the_old_row_from_its_key() -> None:
    batch = changes(
        USERS,
        [
            ("update", {"id": 1, "name": "x"}, {"id": 9}),
            ("update", {"id": 9, "name": "x"}, {"id": 1}),
            ("update", {"id": 9, "name": "z"}),
            ("delete", None, {"id": 9}),
            ("delete", None, {"id": 1}),
            ("truncate",),
        ],
    )
    assert events(rules({"where": {"column": "id", "lt": 5}}).apply(batch)) == [
        ("insert", {"id": "1", "name": "x", "bio": None}, None),
        ("delete", None, {"id": "1"}),
        ("delete", None, {"id": "1"}),
        ("truncate", None, None),
    ]


def test_a_value_that_a_hidden_change_had_set_is_not_lost() -> None:
    """The row leaves with a new bio and comes back within a batch: Postgres does not send that bio again."""
    batch = changes(
        USERS,
        [
            ("insert", {"id": 1, "name": "x", "bio": "first"}),
            ("update", {"id": 1, "name": "y", "bio": "second"}),
            ("update", {"id": 1, "name": "x", "bio": UNCHANGED}),
            ("update", {"id": 2, "name": "y", "bio": UNCHANGED}, {"id": 1}),
            ("update", {"id": 2, "name": "x", "bio": UNCHANGED}),
        ],
    )
    outcome = rules({"where": {"column": "name", "eq": "x"}}).apply(batch)
    assert outcome is not None
    assert applied([], [net(outcome)]) == [{"id": "2", "name": "x", "bio": "second"}]


def test_a_filter_on_a_value_that_was_not_sent_looks_at_the_old_row() -> None:
    sent = ("update", {"id": 1, "name": "n", "bio": UNCHANGED}, {"id": 1, "name": "m", "bio": "long"})
    compiled = rules({"where": {"column": "bio", "starts_with": "lo"}})
    assert events(compiled.apply(changes(WHOLE, [sent]))) == [
        ("update", {"id": "1", "name": "n"}, {"id": "1", "name": "m", "bio": "long"})
    ]


def test_a_filter_that_cannot_tell_stops_with_table_column_commit_and_remedy() -> None:
    batch = changes(USERS, [("update", {"id": 1, "name": "secret", "bio": UNCHANGED})], lsn=0x16B3748)
    with pytest.raises(RuleError) as error:
        rules({"where": {"column": "bio", "starts_with": "lo"}}).apply(batch)
    for word in ("rules[0]", "public.users", "0/16B3748", "bio"):
        assert word in error.value.message
    assert "REPLICA IDENTITY FULL" in str(error.value.advice)
    assert "secret" not in error.value.message


def test_a_value_that_was_not_sent_is_long_and_not_null_so_it_equals_no_short_text() -> None:
    batch = changes(USERS, [("update", {"id": 1, "name": "n", "bio": UNCHANGED})])
    assert events(rules({"where": {"column": "bio", "eq": "short"}}).apply(batch)) == []
    assert events(rules({"where": {"column": "bio", "is_null": False}}).apply(batch)) == [
        ("update", {"id": "1", "name": "n"}, None)
    ]


NAMED_BIO = {"columns": {"bio": {"transform": "template", "template": "{name}: {value}"}}}


def test_a_value_that_was_not_sent_is_made_anew_where_the_transform_reads_another_that_changed() -> None:
    sent = ("update", {"id": 1, "name": "new", "bio": UNCHANGED}, {"id": 1, "name": "old", "bio": "long"})
    assert events(rules(NAMED_BIO).apply(changes(WHOLE, [sent]))) == [
        ("update", {"id": "1", "name": "new", "bio": "new: long"}, {"id": "1", "name": "old", "bio": "old: long"})
    ]


def test_a_value_that_was_not_sent_and_is_not_in_the_old_row_stops_a_transform_that_reads_others() -> None:
    batch = changes(USERS, [("update", {"id": 1, "name": "new", "bio": UNCHANGED})])
    with pytest.raises(RuleError, match="does not say what bio is"):
        rules(NAMED_BIO).apply(batch)


def test_a_filter_of_some_operations_leaves_the_others_alone() -> None:
    batch = changes(
        WHOLE,
        [
            ("insert", {"id": 1, "name": "y"}),
            ("read", {"id": 2, "name": "y"}),
            ("update", {"id": 1, "name": "z"}, {"id": 1, "name": "y"}),
            ("delete", None, {"id": 1, "name": "z"}),
        ],
    )
    where = {"column": "name", "eq": "x"}
    assert operations(rules({"where": where, "operations": ["insert"]}).apply(batch)) == ["update", "delete"]
    assert operations(rules({"where": where, "operations": ["delete"]}).apply(batch)) == ["insert", "read", "update"]
    enters = changes(WHOLE, [("update", {"id": 1, "name": "x"}, {"id": 1, "name": "y"})])
    # Inserts are not filtered, so the row may be there: an INSERT would collide with it.
    assert operations(rules({"where": where, "operations": ["update"]}).apply(enters)) == ["update"]


def test_old_and_new_values_are_transformed_alike_and_what_is_absent_stays_so() -> None:
    batch = changes(
        WHOLE,
        [
            ("insert", {"id": 1, "name": "ada", "bio": None}),
            ("update", {"id": 1, "name": "bob", "bio": UNCHANGED}, {"id": 1, "name": "ada", "bio": "long"}),
            ("delete", None, {"id": 1, "name": "bob", "bio": "long"}),
            ("truncate",),
        ],
    )
    loud = Shout(nulls="replace")
    assert events(rules({"columns": {"name": loud, "bio": loud}}).apply(batch)) == [
        ("insert", {"id": "1", "name": "ADA", "bio": "?"}, None),
        ("update", {"id": "1", "name": "BOB"}, {"id": "1", "name": "ADA", "bio": "LONG"}),
        ("delete", None, {"id": "1", "name": "BOB", "bio": "LONG"}),
        ("truncate", None, None),
    ]
    outcome = rules({"columns": {"name": loud, "bio": loud}}).apply(batch)
    assert outcome is not None
    assert outcome.new[1].to_pylist() == ["ADA", "BOB", None, None]
    assert outcome.old[1].to_pylist() == [None, "ADA", "BOB", None]


def test_null_stays_null_and_columns_that_a_key_does_not_have_stay_absent() -> None:
    batch = changes(USERS, [("insert", {"id": 1, "name": None}), ("delete", None, {"id": 1})])
    outcome = rules({"columns": {"name": Shout()}}).apply(batch)
    assert events(outcome) == [("insert", {"id": "1", "name": None, "bio": None}, None), ("delete", None, {"id": "1"})]
    replaced = rules({"columns": {"name": Shout(nulls="replace")}}).apply(batch)
    assert replaced is not None
    assert replaced.old[1].to_pylist() == [None, None]


def test_a_transform_of_some_operations_hides_old_values_whatever_the_operation() -> None:
    batch = changes(
        WHOLE,
        [
            ("insert", {"id": 1, "name": "ada"}),
            ("update", {"id": 1, "name": "bob"}, {"id": 1, "name": "ada"}),
            ("delete", None, {"id": 1, "name": "bob"}),
        ],
    )
    outcome = rules({"operations": ["insert"], "columns": {"name": Shout()}}).apply(batch)
    assert outcome is not None
    assert outcome.new[1].to_pylist() == ["ADA", "bob", None]
    assert outcome.old[1].to_pylist() == [None, "ADA", "BOB"]


def test_a_transform_that_reads_another_column_sees_the_sources_values() -> None:
    compiled = rules({"columns": {"name": Shout(beside="bio"), "bio": Shout()}})
    full = ("update", {"id": 1, "name": "a", "bio": UNCHANGED}, {"id": 1, "name": "b", "bio": "long"})
    assert events(compiled.apply(changes(WHOLE, [full]))) == [
        ("update", {"id": "1", "name": "Along"}, {"id": "1", "name": "Blong", "bio": "LONG"})
    ]
    with pytest.raises(RuleError, match="the transform of name reads"):
        compiled.apply(changes(USERS, [("update", {"id": 1, "name": "a", "bio": UNCHANGED})]))


def test_excluded_columns_are_nowhere() -> None:
    batch = changes(
        WHOLE, [("update", {"id": 1, "name": UNCHANGED, "bio": UNCHANGED}, {"id": 1, "name": "a", "bio": "b"})]
    )
    outcome = rules({"columns": {"name": {"exclude": True}}}).apply(batch)
    assert outcome is not None
    assert [column.name for column in outcome.relation.columns] == ["id", "bio"]
    assert list(outcome.unchanged) == [1]
    assert events(outcome) == [("update", {"id": "1"}, {"id": "1", "bio": "b"})]


def test_rules_apply_in_order_each_to_what_the_one_before_made() -> None:
    compiled = rules(
        {"columns": {"name": Shout()}, "rename": {"columns": {"name": "called"}, "table": "people"}},
        {"where": {"column": "called", "eq": "ADA"}},
        tables="public.users",
    )
    outcome = compiled.apply(
        changes(USERS, [("insert", {"id": 1, "name": "ada"}), ("insert", {"id": 2, "name": "bob"})])
    )
    assert outcome is not None
    assert outcome.relation.qualified_name == "public.people"
    assert events(outcome) == [("insert", {"id": "1", "called": "ADA", "bio": None}, None)]


def test_tables_are_renamed_by_what_the_pattern_caught() -> None:
    orders = relation("tenant_7", "orders_2024", id="int8", key=("id",))
    renamed = rules({"rename": {"schema": "all_{1}", "table": "{table}_of_{2}"}}, tables="tenant_*.orders_*")
    assert renamed.output_relation(orders).qualified_name == "all_7.orders_2024_of_2024"
    assert renamed.output_relation(orders).oid == orders.oid
    assert renamed.output_relation(USERS) == USERS


def test_merged_tables_have_one_name_one_oid_and_the_origin_in_front_of_the_key() -> None:
    one, two = (relation(f"tenant_{n}", "orders", id="int8", amount="numeric", key=("id",)) for n in (1, 2))
    merge = {"rename": {"schema": "everything", "origin": {"column": "tenant", "value": "{1}"}}}
    compiled = rules(merge, tables="tenant_*.orders")
    outcomes = [compiled.output_relation(table) for table in (one, two)]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].key == ("tenant", "id")
    assert [column.name for column in outcomes[0].columns] == ["id", "amount", "tenant"]
    history = [
        ("insert", {"id": 1, "amount": "5"}),
        ("update", {"id": 2, "amount": "5"}, {"id": 1}),
        ("delete", None, {"id": 2}),
    ]
    assert events(compiled.apply(changes(two, history))) == [
        ("insert", {"id": "1", "amount": "5", "tenant": "2"}, None),
        ("update", {"id": "2", "amount": "5", "tenant": "2"}, {"id": "1", "tenant": "2"}),
        ("delete", None, {"id": "2", "tenant": "2"}),
    ]


@pytest.mark.parametrize("decision", ["stop", "ignore", "pass"])
def test_a_truncate_of_one_of_merged_tables_does_what_the_rule_says(decision: str) -> None:
    one = relation("tenant_1", "orders", id="int8", key=("id",))
    compiled = rules({"rename": {"schema": "everything", "truncate": decision}}, tables="tenant_*.orders")
    batch = changes(one, [("truncate",), ("insert", {"id": 1})])
    if decision == "stop":
        with pytest.raises(RuleError, match=r"tenant_1\.orders was truncated"):
            compiled.apply(batch)
    else:
        expected = ["truncate", "insert"] if decision == "pass" else ["insert"]
        assert [op for op, *_ in events(compiled.apply(batch))] == expected


def test_a_truncate_of_a_table_that_only_changes_its_name_goes_on() -> None:
    batch = changes(USERS, [("truncate",)])
    assert [op for op, *_ in events(rules({"rename": {"table": "people"}}, tables="public.users").apply(batch))] == [
        "truncate"
    ]


def test_messages_and_the_schema_log_are_not_touched() -> None:
    compiled = rules({"where": {"column": "id", "eq": 1}, "columns": {"content": {"exclude": True}}})
    batch = messages([("note", b"hello")])
    assert compiled.apply(batch) is batch
    assert compiled.output_relation(MESSAGES) == MESSAGES
    log = relation("penstock", "schema_log", id="int8", key=("id",))
    assert compiled.output_relation(log) == log


def test_compiled_rules_pickle_and_remember_what_they_made_of_a_relation() -> None:
    compiled = rules({"where": {"column": "name", "eq": "x"}, "columns": {"bio": {"exclude": "source"}}})
    assert compiled.output_relation(USERS) is compiled.output_relation(USERS)
    copy = pickle.loads(pickle.dumps(compiled))
    batch = changes(USERS, [("insert", {"id": 1, "name": "x"})])
    assert events(copy.apply(batch)) == events(compiled.apply(batch)) == [("insert", {"id": "1", "name": "x"}, None)]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"columns": {"mail": {"exclude": True}}}, "rules[0].columns.mail: public.users has no column mail."),
        ({"columns": {"id": {"exclude": True}}}, "rules[0].columns.id: public.users has this column in its key"),
        ({"where": {"column": "mail", "eq": 1}}, "rules[0].where: public.users has no column mail."),
        ({"where": {"column": "id", "eq": "one"}}, "rules[0].where: expected a number (in public.users)."),
        ({"rename": {"columns": {"name": "bio"}}}, "rules[0].rename: two columns of public.users would be called bio."),
        ({"columns": {"name": Shout(beside="mail")}}, "rules[0].columns.name: public.users has no column mail."),
    ],
)
def test_a_rule_that_does_not_fit_its_table_stops_rather_than_let_through(rule: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        rules(rule, tables="public.users").apply(changes(USERS, [("insert", {"id": 1})]))
    assert error.value.message.startswith(said)


def test_a_pattern_may_match_tables_without_the_column() -> None:
    batch = changes(USERS, [("insert", {"id": 1, "name": "a"})])
    assert events(rules({"columns": {"mail": {"exclude": True}}}, tables="public.*").apply(batch)) == events(batch)
