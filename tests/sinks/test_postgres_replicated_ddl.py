"""``replicate_ddl``: which kinds of things the Postgres sink makes and follows in its target, and commands carried as text."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.config.load import parse_config
from penstock.errors import ConfigError
from penstock.schema.log.row import LoggedCommand
from penstock.sinks.postgres.carried_ddl import ALWAYS, CARRIED, GROUPS, PARTS, ReplicateDdl
from tests.sinks.test_postgres_schema import Followed

PAGE = Path(__file__).parents[2] / "docs" / "sinks" / "postgres.md"
CATALOG = {
    "index": "SELECT indexrelid::regclass::text FROM pg_index i WHERE indrelid = 'public.orders'::regclass AND NOT EXISTS "
    "(SELECT FROM pg_constraint WHERE conindid = indexrelid)",
    "unique": "SELECT conname::text FROM pg_constraint WHERE conrelid = 'public.orders'::regclass AND contype = 'u'",
    "check": "SELECT conname::text FROM pg_constraint WHERE conrelid = 'public.orders'::regclass AND contype = 'c'",
    "foreign_key": "SELECT conname::text FROM pg_constraint WHERE conrelid = 'public.orders'::regclass AND contype = 'f'",
    "not_null": "SELECT attname::text FROM pg_attribute WHERE attrelid = 'public.orders'::regclass AND attnotnull "
    "AND attnum > 0 AND attname <> 'id'",
    "default": "SELECT attname::text FROM pg_attribute WHERE attrelid = 'public.orders'::regclass AND atthasdef",
    "comment": "SELECT description FROM pg_description WHERE objoid = 'public.orders'::regclass",
}  # of what the target has
ALTERED = """
CREATE INDEX by_note ON orders (note);
ALTER TABLE orders ADD CONSTRAINT one_note UNIQUE (note);
ALTER TABLE orders ADD CONSTRAINT positive CHECK (amount > 0);
ALTER TABLE orders ADD CONSTRAINT person FOREIGN KEY (id) REFERENCES people (id);
ALTER TABLE orders ALTER COLUMN note SET NOT NULL;
ALTER TABLE orders ALTER COLUMN amount SET DEFAULT 3;
COMMENT ON TABLE orders IS 'what was ordered'
"""


class Chosen(Followed):
    def on_target(self, statement: str) -> None:
        with psycopg.connect(self.target) as connection:
            connection.execute(statement.encode())

    def alter_in(self, search_path: str, statement: str) -> tuple[LoggedCommand, ...]:
        with psycopg.connect(self.source, options=f"-c search_path={search_path}") as connection:
            connection.execute(statement.encode())
        return self.alter("SELECT")


Make = Callable[..., Chosen]


@pytest.fixture
def follow(database: str, target_database: str, tmp_path: Path) -> Iterator[Make]:
    made: list[Chosen] = []

    def make(**replicate_ddl: list[str]) -> Chosen:
        made.append(Chosen(database, target_database, tmp_path, replicate_ddl=replicate_ddl))
        return made[-1]

    yield make
    for one in made:
        one.sink.close()


def there(followed: Chosen) -> set[str]:
    """The kinds of which the target's orders has anything beyond what it was made with."""
    made_with = {"default": {"how"}}
    found = {kind: {name for (name,) in followed.query(query)} for kind, query in CATALOG.items()}
    return {kind for kind, names in found.items() if names - made_with.get(kind, set())}


@pytest.mark.parametrize("kind", PARTS)
def test_a_kind_that_is_excluded_does_not_follow_and_all_others_do(kind: str, follow: Make) -> None:
    followed = follow(exclude=[kind])
    followed.follow(ALTERED)
    assert there(followed) == {*PARTS} - {kind}


def test_kinds_of_tables_that_are_included_are_the_only_ones(follow: Make) -> None:
    followed = follow(include=["index", "constraint"], exclude=["foreign_key"])
    followed.follow(ALTERED)
    assert there(followed) == {"index", "unique", "check"}


