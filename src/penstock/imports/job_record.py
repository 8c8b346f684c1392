"""An import job as it is recorded on the source; see ``jobs.py``.

Who works on imports. A copier is alive as long as its connection holds the advisory lock of its number.

So nobody needs to say that it is alive, and the claims of a killed one are free as soon as the server notices.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from psycopg import sql

from penstock.lsn import LSN
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.reading.layout import TableLayout
from penstock.state.lifecycle import TableState
from penstock.subscription.membership import Membership


@dataclass(frozen=True)
class Job:
    """A row of ``penstock.import_jobs``."""

    id: int
    pipeline: str
    sink: str
    table_oid: int
    schema_name: str
    table_name: str
    state: TableState
    again: bool  # the sink has rows of this table from an earlier import
    membership: Membership | None  # how the table was published when the job was made; None: not known
    published_xids: tuple[int, ...]  # transactions that were running when the job was made
    from_lsn: LSN | None
    from_xids: tuple[int, ...]  # transactions that were running when ``from_lsn`` was taken
    to_lsn: LSN | None
    layout: TableLayout | None  # what the chunks were planned for
    snapshot: str | None
    copier: int | None
    attempts: int
    error: str | None
    next_try_at: datetime | None
    rows_estimated: int | None
    bytes_estimated: int | None
    chunks: int
    chunks_done: int  # staged or done
    rows_copied: int
    bytes_copied: int
    created_at: datetime
    started_at: datetime | None
    updated_at: datetime
    completed_at: datetime | None

    @property
    def qualified_name(self) -> str:
        return f"{self.schema_name}.{self.table_name}"


def read_jobs(connection: Connection, condition: str, parameters: Sequence[Any]) -> list[Job]:
    """Those that meet the condition, oldest first."""
    query = sql.SQL("select {} from penstock.import_jobs as j where " + condition + " order by id").format(_COLUMNS)
    return [_job(row) for row in connection.execute(query, parameters)]


_NAMES = [field.name for field in fields(Job)]
# psycopg knows no pg_lsn.
_EXPRESSIONS = {"layout": "relation", "from_lsn": "from_lsn::text", "to_lsn": "to_lsn::text"}
_COLUMNS = sql.SQL(", ").join(sql.SQL(_EXPRESSIONS.get(name, name)) for name in _NAMES)


def _job(row: Sequence[Any]) -> Job:
    values = dict(zip(_NAMES, row, strict=True))
    values["state"] = TableState(values["state"])
    for name in ("from_lsn", "to_lsn"):
        values[name] = None if values[name] is None else LSN.parse(values[name])
    for name in ("published_xids", "from_xids"):
        values[name] = tuple(values[name])
    values["layout"] = None if values["layout"] is None else TableLayout.from_json(values["layout"])
    values["membership"] = None if values["membership"] is None else Membership.from_json(values["membership"])
    return Job(**values)


_LOCK_CLASS = 0x50454E53

# Numbers of copiers that are alive in this database.
LIVING = f"""(
    select l.objid::bigint from pg_locks l
    where l.locktype = 'advisory' and l.classid = {_LOCK_CLASS} and l.objsubid = 2 and l.granted
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
)"""


def register_copier(connection: Connection) -> int:
    """A fresh number, which is taken until this connection ends."""
    with translated_errors("Registering as a copier"):
        while True:
            copier = secrets.randbelow(2**31 - 1) + 1
            if connection.execute("select pg_try_advisory_lock(%s, %s)", [_LOCK_CLASS, copier]).fetchone() == (True,):
                return copier


def release(connection: Connection, copier: int) -> None:
    """Gives back everything that the copier has claimed, and its number if this connection holds it."""
    with translated_errors("Giving back imports"), connection.transaction():
        connection.execute("select from penstock.import_jobs where copier = %s order by id for update", [copier])
        connection.execute("update penstock.import_jobs set copier = null where copier = %s", [copier])
        connection.execute(
            "update penstock.import_chunks set state = 'todo', copier = null, claim = null "
            "where state = 'copying' and copier = %s",
            [copier],
        )
        connection.execute(
            "select pg_advisory_unlock(%s, %s) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() "
            "and classid = %s and objid = %s and objsubid = 2",
            [_LOCK_CLASS, copier, _LOCK_CLASS, copier],
        )
