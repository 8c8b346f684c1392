from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import sql

from penstock.postgres.connection import Connection, connect
from penstock.schema import table_ddl, type_ddl
from penstock.schema import type_ddl as sequence_ddl
from penstock.schema.sequence_definition import read_sequences
from penstock.schema.table_ddl import Step
from penstock.schema.table_definition import Index, TableDefinition
from penstock.schema.target_names import Place, fitted
from penstock.schema.type_ddl import create_type
from penstock.schema.type_definition import DomainCheck, DomainType, EnumType, read_types
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.postgres.awkward_tables import AWKWARD, EVERYTHING, NEWEST, ODD, PARENT, UNICODE
from tests.postgres.catalog_equality import differences
from tests.postgres.mirrored_schema import definition_of, execute, make_what_tables_need, mirror, oids_of

TABLE = ("public", "t")


@contextmanager
def _database(server: EmbeddedPostgres) -> Iterator[Connection]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    with connect(server.create_database(name)) as session:
        yield session
    server.drop_database(name)


@pytest.fixture(scope="module", params=[16, 18])
def databases(request: pytest.FixtureRequest) -> Iterator[tuple[Connection, Connection]]:
    server: EmbeddedPostgres = request.getfixturevalue(f"postgres{request.param}")
    with _database(server) as one, _database(server) as other:
        yield one, other


@pytest.fixture(scope="module")
def newer_database(postgres18: EmbeddedPostgres) -> Iterator[Connection]:
    with _database(postgres18) as session:
        yield session


# DDL is transactional: each test finds empty databases again, without the time that making them takes.
@pytest.fixture
def source(databases: tuple[Connection, Connection]) -> Iterator[Connection]:
    with databases[0].transaction(force_rollback=True):
        yield databases[0]


@pytest.fixture
def target(databases: tuple[Connection, Connection]) -> Iterator[Connection]:
    with databases[1].transaction(force_rollback=True):
        yield databases[1]


@pytest.fixture
def newer(newer_database: Connection) -> Iterator[Connection]:
    with newer_database.transaction(force_rollback=True):
        yield newer_database


def _tables(source: Connection) -> list[tuple[str, str]]:
    """All but those that are called other or base."""
    rows = source.execute(
        "select n.nspname::text, c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where c.relkind in ('r', 'p') and not c.relispartition and n.nspname !~ '^(pg_|information_schema)' "
        "and c.relname not in ('other', 'base') order by 1, 2"
    )
    return [(schema, table) for schema, table in rows]


@pytest.mark.server
@pytest.mark.parametrize("with_primary_key", [True, False])
def test_a_table_with_everything_is_made_equal(source: Connection, target: Connection, with_primary_key: bool) -> None:
    source.execute(EVERYTHING)
    mirror(source, target, [ODD, PARENT], with_primary_key=with_primary_key)
    assert differences(source, target, [ODD, PARENT]) == []
    assert target.execute("select 1 from pg_constraint where conname = 'unchecked' and not convalidated").fetchall()


@pytest.mark.server
@pytest.mark.parametrize("what", AWKWARD)
def test_awkward_tables_are_made_equal(source: Connection, target: Connection, what: str) -> None:
    source.execute(AWKWARD[what])
    tables = _tables(source)
    assert tables
    mirror(source, target, tables)
    assert differences(source, target, tables) == []


@pytest.mark.server
@pytest.mark.parametrize("databases", [18], indirect=True)
@pytest.mark.parametrize("what", NEWEST)
def test_what_came_with_postgres_18_is_made_equal(source: Connection, target: Connection, what: str) -> None:
    source.execute(NEWEST[what])
    tables = _tables(source)
    mirror(source, target, tables)
    assert differences(source, target, tables) == []


def _steps(definition: TableDefinition, place: Place) -> list[Step]:
    places = {PARENT: Place(*PARENT)}
    return [
        *table_ddl.add_primary_key(definition, place),
        *table_ddl.after_copy(definition, place),
        *table_ddl.add_foreign_keys(definition, place, places),
        *table_ddl.validate_foreign_keys(definition, place, places),
    ]


@pytest.mark.server
def test_what_is_there_is_left_as_it_is(source: Connection, target: Connection) -> None:
    source.execute(EVERYTHING)
    mirror(source, target, [ODD, PARENT])
    definition, place = definition_of(source, ODD), Place(*ODD)
    make_what_tables_need(source, target, [definition.oid])
    target.execute(table_ddl.create_table(definition, place))
    left = table_ddl.missing(target, place, _steps(definition, place))
    assert {step.makes for step in left} == {"setting"}
    execute(target, left)
    assert differences(source, target, [ODD, PARENT]) == []


