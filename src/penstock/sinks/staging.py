"""Arrow data that an executor hands to the driver, without going through the JVM.

Small tables travel inside the receipt. Larger ones are Arrow IPC files below the batch's staging URI; every attempt
writes a file of its own, so two attempts of one task never meet, and a file appears under its name only when it is
whole. Nothing is fsynced: what a crash leaves half written belongs to a batch that was not committed, and that is made
again.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs

from penstock.errors import SinkError, SinkRefused, SinkUnavailable
from penstock.sinks.contract import Batch

INLINE_BYTES = 256 << 10

_NOT_FOR_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")
_REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG}


@dataclass(frozen=True)
class Staged:
    """A staged table: either its IPC bytes, or where they are."""

    inline: bytes | None
    location: str | None = None

    def open(self) -> pa.Table:
        """The table. A local file is mapped into memory, so only what is looked at is read."""
        if self.inline is not None:
            return pa.ipc.open_file(pa.BufferReader(self.inline)).read_all()
        assert self.location is not None
        try:
            return pa.ipc.open_file(_reader(self.location)).read_all()
        except OSError as error:
            raise storage_error(error, "read the staged data", self.location) from error


def stage(batch: Batch, name: str, table: pa.Table) -> Staged:
    """Makes the table ready for the driver. ``name`` is for people who look into the directory."""
    if table.nbytes <= INLINE_BYTES:
        sink = pa.BufferOutputStream()
        _write(sink, table)
        inline = sink.getvalue().to_pybytes()
        if len(inline) <= INLINE_BYTES:
            return Staged(inline)
    return Staged(None, _write_file(batch.staging, name, table))


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


def _write_file(staging: str, name: str, table: pa.Table) -> str:
    try:
        filesystem, directory, uri_prefix = _resolve(staging)
        filesystem.create_dir(directory, recursive=True)
        unique = f"{_NOT_FOR_A_NAME.sub('_', name)[:80]}-{uuid.uuid4().hex}.arrow"
        temporary = f"{directory}/.{unique}.tmp"
        with filesystem.open_output_stream(temporary) as sink:
            _write(sink, table)
        filesystem.move(temporary, f"{directory}/{unique}")
    except OSError as error:
        raise storage_error(error, "stage data", staging) from error
    return f"{uri_prefix}/{unique}"


def _reader(location: str) -> pa.NativeFile:
    filesystem, path, _ = _resolve(location)
    if isinstance(filesystem, pafs.LocalFileSystem):
        return pa.memory_map(path)
    return filesystem.open_input_file(path)


def _resolve(location: str) -> tuple[pafs.FileSystem, str, str]:
    """The file system, the path in it, and a form of the location that means the same in any working directory."""
    if "://" not in location:
        path = os.path.abspath(location.removeprefix("file:"))
        return pafs.LocalFileSystem(), path, path
    filesystem, path = pafs.FileSystem.from_uri(location)
    return filesystem, path.rstrip("/"), location.rstrip("/")
