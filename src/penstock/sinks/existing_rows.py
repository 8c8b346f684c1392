"""``existing_rows``: what an import does with rows that a table of the target had before, and that somebody else put there."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config.settings import Settings
from penstock.errors import SinkRefused

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
