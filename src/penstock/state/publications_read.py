"""Which publications the slot is read with, and how another list of them takes effect without a gap.

Postgres decodes each transaction with the catalog as it was then, so a publication can be read only in WAL that is younger
than the publication: elsewhere the server fails (up to 17) or leaves the publication out (from 18 on). So a publication comes
in and leaves in steps, each durable before the next:

1. The slot is read with the former list up to a marker in the WAL that is younger than every publication that comes in.
2. They come in, from the end of what is captured on. Their tables are imported from there on. If nothing is left of the
   former list, the WAL up to the marker is not read at all: it holds nothing for anybody.
3. Publications that leave are read up to another marker, and until the imports have been looked at with both lists and every
   transaction has ended that was running then. So a table that is in both is published at every moment, and is not imported
   again.

``parts/publications.json`` has one writer, capture: the publications that are read, with the position from which on.
``parts/publications-looked-at.json`` is by whoever queues imports: for which of these the queue is right.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.errors import PublicationMissing, SourceUnavailable
from penstock.lsn import LSN, ZERO
from penstock.postgres import catalog
from penstock.postgres.connection import Connection, connect
from penstock.postgres.transactions import running_transactions, still_running
from penstock.retry import interval
from penstock.storage import Directory
from penstock.subscription.publication import existing

logger = logging.getLogger(__name__)

_FILE, _LOOK_FILE = "publications.json", "publications-looked-at.json"
_LOOK_SECONDS = interval(2.0)

Since = Mapping[str, LSN]  # by publication, from where on it is read; 0/0: from the beginning


@dataclass(frozen=True)
class Look:
    """``running``: the transactions that were running when the tables of these publications were looked at."""

    since: Since = field(default_factory=dict)
    running: tuple[int, ...] = ()


def publications_read(parts: Directory, wanted: Sequence[str]) -> Since:
    """Before capture has begun for the first time, those that are wanted: they are older than the slot."""
    found = parts.read_json(_FILE)
    return dict.fromkeys(wanted, ZERO) if found is None else {name: LSN.parse(lsn) for name, lsn in found.items()}


def write_publications_read(parts: Directory, since: Since) -> None:
    parts.write_json(_FILE, {name: str(lsn) for name, lsn in since.items()})


def read_look(parts: Directory) -> Look:
    found = parts.read_json(_LOOK_FILE) or {}
    since = {name: LSN.parse(lsn) for name, lsn in found.get("since", {}).items()}
    return Look(since, tuple(found.get("running", ())))


def record_look(parts: Directory, connection: Connection, since: Since) -> None:
    """Of tables that were read after the publications were: transactions that began later find the tables published."""
    if read_look(parts).since != since:
        running = running_transactions(connection)
        parts.write_json(_LOOK_FILE, {"since": {name: str(lsn) for name, lsn in since.items()}, "running": running})


def in_step(parts: Directory, wanted: Sequence[str]) -> bool:
    """Whether just the wanted publications are read, and the queue of imports is right for them."""
    since = publications_read(parts, wanted)
    return set(since) == set(wanted) and read_look(parts).since == since


class PublicationSwitch:
    """For as long as capture runs, over its connections. ``imports``: somebody imports tables of publications that come in."""

    def __init__(self, parts: Directory, url: str, imports: bool) -> None:
        self._parts, self._url, self._imports = parts, url, imports
        self._wanted: tuple[str, ...] = ()
        self._since: Since = {}
        self._marker: LSN | None = None  # up to which the slot is read as it was before the next step
        self._next_look = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._since))

    @property
    def read_from(self) -> LSN:
        """Below it, no publication that is read has anything that is not captured."""
        return max(self._since.values(), default=ZERO)

    @property
    def _joining(self) -> list[str]:
        return [name for name in self._wanted if name not in self._since]

    @property
    def _leaving(self) -> list[str]:
        return [name for name in self._since if name not in self._wanted]

    def begin(self, connection: Connection, wanted: Sequence[str], held: LSN) -> None:
        """Before a connection reads the slot; no other one is left. ``held``: everything below is captured."""
        self._wanted = tuple(wanted)
        self._require(connection)
        recorded = publications_read(self._parts, wanted)
        # If the log was lost, reading goes back to before they came in.
        self._since = {name: lsn for name, lsn in recorded.items() if lsn <= held}
        reached = self._marker is not None and held >= self._marker
        if self._joining and reached:
            self._join(held)
        elif self._joining and not self._since:
            self._join(catalog.wal_marker(connection))
        elif self._leaving and reached and self._may_leave(connection):
            self._leave()
        if (self._joining or self._leaving) and self._marker is None:
            self._marker = catalog.wal_marker(connection)
        write_publications_read(self._parts, self._since)

    def is_due(self, captured: LSN) -> bool:
        """Whether the slot is to be read with other publications now: the connection has to end."""
        if self._marker is None or captured < self._marker:
            return False
        if self._joining:
            return True
        if not self._leaving or time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _LOOK_SECONDS
        if self._imports and read_look(self._parts).since != self._since:
            return False
        with connect(self._url) as connection:
            return self._may_leave(connection)

    def leave_out(self, missing: PublicationMissing) -> bool:
        """A publication that did not exist at some point in the WAL. False: what is missed would not come by an import."""
        name = missing.publication
        if name in self._wanted and not self._imports:
            return False
        self._since = {other: lsn for other, lsn in self._since.items() if other != name}
        write_publications_read(self._parts, self._since)
        self._marker = None
        then = (
            "and its tables are imported again from there on"
            if name in self._wanted
            else "since it is no longer wanted"
        )
        logger.warning("%s The WAL up to now is read without it, %s.", missing, then)
        return True

    def _join(self, lsn: LSN) -> None:
        joining = self._joining
        logger.info("The slot is read with %s from %s on.", _quoted(joining), lsn)
        if not self._imports:
            logger.warning(
                "Changes of their tables that were committed before are not captured: source.mode is stream."
            )
        self._since = {**self._since, **dict.fromkeys(joining, lsn)}
        self._marker = None

    def _leave(self) -> None:
        logger.info("The slot is no longer read with %s.", _quoted(self._leaving))
        self._since = {name: lsn for name, lsn in self._since.items() if name in self._wanted}
        self._marker = None

    def _may_leave(self, connection: Connection) -> bool:
        if not self._imports:
            record_look(self._parts, connection, self._since)
        look = read_look(self._parts)
        return look.since == self._since and not still_running(connection, look.running)

    def _require(self, connection: Connection) -> None:
        missing = sorted(set(self._wanted) - existing(connection, self._wanted))
        if missing:
            raise SourceUnavailable(
                f"The source has no publication {_quoted(missing)}.",
                "Run `penstock init`: it makes those that are Penstock's own.",
            )


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
