"""The archive of Spark's classes: a session uses the one that fits, and starts as well without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.startup.class_archive import archive_path, outdated_archives
from penstock.spark.startup.java import java_home

pytestmark = pytest.mark.spark

# Prints the files that the JVM of a session has mapped.
SESSION = """
from pathlib import Path
from penstock.config.model import SparkSettings
from penstock.spark.session import close_session, open_session

session = open_session(SparkSettings(master="local[1]"))
assert session.range(3).count() == 3
jvm = session._jvm.java.lang.ProcessHandle.current().pid()
print(Path(f"/proc/{jvm}/maps").read_text())
close_session(session)
"""


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=400, env={**os.environ, **environment}
    )


def test_a_machine_is_prepared_once_and_sessions_map_the_archive() -> None:
    prepared = run("-m", "penstock", "prepare")  # made by the first of all that ever asked
    assert prepared.returncode == 0, prepared.stderr
    archive = archive_path(java_home())
    assert archive.exists()
    assert not list(archive.parent.glob(".making-*"))
    again = run("-m", "penstock", "prepare")
    assert (again.returncode, again.stdout) == (0, f"{archive} is there already. To have it made anew, remove it.\n")
    session = run("-c", SESSION)
    assert session.returncode == 0, session.stderr
    assert str(archive) in session.stdout
    assert session.stderr == ""


def test_an_archive_that_does_not_fit_is_passed_over_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    archive = archive_path(java_home())
    archive.write_bytes(b"of another Java" * 1000)
    session = run("-c", SESSION)
    assert session.returncode == 0, session.stderr
    assert session.stderr == ""


def test_a_cache_that_cannot_be_written_is_said_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    prepared = run("-m", "penstock", "prepare", XDG_CACHE_HOME=str(tmp_path / "file"))
    assert prepared.returncode == 1
    assert "cannot be written: Not a directory. Set XDG_CACHE_HOME" in prepared.stderr
    assert "Traceback" not in prepared.stderr


def test_jars_that_were_written_anew_take_an_archive_of_their_own_and_the_one_before_is_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("penstock.spark.startup.class_archive._JARS", tmp_path / "jars")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark.jar").touch()
    home = java_home()
    before = archive_path(home)
    os.utime(tmp_path / "jars" / "spark.jar", (1, 1))
    after = archive_path(home)
    assert after != before
    for path in (before, after, after.with_name("spark-classes-of-another-java.jsa")):
        path.touch()
    assert outdated_archives(after) == [before]


def test_each_java_has_an_archive_of_its_own(tmp_path: Path) -> None:
    paths = set()
    for name in ("one", "other"):
        launcher = tmp_path / name / "bin" / "java"
        launcher.parent.mkdir(parents=True)
        launcher.write_text(f"exec /opt/{name}/bin/java")
        paths.add(archive_path(str(tmp_path / name)))
    assert len(paths) == 2
