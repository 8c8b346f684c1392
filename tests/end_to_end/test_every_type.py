"""Every type, with its edge values, through an import and through the stream into another Postgres: text for text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.testing.embedded_postgres import OLDEST_VERSION, EmbeddedPostgres, installed_servers
from tests.end_to_end.replicated import Replicated, execute, rows
from tests.end_to_end.typed_values import BEFORE, BUILT_IN, CONTRIB, OF_CONTRIB, Kind

pytestmark = pytest.mark.spark

Texts = list[tuple[int, str | None]]

_DATABASES = "every_type", "every_type_copy"
_KEY_COLUMNS = 30  # an index has at most 32


class TypedTables:
    """A table with a column for each type, one of them again whose whole row is its identity, and some with keys of many
    types. Rows from 1 on are there before the import, those from 1001 on come by the stream."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.kinds = {f"t{number}": some for number, some in enumerate(kinds)}
        self.rows = max(len(some.values) for some in kinds)
        in_keys = [name for name, some in self.kinds.items() if some.key]
        self.keys = {
            f"keys{number}": in_keys[first : first + _KEY_COLUMNS]
            for number, first in enumerate(range(0, len(in_keys), _KEY_COLUMNS))
        }
        self.tables = {"plain": list(self.kinds), "bag": list(self.kinds), **self.keys}

    def create(self) -> list[str]:
        columns = {name: f"{name} {some.type}" for name, some in self.kinds.items()}
        return [
            f"create table plain (id int primary key, {', '.join(columns.values())})",
            f"create table bag (id int, {', '.join(columns.values())})",
            "alter table bag replica identity full",
            *(
                f"create table {table} (id int, v text, {', '.join(columns[name] for name in names)}, "
                f"primary key ({', '.join(names)}, id))"
                for table, names in self.keys.items()
            ),
        ]

    def insert(self, start: int) -> list[str]:
        """A row for every value; NULL, or in keys the values from the first one on again, where a type has no more."""
        return [
            f"insert into {table} (id, {', '.join(names)}) values {self._values(names, start, table in self.keys)}"
            for table, names in self.tables.items()
        ]

    def _values(self, names: Sequence[str], start: int, again: bool) -> str:
        kinds = [self.kinds[name] for name in names]
        return ", ".join(
            f"({start + row}, {', '.join(_value(some, row, again) for some in kinds)})" for row in range(self.rows)
        )

    def change(self) -> list[str]:
        """The rows that were there before get the values of the next one each; of the others, some go."""
        return [
            *(
                f"update {table} set {', '.join(f'{name} = o.{name}' for name in names)} from {table} o "
                f"where o.id = 1 + {table}.id % {self.rows} and {table}.id <= {self.rows}"
                for table, names in self.tables.items()
            ),
            *(f"update {table} set v = 'changed' where id > 1000" for table in self.keys),
            *(f"delete from {table} where id > 1000 and id % 2 = 0" for table in self.tables),
        ]

    def texts(self, url: str) -> dict[str, Texts]:
        """What each column of each table holds."""
        found = {}
        for table, names in self.tables.items():
            shown = ", ".join(f"{name}::text" for name in names)
            ids, *columns = zip(*rows(url, f"select id, {shown} from {table} order by id"), strict=True)
            for name, column in zip(names, columns, strict=True):
                found[f"{table}.{name}"] = list(zip(ids, column, strict=True))
        return found


def _value(some: Kind, row: int, again: bool) -> str:
    if again:
        row %= len(some.values)
    return f"({some.values[row]})::{some.type}" if row < len(some.values) else "null"


@dataclass
class Compared:
    """What source and target held after each step."""

    tables: TypedTables
    steps: dict[str, tuple[dict[str, Texts], dict[str, Texts]]] = field(default_factory=dict)

    def differences(self, number: int) -> list[str]:
        """Of the type with this number, in all tables that have it."""
        tables = [table for table, names in self.tables.tables.items() if f"t{number}" in names]
        return [
            f"{table} after {step}: {ours} is {theirs}"
            for step, (source, target) in self.steps.items()
            for table in tables
            for ours, theirs in _unequal(source[f"{table}.t{number}"], target[f"{table}.t{number}"])
        ]


