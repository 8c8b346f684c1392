"""A directory of files that appear whole or not at all: on a local disk, or anywhere ``pyarrow.fs`` reaches.

On a local disk a file is written under a temporary name, fsynced, renamed, and its directory fsynced. Object stores show
an object only once it is complete, so there it is one PUT.

On a local disk, what is made here is for its owner alone, whatever the umask: it holds rows of the source.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from penstock.errors import ConfigError, LogError, LogFull

_TEMPORARY = ".writing-"
_DELETE_TRIES = 10
_SMALL_FILE = 128 << 10
_CLOCK_TICK_NS = 50_000_000  # file systems keep times in steps of up to 10 ms


@dataclass(frozen=True)
class FileEntry:
    name: str
    size: int


class Directory:
    """One flat directory. Pickles as its URI."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        try:
            self._fs, self.path = fs.FileSystem.from_uri(uri if "://" in uri else Path(uri).absolute().as_uri())
        except (pa.ArrowInvalid, ValueError, ImportError) as error:
            raise ConfigError(f"{uri} is not a place that can be used: {error}.") from None
        self.is_local = isinstance(self._fs, fs.LocalFileSystem)

    def __reduce__(self) -> tuple[type[Directory], tuple[str]]:
        return Directory, (self.uri,)

    def child(self, name: str) -> Directory:
        return Directory(f"{self.uri.rstrip('/')}/{name}")

    def sibling(self, name: str) -> Directory:
        return Directory(f"{self.uri.rstrip('/').rpartition('/')[0]}/{name}")

    def create(self) -> None:
        with _translated(self.uri):
            if self.is_local:
                make_private_directory(self.path)
            else:
                self._fs.create_dir(self.path, recursive=True)

    def exists(self) -> bool:
        with _translated(self.uri):
            return bool(self._fs.get_file_info(self.path).type != fs.FileType.NotFound)

    def why_unusable(self) -> str | None:
        """Why nothing could be written there, if so. Looked at without leaving a trace; on a local disk only."""
        return why_unwritable(self.path) if self.is_local else None

    def entries(self) -> list[FileEntry]:
        """Complete files only; an absent directory is an empty one."""
        selector = fs.FileSelector(self.path, allow_not_found=True)
        with _translated(self.uri):
            if self.is_local:
                return self._local_entries()
            return [FileEntry(info.base_name, info.size) for info in self._fs.get_file_info(selector) if info.is_file]

    def _local_entries(self) -> list[FileEntry]:
        entries = []
        try:
            with os.scandir(self.path) as listing:
                for entry in listing:
                    if not entry.name.startswith(_TEMPORARY):
                        with suppress(FileNotFoundError):  # deleted while we look
                            entries.append(FileEntry(entry.name, entry.stat().st_size))
        except FileNotFoundError:
            return []
        return entries

    def directories(self) -> list[str]:
        """The names of those in it, if it is there."""
        with _translated(self.uri):
            found = self._fs.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
            return [info.base_name for info in found if info.type == fs.FileType.Directory]

    def write(
        self,
        name: str,
        content: Callable[[Any], None],
        written: Callable[[], None] | None = None,
        removable: bool = False,
    ) -> int:
        """Makes ``name`` durable with what ``content`` writes into the stream it is given; returns the size.

        ``written`` is called when everything is on disk and nothing visible yet. ``removable``: somebody may call
        ``remove_leftovers`` meanwhile, as he may remove the file later.
        """
        with _translated(f"{self.uri}/{name}"):
            if not self.is_local:
                with self._fs.open_output_stream(f"{self.path}/{name}") as stream:
                    content(stream)
                    return int(stream.tell())
            own = f"{_TEMPORARY}{threading.get_native_id()}-{name}"  # another may write the same at the same moment
            temporary, final = Path(self.path, own), Path(self.path, name)
            try:
                with open(temporary, "wb", buffering=0, opener=private) as file:
                    content(file)
                    file.flush()
                    os.fsync(file.fileno())
                    size = file.tell()
                if written is not None:
                    written()
                with suppress(FileNotFoundError) if removable else nullcontext():
                    temporary.replace(final)
            except BaseException:
                temporary.unlink(missing_ok=True)
                raise
            _fsync_directory(self.path)
            return size

    def open(self, name: str) -> Any:
        """A random-access Arrow file. A large local one is mapped into memory; a small one is read at once, which is faster
        and keeps no file open."""
        path = f"{self.path}/{name}"
        with _translated(f"{self.uri}/{name}", but_missing=True):
            if not self.is_local:
                return self._fs.open_input_file(path)
            with open(path, "rb", buffering=0) as file:
                content = file.read(_SMALL_FILE + 1)
            return pa.BufferReader(content) if len(content) <= _SMALL_FILE else pa.memory_map(path)

    def modified(self) -> int | None:
        """When a file last came or went, for telling whether ``entries`` may have changed since. None: that cannot be told,
        because it was so recently that one more change would get the same time, or because the file system does not say."""
        if not self.is_local:
            return None
        try:
            modified = os.stat(self.path).st_mtime_ns
        except OSError:  # missing or forbidden, which ``entries`` reports
            return None
        return modified if abs(time.time_ns() - modified) > _CLOCK_TICK_NS else None

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError), _translated(f"{self.uri}/{name}", but_missing=True):
            self._fs.delete_file(f"{self.path}/{name}")

    def delete_all(self) -> None:
        """Also while somebody still puts files into it, if he stops soon."""
        for _ in range(_DELETE_TRIES):
            try:
                self._fs.delete_dir(self.path)
                return
            except FileNotFoundError:
                return
            except OSError as error:
                last = error
        with _translated(self.uri):
            raise last

    def remove_leftovers(self, *beginnings: str) -> None:
        """Temporary files of writers that died, of all files or of those whose names begin like this. Others that write such
        a file at the same moment must do so ``removable``."""
        if self.is_local:
            for path in Path(self.path).glob(f"{_TEMPORARY}*"):
                name = path.name.removeprefix(_TEMPORARY).partition("-")[2]
                if not beginnings or name.startswith(beginnings):
                    path.unlink(missing_ok=True)

    def read_json(self, name: str) -> dict[str, Any] | None:
        try:
            with (
                _translated(f"{self.uri}/{name}", but_missing=True),
                self._fs.open_input_stream(f"{self.path}/{name}") as stream,
            ):
                data = json.loads(stream.read())
        except FileNotFoundError:
            return None
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise LogError(f"{self.uri}/{name} is damaged: it is not a JSON object.")
        return data

    def write_json(self, name: str, data: dict[str, Any], removable: bool = False) -> None:
        encoded = json.dumps(data, indent=1).encode()
        self.write(name, lambda stream: stream.write(encoded), removable=removable)


