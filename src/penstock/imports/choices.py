"""What ``tables add`` and ``tables remove`` said: it overrules the patterns of the config file, whichever came first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.config.tables import TableSelection
from penstock.postgres.connection import Connection, translated_errors

Choice = Literal["add", "remove"]


@dataclass(frozen=True)
class Choices:
    """By schema and table."""

    made: Mapping[tuple[str, str], Choice] = field(default_factory=dict)

    def selects(self, selection: TableSelection, schema: str, table: str) -> bool:
        choice = self.made.get((schema, table))
        return selection.selects(schema, table) if choice is None else choice == "add"


def choices(connection: Connection, pipeline: str) -> Choices:
    with translated_errors("Reading which tables were added and removed"):
        rows = connection.execute(
            "select schema_name, table_name, choice from penstock.table_choices where pipeline = %s", [pipeline]
        )
        return Choices({(schema, table): choice for schema, table, choice in rows})


def choose(connection: Connection, pipeline: str, schema: str, table: str, choice: Choice | None) -> None:
    """A later choice takes the place of an earlier one. None: the patterns decide again."""
    with translated_errors(f"Recording that {schema}.{table} was chosen"):
        if choice is None:
            connection.execute(
                "delete from penstock.table_choices where pipeline = %s and schema_name = %s and table_name = %s",
                [pipeline, schema, table],
            )
            return
        connection.execute(
            "insert into penstock.table_choices (pipeline, schema_name, table_name, choice) values (%s, %s, %s, %s) "
            "on conflict (pipeline, schema_name, table_name) do update set choice = excluded.choice",
            [pipeline, schema, table, choice],
        )
