"""``destroy`` by a role that does not own everything, and what an administrator does for it."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from penstock.testing.embedded_postgres import EmbeddedPostgres
from tests.cli.command import Here, write_config
from tests.cli.test_refused_starts import left

pytestmark = pytest.mark.server


@dataclass(frozen=True)
class Shop:
    administrator: str
    role: str
    file: Path


@pytest.fixture(params=[16, 18])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    """A role with the rights of README's first step."""
    server: EmbeddedPostgres = request.getfixturevalue(f"postgres{request.param}")
    name, role = f"destroyed_{request.param}", f"keeper_{uuid.uuid4().hex[:6]}"
    administrator = server.create_database(name)
    server.execute(f"create role {role} login replication; grant create on database {name} to {role}")
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute("create table public.orders (id int primary key)")
        connection.execute(f"alter table public.orders owner to {role}".encode())
    url = administrator.replace("postgres@", f"{role}@")
    yield Shop(administrator, role, write_config(tmp_path, url, source={"url": url, "mode": "copy_and_stream"}))
    server.drop_database(name)
    server.execute(f"drop role {role}")


def test_what_an_administrator_made_is_listed_and_everything_else_goes(shop: Shop, penstock: Here) -> None:
    assert penstock("init", shop.file, "--admin-url", shop.administrator).code == 0
    outcome = penstock("destroy", shop.file)
    assert outcome.code == 1
    assert "Removed replication slot shop_" in outcome.err
    assert "Removed publication shop." in outcome.err
    assert re.search(r"Removed parts under .*[.]penstock", outcome.err)
    assert "fault" not in outcome.err
    assert left(shop.administrator) == [
        "schema penstock",
        *(f"trigger penstock_{n}" for n in ("ddl", "drop", "rewrite")),
    ]
    assert not (shop.file.parent / ".penstock" / "parts").exists()
    with psycopg.connect(shop.administrator, autocommit=True) as connection:
        notices: list[str] = []
        connection.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
        connection.execute("alter table public.orders add more int")  # the triggers that stay are in nobody's way
        assert notices == []
        (line,) = outcome.errors
        connection.execute(line.partition(" run: ")[2].encode())
    assert left(shop.administrator) == []


def test_an_administrators_url_removes_everything(shop: Shop, penstock: Here) -> None:
    assert penstock("init", shop.file, "--admin-url", shop.administrator).code == 0
    outcome = penstock("destroy", shop.file, "--admin-url", shop.administrator)
    assert outcome.code == 0, outcome.err
    assert left(shop.administrator) == []


def test_what_a_superusers_init_made_is_listed(shop: Shop, penstock: Here, tmp_path: Path) -> None:
    """With the superuser's URL in the config: publication and schema are the superuser's, too."""
    assert penstock("init", write_config(tmp_path, shop.administrator, source={"url": shop.administrator})).code == 0
    source = {"url": shop.administrator.replace("postgres@", f"{shop.role}@")}
    outcome = penstock("destroy", write_config(tmp_path, "", source=source))
    assert outcome.code == 1
    assert "Removed replication slot shop_" in outcome.err
    assert 'DROP PUBLICATION "shop", ' in outcome.errors[0]
    with psycopg.connect(shop.administrator, autocommit=True) as connection:
        connection.execute(outcome.errors[0].partition(" run: ")[2].encode())
    assert [what for what in left(shop.administrator) if what.startswith(("publication", "slot"))] == []


def test_the_printed_statements_create_the_triggers(shop: Shop, penstock: Here) -> None:
    printed = penstock("init", shop.file, "--trigger-sql")
    assert printed.code == 0, printed.err
    with psycopg.connect(shop.administrator, autocommit=True) as connection:
        connection.execute(printed.out.encode())
    schema_log = [one for one in penstock.json("check", shop.file, "--json") if one["name"] == "schema log"]
    assert [one["ok"] for one in schema_log] == [True]
    assert penstock("destroy", shop.file, "--admin-url", shop.administrator).code == 0


def test_an_administrators_url_of_another_database_is_refused(shop: Shop, penstock: Here, target_database: str) -> None:
    outcome = penstock("init", shop.file, "--admin-url", target_database)
    assert outcome.code == 2
    assert "--admin-url leads to another database than source.url." in outcome.err
    assert penstock("destroy", shop.file).code == 0
