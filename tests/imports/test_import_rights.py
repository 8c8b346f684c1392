"""Tables that the role may not read, or not wholly: such an import fails and says why, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from penstock.testing.conditions import wait_until
from tests.imports.living_pipeline import LivingPipeline
from tests.imports.replay import ImportReplay
from tests.recovery.workload import Table

pytestmark = pytest.mark.spark

_SCHEMA = """
create table allowed (id int primary key, v text);
create table forbidden (id int primary key, v text);
create table secured (id int primary key, v text);
alter table secured enable row level security;
create schema hidden;
create table hidden.t (id int primary key, v text);
create table parted (id int, part int, v text, primary key (part, id)) partition by list (part);
create table parted_1 partition of parted for values in (1);
create table parted_2 partition of parted for values in (2);
create table filtered (id int primary key, secret text, v text);
insert into allowed select n, 'old' from generate_series(1, 50) n;
insert into forbidden select n, 'old' from generate_series(1, 50) n;
insert into secured select n, 'old' from generate_series(1, 50) n;
insert into hidden.t select n, 'old' from generate_series(1, 50) n;
insert into parted select n, 1 + mod(n, 2), repeat('x', 100) from generate_series(1, 500) n;
insert into filtered select n, 'secret', 'v' || n from generate_series(1, 50) n;
create publication mine for table allowed, forbidden, secured, hidden.t, parted, filtered (id, v) where (id > 20)
with (publish_via_partition_root = true);
"""

_RIGHTS = """
alter role "{role}" replication;
grant create on database "{database}" to "{role}";
grant select on allowed, secured, hidden.t, parted to "{role}";
grant select (id, v) on filtered to "{role}";
"""


def all_failed(pipeline: LivingPipeline, said: dict[str, str], *tables: str) -> bool:
    """Gathers what is said of them. They are tried again all the time, so they are not seen as failed all at once."""
    said.update({t.qualified_name: t.error for t in pipeline.pipeline.tables() if t.state == "failed" and t.error})
    return said.keys() == {*tables}


@pytest.mark.parametrize("database", [18, 16], indirect=True)
def test_an_import_that_lacks_a_right_says_so_and_goes_on_by_itself_once_it_has_it(
    database: str, guest: str, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = LivingPipeline(database, tmp_path / "p", source="publication: mine")
    name = str(pipeline.execute("select current_database()")[0][0])
    pipeline.execute(_SCHEMA + _RIGHTS.format(role=guest, database=name))
    pipeline.configure(url=make_conninfo(database, user=guest))
    with pipeline.running(spark):
        readable = ("public.allowed", "public.parted", "public.filtered")
        pipeline.await_state("streaming", *readable)
        said: dict[str, str] = {}
        unreadable = ("public.forbidden", "hidden.t", "public.secured")
        wait_until(lambda: all_failed(pipeline, said, *unreadable), what="the others to fail")
        assert f'GRANT SELECT ON "public"."forbidden" TO "{guest}"' in said["public.forbidden"]
        assert f'GRANT USAGE ON SCHEMA "hidden" TO "{guest}"' in said["hidden.t"]
        assert "Row-level security" in said["public.secured"]
        assert f'ALTER ROLE "{guest}" BYPASSRLS' in said["public.secured"]

        pipeline.execute("update allowed set v = 'new' where id < 10; delete from parted where id = 3")
        pipeline.execute("update filtered set v = 'new' where id = 30; update filtered set id = -5 where id = 40")
        pipeline.execute(
            "insert into filtered values (-7, 'secret', 'low'), (60, 'secret', 'high'); update secured set v = ''"
        )
        pipeline.await_arrival()
        assert pipeline.wrong(pipeline.tables("allowed", "parted")) == []
        filtered = Table("public", "filtered", ("id", "v"), ("id",))
        expected = pipeline.execute("select id, v from filtered where id > 20 order by id")
        assert pipeline.lake("select * from public.filtered order by id") == expected
        replay = ImportReplay([filtered])
        replay.read(pipeline.directory / "events")
        assert sorted(replay.rows(filtered)) == [(str(key), value) for key, value in expected]

        pipeline.execute(f'grant select on forbidden to "{guest}"; grant usage on schema hidden to "{guest}"')
        pipeline.execute(f'alter role "{guest}" bypassrls')
        pipeline.await_streaming()
        pipeline.await_arrival()
        assert pipeline.wrong([*pipeline.tables("forbidden", "secured"), *pipeline.tables("t", schema="hidden")]) == []
