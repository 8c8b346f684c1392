"""Who fills a table of a target: several pipelines may share one, and their sinks may have the same name.

``existing_rows``: what an import does with rows that a table of the target had before, and that somebody else put there.

Tables that rules put into one: what no sink can do with them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from penstock.changes.batch import Relation
from penstock.errors import SinkRefused
from penstock.settings.base import Settings


class Owner(NamedTuple):
    """The key of a sink's records in its target."""

    pipeline: str
    sink: str

    def __str__(self) -> str:
        return f'sink "{self.sink}" of pipeline "{self.pipeline}"'


def table_of_another(owner: Owner, other: Owner, table: str, release: str) -> SinkRefused:
    """``release``: the statement that makes the other one's table nobody's."""
    return SinkRefused(
        f'Sink {owner.sink}: table {table} of the target is filled by {other}; this is pipeline "{owner.pipeline}", and the '
        "rows of two in one table could not be told apart.",
        "Leave the table to one of them (source.tables), give it another name with a rule (rename), or give the sink a target "
        f"of its own. If the other one is gone, or was renamed, run in the target: {release}; then start again.",
    )


ExistingRows = Literal["refuse", "keep", "replace"]


class ExistingRowsSettings(Settings):
    existing_rows: ExistingRows = Field(
        default="refuse",
        description="Of a table that the sink did not make. refuse: an import does not begin. keep: they stay beside the "
        "source's, whose rows win by key. replace: they go.",
    )


_CHOICES = "Set `existing_rows: keep` on the sink (the source's rows are added, and win by key) or `replace`; or"


def rows_of_others(sink: str, table: str) -> SinkRefused:
    return SinkRefused(
        f"Sink {sink}: table {table} of the target has rows that did not come from the source, and the import of the source's "
        "would take their place.",
        f"{_CHOICES} empty, rename or drop the table; then start again.",
    )


def table_of_others(sink: str, table: str, is_view: bool) -> SinkRefused:
    """Of a target whose tables are replaced as a whole."""
    away = "move it away (ALTER TABLE … RENAME TO …) or drop it; then start again."
    return SinkRefused(
        f"Sink {sink}: the file has a table or view {table} that did not come from the source, and the import of the source's "
        "would take its place.",
        f"M{away[1:]}" if is_view else f"{_CHOICES} {away}",
    )


def needs_key(sink: str, table: str) -> SinkRefused:
    return SinkRefused(
        f"Sink {sink}: table {table} of the target has rows that did not come from the source. `existing_rows: keep` adds the "
        "source's beside them by key, and the table has none.",
        "Give the source's table a primary key, empty the target's table, or set `existing_rows: replace`; then start again.",
    )


def cannot_tell_apart(relation: Relation) -> SinkRefused:
    return SinkRefused(
        f"A table that goes into {relation.qualified_name} with others was imported again, and nothing tells its rows there "
        "from theirs.",
        f"Add rename.origin to the rule; then drop {relation.qualified_name}, and resync all tables that go there.",
    )