@pytest.mark.server
def test_what_is_missing_is_found_step_by_step(source: Connection, target: Connection) -> None:
    source.execute(EVERYTHING)
    definition, place = definition_of(source, ODD), Place(*ODD)
    mirror(source, target, [PARENT])
    make_what_tables_need(source, target, [definition.oid])
    target.execute(table_ddl.create_table(definition, place, with_primary_key=False))
    steps = [step for step in _steps(definition, place) if step.makes != "setting"]
    for done, step in enumerate(steps):
        assert table_ddl.missing(target, place, steps) == steps[done:]
        target.execute(step.statement)
    assert table_ddl.missing(target, place, steps) == []


@pytest.mark.server
def test_foreign_keys_to_tables_that_are_not_in_the_target_are_left_out(source: Connection, target: Connection) -> None:
    source.execute(EVERYTHING)
    mirror(source, target, [ODD])
    found = target.execute("select conrelid = confrelid from pg_constraint where contype = 'f'").fetchall()
    assert found == [(True,)]


@pytest.mark.server
def test_a_table_beside_another_one_takes_its_place(source: Connection, target: Connection) -> None:
    source.execute(EVERYTHING)
    mirror(source, target, [ODD, PARENT])
    definition, beside = definition_of(source, ODD), Place(*ODD).beside("__import_7")
    target.execute(table_ddl.create_table(definition, beside, with_primary_key=False))
    execute(target, _steps(definition, beside))
    assert differences(source, target, [ODD, PARENT]) == []  # the one that is there does not feel it
    _swap(source, target, definition, beside)
    assert differences(source, target, [ODD, PARENT]) == []
    names = "select relname as name from pg_class union all select conname from pg_constraint"
    named = f"select name from ({names}) as n where name like '%import%'"
    assert target.execute(named).fetchall() == []


@pytest.mark.server
def test_the_longest_names_are_cut_beside_another_table(source: Connection, target: Connection) -> None:
    source.execute(AWKWARD["the longest names"])
    tables = _tables(source)
    mirror(source, target, tables)
    (key,) = target.execute("select conname::text from pg_constraint where contype = 'f'").fetchall()
    drop = sql.SQL("alter table public.{} drop constraint {}")
    target.execute(drop.format(sql.Identifier(UNICODE), sql.Identifier(*key)))
    for table in tables:
        definition, beside = definition_of(source, table), Place(*table).beside("__import_12345")
        target.execute(table_ddl.create_table(definition, beside))
        execute(target, table_ddl.after_copy(definition, beside))
        assert target.execute("select relname from pg_class where relname = %s", [beside.name]).fetchall()
        _swap(source, target, definition, beside)
    places = {table: Place(*table) for table in tables}
    for table in tables:
        execute(target, table_ddl.add_foreign_keys(definition_of(source, table), Place(*table), places))
        execute(target, table_ddl.validate_foreign_keys(definition_of(source, table), Place(*table), places))
    assert differences(source, target, tables) == []


def _swap(source: Connection, target: Connection, definition: TableDefinition, beside: Place) -> None:
    """As the module's docstring says. The renames are executed twice: that must do no harm."""
    name = (definition.schema, definition.table)
    sequences = read_sequences(source, [definition.oid])
    with target.transaction():
        for own in (sequence_ddl.own_sequence(sequence, {name: beside}) for sequence in sequences):
            if own is not None:
                target.execute(own)
        target.execute(sql.SQL("drop table {}").format(beside.taken.identifier))
        target.execute(sql.SQL("alter table {} rename to {}").format(beside.identifier, sql.Identifier(beside.table)))
        for statement in table_ddl.renames(definition, beside) * 2:
            target.execute(statement)
        for sequence in sequences:
            target.execute(sequence_ddl.set_sequence(sequence, {name: beside.taken}))


@pytest.mark.server
def test_a_table_in_another_schema_and_of_another_name_is_equal_but_for_names(
    source: Connection, target: Connection
) -> None:
    source.execute(EVERYTHING)
    there = {ODD: ("else", "where"), PARENT: ("else", "up")}
    mirror(source, target, [ODD, PARENT], {table: Place(*place) for table, place in there.items()})
    # A serial's sequence stays in its schema, and Postgres lets no table of another schema own it.
    (sentence,) = differences(source, target, [ODD, PARENT], there)
    assert sentence.startswith(f"sequence of {'.'.join(ODD)} serial by a: ")
    indexes = {name for (name,) in target.execute("select relname::text from pg_class where relkind = 'i'")}
    assert {"where_pkey", "where_identity", "where_I ON x USING (", "up_code_key"} <= indexes


@pytest.mark.server
def test_tables_of_two_schemas_meet_in_one(source: Connection, target: Connection) -> None:
    for schema in "ab":
        source.execute(
            f"create schema {schema}; create table {schema}.t (id int generated always as identity primary key, n int);"
            f"create index by_n on {schema}.t (n); create index t_by_n on {schema}.t (n desc)"
        )
    there = {("a", "t"): ("x", "a_t"), ("b", "t"): ("x", "b_t")}
    mirror(source, target, list(there), {table: Place(*place) for table, place in there.items()})
    assert differences(source, target, list(there), there) == []