def private(path: str, flags: int) -> int:
    """For ``open(…, opener=private)``: a file that is made by it is readable and writable by its owner alone."""
    return os.open(path, flags, 0o600)


def make_private_directory(path: str | Path) -> None:
    """With all that is missing above it. What is there stays as it is: somebody may have given others the right to look."""
    wanted = Path(path)
    for each in (*reversed(wanted.parents), wanted):
        if not each.is_dir():
            try:
                each.mkdir(0o700)
            except FileExistsError:
                if not each.is_dir():  # or another has made it at the same moment
                    raise


def why_unwritable(path: str | Path) -> str | None:
    """Why no file could be made in this directory, or in one that is made there; None if that works.

    Tried with a file without a name where the system has such, which leaves no trace: rights, mounts and ``/proc`` are told
    apart by nothing else.
    """
    for each in (Path(path).absolute(), *Path(path).absolute().parents):
        try:
            if not each.exists():
                continue
            if not each.is_dir():
                return f"{each} is a file, not a directory"
            with tempfile.TemporaryFile(dir=each):
                return None
        except OSError as error:
            return f"{each}: {_reason(error)}{_owned_by(each)}"
    return None


def translated(where: str) -> AbstractContextManager[None]:
    """Errors of the file system as ours, with the place and what to do."""
    return _translated(where)


class _translated(AbstractContextManager[None]):
    """``but_missing``: that a file is not there is the caller's business."""

    def __init__(self, where: str, but_missing: bool = False) -> None:
        self.where, self._but_missing = where, but_missing

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError) or (self._but_missing and isinstance(error, FileNotFoundError)):
            return
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise LogFull(f"No space left on the disk of {self.where}.") from error
        if error.errno in _FORBIDDEN:
            raise LogError(
                f"Cannot use {self.where}: {_reason(error)}{_owned_by(Path(self.where))}.", _OTHERS
            ) from error
        advice = _NO_DIRECTORY if error.errno in (errno.ENOTDIR, errno.EEXIST) else None
        raise LogError(f"Cannot use {self.where}: {_reason(error)}.", advice) from error


_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_DIRECTORY = "Make it a directory that the user of Penstock may write to, or choose another state_dir."
_OTHERS = "Run Penstock as the user whom the directory belongs to, or choose another state_dir."


def _reason(error: OSError) -> str:
    """In the system's words: Arrow's repeat the path."""
    return os.strerror(error.errno) if error.errno else str(error)


def _owned_by(path: Path) -> str:
    """`` (it belongs to postgres)``, where it is another's than ours: of the nearest one that can be looked at."""
    for each in (path, *path.parents):
        try:
            owner = each.stat().st_uid
        except OSError:
            continue
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"user {owner}"
        return "" if owner == os.geteuid() else f" ({each} belongs to {name})"
    return ""


def _fsync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
