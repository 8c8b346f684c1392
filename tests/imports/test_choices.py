from __future__ import annotations

from penstock.imports.manager import Choices, choices, choose
from penstock.postgres.connection import Connection
from penstock.settings.tables import TableSelection
from penstock.subscription import migrations

PATTERNS = TableSelection(include=("public.*",), exclude=("public.audit",))


def test_a_choice_wins_over_the_patterns(connection: Connection) -> None:
    migrations.migrate(connection)
    choose(connection, "shop", "public", "audit", "add")
    choose(connection, "shop", "public", "orders", "remove")
    chosen = choices(connection, "shop")
    assert chosen.selects(PATTERNS, "public", "audit")
    assert not chosen.selects(PATTERNS, "public", "orders")
    assert chosen.selects(PATTERNS, "public", "users")
    assert not chosen.selects(PATTERNS, "sales", "users")


def test_the_last_choice_counts_and_each_pipeline_has_its_own(connection: Connection) -> None:
    migrations.migrate(connection)
    choose(connection, "shop", "public", 'odd "name"', "add")
    choose(connection, "other", "public", 'odd "name"', "add")
    choose(connection, "shop", "public", 'odd "name"', "remove")
    assert choices(connection, "shop") == Choices({("public", 'odd "name"'): "remove"})
    assert choices(connection, "other") == Choices({("public", 'odd "name"'): "add"})
    assert choices(connection, "nobody") == Choices()
