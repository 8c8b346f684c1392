"""The logical replication slot: its state, its making, its end.

https://www.postgresql.org/docs/current/view-pg-replication-slots.html

Timelines: a server that was promoted, or recovered from an archive, goes on with a new one.

https://www.postgresql.org/docs/current/continuous-archiving.html#BACKUP-TIMELINES
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from penstock.errors import NoFreeSlot, PenstockError, SlotBusy, SourceError, SourceRefused
from penstock.lsn import LSN, ZERO
from penstock.postgres.catalog import CURRENT_LSN
from penstock.postgres.connection import Connection, connect, translated_errors

Report = Callable[[str], None]

_FAILOVER_SINCE = 170000
_FIRST_WORD_AFTER = 2.0
_NEXT_WORD_AFTER = 15.0
_RELEASE_PATIENCE = 5.0


@dataclass(frozen=True)
class SlotState:
    """A row of pg_replication_slots; what a version does not have is None."""

    slot: str
    plugin: str
    database: str
    confirmed_flush_lsn: LSN
    restart_lsn: LSN | None
    active: bool
    active_pid: int | None
    wal_status: str | None  # reserved, extended, unreserved, lost
    invalidation_reason: str | None  # Postgres 17 and newer
    conflicting: bool  # on a standby, Postgres 16 and newer
    current_lsn: LSN

    @property
    def retained_bytes(self) -> int:
        """WAL that the server keeps for this slot."""
        return 0 if self.restart_lsn is None else max(0, self.current_lsn - self.restart_lsn)

    @property
    def lost_because(self) -> str | None:
        """Why nothing can be read from it any more; None while it is good."""
        if self.invalidation_reason is not None:
            return _INVALIDATIONS.get(self.invalidation_reason, self.invalidation_reason)
        if self.wal_status == "lost":
            return _INVALIDATIONS["wal_removed"]
        return _INVALIDATIONS["rows_removed"] if self.conflicting else None


_INVALIDATIONS = {
    "wal_removed": "the WAL that it needs was removed (max_slot_wal_keep_size)",
    "rows_removed": "catalog rows that it needs were removed (on a standby: switch hot_standby_feedback on)",
    "wal_level_insufficient": "the primary's wal_level went below logical",
    "idle_timeout": "nobody read it for idle_replication_slot_timeout",
}


def slot_state(connection: Connection, slot: str) -> SlotState | None:
    """None when there is no such slot."""
    # As JSON, since the view has other columns in every version.
    query = f"select to_jsonb(s), ({CURRENT_LSN})::text from pg_replication_slots s where slot_name = %s"
    with translated_errors(f"Looking at the slot {slot}"):
        row = connection.execute(query, [slot]).fetchone()
    if row is None:
        return None
    found: dict[str, Any] = row[0]
    restart = found["restart_lsn"]
    return SlotState(
        slot=slot, plugin=found["plugin"] or "", database=found["database"] or "",
        confirmed_flush_lsn=LSN.parse(found["confirmed_flush_lsn"] or str(ZERO)),
        restart_lsn=LSN.parse(restart) if restart else None,
        active=found["active"], active_pid=found["active_pid"], wal_status=found["wal_status"],
        invalidation_reason=found.get("invalidation_reason"), conflicting=bool(found.get("conflicting")),
        current_lsn=LSN.parse(row[1]),
    )  # fmt: skip


def require_logical_wal(connection: Connection) -> None:
    with translated_errors("Reading wal_level"):
        row = connection.execute("show wal_level").fetchone()
    if row != ("logical",):
        raise SourceRefused(
            f"The source runs with wal_level = {row[0] if row else '?'}; capturing changes needs logical.",
            WAL_LEVEL_REMEDY,
        )


WAL_LEVEL_REMEDY = "As an administrator run: ALTER SYSTEM SET wal_level = 'logical'; and then restart the server."


def create_slot(connection: Connection, slot: str, report: Report) -> LSN:
    """Makes the slot and returns its consistent point: everything that commits after it will be read from the slot.

    Postgres waits until every transaction that was running has ended; ``report`` hears of that, and of who they are.
    """
    in_recovery = _in_recovery(connection)
    failover = connection.info.server_version >= _FAILOVER_SINCE and not in_recovery
    query = "select lsn::text from pg_create_logical_replication_slot(%s, 'pgoutput', false, false"
    try:
        with translated_errors(f"Creating the replication slot {slot}"), _Watch(connection, slot, in_recovery, report):
            row = connection.execute(query + (", true)" if failover else ")"), [slot]).fetchone()
    except NoFreeSlot as error:
        raise NoFreeSlot(f"{error.message} There is no room for the slot {slot}.") from error
    except SourceRefused as error:
        if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
            raise SourceRefused(error.message, f"As an administrator run: {replication_grant(connection)}") from error
        raise
    assert row is not None
    return LSN.parse(row[0])


def drop_slot(connection: Connection, slot: str) -> bool:
    """False when there is no such slot. A reader that has just gone is given a moment to let go of it."""
    deadline = time.monotonic() + _RELEASE_PATIENCE
    while True:
        state = slot_state(connection, slot)
        if state is None:
            return False
        try:
            with translated_errors(f"Dropping the slot {slot}"):
                connection.execute("select pg_drop_replication_slot(%s)", [slot])
            return True
        except SlotBusy:
            if time.monotonic() >= deadline:
                raise SlotBusy(
                    f"The slot {slot} is being read by the server process {state.active_pid}; it was not dropped.",
                    "Stop the pipeline that reads it, then try again.",
                ) from None
            time.sleep(0.1)


def replication_grant(connection: Connection) -> str:
    (role,) = connection.execute("select current_user").fetchone() or ("",)
    return sql.SQL("ALTER ROLE {} REPLICATION;").format(sql.Identifier(role)).as_string(connection)


def _in_recovery(connection: Connection) -> bool:
    with translated_errors("Asking the source whether it is a standby"):
        row = connection.execute("select pg_is_in_recovery()").fetchone()
    return row == (True,)


class _Watch:
    """While the slot is being made: says who is being waited for, from a session of its own."""

    def __init__(self, connection: Connection, slot: str, in_recovery: bool, report: Report) -> None:
        self._url = make_conninfo(connection.info.dsn, password=connection.info.password or None)
        self._waiter = connection.info.backend_pid
        self._slot, self._in_recovery, self._report = slot, in_recovery, report
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {slot}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        pause = _FIRST_WORD_AFTER
        while not self._done.wait(pause):
            self._report(f"Creating the slot {self._slot} is waiting for {self._whom()}.")
            pause = _NEXT_WORD_AFTER

    def _whom(self) -> str:
        if self._in_recovery:
            return "the primary's next snapshot: on the primary run SELECT pg_log_standby_snapshot(); to hurry it"
        try:
            with connect(self._url) as session, translated_errors("Looking for running transactions"):
                rows = session.execute(_RUNNING, [self._waiter]).fetchall()
        except SourceError as error:
            return f"running transactions to end (which ones is unknown: {error})"
        except PenstockError:
            return "running transactions to end"
        return f"{len(rows)} running transactions to end (oldest: {', '.join(text for (text,) in rows[:3])})"


_RUNNING = """
select format('pid %%s of %%s since %%s', a.pid, a.usename, a.xact_start::timestamptz(0))
from pg_stat_activity a where a.backend_xid is not null and a.pid <> %s order by a.xact_start
"""


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
