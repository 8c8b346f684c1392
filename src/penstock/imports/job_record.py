"""An import job as it is recorded on the source; see ``jobs.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal, TypeAlias

from psycopg import sql

from penstock.imports.layout import TableLayout
from penstock.lsn import LSN
from penstock.postgres.connection import Connection
from penstock.postgres.membership import Membership

State: TypeAlias = Literal["pending", "copying", "catching_up", "streaming", "failed", "removed", "expired"]


@dataclass(frozen=True)
class Job:
    """A row of ``penstock.import_jobs``."""

    id: int
    pipeline: str
    sink: str
    table_oid: int
    schema_name: str
    table_name: str
    state: State
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
    found = dict(zip(_NAMES, row, strict=True))
    for name in ("from_lsn", "to_lsn"):
        found[name] = None if found[name] is None else LSN.parse(found[name])
    for name in ("published_xids", "from_xids"):
        found[name] = tuple(found[name])
    found["layout"] = None if found["layout"] is None else TableLayout.from_json(found["layout"])
    found["membership"] = None if found["membership"] is None else Membership.from_json(found["membership"])
    return Job(**found)
