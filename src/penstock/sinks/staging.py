"""Arrow data that an executor hands to the driver, without going through the JVM.

Small tables travel inside the receipt. Larger ones are Arrow IPC files below the batch's staging URI; every attempt
writes a file of its own, so two attempts of one task never meet, and a file appears under its name only when it is
whole; on a local disk it is for its owner alone. Nothing is fsynced: what the end of a machine leaves half written belongs
to a batch that was not committed, and that is made again; or to an import, which begins anew.

Files that are whole or not there, whatever happens to the machine.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from penstock.errors import LogCorrupt, SinkError, SinkRefused, SinkUnavailable
from penstock.sinks.contract import Batch
from penstock.storage import make_private_directory, private

INLINE_BYTES = 256 << 10

_NOT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}


@dataclass(frozen=True)
class Staged:
    """A staged table: either its IPC bytes, or the file that holds them."""

    inline: bytes | None
    directory: str = ""
    file: str = ""

    def open(self) -> pa.Table:
        """The table. A local file is mapped into memory, so only what is looked at is read."""
        if self.inline is not None:
            return pa.ipc.open_file(pa.BufferReader(self.inline)).read_all()
        try:
            return pa.ipc.open_file(_reader(self.directory, self.file)).read_all()
        except pa.ArrowInvalid as error:
            raise LogCorrupt(f"The staged {self.file} in {self.directory} is damaged: {error}.") from error
        except OSError as error:
            raise storage_error(error, f"read the staged {self.file}", self.directory) from error


def stage(batch: Batch, name: str, table: pa.Table) -> Staged:
    """Makes the table ready for the driver. ``name`` is for people who look into the directory."""
    if table.nbytes <= INLINE_BYTES:
        sink = pa.BufferOutputStream()
        _write(sink, table)
        inline = sink.getvalue().to_pybytes()
        if len(inline) <= INLINE_BYTES:
            return Staged(inline)
    return _write_file(batch.staging, name, table)


def storage_error(error: OSError, doing: str, where: str) -> SinkError:
    """No right to write does not get better by trying again; no room or no connection may."""
    reason = error.strerror or str(error)
    kind = SinkRefused if error.errno in _REFUSALS else SinkUnavailable
    return kind(f"Cannot {doing} in {where}: {reason}.", _advice(error))


def _advice(error: OSError) -> str | None:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Make room on that disk; delivery goes on by itself."
    if error.errno in _REFUSALS:
        return "Give the user that runs Penstock the right to write there, or choose another path; then start again."
    return None


def _write(sink: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _write_file(staging: str, name: str, table: pa.Table) -> Staged:
    staging = staging if "://" in staging else os.path.abspath(staging)
    try:
        filesystem, directory = _resolve(staging)
        local = isinstance(filesystem, pafs.LocalFileSystem)
        if local:
            make_private_directory(directory)
        else:
            filesystem.create_dir(directory, recursive=True)
        unique = f"{_NOT_FOR_A_NAME.sub('_', name)[:80]}-{uuid.uuid4().hex}.arrow"
        temporary = f"{directory}/.{unique}.tmp"
        if local:
            os.close(private(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY))  # Arrow leaves the mode of what is there
        with filesystem.open_output_stream(temporary) as sink:
            _write(sink, table)
        filesystem.move(temporary, f"{directory}/{unique}")
    except OSError as error:
        raise storage_error(error, "stage data", staging) from error
    return Staged(None, staging, unique)


def _reader(staging: str, file: str) -> pa.NativeFile:
    filesystem, directory = _resolve(staging)
    if isinstance(filesystem, pafs.LocalFileSystem):
        return pa.memory_map(f"{directory}/{file}")
    return filesystem.open_input_file(f"{directory}/{file}")


def _resolve(staging: str) -> tuple[pafs.FileSystem, str]:
    """The file system, and the path in it."""
    if "://" not in staging:
        return pafs.LocalFileSystem(), staging
    filesystem, path = pafs.FileSystem.from_uri(staging)
    return filesystem, path.rstrip("/")


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
