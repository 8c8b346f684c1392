"""Setting a source back: copies of a server's data directory, and standbys that lack its end."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres


class ServerCopy:
    """What the data directory of a server holds now. The server is stopped meanwhile; its directory must outlive it."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self._server = server
        self._data, self._copy = server.directory / "data", server.directory / "copy"
        server.stop()
        _copy(self._data, self._copy)
        server.start()

    def restore(self, new_timeline: bool = False) -> None:
        """The server continues from the copy. ``new_timeline``: as after a recovery from an archive."""
        self._server.stop()
        subprocess.run(["rm", "-rf", str(self._data)], check=True)
        _copy(self._copy, self._data)
        if new_timeline:
            self._server.settings["restore_command"] = "false"
            _copy(self._data / "PG_VERSION", self._data / "recovery.signal")
        self._server.start()
        assert timeline(self._server) == (2 if new_timeline else 1)


def _copy(source: Path, target: Path) -> None:
    """With owners and modes: as root, the server runs as another user."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


def timeline(server: EmbeddedPostgres) -> int:
    """Of a primary, or of a server that is about to become one."""
    wait_until(lambda: server.execute("select not pg_is_in_recovery()") == [(True,)], what="the end of recovery")
    ((file,),) = server.execute("select pg_walfile_name(pg_current_wal_insert_lsn())")
    return int(str(file)[:8], 16)


class Standby:
    """A running standby with a slot of the same name as one on its primary, which must be read meanwhile."""

    def __init__(self, primary: EmbeddedPostgres, directory: Path, slot: str, dbname: str) -> None:
        self._primary, self._slot, self._dbname = primary, slot, dbname
        synchronises = primary.version >= 17
        if synchronises:
            primary.execute("select pg_create_physical_replication_slot('standby', true)")
        settings = {"hot_standby_feedback": "on"} | ({"primary_slot_name": "standby"} if synchronises else {})
        self.server = primary.standby(directory, settings)
        self.server.start()
        self._synchronise() if synchronises else self._make_slot()

    def _synchronise(self) -> None:
        """As Postgres 17 and newer do by themselves every now and then."""
        with (self.server.directory / "data" / "postgresql.auto.conf").open("a") as configuration:
            configuration.write(f"primary_conninfo = '{self._primary.url_of(self._dbname)}'\n")
        self.server.execute("select pg_reload_conf()")

        def synchronised() -> bool:
            self._primary.execute("select pg_log_standby_snapshot()")
            self.wait_for_replay()
            self.server.execute("select pg_sync_replication_slots()")
            query = "select not temporary from pg_replication_slots where slot_name = %s"
            return self.server.execute(query, [self._slot]) == [(True,)]

        wait_until(synchronised, what="the slot to be on the standby")

    def _make_slot(self) -> None:
        query = "select pg_create_logical_replication_slot(%s, 'pgoutput')"
        with snapshots_logged(self._primary):
            self.server.execute(query, [self._slot], self._dbname)

    def wait_for_replay(self) -> None:
        ((end,),) = self._primary.execute("select pg_current_wal_flush_lsn()::text")
        query = "select pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: self.server.execute(query, [end]) == [(True,)], what="the standby to have it all")

    def receive_no_more(self) -> None:
        self.wait_for_replay()
        self.server.execute("alter system set primary_conninfo = ''")
        self.server.execute("select pg_reload_conf()")
        wait_until(lambda: not self.server.execute("select 1 from pg_stat_wal_receiver"), what="it to be cut off")

    def promote(self) -> EmbeddedPostgres:
        self.server.execute("select pg_promote()")
        assert timeline(self.server) == 2
        return self.server


@contextmanager
def snapshots_logged(primary: EmbeddedPostgres) -> Iterator[None]:
    """While a slot is made on a standby, which waits for one."""
    done = threading.Event()

    def log() -> None:
        while not done.wait(0.1):
            primary.execute("select pg_log_standby_snapshot()")

    thread = threading.Thread(target=log)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
