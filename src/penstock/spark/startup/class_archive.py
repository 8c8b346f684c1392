"""An archive of the classes that Spark loads: a JVM maps it instead of reading, checking and linking them one by one.

That is half of what a start costs. Each Java and each PySpark has an archive of its own, which ``class_training`` makes; a JVM
that does not fit to it starts without.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from penstock.spark.startup.java import cache_directory

_JARS = Path(pyspark.__file__).parent / "jars"


def archive_path(home: str) -> Path:
    """Where the archive for this Java and this PySpark is, or would be. Java takes none of jars that were written anew."""
    launcher = (Path(home) / "bin" / "java").read_bytes()  # names the Java that it runs
    jars = sorted((jar.name, (found := jar.stat()).st_size, found.st_mtime_ns) for jar in _JARS.glob("*.jar"))
    return cache_directory() / f"spark-classes-{_digest(launcher, str(_JARS))}-{_digest(jars)}.jsa"


def outdated_archives(path: Path) -> list[Path]:
    """Those of the same Java and the same place as this one, of a PySpark that was there before."""
    return [other for other in path.parent.glob(f"{path.stem.rpartition('-')[0]}-*.jsa") if other != path]


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def archive_options(home: str) -> str:
    """For the JVM that starts. It says nothing of an archive that does not fit, say after an update of Java."""
    path = archive_path(home)
    return f'"-XX:SharedArchiveFile={path}" -Xshare:auto -Xlog:disable' if path.exists() else "-Xshare:auto"
