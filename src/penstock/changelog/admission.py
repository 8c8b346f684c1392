"""Which tables of the log a sink takes, and from where on: a table's changes wait until its import is complete.

Two files under ``state_dir/parts`` say so, each with one writer:

    tables-<sink>.json   by the sink's delivery: the tables that are complete, and up to where
    holds-<sink>.json    by whoever edits the subscription: tables that wait for a newer import than the one they have

A table that is in neither waits as well: it was published a moment ago, and its import is yet to come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.changes.batch import MESSAGES
from penstock.lsn import LSN, ZERO
from penstock.storage import Directory


@dataclass(frozen=True)
class Ready:
    """A table whose import is complete: the sink has its changes up to ``lsn``, and takes those after it."""

    job: int
    lsn: LSN


@dataclass(frozen=True)
class Admission:
    """Tables by their oid. ``version`` grows with every table that joins."""

    version: int = 0
    ready: Mapping[int, Ready] = field(default_factory=dict)
    joining: Mapping[int, LSN] = field(
        default_factory=dict
    )  # tables that will be ready before the next batch is committed
    holds: Mapping[int, int] = field(default_factory=dict)  # oid -> the job to wait for

    def after(self, oid: int) -> LSN | None:
        """From where on the table's changes are taken; None: they wait."""
        if oid == MESSAGES.oid:
            return ZERO
        if oid in self.joining:
            return self.joining[oid]
        complete = self.complete(oid)
        return None if complete is None else complete.lsn

    def complete(self, oid: int) -> Ready | None:
        """The import that the sink shows whole; None: there is none yet, or the sink waits for a newer one.

        A table that is only announced (``joining``) is not complete: a sink that swaps tables does not show it yet.
        """
        ready = self.ready.get(oid)
        return None if ready is None or ready.job < self.holds.get(oid, 0) else ready


def read_admission(parts: Directory, sink: str) -> Admission:
    tables = parts.read_json(f"tables-{sink}.json") or {}
    holds = parts.read_json(f"holds-{sink}.json") or {}
    ready = {int(oid): Ready(known["job"], LSN.parse(known["lsn"])) for oid, known in tables.get("ready", {}).items()}
    joining = {int(oid): LSN.parse(lsn) for oid, lsn in tables.get("joining", {}).items()}
    return Admission(tables.get("version", 0), ready, joining, {int(oid): job for oid, job in holds.items()})


def write_ready(
    parts: Directory, sink: str, version: int, ready: Mapping[int, Ready], joining: Mapping[int, LSN]
) -> None:
    known: dict[str, Any] = {str(oid): {"job": table.job, "lsn": str(table.lsn)} for oid, table in ready.items()}
    coming = {str(oid): str(lsn) for oid, lsn in joining.items()}
    parts.write_json(f"tables-{sink}.json", {"version": version, "ready": known, "joining": coming})


def write_holds(parts: Directory, sink: str, holds: Mapping[int, int]) -> None:
    parts.write_json(f"holds-{sink}.json", {str(oid): job for oid, job in holds.items()})
