"""Small scripts that run a program otherwise than it is called, in the user's cache directory."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
from pathlib import Path


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