def test_what_is_excluded_is_not_made_with_a_table_either(follow: Make) -> None:
    followed = follow(exclude=["constraint", "index", "default", "comment"])
    commands = followed.alter(
        "CREATE TABLE made (id int PRIMARY KEY, a int DEFAULT 7 CHECK (a > 1), b text UNIQUE NOT NULL); "
        "CREATE INDEX ON made (a); COMMENT ON COLUMN made.a IS 'a'; INSERT INTO made VALUES (1, 2, 'b')"
    )
    followed.deliver(followed.rows_of("made"), commands=commands)
    constraints = followed.query(
        "SELECT contype FROM pg_constraint WHERE conrelid = 'made'::regclass AND contype <> 'n'"
    )
    assert constraints == [("p",)]
    columns = followed.query(
        "SELECT attname::text, attnotnull, atthasdef, col_description(attrelid, attnum) FROM pg_attribute "
        "WHERE attrelid = 'made'::regclass AND attnum > 0 ORDER BY attnum"
    )
    assert columns == [("id", True, False, None), ("a", False, False, None), ("b", True, False, None)]
    assert followed.query("SELECT count(*) FROM pg_index WHERE indrelid = 'made'::regclass") == [(1,)]


def test_rows_get_the_value_of_a_new_columns_default_that_is_not_kept(follow: Make) -> None:
    followed = follow(exclude=["default"])
    followed.follow("ALTER TABLE orders ADD COLUMN extra int NOT NULL DEFAULT 7")
    assert followed.query("SELECT DISTINCT extra FROM orders") == [(7,)]
    assert followed.query("SELECT count(*) FROM pg_attrdef WHERE adrelid = 'public.orders'::regclass") == [(0,)]


def test_an_index_of_the_targets_own_stays_when_the_source_drops_its_own(follow: Make) -> None:
    followed = follow(exclude=["index"])
    followed.follow("CREATE INDEX by_note ON orders (note)")
    followed.on_target("CREATE INDEX by_note ON orders (amount, note)")
    followed.follow("ALTER INDEX by_note RENAME TO by_words; DROP INDEX by_words")
    assert followed.query("SELECT indexdef FROM pg_indexes WHERE indexname = 'by_note'")


CARRIED_COMMANDS = {
    "view": ("CREATE VIEW large AS SELECT id FROM orders WHERE amount > 15", "SELECT id FROM large", [(2,)]),
    "materialized_view": (
        "CREATE MATERIALIZED VIEW sums AS SELECT sum(amount) AS s FROM orders", "SELECT s::int FROM sums", [(30,)],
    ),
    "function": (
        "CREATE OR REPLACE FUNCTION twice(int) RETURNS int LANGUAGE sql AS 'select $1 * 2'", "SELECT twice(4)", [(8,)],
    ),
    "trigger": (
        "CREATE TRIGGER same BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "SELECT tgname::text FROM pg_trigger WHERE NOT tgisinternal", [("same",)],
    ),
    "rule": (
        "CREATE RULE never AS ON DELETE TO people DO INSTEAD NOTHING", "SELECT rulename::text FROM pg_rules "
        "WHERE schemaname = 'public'", [("never",)],
    ),
    "policy": (
        "CREATE POLICY own ON orders USING (id > 0)", "SELECT policyname::text FROM pg_policies", [("own",)],
    ),
    "grant": (
        "GRANT SELECT (note) ON orders TO PUBLIC", "SELECT attname::text FROM pg_attribute WHERE attacl IS NOT NULL AND "
        "attrelid = 'public.orders'::regclass", [("note",)],
    ),
}  # fmt: skip


NUMBER_OF_CARRIED = """
SELECT (SELECT count(*) FROM pg_views WHERE schemaname = 'public') + (SELECT count(*) FROM pg_matviews)
    + (SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace) + (SELECT count(*) FROM pg_policies)
    + (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal) + (SELECT count(*) FROM pg_rules WHERE schemaname = 'public')
    + (SELECT count(*) FROM pg_attribute WHERE attacl IS NOT NULL AND attrelid = 'public.orders'::regclass)
"""


@pytest.mark.parametrize("kind", CARRIED)
def test_a_command_that_is_carried_is_run_in_the_target_and_others_are_not(
    kind: str, follow: Make, caplog: pytest.LogCaptureFixture
) -> None:
    followed = follow(include=[kind])
    with caplog.at_level(logging.WARNING):
        for command, _, _ in CARRIED_COMMANDS.values():
            followed.follow(command)
    assert caplog.messages == []
    _, query, expected = CARRIED_COMMANDS[kind]
    assert followed.query(query) == expected
    assert followed.query(NUMBER_OF_CARRIED) == [(1,)]
    assert there(followed) == set()


