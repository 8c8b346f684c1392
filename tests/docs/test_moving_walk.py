"""docs/moving.md, as written: a database moves while it is written to."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psycopg
import pytest

from penstock.testing.conditions import wait_until
from tests.docs.pages import ROOT, blocks
from tests.docs.test_walk import Walk, told_to_type

PAGE = ROOT / "docs" / "moving.md"
SHOP = """
CREATE TABLE customers (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, email text UNIQUE NOT NULL);
CREATE TABLE orders (
    id serial PRIMARY KEY, customer bigint NOT NULL REFERENCES customers, total numeric(10,2) CHECK (total >= 0)
);
CREATE INDEX ON orders (customer);
INSERT INTO customers (email) SELECT n || '@example.com' FROM generate_series(1, 500) n;
INSERT INTO orders (customer, total) SELECT 1 + n % 500, n FROM generate_series(1, 2000) n;
"""
WORK = """
UPDATE customers SET email = 'moved-' || email WHERE id % 7 = 0;
INSERT INTO orders (customer, total) SELECT id, 5 FROM customers WHERE id <= 100;
DELETE FROM orders WHERE id % 11 = 0;
"""


@pytest.mark.spark
def test_a_database_moves_as_the_page_says(database: str, target_database: str, tmp_path: Path) -> None:
    walk = Walk(tmp_path, database, {"REPLICA_URL": target_database})
    (tmp_path / "move.yaml").write_text(blocks("yaml", PAGE)[0].text)
    with psycopg.connect(database) as connection:
        connection.execute(SHOP)
        connection.execute("CREATE ROLE shop_app LOGIN")
    check, init, run, status, verify, run_once, verify_again, destroy = told_to_type(PAGE)
    for line in (check, init):
        done = walk.type(line)
        assert done.returncode == 0, done.stdout + done.stderr
    running = walk.start(run)
    try:
        wait_until(lambda: _all_streaming(walk, status), timeout=180, what="all tables to stream")
        with psycopg.connect(database) as connection:
            connection.execute(WORK)
        verified = walk.type(verify)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        with psycopg.connect(database) as connection:
            connection.execute(WORK)
            connection.execute(blocks("sql", PAGE)[0].text)
    finally:
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=120)
    assert running.returncode == 0
    for line in (run_once, verify_again, destroy):
        done = walk.type(line)
        assert done.returncode == 0, done.stdout + done.stderr
    with psycopg.connect(database) as source, psycopg.connect(target_database) as target:
        for table in ("customers", "orders"):
            rows = f"SELECT * FROM {table} ORDER BY id"
            assert target.execute(rows).fetchall() == source.execute(rows).fetchall()
        for sequence in ("customers_id_seq", "orders_id_seq"):
            value = f"SELECT nextval('{sequence}')"
            assert target.execute(value).fetchone() == source.execute(value).fetchone()
        source.execute("DROP ROLE shop_app")


def _all_streaming(walk: Walk, status: str) -> bool:
    shown = walk.type(f"{status} --json")
    tables = json.loads(shown.stdout)["tables"] if shown.stdout else []
    return len(tables) == 2 and all(table["state"] == "streaming" for table in tables)
