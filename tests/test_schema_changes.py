"""What a row of the schema log says: its changes in order, and that they lead from before to after."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.lsn import LSN
from penstock.schema.applying import apply, apply_to_type
from penstock.schema.definitions import (
    ColumnDefinition,
    Constraint,
    Definition,
    EnumDefinition,
    EnumLabel,
    ForeignKey,
    IndexDefinition,
    PartitionOf,
    ReplicaIdentity,
    SequenceDefinition,
    Settings,
    TableName,
    TypeDefinition,
)
from penstock.schema.kinds import (
    AddColumn,
    AddEnumValue,
    AddForeignKey,
    AlterPart,
    AttachPartition,
    ChangeGenerated,
    CreateTable,
    CreateType,
    DetachPartition,
    DropColumn,
    DropDefault,
    DropForeignKey,
    DropTable,
    DropType,
    MoveTable,
    OtherCommand,
    RenameColumn,
    RenameEnumValue,
    RenamePart,
    RenameTable,
    ReplacePrimaryKey,
    RetypeColumn,
    RewordPart,
    RewriteTable,
    SchemaChange,
    SetDefault,
)
from penstock.schema.log.row import LoggedTable, LoggedType, SchemaLogRow, changes


def row(*parts: LoggedTable | LoggedType, **more: Any) -> SchemaLogRow:
    tables = tuple(part for part in parts if isinstance(part, LoggedTable))
    types = tuple(part for part in parts if isinstance(part, LoggedType))
    return SchemaLogRow(1, "2026-01-01", LSN(1), 7, "me", "ALTER TABLE", "…", tables=tables, types=types, **more)


def between(before: Definition | None, after: Definition | None) -> tuple[SchemaChange, ...]:
    return changes(row(LoggedTable(1, before, after)))


def column(number: int, name: str, **more: Any) -> ColumnDefinition:
    return ColumnDefinition(
        number, name, **{"type": "integer", "type_oid": 23, "modifier": -1, "not_null": False, **more}
    )


def table(*columns: ColumnDefinition, oid: int = 1, name: str = "t", **more: Any) -> Definition:
    return Definition(oid, "public", name, "r", "p", columns, **more)


def key(number: int, *columns: str) -> Constraint:
    return Constraint(number, "t_pkey", "p", columns, f"PRIMARY KEY ({', '.join(columns)})")


def foreign_key(number: int, name: str, to: int) -> ForeignKey:
    return ForeignKey(
        number, name, ("a",), TableName(to, "public", "x"), ("a",), "FOREIGN KEY (a) REFERENCES public.x(a)"
    )


T = TableName(1, "public", "t")

NAMES = st.sampled_from(["a", "b", "c", "d", 'we "ird', "penstock_renamed_1"])
TEXT = st.sampled_from(["x", "y", "z"])
MAYBE = st.none() | TEXT
SEQUENCES = st.builds(
    SequenceDefinition, TEXT, TEXT, TEXT, *(st.integers(1, 2) for _ in range(5)), cycle=st.booleans()
)  # fmt: skip
COLUMNS = st.builds(
    ColumnDefinition, id=st.just(0), name=st.just(""), type=TEXT, type_oid=st.integers(1, 2), modifier=st.integers(-1, 0),
    not_null=st.booleans(), default=MAYBE, identity=st.sampled_from([None, "a", "d"]),
    generated=st.sampled_from([None, "s", "v"]), collation=MAYBE, comment=MAYBE, sequence=st.none() | SEQUENCES,
)  # fmt: skip
OPTIONS = st.lists(TEXT, max_size=1).map(tuple)
NAME_LISTS = st.lists(NAMES, max_size=3, unique=True).map(tuple)
CONSTRAINTS = st.builds(
    Constraint, id=st.just(0), name=st.just(""), kind=st.just("u"), columns=NAME_LISTS, definition=TEXT,
    deferrable=st.booleans(), validated=st.booleans(), options=OPTIONS,
)  # fmt: skip
TABLE_NAMES = st.builds(TableName, st.integers(2, 3), TEXT, TEXT)
FOREIGN_KEYS = st.builds(
    ForeignKey, id=st.just(0), name=st.just(""), columns=NAME_LISTS, referenced=TABLE_NAMES,
    referenced_columns=NAME_LISTS, definition=TEXT, validated=st.booleans(),
)  # fmt: skip
INDEXES = st.builds(
    IndexDefinition, id=st.just(0), name=st.just(""), definition=TEXT, unique=st.booleans(), options=OPTIONS
)
PARTITIONS = st.builds(PartitionOf, st.integers(2, 3), TEXT, TEXT, TEXT)


def several(values: st.SearchStrategy[Any], sort: str) -> st.SearchStrategy[Any]:
    """With ids and names that no two of them share."""
    ids = st.lists(st.integers(1, 5), max_size=4, unique=True)

    def named(numbers: list[int]) -> st.SearchStrategy[Any]:
        size = len(numbers)
        lists = st.tuples(
            st.lists(NAMES, min_size=size, max_size=size, unique=True), st.lists(values, min_size=size, max_size=size)
        )
        return lists.map(
            lambda two: tuple(
                sorted(
                    (replace(one, id=number, name=name) for number, name, one in zip(numbers, *two, strict=True)),
                    key=lambda one: getattr(one, sort),
                )
            )
        )

    return ids.flatmap(named)


DEFINITIONS = st.builds(
    Definition, oid=st.just(1), schema=TEXT, table=TEXT, kind=st.just("r"), persistence=st.sampled_from(["p", "u"]),
    columns=several(COLUMNS, "id"), primary_key=several(CONSTRAINTS, "name").map(lambda found: found[0] if found else None),
    uniques=several(CONSTRAINTS, "name"), checks=several(CONSTRAINTS, "name"), foreign_keys=several(FOREIGN_KEYS, "name"),
    indexes=several(INDEXES, "name"),
    replica_identity=st.builds(ReplicaIdentity, st.sampled_from(["d", "n", "f", "i"]), st.none() | NAMES),
    partition_of=st.none() | PARTITIONS,
    settings=st.builds(Settings, OPTIONS, MAYBE, MAYBE, st.lists(TABLE_NAMES, max_size=1).map(tuple)), comment=MAYBE,
)  # fmt: skip


@given(st.none() | DEFINITIONS, st.none() | DEFINITIONS)
def test_the_changes_lead_from_before_to_after(before: Definition | None, after: Definition | None) -> None:
    now = before
    for change in between(before, after):
        now = apply(now, change)
    assert now == after


@given(DEFINITIONS, DEFINITIONS)
def test_no_two_columns_have_one_name_on_the_way(before: Definition, after: Definition) -> None:
    now: Definition | None = before
    for change in between(before, after):
        assert getattr(change, "table", now.name if now else None) == (now.name if now else None)
        now = apply(now, change)
        assert now is not None
        names = [one.name for one in now.columns]
        assert len(set(names)) == len(names)


ENUMS = st.builds(EnumDefinition, st.just(9), TEXT, TEXT, several(st.just(EnumLabel(0, "")).map(lambda _: _Label()), "id")
                  .map(lambda found: tuple(EnumLabel(one.id, one.name) for one in found)), MAYBE)  # fmt: skip


class _Label(ColumnDefinition):
    """Something with an id and a name, for ``several``."""

    def __init__(self, id: int = 0, name: str = "", **_: Any) -> None:
        super().__init__(id, name, "", 0, 0, False)


@given(st.none() | ENUMS, st.none() | ENUMS)
def test_the_changes_of_an_enum_lead_from_before_to_after(
    before: TypeDefinition | None, after: TypeDefinition | None
) -> None:
    now = before
    for change in changes(row(LoggedType(9, before, after))):
        now = apply_to_type(now, change)
    assert now == after


def test_columns_that_swap_their_names_go_by_way_of_a_temporary_one() -> None:
    assert between(table(column(1, "a"), column(2, "b")), table(column(1, "b"), column(2, "a"))) == (
        RenameColumn(T, 2, "b", "penstock_renamed_1"),
        RenameColumn(T, 1, "a", "b"),
        RenameColumn(T, 2, "penstock_renamed_1", "a"),
    )


def test_a_column_that_comes_in_place_of_another_is_not_a_rename() -> None:
    old, new = column(1, "a"), column(2, "a")
    assert between(table(old), table(new)) == (DropColumn(T, old), AddColumn(T, new))


def test_a_renamed_key_column_does_not_replace_the_key() -> None:
    before = table(column(1, "a"), primary_key=key(8, "a"))
    after = table(column(1, "b"), primary_key=key(8, "b"))
    reworded = RewordPart(T, "primary_key", replace(key(8, "a"), columns=("b",)), key(8, "b"))
    assert between(before, after) == (RenameColumn(T, 1, "a", "b"), reworded)


def test_a_key_is_replaced_in_one_go_when_its_columns_stay() -> None:
    columns = column(1, "a"), column(2, "b")
    before, after = table(*columns, primary_key=key(8, "a")), table(*columns, primary_key=key(9, "b"))
    assert between(before, after) == (ReplacePrimaryKey(T, key(8, "a"), key(9, "b")),)


def test_the_key_of_a_column_that_goes_goes_first_and_the_new_one_comes_last() -> None:
    before, after = (
        table(column(1, "a"), primary_key=key(8, "a")),
        table(column(2, "a"), primary_key=key(9, "a")),
    )
    assert between(before, after) == (
        ReplacePrimaryKey(T, key(8, "a"), None),
        DropColumn(T, column(1, "a")),
        AddColumn(T, column(2, "a")),
        ReplacePrimaryKey(T, None, key(9, "a")),
    )


def test_a_default_that_may_not_fit_the_new_type_goes_before_it() -> None:
    old = column(1, "a", type="text", type_oid=25, default="'x'::text")
    new = column(1, "a", default="5")
    bare = replace(old, default="'x'::text")
    assert between(table(old), table(new)) == (
        DropDefault(T, 1, "a"),
        RetypeColumn(T, bare, replace(bare, type="integer", type_oid=23)),
        SetDefault(T, 1, "a", "5"),
    )


def test_a_type_that_was_renamed_is_told_from_another_type() -> None:
    old, renamed, other = (column(1, "a", type=name, type_oid=oid) for name, oid in (("x", 5), ("y", 5), ("y", 6)))
    found = [between(table(old), table(new))[0] for new in (renamed, other)]
    assert [isinstance(one, RetypeColumn) and one.same_type for one in found] == [True, False]


def test_the_expression_of_a_generated_column_is_not_a_default() -> None:
    old, new = column(1, "a", generated="s", default="b"), column(1, "a", generated="s", default="c")
    assert between(table(old), table(new)) == (ChangeGenerated(T, 1, "a", "s", "c"),)


def test_a_constraint_that_was_validated_is_altered_not_made_anew() -> None:
    old = replace(foreign_key(5, "f", 2), validated=False)
    new = replace(old, validated=True)
    before, after = table(column(1, "a"), foreign_keys=(old,)), table(column(1, "a"), foreign_keys=(new,))
    assert between(before, after) == (AlterPart(T, "foreign_key", old, new),)


def test_constraints_of_different_kinds_may_swap_their_names() -> None:
    unique, check = Constraint(5, "x", "u", ("a",), "UNIQUE (a)"), Constraint(6, "y", "c", ("a",), "CHECK (a)")
    before = table(column(1, "a"), uniques=(unique,), checks=(check,))
    after = table(column(1, "a"), uniques=(replace(unique, name="y"),), checks=(replace(check, name="x"),))
    assert between(before, after) == (
        RenamePart(T, "check", 6, "y", "penstock_renamed_1"),
        RenamePart(T, "unique", 5, "x", "y"),
        RenamePart(T, "check", 6, "penstock_renamed_1", "x"),
    )


def test_tables_that_refer_to_each_other_are_made_first_and_joined_then() -> None:
    one = table(column(1, "a"), oid=1, name="one", foreign_keys=(foreign_key(5, "f", 2),))
    two = table(column(1, "a"), oid=2, name="two", foreign_keys=(foreign_key(6, "g", 1),))
    made = changes(row(LoggedTable(1, None, one), LoggedTable(2, None, two)))
    assert [type(change) for change in made] == [CreateTable, CreateTable, AddForeignKey, AddForeignKey]
    gone = changes(row(LoggedTable(1, one, None), LoggedTable(2, two, None)))
    assert [type(change) for change in gone] == [DropForeignKey, DropForeignKey, DropTable, DropTable]


def test_partitions_are_made_after_their_parent_and_dropped_before_it() -> None:
    parent = table(column(1, "a"), oid=5, name="parent")
    part = table(column(1, "a"), oid=2, name="part", partition_of=PartitionOf(5, "public", "parent", "DEFAULT"))
    made = changes(row(LoggedTable(2, None, part), LoggedTable(5, None, parent)))
    gone = changes(row(LoggedTable(5, parent, None), LoggedTable(2, part, None)))
    assert [change.table.oid for change in made if isinstance(change, CreateTable)] == [5, 2]
    assert [change.table.oid for change in gone if isinstance(change, DropTable)] == [2, 5]


def test_a_partition_that_moves_to_another_bound_is_detached_and_attached() -> None:
    old, new = (PartitionOf(5, "public", "parent", bound) for bound in ("DEFAULT", "FOR VALUES IN (1)"))
    found = between(table(partition_of=old), table(partition_of=new))
    assert found == (DetachPartition(T, old), AttachPartition(T, new))


def test_later_changes_call_the_table_by_its_new_name() -> None:
    before, after = table(column(1, "a")), replace(table(column(1, "b")), schema="s", table="u")
    assert between(before, after) == (
        MoveTable(T, "s"),
        RenameTable(TableName(1, "s", "t"), "u"),
        RenameColumn(TableName(1, "s", "u"), 1, "a", "b"),
    )


def test_a_rewrite_is_told_even_if_the_definition_is_the_same() -> None:
    same = table(column(1, "a"))
    assert changes(row(LoggedTable(1, same, same, ("type",)))) == (RewriteTable(T, ("type",)),)


def test_a_new_enum_value_says_where_it_stands() -> None:
    before = EnumDefinition(9, "public", "mood", (EnumLabel(1, "low"), EnumLabel(3, "high")))
    labels = (EnumLabel(1, "sad"), EnumLabel(2, "ok"), EnumLabel(3, "high"), EnumLabel(4, "top"))
    found = changes(row(LoggedType(9, before, replace(before, labels=labels))))
    assert [(type(one), getattr(one, "before", ""), getattr(one, "after", None)) for one in found] == [
        (RenameEnumValue, "low", "sad"), (AddEnumValue, None, None), (AddEnumValue, "high", None),
    ]  # fmt: skip


def test_types_come_before_the_tables_that_use_them_and_go_after_them() -> None:
    mood, some = EnumDefinition(9, "public", "mood", ()), table(column(1, "a"))
    made = changes(row(LoggedTable(1, None, some), LoggedType(9, None, mood)))
    gone = changes(row(LoggedType(9, mood, None), LoggedTable(1, some, None)))
    assert [type(change) for change in made] == [CreateType, CreateTable]
    assert [type(change) for change in gone] == [DropTable, DropType]


def test_a_command_about_something_else_is_given_as_it_is() -> None:
    assert changes(row(objects=({"type": "view"},))) == (OtherCommand("ALTER TABLE", "…", ({"type": "view"},)),)


def test_a_row_that_lacks_something_says_so() -> None:
    assert changes(row(error="no room")) == (OtherCommand("ALTER TABLE", "…", (), "no room"),)


@pytest.mark.parametrize("change", [CreateTable(T, table(column(1, "a"))), OtherCommand("GRANT", None)])
def test_what_is_not_about_a_table_leaves_it_as_it_is(change: SchemaChange) -> None:
    other = table(column(1, "z"), oid=5)
    assert apply(other, change) == other
