"""What a sink holds of each table: its own record, or the one under ``state_dir`` where it keeps none."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.changelog.admission import Admission, Ready, read_admission, write_ready
from penstock.imports.handover import Committed, Handover, Trouble
from penstock.lsn import LSN
from penstock.sinks.contract import Imported, ImportPart, UnderWay
from penstock.state import PipelineState


@dataclass(frozen=True)
class Joined:
    """A table that became ready: with which version, up to where, and whether it was streamed before that as well."""

    version: int
    lsn: LSN
    streamed: bool

    def contradicts(self, start: LSN, end: LSN) -> bool:
        """Whether a batch planned before lacks changes of the table, or has some that the table holds by now."""
        return self.lsn < end or (self.streamed and self.lsn > start)


class TableRecord:
    """Kept by the sink's delivery, which alone writes it, and mirrored under ``state_dir`` for everybody else.

    A table that becomes ready raises ``version``. A batch says by which version it was planned, so that one which still
    left a table out can be told from one that need not have it.
    """

    def __init__(self, state: PipelineState, sink: str) -> None:
        self._parts, self._sink = state.parts, sink
        self._handover = Handover(state.root, sink)
        self._version = 0
        self._ready: dict[int, Ready] = {}
        self._joined: dict[int, Joined] = {}
        self._under_way: dict[int, UnderWay] = {}
        self._snapshots: dict[int, str | None] = {}

    def load(self, own: Imported | None) -> None:
        """The sink's own record wins: the sink may have been restored from a backup, or made anew."""
        noted = read_admission(self._parts, self._sink)
        self._version = noted.version + 1
        self._ready = dict(noted.ready if own is None else own.ready)
        self._joined = {}  # no batch planned by an earlier version is under way
        self._under_way = dict(own.under_way) if own is not None else {}
        for manifest in self._handover.manifests():
            done = self._handover.committed(manifest.job)
            self._snapshots[manifest.job] = done.snapshot
            if own is not None:
                self._tell(manifest.job)
            elif done != Committed():
                self._under_way[manifest.job] = UnderWay(frozenset(done.chunks), done.replayed)
        write_ready(self._parts, self._sink, self._version, self._ready)

    def admission(self) -> Admission:
        return read_admission(self._parts, self._sink)

    def ready(self, oid: int) -> Ready | None:
        return self._ready.get(oid)

    def under_way(self, job: int) -> UnderWay | None:
        """None: the import has not begun."""
        return self._under_way.get(job)

    def joined_since(self, version: int) -> list[Joined]:
        """The tables that became ready since a batch was planned by this version."""
        return [joined for joined in self._joined.values() if joined.version > version]

    def note(self, part: ImportPart) -> None:
        """The sink holds this part now."""
        known = self._under_way.get(part.job, UnderWay())
        if part.phase == "end":
            assert part.upto is not None
            self._join(part.relation.oid, Ready(part.job, part.upto))
            self._under_way.pop(part.job, None)
            return
        if part.phase == "rows":
            known = replace(known, rows=known.rows | {part.number})
        elif part.phase == "changes":
            known = replace(known, replayed=part.upto)
        self._under_way[part.job] = known
        self._tell(part.job)

    def _join(self, oid: int, ready: Ready) -> None:
        streamed = self.admission().after(oid) is not None
        self._version += 1
        self._ready[oid] = ready
        self._joined[oid] = Joined(self._version, ready.lsn, streamed)
        write_ready(self._parts, self._sink, self._version, self._ready)

    def note_snapshot(self, job: int, snapshot: str | None) -> None:
        """Of the rows that the sink holds of a table without a key; durable before the receipt goes that told it."""
        if snapshot is not None:
            self._snapshots[job] = snapshot
            self._tell(job)

    def snapshot(self, job: int) -> str | None:
        return self._snapshots.get(job)

    def note_error(self, job: int, error: str, trouble: Trouble) -> None:
        """Why the import does not go on."""
        self._tell(job, error, trouble)

    def forget(self, job: int) -> None:
        self._under_way.pop(job, None)
        self._snapshots.pop(job, None)

    def _tell(self, job: int, error: str | None = None, trouble: Trouble | None = None) -> None:
        known = self._under_way.get(job, UnderWay())
        chunks = tuple(sorted(known.rows))
        self._handover.write_committed(job, Committed(chunks, known.replayed, self._snapshots.get(job), error, trouble))
