"""Rules against tables: every mistake is found before anything runs, with its place and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.changes.batch import Relation
from penstock.errors import ConfigError
from penstock.findings import Finding
from penstock.postgres.connection import connect
from penstock.postgres.tables import tables_matching
from penstock.rules.checks.checks import check_rules
from penstock.rules.checks.source_tables import SourceTable, source_tables
from penstock.rules.compiled import CompiledRules
from penstock.rules.model import RuleSettings
from penstock.settings.tables import TableSelection
from penstock.testing.change_batches import relation
from tests.rules.shout import Shout

USERS = relation("public", "users", id="int8", email="text", age="int4", code="varchar(5)", key=("id",))
ORDERS = relation("public", "orders", id="int8", amount="numeric(10,2)", state="enum", key=("id",))
LOG = relation("public", "log", line="text", identity="f")
TENANTS = [relation(f"tenant_{n}", "orders", id="int8", note="text", key=("id",)) for n in (1, 2)]
LOSSY = Shout(keeps_uniqueness=False)
FICKLE = Shout(keeps_uniqueness=False, deterministic=False)
NAMED = relation("public", "named", name="text", note="text", key=("name",))


def found(*rules: dict[str, Any], tables: tuple[Relation, ...] = (USERS, ORDERS)) -> list[Finding]:
    unique = {"users": (("id",), ("email",))}
    return check_rules(
        [RuleSettings.model_validate(rule) for rule in rules],
        [SourceTable(table, unique.get(table.table, (table.key,) if table.key else ())) for table in tables],
    )


def failures(*rules: dict[str, Any], tables: tuple[Relation, ...] = (USERS, ORDERS)) -> list[tuple[str, str]]:
    return [(finding.name, finding.message) for finding in found(*rules, tables=tables) if finding.ok is False]


def test_rules_that_fit_give_nothing() -> None:
    rule = {
        "tables": ["users"], "where": {"column": "age", "gte": 18}, "columns": {"email": Shout(), "code": {"exclude": True}},
        "rename": {"table": "people", "columns": {"email": "contact"}},
    }  # fmt: skip
    assert failures(rule) == []


LOSS = {"allow_uniqueness_loss": True}
LONG, WIDE = "x" * 64, "ü" * 32

MISTAKES: list[tuple[dict[str, Any], str, str, str]] = [
    ({"rename": {"table": LONG}}, ".rename", f"{LONG} has 64 bytes; Postgres cuts names after 63.", "Choose a shorter name."),
    ({"rename": {"columns": {"email": WIDE}}}, ".rename", f"{WIDE} has 64 bytes; Postgres cuts names after 63.",
     "Choose a shorter name."),
    ({"rename": {"schema": "penstock"}}, ".rename.schema",
     "The schema penstock holds what Penstock itself keeps in a sink.", "Choose another one."),
    ({"tables": ["user"]}, ".tables[0]", "There is no captured table public.user.", 'Did you mean "public.users"?'),
    ({"columns": {"emial": {"exclude": True}}}, ".columns.emial", "public.users has no column emial.",
     'Did you mean "email"?'),
    ({"columns": {"id": {"exclude": True}}}, ".columns.id", "public.users has this column in its key, which tells rows apart.",
     "Transform it instead, with a transform that keeps values apart."),
    ({"columns": {"age": Shout()}}, ".columns.age", "public.users: Only text can be shouted.",
     "The column is int4; use another transform."),
    ({"columns": {"email": LOSSY}}, ".columns.email",
     "email is unique in public.users, and the transform may make different values equal.",
     "Use one that keeps them apart, such as encrypt; or set allow_uniqueness_loss: true."),
    ({"columns": {"code": Shout(beside="nme")}}, ".columns.code", "public.users has no column nme.",
     "Known: id, email, age, code."),
    ({"where": {"column": "aeg", "gt": 1}}, ".where.column", "public.users has no column aeg.", 'Did you mean "age"?'),
    ({"where": {"any": [{"column": "age", "is_null": True}, {"not": {"column": "age", "gt": "old"}}]}}, ".where.any[1].not.gt",
     "public.users.age is int4: expected a number.", ""),
    ({"rename": {"columns": {"nme": "x"}}}, ".rename.columns.nme", "public.users has no column nme.",
     "Known: id, email, age, code."),
    ({"rename": {"columns": {"email": "code"}}}, ".rename", "Two columns of public.users would be called code.",
     "Give each a name of its own, or exclude one."),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "where", "message", "remedy"), MISTAKES)
def test_a_mistake_has_its_place_a_sentence_and_a_remedy(
    rule: dict[str, Any], where: str, message: str, remedy: str
) -> None:
    wrong = [finding for finding in found({"tables": ["users"], **rule}) if finding.ok is False]
    assert wrong == [Finding(f"rules[0]{where}", False, message, remedy)]


def test_a_key_wants_a_deterministic_transform_of_all_operations_that_reads_the_key_alone() -> None:
    def said(rule: dict[str, Any]) -> list[str]:
        return [message for _, message in failures({"tables": ["named"], **rule}, tables=(NAMED,))]

    assert said({"columns": {"name": Shout()}}) == []
    (lossy,) = said({"columns": {"name": LOSSY}})
    assert "in the key of public.named" in lossy
    assert said({"columns": {"name": LOSSY}, "allow_uniqueness_loss": True}) == []
    (fickle,) = said({"columns": {"name": FICKLE}, "allow_uniqueness_loss": True})
    assert "gives another value each time" in fickle
    (partly,) = said({"columns": {"name": Shout()}, "operations": ["insert"]})
    assert "not for all operations" in partly
    (reads,) = said({"columns": {"name": Shout(beside="note")}})
    assert "reads note" in reads


def test_rows_without_a_key_are_found_by_their_values_which_must_not_be_random() -> None:
    assert failures({"tables": ["log"], "columns": {"line": LOSSY}}, tables=(LOG,)) == []
    assert len(failures({"tables": ["log"], "columns": {"line": FICKLE}}, tables=(LOG,))) == 1


def test_a_pattern_may_match_tables_without_the_column_but_not_none_with_it() -> None:
    assert failures({"tables": ["*"], "columns": {"email": Shout()}}) == []
    assert failures({"tables": ["*"], "columns": {"mail": Shout()}}) == [
        ("rules[0].columns.mail", "None of the rule's tables has a column mail.")
    ]


def test_a_pattern_that_matches_nothing_is_a_warning() -> None:
    (finding,) = found({"tables": ["sales.*"]})
    assert (finding.name, finding.ok, finding.message) == (
        "rules[0].tables[0]",
        None,
        "No captured table matches sales.*.",
    )


def test_a_later_rule_is_checked_against_what_the_earlier_one_made() -> None:
    first = {"tables": ["users"], "rename": {"columns": {"age": "years"}}}
    assert failures(first, {"tables": ["users"], "where": {"column": "years", "gt": 1}}) == []
    assert failures(first, {"tables": ["users"], "where": {"column": "age", "gt": 1}}) == [
        ("rules[1].where.column", "public.users has no column age.")
    ]


def test_strict_coverage_wants_every_table_and_every_column_mentioned() -> None:
    rule = {"tables": ["users"], "coverage": "strict", "columns": {"email": Shout(), "id": {"keep": True}}}
    assert failures(rule) == [
        ("rules[0].columns", "No rule mentions the column age of public.users."),
        ("rules[0].columns", "No rule mentions the column code of public.users."),
        ("rules[0].coverage", "No rule mentions the table public.orders."),
    ]
    other = {"tables": ["*"], "columns": {"age": {"keep": True}, "code": {"exclude": True}}}
    assert [name for name, _ in failures(rule, other)] == []


@pytest.mark.parametrize(
    ("rename", "wrong"),
    [
        ({"schema": "everything"}, True),
        ({"schema": "everything", "origin": {"column": "tenant"}}, False),
        ({"schema": "everything", "origin": {"column": "tenant", "value": "same"}}, True),
        ({"schema": "all_{1}"}, False),
    ],
)
def test_tables_that_get_one_name_need_an_origin_that_tells_them_apart(rename: dict[str, Any], wrong: bool) -> None:
    rule = {"tables": ["tenant_*.orders"], "rename": rename}
    expected = "tenant_1.orders and tenant_2.orders both go to everything.orders, and nothing tells their rows apart."
    assert failures(rule, tables=tuple(TENANTS)) == ([("rules[0].rename", expected)] if wrong else [])
    assert failures({**rule, "allow_uniqueness_loss": True}, tables=tuple(TENANTS)) == []


def test_a_name_that_another_table_has_already_is_found() -> None:
    ((where, message),) = failures({"tables": ["orders"], "rename": {"table": "users"}})
    assert where == "rules[0].rename"
    assert "both go to public.users, and have different columns" in message


def test_what_a_filter_may_not_see_is_a_warning() -> None:
    def warned(where: dict[str, Any], table: Relation = USERS) -> list[str]:
        return [
            finding.name
            for finding in found({"tables": [table.table], "where": where}, tables=(table,))
            if finding.ok is None
        ]

    assert warned({"column": "email", "contains": "@"}) == ["rules[0].where.column", "rules[0].where"]
    assert warned({"column": "email", "eq": "short"}) == ["rules[0].where"]
    assert warned({"column": "id", "gt": 5}) == []
    assert warned({"column": "line", "contains": "x"}, LOG) == []


some_names = st.sampled_from(["id", "email", "age", "code", "amount", "state", "nme"])
some_actions = st.sampled_from(
    [{"exclude": True}, {"keep": True}, Shout(), LOSSY, Shout(beside="code"), Shout(beside="nme")]
)
some_operands = st.sampled_from([1, "1", "x", "2.5", True, "2024-01-01"])
some_conditions = st.builds(
    lambda column, op, operand: {"column": column, op: operand},
    some_names,
    st.sampled_from(["eq", "gt", "ne"]),
    some_operands,
)


@st.composite
def some_rules(draw: st.DrawFn) -> dict[str, Any]:
    renamed = draw(st.dictionaries(some_names, st.sampled_from(["email", "other", "third"]), max_size=2))
    assume(len(set(renamed.values())) == len(renamed))
    return {
        "tables": [draw(st.sampled_from(["users", "orders", "*", "public.u*"]))],
        "columns": draw(st.dictionaries(some_names, some_actions, max_size=2)),
        "where": draw(st.none() | some_conditions),
        "rename": {"columns": renamed, **draw(st.sampled_from([{}, {"table": "{table}_x"}, {"schema": "mirror"}]))},
    }


@settings(max_examples=400, derandomize=True, deadline=None)
@given(st.lists(some_rules(), min_size=1, max_size=2))
def test_what_the_checks_let_pass_can_be_applied_and_what_cannot_be_is_found(several: list[dict[str, Any]]) -> None:
    compiled = CompiledRules([RuleSettings.model_validate(rule) for rule in several])
    refused = 0
    for table in (USERS, ORDERS):
        try:
            compiled.output_relation(table)
        except ConfigError:
            refused += 1
    if refused:
        assert failures(*several) != []


def test_real_tables_have_their_types_keys_and_unique_columns(database: str) -> None:
    with connect(database) as connection:
        connection.execute(
            "set search_path = public;"
            "create table people (id bigint primary key, email text unique, name varchar(5), pair int, "
            "loud text generated always as (upper(name)) stored, unique (pair, name));"
            "create table whole (a int, b numeric(10,2)); alter table whole replica identity full; set search_path = ''"
        )
        tables = tables_matching(connection, TableSelection())
        people, whole = source_tables(connection, tables)
    assert [(c.name, c.type_name, c.base, c.in_identity) for c in people.relation.columns][:3] == [
        ("id", "bigint", "int8", True), ("email", "text", "text", False), ("name", "character varying(5)", "varchar", False),
    ]  # fmt: skip
    assert people.relation.key == ("id",)
    assert people.unique == (("id",), ("email",), ("pair", "name"))
    assert (whole.relation.identity, whole.relation.key, whole.unique) == ("f", (), ())
    rule = RuleSettings.model_validate(
        {"tables": ["people"], "columns": {"email": {"transform": "mask", "kind": "email"}}}
    )
    assert [finding.name for finding in check_rules([rule], [people, whole]) if finding.ok is False] == [
        "rules[0].columns.email"
    ]
    assert CompiledRules([rule]).output_relation(people.relation) == people.relation


def test_a_transform_of_a_long_value_that_reads_other_columns_is_warned_of() -> None:
    rule = {"tables": ["users"], "columns": {"email": {"transform": "template", "template": "{age}"}}, **LOSS}
    (finding,) = found(rule)
    assert (finding.name, finding.ok) == ("rules[0].columns.email", None)
    assert "(in public.users)" in finding.message


def test_a_short_numeric_is_never_stored_apart() -> None:
    assert found({"tables": ["orders"], "where": {"column": "amount", "gt": 5}}, tables=(ORDERS,)) == []
