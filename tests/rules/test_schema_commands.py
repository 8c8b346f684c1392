"""Schema changes behind rules: under the target's names, and never past a rule."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import RuleError
from penstock.rules.compiled import CompiledRules
from penstock.rules.model import RuleSettings
from penstock.rules.routing import merged_oid
from penstock.rules.schema_commands import through_rules
from penstock.schema import kinds
from penstock.schema.definitions import ColumnDefinition, Constraint, Definition, ForeignKey, IndexDefinition, TableName
from penstock.schema.kinds import SchemaChange
from penstock.schema.log.row import LoggedCommand

USERS, OTHER = TableName(16384, "public", "users"), TableName(16390, "public", "other")
HIDDEN = {"tables": ["public.users"], "columns": {"email": {"transform": "literal", "value": "hidden"}}}
RENAMED = {"tables": ["public.users"], "rename": {"table": "people", "columns": {"email": "contact"}}}
WITHOUT_NOTE = {"tables": ["public.users"], "columns": {"note": {"exclude": True}}}
MERGED = {"tables": ["tenant_*.users"], "rename": {"schema": "all", "origin": {"column": "tenant", "value": "{1}"}}}


def column(name: str, **members: Any) -> ColumnDefinition:
    return ColumnDefinition(4, name, "text", 25, -1, members.pop("not_null", False), **members)


def definition(table: TableName) -> Definition:
    return Definition(table.oid, table.schema, table.table, "r", "p", (column("id"),))


def followed(change: SchemaChange, *rules: dict[str, Any]) -> tuple[SchemaChange, ...]:
    compiled = CompiledRules([RuleSettings.model_validate(rule) for rule in rules])
    (command,) = through_rules(compiled, [LoggedCommand((5, 0), {}, instead=(change,))])
    return command.changes


@pytest.mark.parametrize(
    "change",
    [
        kinds.AddColumn(OTHER, column("more", default="1", missing="1")),
        kinds.RenameTable(OTHER, "another"),
        kinds.RenameColumn(OTHER, 4, "email", "mail"),
        kinds.OtherCommand("CREATE VIEW", "create view v as select 1"),
    ],
    ids=lambda change: type(change).__name__,
)
def test_what_is_of_no_table_with_rules_is_followed_as_it_is(change: SchemaChange) -> None:
    assert followed(change, HIDDEN, RENAMED) == (change,)


@pytest.mark.parametrize(
    "change",
    [
        kinds.CreateTable(USERS, definition(USERS)),
        kinds.CreateIndex(USERS, IndexDefinition(9, "i", "CREATE INDEX i ON public.users (id)")),
        kinds.SetNotNull(USERS, 4, "email"),
        kinds.DropColumn(USERS, column("email")),
    ],
    ids=lambda change: type(change).__name__,
)
def test_a_table_that_keeps_its_names_and_columns_is_followed_in_everything(change: SchemaChange) -> None:
    assert followed(change, HIDDEN) == (change,)


def test_a_new_column_is_added_under_the_names_of_the_rules_and_without_what_the_table_has_not() -> None:
    change = kinds.AddColumn(USERS, column("age", not_null=True, default="7", missing="7"))
    people = TableName(USERS.oid, "public", "people")
    assert followed(change, RENAMED) == (kinds.AddColumn(people, column("age", missing="7")),)


def test_what_rows_have_in_a_new_column_already_is_transformed_like_what_they_will_have() -> None:
    (change,) = followed(kinds.AddColumn(USERS, column("email", missing="raw")), HIDDEN)
    assert isinstance(change, kinds.AddColumn)
    assert change.column.missing == "hidden"


def test_a_new_column_that_no_rule_mentions_stops_a_strict_sink_before_rows_show_what_they_have_in_it() -> None:
    strict = {**HIDDEN, "coverage": "strict"}
    with pytest.raises(RuleError, match=r"No rule mentions the column nick of public\.users"):
        followed(kinds.AddColumn(USERS, column("nick", missing="raw")), strict)
    assert followed(kinds.AddColumn(USERS, column("email")), strict) != ()
    other = kinds.AddColumn(OTHER, column("nick", missing="raw"))
    assert followed(other, strict) == (other,)


def test_what_rows_have_in_a_new_column_and_a_rule_makes_of_others_cannot_be_told() -> None:
    rule = {"tables": ["*.users"], "columns": {"email": {"transform": "template", "template": "{name}"}}}
    with pytest.raises(RuleError, match="has a new column email"):
        followed(kinds.AddColumn(USERS, column("email", missing="raw")), rule)


@pytest.mark.parametrize(
    "change",
    [
        kinds.AddColumn(USERS, column("note")),
        kinds.DropColumn(USERS, column("note")),
        kinds.RetypeColumn(USERS, column("note"), column("note", collation="C")),
        kinds.CreateTable(USERS, definition(USERS)),
        kinds.SetNotNull(USERS, 4, "id"),
        kinds.SetDefault(USERS, 4, "id", "1"),
        kinds.AddCheck(USERS, Constraint(8, "c", "c", ("id",), "CHECK (id > 0)")),
        kinds.CreateIndex(USERS, IndexDefinition(9, "i", "CREATE INDEX i ON public.users (note)")),
    ],
    ids=lambda change: type(change).__name__,
)
def test_what_the_target_of_a_reshaped_table_has_not_is_left_out(change: SchemaChange) -> None:
    assert followed(change, WITHOUT_NOTE) == ()


def test_a_column_that_goes_or_gets_another_name_does_so_under_the_names_of_the_rules() -> None:
    people = TableName(USERS.oid, "public", "people")
    assert followed(kinds.DropColumn(USERS, column("email")), RENAMED) == (kinds.DropColumn(people, column("contact")),)
    assert followed(kinds.RenameColumn(USERS, 5, "a", "b"), RENAMED) == (kinds.RenameColumn(people, 5, "a", "b"),)


def test_another_key_is_told_in_the_columns_of_the_rules() -> None:
    before, after = (Constraint(8, "users_pkey", "p", (name,), f"PRIMARY KEY ({name})") for name in ("id", "email"))
    (change,) = followed(kinds.ReplacePrimaryKey(USERS, before, after), RENAMED)
    assert isinstance(change, kinds.ReplacePrimaryKey)
    assert change.before is not None
    assert change.before.name == "people_pkey"
    assert change.after is not None
    assert change.after.definition == 'PRIMARY KEY ("contact")'


def test_a_foreign_key_to_a_table_that_is_called_otherwise_is_left_out() -> None:
    key = ForeignKey(7, "f", ("user_id",), USERS, ("id",), "FOREIGN KEY (user_id) REFERENCES public.users(id)")
    assert followed(kinds.AddForeignKey(OTHER, key), RENAMED) == ()
    assert followed(kinds.AddForeignKey(OTHER, key), HIDDEN) == (kinds.AddForeignKey(OTHER, key),)


def test_of_merged_tables_a_new_column_is_followed_and_nothing_that_the_others_would_lose() -> None:
    tenant = TableName(16500, "tenant_a", "users")
    merged = TableName(merged_oid("all", "users"), "all", "users")
    assert followed(kinds.AddColumn(tenant, column("age")), MERGED) == (kinds.AddColumn(merged, column("age")),)
    assert followed(kinds.DropColumn(tenant, column("age")), MERGED) == ()
    assert followed(kinds.DropTable(tenant, definition(tenant)), MERGED) == ()


def test_a_table_that_gets_a_name_with_the_same_rules_is_renamed_as_they_say() -> None:
    rule = {"tables": ["public.users*"], "rename": {"table": "copy_of_{table}"}}
    before = TableName(USERS.oid, "public", "copy_of_users")
    assert followed(kinds.RenameTable(USERS, "users_2"), rule) == (kinds.RenameTable(before, "copy_of_users_2"),)
    moved = {"tables": ["*.users"], "rename": {"schema": "lake"}}
    assert followed(kinds.MoveTable(USERS, "elsewhere"), {**moved, "allow_uniqueness_loss": True}) == ()


@pytest.mark.parametrize("change", [kinds.RenameTable(USERS, "people"), kinds.MoveTable(USERS, "other")])
def test_a_table_that_gets_a_name_without_its_rules_stops_the_sink(change: SchemaChange) -> None:
    with pytest.raises(RuleError, match=r"rules\[0\]\.tables: public\.users is called .* now"):
        followed(change, HIDDEN)


def test_a_table_that_gets_a_name_with_rules_stops_the_sink_since_its_rows_are_there_without_them() -> None:
    with pytest.raises(RuleError, match=r"public\.other is called public\.users now"):
        followed(kinds.RenameTable(OTHER, "users"), HIDDEN)


@pytest.mark.parametrize(
    "rule",
    [
        {"tables": ["*.users"], "columns": {"email": {"transform": "mask"}}},
        {"tables": ["*.users"], "columns": {"email": {"exclude": True}}},
        {"tables": ["*.users"], "where": {"column": "email", "eq": "x"}},
        {"tables": ["*.users"], "rename": {"columns": {"email": "contact"}}},
    ],
)
def test_a_column_that_a_rule_knows_by_its_old_name_alone_stops_the_sink(rule: dict[str, Any]) -> None:
    with pytest.raises(RuleError, match=r"column email of public\.users is called mail now"):
        followed(kinds.RenameColumn(USERS, 5, "email", "mail"), rule)


def test_a_column_whose_new_name_the_rule_knows_as_well_passes() -> None:
    hidden = {"transform": "literal", "value": "hidden"}
    change = kinds.RenameColumn(USERS, 5, "email", "mail")
    assert followed(change, {"tables": ["*.users"], "columns": {"email": hidden, "mail": hidden}}) == (change,)
