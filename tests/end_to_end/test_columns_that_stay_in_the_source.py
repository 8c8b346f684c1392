"""``exclude: source`` in a pipeline: the column is nowhere but in the database, and other columns come and go meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import psycopg
from pyspark.sql import SparkSession

from tests.imports.pipeline_with_imports import PipelineWithImports

SECRET = "s3cr3t"
USERS = f"""
create table users (id int primary key, email text, ssn text);
insert into users select n, 'user' || n, '{SECRET}-' || n from generate_series(1, 50) n;
"""
RULES = """
rules:
  - {tables: [public.users], columns: {ssn: {exclude: source}}}
"""


def pipeline_in(directory: Path, url: str, target: str, rules: str) -> PipelineWithImports:
    return PipelineWithImports(url, directory, log="retention: 1h", target=target, sinks=rules)


def rows(pipeline: PipelineWithImports) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
    """What source and sinks hold of users: the names of its columns, and its rows by their names' order."""
    found = {}
    with duckdb.connect(str(pipeline.directory / "lake.duckdb"), read_only=True) as lake:
        described = lake.execute("select * from public.users").description
        names = sorted(column[0] for column in described or ())
        found["lake"] = names, sorted(lake.execute(f"select {', '.join(names)} from public.users").fetchall(), key=repr)
    for place, url in (("source", pipeline.url), ("replica", pipeline.target)):
        with psycopg.connect(str(url)) as connection:
            columns = connection.execute("select * from users").description
            names = sorted(column.name for column in columns or ())
            query = f"select {', '.join(names)} from users".encode()
            found[place] = names, sorted(connection.execute(query).fetchall(), key=repr)
    return found


def without(name: str, found: tuple[list[str], list[tuple[Any, ...]]]) -> tuple[list[str], list[tuple[Any, ...]]]:
    names, rows = found
    kept = [index for index, each in enumerate(names) if each != name]
    return [names[index] for index in kept], sorted((tuple(row[i] for i in kept) for row in rows), key=repr)


def files_with(text: str, directory: Path) -> list[str]:
    return [str(path) for path in directory.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_the_column_is_nowhere_and_comes_back_when_the_rule_goes(
    tmp_path: Path, database: str, target_database: str, spark: SparkSession
) -> None:
    directory = tmp_path / "pipeline"
    pipeline = pipeline_in(directory, database, target_database, RULES)
    pipeline.execute(USERS)
    with pipeline.running(spark):
        pipeline.execute(f"insert into users values (51, 'new', '{SECRET}-51')")
        pipeline.await_streaming()
        pipeline.execute(f"update users set email = 'other', ssn = '{SECRET}-b' where id = 7")
        pipeline.execute("delete from users where id = 8")
        # A column that comes later is not in the list until the next look, and neither is what is written to it meanwhile.
        pipeline.execute("alter table users add column phone text")
        pipeline.execute("update users set phone = '1' where id < 5")
        pipeline.execute(f"insert into users values (52, 'newer', '{SECRET}-52', '2')")
        pipeline.await_arrival()
        assert pipeline.pipeline.reconcile() is not None
        pipeline.execute("update users set phone = '3' where id between 3 and 10")
        pipeline.await_streaming()
        pipeline.await_arrival()
    found = rows(pipeline)
    assert found["lake"] == found["replica"] == without("ssn", found["source"])
    assert found["lake"][0] == ["email", "id", "phone"]
    assert files_with(SECRET, directory) == []
    assert any("/log/" in file for file in files_with("newer", directory))  # so it would have been seen there

    pipeline = pipeline_in(directory, database, target_database, "")
    with pipeline.running(spark):
        pipeline.execute(f"insert into users values (53, 'last', '{SECRET}-53', null)")
        pipeline.await_streaming()
        pipeline.await_arrival()
    found = rows(pipeline)
    assert found["lake"] == found["replica"] == found["source"]
