"""Who fills a table of a target: several pipelines may share one, and their sinks may have the same name."""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import SinkRefused


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
