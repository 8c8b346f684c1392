"""Files that are whole or not there, whatever happens to the machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa


def replace_durably(path: Path, chunks: Iterable[bytes | pa.Buffer]) -> None:
    """Writes a file, or replaces it, in one step that survives a power cut once this returns. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        # On a full disk, what was written so far takes the room that others need.
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """A new name is durable only when its directory is."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
