"""A copy of a DuckDB file for those who read it all the time: the sink never writes to it, so nobody waits for anybody."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path

from pydantic import Field

from penstock.errors import SinkError, SinkRefused, SinkUnavailable
from penstock.settings.base import Settings
from penstock.settings.units import Duration
from penstock.sinks.duckdb.file import DuckDBFile
from penstock.sinks.duckdb.records import has_records_of
from penstock.sinks.mirror.owner import Owner

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 10.0


class SnapshotSettings(Settings):
    path: Path
    every: Duration = Field(default=60.0, description="How old the copy may become before the next commit renews it.")


class Snapshot:
    """Renews the copy after a commit, when it is due and tables have changed since; and when the sink is closed.

    A copy that cannot be made (no room, a reader that does not leave the file) fails no batch: it is tried again later. A file
    that is not an earlier copy by the same sink is never replaced.
    """

    def __init__(self, file: DuckDBFile, settings: SnapshotSettings, sink: str, memory: int) -> None:
        self._file, self._settings = file, settings
        self._copy = DuckDBFile(settings.path, sink, memory)
        self._outdated = True
        self._next = 0.0
        self._made: tuple[int, int, int] | None = None  # the copy that this process has made

    def require_replaceable(self, owner: Owner) -> None:
        """SinkRefused if there is a file that is not a copy by this sink. One that is in use is looked at when it is due."""
        with suppress(SinkUnavailable):
            self._require_own(owner)

    def committed(self, owner: Owner, changed: bool) -> None:
        """``changed``: more than the position."""
        self._outdated |= changed
        if self._outdated and time.time() >= max(self._next, self._made_at() + self._settings.every):
            self.renew(owner)

    def renew(self, owner: Owner) -> None:
        if not self._outdated or not self._file.path.exists():
            return
        try:
            self._require_own(owner)
            self._file.copy_to(self._settings.path)
            self._outdated, self._made = False, self._identity()
        except (SinkError, OSError) as error:
            self._next = time.time() + _RETRY_SECONDS
            logger.warning("The copy %s could not be renewed, and stays as it was: %s", self._settings.path, error)

    def _require_own(self, owner: Owner) -> None:
        """A copy has the sink's records, like the file that it was made from."""
        identity = self._identity()
        if identity is None or identity == self._made or not identity[1]:
            return
        try:
            with self._copy.opened(read_only=True) as connection:
                own = has_records_of(connection, owner)
        finally:
            self._copy.close()
        if not own:
            raise SinkRefused(
                f"Sink {owner.sink}: {self._settings.path} is not an earlier copy by this sink (of pipeline "
                f'"{owner.pipeline}"), and the copy would replace it.',
                "Correct `snapshot.path`, or move that file away.",
            )

    def _identity(self) -> tuple[int, int, int] | None:
        try:
            found = self._settings.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _made_at(self) -> float:
        try:
            return self._settings.path.stat().st_mtime
        except OSError:
            return 0.0