def _unequal(source: Texts, target: Texts) -> Iterator[tuple[str, str]]:
    ours, theirs = dict(source), dict(target)
    for number in ours.keys() | theirs.keys():
        if ours.get(number) != theirs.get(number):
            yield f"{number} {ours.get(number)}"[:300], str(theirs.get(number))[:300]
    if len(source) != len(target):
        yield f"{len(source)} rows", f"{len(target)} rows"


def compare(
    spark: SparkSession, server: EmbeddedPostgres, directory: Path, before: Sequence[str], kinds: Sequence[Kind]
) -> Iterator[Compared]:
    """Runs the pipeline once, within one server; its databases go at the end."""
    source, target = (server.create_database(name) for name in _DATABASES)
    tables = TypedTables(kinds)
    pipeline = Replicated(source, directory, {"replica": {"url": target}})
    execute(source, *before, *tables.create(), *tables.insert(1))
    execute(target, *(statement for statement in before if statement.startswith("create extension")))
    compared = Compared(tables)
    with pipeline.running(spark):
        pipeline.await_streaming(timeout=90)
        compared.steps["the import"] = tables.texts(source), tables.texts(target)
        for step, statements in (("inserts", tables.insert(1001)), ("changes", tables.change())):
            execute(source, *statements)
            pipeline.await_arrival()
            compared.steps[step] = tables.texts(source), tables.texts(target)
    yield compared
    for name in _DATABASES:
        server.drop_database(name)


@pytest.fixture(scope="module")
def compared(
    spark: SparkSession, postgres18: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Compared]:
    yield from compare(spark, postgres18, tmp_path_factory.mktemp("types"), BEFORE, BUILT_IN)


@pytest.mark.parametrize("number", range(len(BUILT_IN)), ids=[some.name for some in BUILT_IN])
def test_a_value_of_a_built_in_or_made_type_arrives_as_it_is(compared: Compared, number: int) -> None:
    assert compared.differences(number) == []


def test_there_is_a_value_of_every_type_that_the_server_has(postgres18: EmbeddedPostgres) -> None:
    """Not of those that cannot be written down, and xml, which needs a server that was built with it."""
    known = {oid for some in BUILT_IN for (oid,) in postgres18.execute("select to_regtype(%s)::oid", [some.type])}
    found = postgres18.execute(
        "select oid, typname from pg_type where typnamespace = 'pg_catalog'::regnamespace and typtype in ('b', 'r', 'm') "
        "and typelem = 0 or typname in ('name', 'point', 'int2vector', 'oidvector')"
    )
    missing = {name for oid, name in found if oid not in known}
    assert missing == {
        "xml", "gtsvector", "pg_node_tree", "pg_ndistinct", "pg_dependencies", "pg_mcv_list", "pg_brin_bloom_summary",
        "pg_brin_minmax_multi_summary",
    }  # fmt: skip


@pytest.fixture(scope="module")
def compared_contrib(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    versions = [version for version in installed_servers() if version >= OLDEST_VERSION]
    if not versions:
        pytest.skip("Contrib modules come with a Postgres that is installed on the machine, and there is none.")
    with EmbeddedPostgres(version=max(versions)) as server:
        there = {name for (name,) in server.execute("select name from pg_available_extensions")}
        if not there >= CONTRIB.keys():
            pytest.skip(f"The Postgres of this machine lacks {', '.join(sorted(CONTRIB.keys() - there))}.")
        extensions = [f"create extension {name}" for name in CONTRIB]
        yield from compare(spark, server, tmp_path_factory.mktemp("contrib"), extensions, OF_CONTRIB)


@pytest.mark.parametrize("number", range(len(OF_CONTRIB)), ids=[some.name for some in OF_CONTRIB])
def test_a_value_of_a_contrib_type_arrives_as_it_is(compared_contrib: Compared, number: int) -> None:
    assert compared_contrib.differences(number) == []
