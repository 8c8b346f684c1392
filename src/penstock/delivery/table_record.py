"""What a sink holds of each table: its own record, or the one under ``state_dir`` where it keeps none."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.changelog.admission import Admission, Ready, read_admission, write_ready
from penstock.imports.handover import Committed, Handover
from penstock.lsn import LSN, ZERO
from penstock.sinks.contract import Imported, ImportPart, UnderWay
from penstock.state.lifecycle import Event, TableState, Trouble, next_state
from penstock.state.pipeline_state import PipelineState

_MOST_JOINING = 8
_EVENTS = {
    "begin": Event.PART_BEGIN,
    "rows": Event.PART_ROWS,
    "changes": Event.PART_CHANGES,
    "end": Event.PART_END,
}


@dataclass(frozen=True)
class Joining:
    """A table that joins the stream: batches planned by this version or a later one have its changes after ``lsn``."""

    job: int
    lsn: LSN
    version: int


class TableRecord:
    """Kept by the sink's delivery, which alone writes it, and mirrored under ``state_dir`` for everybody else.

    A table that joins raises ``version``. A batch says by which version it was planned, so that one which still left a table
    out can be told from one that has it.
    """

    def __init__(self, state: PipelineState, sink: str) -> None:
        self._parts, self._sink = state.parts, sink
        self._handover = Handover(state.root, sink)
        self._version = 0
        self._ready: dict[int, Ready] = {}
        self._joining: dict[int, Joining] = {}
        self._left_out: dict[int, Joining] = {}  # joined: of what batches planned earlier may lack
        self._under_way: dict[int, UnderWay] = {}
        self._snapshots: dict[int, str | None] = {}
        self._lost: set[int] = set()

    def load(self, own: Imported | None) -> None:
        """The sink's own record wins: the sink may have been restored from a backup, or made anew."""
        self._handover.remove_orphans()
        noted = read_admission(self._parts, self._sink)
        self._version = noted.version + 1
        self._ready = dict(noted.ready if own is None else own.ready)
        self._joining, self._left_out = {}, {}  # no batch planned by an earlier version is under way
        self._under_way = dict(own.under_way) if own is not None else {}
        for manifest in self._handover.manifests():
            done = self._handover.committed(manifest.job)
            self._snapshots[manifest.job] = done.snapshot
            if own is not None:
                self._compare(manifest.relation.oid, manifest.job, done)
            elif done != Committed():
                self._under_way[manifest.job] = UnderWay(frozenset(done.chunks), done.replayed)
        self._write()

    def _compare(self, oid: int, job: int, done: Committed) -> None:
        """A sink that holds less than it did was recreated or restored: the chunks that it lacks are not read again."""
        own = self._under_way.get(job, UnderWay())
        if not set(done.chunks) <= own.rows or (done.replayed is not None and done.replayed > (own.replayed or ZERO)):
            if next_state(self.state(oid, job), Event.ROWS_LOST) is None:
                return
            self._lost.add(job)
            self._tell(job, "The sink lacks rows of this import that it held before.", Trouble.LOST)
        else:
            self._tell(job)

    def state(self, oid: int, job: int) -> TableState:
        """Of this import, by what the sink holds. FAILED: the sink lost rows of it, and the copier begins another job.

        A table that is ``joining`` may become STREAMING at any moment; of all others this thread alone changes the state.
        """
        ready, parts = self._ready.get(oid), self._under_way.get(job)
        if ready is not None and ready.job >= job:
            return TableState.STREAMING
        if job in self._lost:
            return TableState.FAILED
        return TableState.PENDING if parts is None else parts.state

    def admission(self) -> Admission:
        return read_admission(self._parts, self._sink)

    def ready(self, oid: int) -> Ready | None:
        return self._ready.get(oid)

    def under_way(self, job: int) -> UnderWay | None:
        """None: the import has not begun."""
        return self._under_way.get(job)

    def announce(self, oid: int, job: int, lsn: LSN) -> None:
        """Batches are planned with the table's changes after ``lsn`` now; before one is committed, it must be ready."""
        if oid not in self._joining or self._joining[oid].job != job:
            self._version += 1
            self._joining[oid] = Joining(job, lsn, self._version)
            self._write()

    def joining(self, job: int) -> bool:
        return any(known.job == job for known in self._joining.values())

    @property
    def many_joining(self) -> bool:
        """Each of them costs the next batch a moment."""
        return len(self._joining) >= _MOST_JOINING

    def withdraw(self, job: int) -> None:
        """The table does not join after all."""
        for oid, known in list(self._joining.items()):
            if known.job == job:
                del self._joining[oid]
                self._version += 1
                self._write()

    def replayed(self, job: int) -> LSN | None:
        known = self._under_way.get(job)
        return known.replayed if known else None

    def due(self, version: int) -> list[int]:
        """The jobs whose tables a batch planned by this version has changes of."""
        return [known.job for known in self._joining.values() if known.version <= version]

    def lacks_table(self, version: int, end: LSN) -> bool:
        """Whether a batch planned by this version left out changes of a table that has joined since, up to less."""
        return any(known.version > version and known.lsn < end for known in self._left_out.values())

    def note(self, part: ImportPart) -> None:
        """The sink holds this part now. A part that comes late, of an import that is complete or lost, changes nothing."""
        if next_state(self.state(part.relation.oid, part.job), _EVENTS[part.phase]) is None:
            return
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
        self._ready[oid] = ready
        joining = self._joining.pop(oid, None)
        if joining is not None:
            self._left_out[oid] = replace(joining, lsn=ready.lsn)
        self._write()

    def _write(self) -> None:
        joining = {oid: known.lsn for oid, known in self._joining.items()}
        write_ready(self._parts, self._sink, self._version, self._ready, joining)

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
        self.withdraw(job)
        self._under_way.pop(job, None)
        self._snapshots.pop(job, None)

    def _tell(self, job: int, error: str | None = None, trouble: Trouble | None = None) -> None:
        known = self._under_way.get(job, UnderWay())
        chunks = tuple(sorted(known.rows))
        self._handover.write_committed(job, Committed(chunks, known.replayed, self._snapshots.get(job), error, trouble))
