"""Timelines: a server that was promoted, or recovered from an archive, goes on with a new one.

https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-TIMELINES
"""

from __future__ import annotations

from psycopg.conninfo import make_conninfo

from penstock.errors import SourceRefused
from penstock.lsn import LSN
from penstock.postgres.connection import Connection, connect, translated_errors


def timeline_end(connection: Connection, timeline: int | None, current: int | None) -> LSN | None:
    """Where the server, which is on timeline ``current``, left ``timeline``. None: it never was on that one or still is, or
    nobody can tell: the file that says so is gone, or one of the two is unknown."""
    if timeline is None or current is None or current <= timeline:
        return None
    url = make_conninfo(connection.info.dsn, password=connection.info.password or None, replication="database")
    try:
        with connect(url) as replication, translated_errors("Reading the timeline history"):
            row = replication.execute(f"TIMELINE_HISTORY {current:d}").fetchone()
    except SourceRefused:
        return None
    content = row[1] if row is not None else ""
    return parse_history(content.decode() if isinstance(content, bytes) else str(content)).get(timeline)


def parse_history(content: str) -> dict[int, LSN]:
    """By timeline, where it was left. A line is the timeline's number, that LSN and the reason; # begins a comment."""
    lines = (line.split() for line in content.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return {int(fields[0]): LSN.parse(fields[1]) for fields in lines}