def test_what_belongs_to_tables_follows_beside_what_is_carried(follow: Make) -> None:
    followed = follow(include=["view"])
    followed.follow(ALTERED)
    assert there(followed) == {*PARTS}


def test_a_carried_command_is_read_with_the_search_path_that_it_was_run_with(follow: Make) -> None:
    followed = follow(include=["view"])
    followed.follow("CREATE SCHEMA reports")
    followed.on_target("CREATE SCHEMA reports")
    commands = followed.alter_in(
        "reports,public", "-- by the month\n /* once */ CREATE VIEW large AS SELECT id FROM orders"
    )
    followed.deliver(commands=commands)
    assert followed.query("SELECT count(*) FROM reports.large") == [(2,)]
    followed.alter("INSERT INTO orders VALUES (3, 'c', 5)")
    followed.deliver(followed.rows_of("orders", "id = 3"))
    assert followed.query("SELECT count(*) FROM reports.large") == [(3,)]


def test_a_carried_drop_follows(follow: Make) -> None:
    followed = follow(include=["view"])
    followed.follow("CREATE VIEW large AS SELECT id FROM orders")
    followed.follow("DROP VIEW large")
    assert followed.query("SELECT to_regclass('large')") == [(None,)]


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("INSERT INTO people VALUES (9, 'z'); CREATE VIEW v AS SELECT 1 AS a", "in one string"),
        ("CREATE VIEW v AS SELECT 1 AS a; INSERT INTO people VALUES (9, 'z')", "in one string"),
        ("DO $$ BEGIN CREATE VIEW v AS SELECT 1 AS a; INSERT INTO people VALUES (9, 'z'); END $$", "in one string"),
        ("CREATE VIEW v AS SELECT id FROM only_here", 'relation "only_here" does not exist'),
    ],
)  # fmt: skip
def test_a_command_that_does_not_work_in_the_target_is_a_warning_and_everything_else_goes_on(
    statement: str, why: str, follow: Make, caplog: pytest.LogCaptureFixture
) -> None:
    followed = follow(include=["view"])
    followed.alter("CREATE TABLE only_here (id int); INSERT INTO orders VALUES (3, 'c', 5)")
    with caplog.at_level(logging.WARNING):
        followed.deliver(followed.rows_of("orders", "id = 3"), commands=followed.alter(statement))
    (said,) = caplog.messages
    assert said.startswith("Sink replica: CREATE VIEW of the source (view public.v) is not in the target: ")
    assert why in said
    assert followed.query("SELECT count(*) FROM orders") == [(3,)]
    assert followed.query("SELECT to_regclass('v'), (SELECT count(*) FROM people)") == [(None, 2)]


CONFIG = """
name: shop
source: {{url: "postgresql://one/shop"}}
sinks:
  - {{name: replica, type: postgres, url: "postgresql://other/shop", replicate_ddl: {0}}}
"""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("{exclude: [indexes]}", 'sinks[0].replicate_ddl.exclude: unknown kind "indexes"; did you mean "index"?'),
        ("{include: [views, index]}", 'unknown kind "views"; did you mean "view"?'),
        ("{exclude: [column]}", '"column" always follows, since rows need it; schema_changes: ignore follows nothing'),
        ("{excluded: [index]}", 'unknown key "excluded"; did you mean "exclude"?'),
    ],
)  # fmt: skip
def test_a_kind_that_is_not_known_or_cannot_be_left_out_is_a_mistake_in_the_config(given: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(CONFIG.format(given), {})
    assert said in str(refused.value)


def test_the_page_names_every_kind() -> None:
    text = PAGE.read_text("utf-8")
    assert [kind for kind in (*PARTS, *GROUPS, *CARRIED, *ALWAYS) if f"`{kind}`" not in text] == []


def test_the_default_is_all_that_belongs_to_tables_and_nothing_that_is_carried() -> None:
    assert ReplicateDdl().wanted == {*PARTS}
    assert ReplicateDdl(include=("table",)).wanted == set()
