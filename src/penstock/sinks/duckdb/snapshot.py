"""A copy of a DuckDB file for those who read it all the time: the sink never writes to it, so nobody waits for anybody."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from pydantic import Field

from penstock.errors import SinkUnavailable
from penstock.settings.base import Settings
from penstock.settings.units import Duration
from penstock.sinks.duckdb.file import DuckDBFile

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 10.0


class SnapshotSettings(Settings):
    path: Path
    every: Duration = Field(default=60.0, description="How old the copy may become before the next commit renews it.")


class Snapshot:
    """Renews the copy after a commit, when it is due and tables have changed since; and when the sink is closed.

    A copy that cannot be made (no room, a reader that does not leave the file) fails no batch: it is tried again later.
    """

    def __init__(self, file: DuckDBFile, settings: SnapshotSettings) -> None:
        self._file, self._settings = file, settings
        self._outdated = True
        self._next = 0.0

    def committed(self, changed: bool) -> None:
        """``changed``: more than the position."""
        self._outdated |= changed
        if self._outdated and time.time() >= max(self._next, self._made_at() + self._settings.every):
            self.renew()

    def renew(self) -> None:
        if not self._outdated or not self._file.path.exists():
            return
        try:
            self._file.copy_to(self._settings.path)
            self._outdated = False
        except (SinkUnavailable, OSError) as error:
            self._next = time.time() + _RETRY_SECONDS
            logger.warning("The copy %s could not be renewed, and stays as it was: %s", self._settings.path, error)

    def _made_at(self) -> float:
        try:
            return self._settings.path.stat().st_mtime
        except OSError:
            return 0.0