@pytest.mark.server
def test_an_enum_gets_the_labels_that_it_lacks(source: Connection, target: Connection) -> None:
    source.execute("create type public.e as enum ('a', 'b'); create table public.t (e public.e)")
    mirror(source, target, [TABLE])
    for label in ("'%' before 'a'", "'it''s' after 'a'", "'z'"):
        source.execute(f"alter type public.e add value {label}")
    (enum,) = read_types(source, oids_of(source, [TABLE]))
    assert isinstance(enum, EnumType)
    target.execute(type_ddl.create_type(enum))
    assert len(differences(source, target, [TABLE])) == 1
    for statement in type_ddl.add_labels(enum):
        target.execute(statement)
    assert differences(source, target, [TABLE]) == []


@pytest.mark.server
def test_a_sequence_follows_the_source(source: Connection, target: Connection) -> None:
    source.execute("create table public.t (a serial, b int generated always as identity (increment 5))")
    mirror(source, target, [TABLE])
    source.execute("insert into public.t select from generate_series(1, 3)")
    source.execute("select setval('public.t_a_seq', 1000, false)")
    target.execute("alter sequence public.t_b_seq rename to other")  # found by its column, whatever it is called
    for sequence in read_sequences(source, oids_of(source, [TABLE])):
        target.execute(sequence_ddl.set_sequence(sequence, {TABLE: Place(*TABLE)}))
    for connection in (source, target):
        assert connection.execute("insert into public.t default values returning *").fetchall() == [(1000, 16)]


@pytest.mark.server
def test_a_sequence_that_the_target_lacks_is_not_set(source: Connection, target: Connection) -> None:
    source.execute("create table public.t (a serial)")
    (sequence,) = read_sequences(source, oids_of(source, [TABLE]))
    assert target.execute(sequence_ddl.set_sequence(sequence, {})).fetchall() == [(None,)]


@pytest.mark.parametrize("databases", [16], indirect=True)
def test_an_older_source_is_made_in_a_newer_target(source: Connection, newer: Connection) -> None:
    source.execute(EVERYTHING)
    mirror(source, newer, [ODD, PARENT])
    # 18 has not-null constraints by name, and says of every key whether it has a period.
    kinds = {sentence.split(" of ")[0] for sentence in differences(source, newer, [ODD, PARENT])}
    assert kinds == {"not-null constraint", "foreign key", "key", "primary key"}


@pytest.mark.parametrize("databases", [16], indirect=True)
def test_what_an_older_target_does_not_know_is_left_out(newer: Connection, target: Connection) -> None:
    newer.execute("create table public.t (a int not null, b int)")
    newer.execute("alter table public.t add constraint n not null b not valid")
    definition, place = definition_of(newer, TABLE), Place(*TABLE)
    target.execute(table_ddl.create_table(definition, place))
    target.execute("insert into public.t values (1, null)")
    steps = table_ddl.after_copy(definition, place)
    assert [step.name for step in steps] == ["n"]
    assert table_ddl.missing(target, place, steps) == []


def test_a_name_is_cut_between_characters_and_keeps_a_digest() -> None:
    assert fitted("orders", "__import_1") == "orders__import_1"
    assert fitted("x" * 63) == "x" * 63
    cut = {fitted("ß" * 30 + end, "__import_1") for end in ("aaa", "aab")}
    assert len(cut) == 2
    assert all(name.endswith("__import_1") and name.startswith("ß" * 20) and len(name.encode()) <= 63 for name in cut)


@settings(derandomize=True, database=None)
@given(
    st.sets(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=80), max_size=8),
    st.text("tß_", min_size=1, max_size=40),
    st.sampled_from(["", "__import_1", "__import_123456789"]),
)
def test_names_stay_apart_and_fit_wherever_a_table_is_made(parts: set[str], table: str, suffix: str) -> None:
    names = {name for part in parts for name in (part, f"t_{part}") if len(name.encode()) <= 63}
    indexes = tuple(Index(name, False, "") for name in sorted(names))
    definition = TableDefinition(1, "s", "t", "r", (), None, (), (), (), indexes, "d", None, None, None)
    place = Place("s", table, suffix)
    chosen = place.names(definition)
    assert set(chosen) == names
    assert len(set(chosen.values())) == len(names)
    assert all(len(name.encode()) <= 63 and name.endswith(suffix) for name in (place.name, *chosen.values()))
    if (table, suffix) == ("t", ""):
        assert all(name == kept for name, kept in chosen.items())


def test_a_domains_check_that_is_not_valid_is_left_out() -> None:
    """The source has values that violate it, and the target would refuse them."""
    checks = (
        DomainCheck("old", "CHECK ((VALUE > 0))", True),
        DomainCheck("new", "CHECK ((VALUE < 9)) NOT VALID", False),
    )
    made = create_type(DomainType(1, "public", "d", "integer", None, None, False, checks)).as_string()
    assert "VALUE > 0" in made
    assert "VALUE < 9" not in made
