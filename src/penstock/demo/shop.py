"""The demo's source: a small shop, filled and kept busy by plain SQL.

Everything that makes replication hard is in it somewhere: a table without a key, an enum, json, a text that Postgres
stores out of line (and leaves out of updates that do not touch it), changing keys, and a column that comes later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.postgres.connection import Connection

SCHEMA = """
CREATE TYPE order_status AS ENUM ('new', 'paid', 'shipped', 'returned');

CREATE TABLE customers (
    id bigint PRIMARY KEY, name text NOT NULL, email text, born date, active boolean NOT NULL, profile jsonb
);
CREATE TABLE products (
    sku text PRIMARY KEY, title text NOT NULL, price numeric(10,2) NOT NULL, stock integer NOT NULL, description text
);
CREATE TABLE orders (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, customer_id bigint NOT NULL REFERENCES customers,
    status order_status NOT NULL, placed_at timestamptz NOT NULL, reference uuid NOT NULL, note text
);
CREATE TABLE order_items (
    order_id bigint REFERENCES orders, line smallint, sku text NOT NULL, quantity integer NOT NULL,
    price numeric(10,2) NOT NULL, discount double precision, PRIMARY KEY (order_id, line)
);
CREATE TABLE events (at timestamptz NOT NULL, kind text NOT NULL, customer_id bigint, details jsonb);
ALTER TABLE events REPLICA IDENTITY FULL;
"""

CUSTOMERS, PRODUCTS, ORDERS, ITEMS_PER_ORDER, EVENTS = 20_000, 500, 22_000, 2, 14_000

_POPULAR = f"'sku-' || 1 + ({PRODUCTS} * random() ^ 3)::int % {PRODUCTS}"  # some products sell better than others

# Each is a transaction of its own, for rows {first} to {last}.
_LOADS = {
    CUSTOMERS: """
        INSERT INTO customers SELECT n, 'Customer ' || n, nullif('c' || n || '@example.com', 'c13@example.com'),
            date '1950-01-01' + n %% 20000, n %% 7 <> 0, jsonb_build_object('level', n %% 5, 'city', 'Ålesund')
        FROM generate_series(%s::int, %s::int) n
    """,
    PRODUCTS: """
        INSERT INTO products SELECT 'sku-' || n, 'Product ' || n, (n * 37 %% 20000) / 100.0, n %% 300,
            (SELECT string_agg(md5(n || '-' || part), ' ') FROM generate_series(1, 100) part)
        FROM generate_series(%s::int, %s::int) n
    """,
    ORDERS: f"""
        WITH placed AS (
            INSERT INTO orders (customer_id, status, placed_at, reference, note)
            SELECT 1 + n %% {CUSTOMERS}, (enum_range(NULL::order_status))[1 + n %% 4],
                timestamptz '2026-01-01' + n * interval '7 minutes', gen_random_uuid(),
                CASE n %% 3 WHEN 0 THEN '' WHEN 1 THEN E'two\\nlines, "quoted"' END
            FROM generate_series(%s::int, %s::int) n RETURNING id
        )
        INSERT INTO order_items SELECT id, line, {_POPULAR.replace("%", "%%")}, line, 9.99 * line, random()
        FROM placed, generate_series(1, {ITEMS_PER_ORDER}) line
    """,
    EVENTS: f"""
        INSERT INTO events SELECT timestamptz '2026-01-01' + (n / 3) * interval '1 minute', 'visit',
            1 + n / 3 %% {CUSTOMERS}, '{{"page": "/"}}'
        FROM generate_series(%s::int, %s::int) n
    """,
}
_ROWS_PER_TRANSACTION = 2_000


def load(connection: Connection) -> Iterator[int]:
    """Fills the shop; after each transaction, how many rows it brought."""
    for total, statement in _LOADS.items():
        rows_each = 1 + ITEMS_PER_ORDER if total == ORDERS else 1
        for first in range(1, total + 1, _ROWS_PER_TRANSACTION):
            last = min(first + _ROWS_PER_TRANSACTION - 1, total)
            with connection.transaction():
                connection.execute(statement, [first, last])
            yield (last - first + 1) * rows_each


_SOME_CUSTOMERS = f"ANY (ARRAY(SELECT (1 + random() * {CUSTOMERS - 1})::bigint FROM generate_series(1, %s)))"
_SOME_PRODUCTS = f"ANY (ARRAY(SELECT 'sku-' || (1 + random() * {PRODUCTS - 1})::int FROM generate_series(1, %s)))"
_OLDEST_ORDERS = "(SELECT id FROM orders ORDER BY id LIMIT 20)"
_SOME_EVENTS = "ANY (ARRAY(SELECT ctid FROM events LIMIT %s))"

_TRANSACTION = (
    f"""
        INSERT INTO orders (customer_id, status, placed_at, reference)
        SELECT (1 + random() * {CUSTOMERS - 1})::bigint, 'new', clock_timestamp(), gen_random_uuid()
        FROM generate_series(1, 60)
    """,
    f"""
        INSERT INTO order_items SELECT id, line, {_POPULAR}, line, 19.95, random()
        FROM (SELECT id FROM orders ORDER BY id DESC LIMIT 60), generate_series(1, 2) line
    """,
    "UPDATE orders SET status = 'shipped', note = 'on its way' WHERE id IN "
    "(SELECT id FROM orders ORDER BY id DESC LIMIT 30)",
    f"DELETE FROM order_items WHERE order_id IN {_OLDEST_ORDERS}",
    f"DELETE FROM orders WHERE id IN {_OLDEST_ORDERS}",
    f"UPDATE products SET stock = stock - 1 WHERE sku = {_SOME_PRODUCTS.replace('%s', '40')}",
    f"UPDATE products SET sku = sku || '-new' WHERE sku = {_SOME_PRODUCTS.replace('%s', '1')}",
    "INSERT INTO events SELECT now(), 'order', n, '{}' FROM generate_series(1, 60) n",
    f"UPDATE events SET kind = 'seen' WHERE ctid = {_SOME_EVENTS.replace('%s', '10')}",
    f"DELETE FROM events WHERE ctid = {_SOME_EVENTS.replace('%s', '10')}",
)
_CUSTOMERS_BEFORE = f"UPDATE customers SET active = NOT active WHERE id = {_SOME_CUSTOMERS.replace('%s', '50')}"
_CUSTOMERS_AFTER = (
    f"UPDATE customers SET loyalty_points = (random() * 1000)::int WHERE id = {_SOME_CUSTOMERS.replace('%s', '50')}"
)
NEW_COLUMN = "ALTER TABLE customers ADD COLUMN loyalty_points integer"


@dataclass
class Traffic:
    """A few hundred changes per transaction: inserts, updates, deletes."""

    connection: Connection
    has_new_column: bool = False

    def transact(self) -> int:
        """One transaction; how many rows it changed."""
        statements = (*_TRANSACTION, _CUSTOMERS_AFTER if self.has_new_column else _CUSTOMERS_BEFORE)
        with self.connection.transaction():
            return sum(self.connection.execute(statement).rowcount for statement in statements)

    def add_column(self) -> None:
        self.connection.execute(NEW_COLUMN)
        self.has_new_column = True
