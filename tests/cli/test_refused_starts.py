"""A start that cannot work is refused before anything is made: on the source, and in state_dir."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

from penstock.sinks.contract import Sink
from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.cli.command import Here, run_to_end, write_config

pytestmark = pytest.mark.server

FILES = {"name": "files", "type": "file", "path": "events"}
LEFT = """
select 'publication ' || pubname from pg_publication
union all select 'slot ' || slot_name from pg_replication_slots where database = current_database()
union all select 'schema ' || nspname from pg_namespace where nspname = 'penstock'
union all select 'trigger ' || evtname from pg_event_trigger
"""


class Refusing(Sink[Any, Any]):
    """Whose target will never do."""

    def check(self) -> None:
        from penstock.errors import SinkRefused

        raise SinkRefused("Not this target.")


def left(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return [str(what) for (what,) in connection.execute(LEFT.encode())]


@pytest.fixture(params=[16, 18])
def shop(request: pytest.FixtureRequest) -> Iterator[str]:
    server: EmbeddedPostgres = request.getfixturevalue(f"postgres{request.param}")
    name = f"refused_{request.param}"
    url = server.create_database(name)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table public.orders (id int primary key, v text)")
    yield url
    server.drop_database(name)


def rule(**what: Any) -> dict[str, Any]:
    return {"rules": [{"tables": ["orders"], **what}]}


UNFIT_RULES = [rule(columns={"absent": {"exclude": True}}), rule(python="absent_module:f")]
UNFIT_SINKS: list[dict[str, Any]] = [
    {"sinks": [{"name": "lake", "type": "duckdb", "path": "absent/shop.duckdb"}]},
    {"sinks": [{"name": "lake", "type": "duckdb", "path": "a-file/shop.duckdb"}]},
    {"sinks": [{"name": "files", "type": "file", "path": "a-file/events"}]},
    {"sinks": [{"name": "files", "type": "file", "path": "foreign"}]},
    {"sinks": [{"name": "none", "type": f"{__name__}:Refusing"}]},
]
UNFIT_STATE = [{"state_dir": "a-file"}, {"state_dir": "a-file/state"}, {"state_dir": "/proc/penstock"}]


def written(directory: Path, url: str, more: dict[str, Any], **source: Any) -> Path:
    (directory / "a-file").write_text("")
    (directory / "foreign").mkdir()
    (directory / "foreign" / "0000000000000001-0000000000000002.jsonl").write_text("")
    return write_config(directory, url, **{"sinks": [FILES], **more, "source": {"url": url, **source}})


@pytest.mark.parametrize("more", [*UNFIT_RULES, *UNFIT_SINKS, *UNFIT_STATE], ids=str)
def test_a_run_that_cannot_work_leaves_nothing_behind(
    shop: str, tmp_path: Path, penstock: Here, more: dict[str, Any]
) -> None:
    file = written(tmp_path, shop, more, mode="copy_and_stream")
    outcome = penstock("run", file, "--once")
    assert outcome.code == (2 if more in UNFIT_RULES else 1), outcome.err
    assert len(outcome.errors) == 1
    assert "fault" not in outcome.err
    assert left(shop) == []
    assert not (tmp_path / ".penstock" / "parts" / "pipeline.json").exists()


@pytest.mark.parametrize("more", [*UNFIT_RULES, *UNFIT_STATE], ids=str)
def test_init_refuses_rules_and_a_state_dir_that_cannot_work(
    shop: str, tmp_path: Path, penstock: Here, more: dict[str, Any]
) -> None:
    assert penstock("init", written(tmp_path, shop, more)).code != 0
    assert left(shop) == []


def test_init_leaves_sinks_to_where_they_are_delivered_to(shop: str, tmp_path: Path, penstock: Here) -> None:
    assert penstock("init", written(tmp_path, shop, UNFIT_SINKS[0])).code == 0
    assert penstock("destroy", tmp_path / "penstock.yaml").code == 0


@pytest.mark.parametrize("more", [*UNFIT_RULES, UNFIT_SINKS[0], UNFIT_STATE[0], {}], ids=str)
def test_a_copy_that_cannot_work_leaves_nothing_behind(
    shop: str, tmp_path: Path, penstock: Here, more: dict[str, Any]
) -> None:
    file = written(tmp_path, shop, more, mode="copy_and_stream")
    assert penstock("copy", file, "--table", "orders" if more else "absent").code != 0
    assert left(shop) == []


def test_a_file_that_was_filled_from_another_source_is_refused_at_once(
    shop: str, tmp_path: Path, penstock: Here
) -> None:
    import duckdb

    from penstock.sinks.registry import sink_class
    from penstock.sinks.settings import SinkSettings

    kind = sink_class("duckdb")
    settings: SinkSettings = kind.Settings.model_validate(
        {"name": "lake", "type": "duckdb", "path": tmp_path / "l.duckdb"}
    )
    sink = kind(settings)
    sink.prepare()
    sink.close()
    file = written(tmp_path, shop, {"sinks": [{"name": "lake", "type": "duckdb", "path": "l.duckdb"}]})
    with duckdb.connect(str(tmp_path / "l.duckdb")) as connection:
        pipeline = yaml.safe_load(file.read_text())["name"]
        connection.execute("insert into penstock.progress values (?, 'lake', '0/1', now(), '999')", [pipeline])
    outcome = penstock("run", file)
    assert outcome.code == 1
    assert "holds changes of database system 999" in outcome.err
    assert left(shop) == []


@pytest.mark.parametrize("grants", ["", "replication", "replication, create", "create, owner"])
@pytest.mark.parametrize("mode", ["stream", "copy_and_stream"])
def test_a_role_that_lacks_a_right_makes_nothing(
    shop: str, tmp_path: Path, penstock: Here, grants: str, mode: str, request: pytest.FixtureRequest
) -> None:
    """Neither the schema of imports nor a publication whose slot or tables it may not have."""
    server: EmbeddedPostgres = request.getfixturevalue(f"postgres{16 if '16' in shop.rpartition('/')[2] else 18}")
    name = shop.rpartition("/")[2]
    server.execute(f"create role halfway login {'replication' if 'replication' in grants else ''}")
    try:
        if "create" in grants:
            server.execute(f'grant create on database "{name}" to halfway')
        if "owner" in grants:
            server.execute("alter table public.orders owner to halfway", dbname=name)
        outcome = penstock("run", written(tmp_path, shop.replace("postgres@", "halfway@"), {}, mode=mode))
        assert outcome.code == 1
        assert "As an administrator run: " in outcome.errors[0]
        assert left(shop) == []
    finally:
        server.execute("alter table public.orders owner to postgres", dbname=name)
        server.execute("drop owned by halfway", dbname=name)
        server.execute("drop owned by halfway; drop role halfway")


@pytest.mark.spark
def test_what_was_made_goes_again_if_only_spark_can_tell_that_a_rule_is_wrong(database: str, tmp_path: Path) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table public.orders (id int primary key, v text)")
    file = written(tmp_path, database, rule(sql="select *, nowhere from changes"))
    outcome = run_to_end("run", file, "--once")
    assert outcome.code == 2, outcome.err
    assert "rules[0].sql" in outcome.err
    assert "Removed publication shop, which this start had made." in outcome.err
    assert left(database) == []
