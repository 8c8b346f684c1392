"""How a pipeline stands: while it runs or not, before ``init``, and when the source does not answer.

Where a sink stands and how far it is behind:

- A sink that holds the whole log holds all that capture has read, whatever WAL that was. ``lag_bytes`` is from there to the
  end of the source's WAL, or to the end of what capture has read when the source does not answer.
- ``lag_seconds`` is 0 when nothing is lacking; the age of the oldest commit that the sink lacks;
  or, when all that is in the log is delivered and the source's WAL goes on, the time since capture last had it all. That
  WAL may hold nothing for us, so then it is the most that the lag can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.changelog.log import ChangeLog, LogContents
from penstock.config.model import Config
from penstock.control.table_status import all_streaming, import_statuses, with_refused
from penstock.errors import LogError, SinkError, SourceError
from penstock.imports.manager import chosen_tables
from penstock.imports.progress import RecordedProgress, TableStatus, read_progress
from penstock.lsn import LSN
from penstock.postgres import catalog
from penstock.postgres.connection import Connection, connect
from penstock.sinks.registry import sink_class
from penstock.sinks.settings import SinkSettings
from penstock.state.pipeline_state import CaptureState, PipelineState, SinkState, now
from penstock.subscription import subscription
from penstock.subscription.ownership import ForeignTable
from penstock.subscription.publication import published_tables, refused_tables
from penstock.subscription.subscription import Subscription, slot_state

_STILL_FAST = 10.0  # seconds for which the speed of the last batch, or of a copy, is worth telling
_SILENT_CAPTURE = 60.0  # seconds: it records its position every 5, and pauses for 30 at most between tries
_SILENCE = 4  # heartbeats without a word from a sink whose lock we cannot see


@dataclass(frozen=True)
class SourceStatus:
    slot: str | None
    confirmed_lsn: LSN | None = None
    current_lsn: LSN | None = None
    retained_bytes: int | None = None
    wal_status: str | None = None
    active: bool = False
    error: str | None = None


@dataclass(frozen=True)
class LogStatus:
    start_lsn: LSN | None
    end_lsn: LSN | None
    segments: int
    bytes: int
    error: str | None = None


@dataclass(frozen=True)
class SinkStatus:
    name: str
    type: str
    state: str  # starting, running, retrying, stopped, failed
    lsn: LSN | None
    lag_bytes: int | None  # None: nobody can tell
    lag_seconds: float | None
    changes_total: int
    changes_per_second: float
    error: str | None
    dead_letters: int | None = None  # that are open; None: it keeps none, was not asked, or did not answer


@dataclass(frozen=True)
class Status:
    name: str
    healthy: bool
    source: SourceStatus
    log: LogStatus
    sinks: Sequence[SinkStatus]
    tables: Sequence[TableStatus]

    def to_json(self) -> dict[str, Any]:
        return asdict(self, dict_factory=lambda items: {key: _plain(value) for key, value in items})


def status(config: Config, ask_source: bool = True) -> Status:
    """``ask_source`` False: from the files under state_dir alone, which costs next to nothing. Otherwise sinks that keep dead
    letters are asked as well."""
    state = PipelineState(config.state_dir)
    state.require_owner(config.name)
    captured = state.capture()
    source, asked = _source(config, state, captured) if ask_source else (_unasked(state, captured), None)
    tables = _tables(config, state, asked)
    log, contents = _log(state, captured)
    behind = _Behind(state.log, contents, captured, source.current_lsn)
    sinks = [_sink(config, state, settings.name, settings.type, behind) for settings in config.sinks]
    if ask_source:
        letters = [_dead_letters(settings, config.name) for settings in config.sinks]
        sinks = [replace(sink, dead_letters=count) for sink, count in zip(sinks, letters, strict=True)]
    healthy = (
        source.error is None
        and log.error is None
        and all(sink.state not in ("failed", "retrying") for sink in sinks)
        and all(table.state != "failed" for table in tables)
    )
    return Status(config.name, healthy, source, log, sinks, tables)


def tables_of(connection: Connection, config: Config, found: Subscription | None) -> list[TableStatus]:
    """Where each table of the subscription stands with each sink, by what the source knows."""
    if found is None:
        return []
    published = published_tables(connection, found.publications)
    sinks = [sink.name for sink in config.sinks]
    if config.source.copies:
        tables = import_statuses(connection, config.name, published, sinks)
    else:
        tables = all_streaming(published, sinks)
    return with_refused(tables, _refused(connection, config, found), sinks)


def _refused(connection: Connection, config: Config, found: Subscription) -> list[ForeignTable]:
    """On a standby the publications are edited elsewhere, with other rights."""
    if not found.managed or catalog.server_identity(connection).in_recovery:
        return []
    return refused_tables(connection, config.name, chosen_tables(connection, config))


def _tables(config: Config, state: PipelineState, asked: list[TableStatus] | None) -> list[TableStatus]:
    """``asked``: what the source said; None if it was not asked or did not answer."""
    if not config.source.copies:
        return asked or []
    copying = read_progress(state.parts)
    if asked is not None:
        return [_with_phase(state, table, copying) for table in asked]
    sinks = {sink.name for sink in config.sinks}
    known = [table for table in copying.tables if table.sink in sinks]
    if now() - copying.updated_at < _STILL_FAST:
        return known
    return [replace(table, rows_per_second=None, seconds_left=None) for table in known]


def _with_phase(state: PipelineState, table: TableStatus, copying: RecordedProgress) -> TableStatus:
    """The queue in the source has a table's state; what its import does within that state, its copier alone knows."""
    at_work = state.delivering(table.sink) or now() - copying.updated_at < _STILL_FAST
    for told in copying.tables if at_work else ():
        if (told.schema, told.table, told.sink, told.state) == (table.schema, table.table, table.sink, table.state):
            return replace(table, phase=told.phase, waiting_for=table.waiting_for or told.waiting_for)
    return table


def _unasked(state: PipelineState, captured: CaptureState | None) -> SourceStatus:
    known = state.source()
    return SourceStatus(
        known.slot if known else None,
        current_lsn=captured.position if captured else None,
        error=capture_problem(captured),
    )


def capture_problem(captured: CaptureState | None, reads: bool = False) -> str | None:
    """Why capture does not get on, by its own record. ``reads``: the source says that somebody reads the slot.

    The record says what was last tried. Where nobody has written it for a while, capture was killed; or, if it reads, it
    cannot write its record.
    """
    if captured is None:
        return None
    silent = now() - captured.updated_at > _SILENT_CAPTURE
    if captured.state == "failed" or (captured.state != "running" and not silent):
        return captured.error
    if silent and reads:
        return (
            f"Capture has recorded no position for {now() - captured.updated_at:,.0f} s. Look at its messages; is there "
            "room on the disk of state_dir?"
        )
    return None


def _source(
    config: Config, state: PipelineState, captured: CaptureState | None
) -> tuple[SourceStatus, list[TableStatus] | None]:
    known = state.source()
    slot = known.slot if known else None
    try:
        with connect(config.source.url.get_secret_value()) as connection:
            return _ask(connection, config, slot, captured)
    except SourceError as error:
        return SourceStatus(slot, error=str(error)), None


def _ask(
    connection: Connection, config: Config, known_slot: str | None, captured: CaptureState | None
) -> tuple[SourceStatus, list[TableStatus] | None]:
    found = subscription.find(connection, config.name, config.source.publications)
    slot = slot_state(connection, found.slot) if found else None
    tables = tables_of(connection, config, found)
    if found is None or slot is None:
        missing = f'The replication slot "{found.slot}"' if found else f'The subscription "{config.name}"'
        absent = f"{missing} does not exist on the source. Run `penstock init`, or `penstock run`, which makes it."
        name = found.slot if found else known_slot
        return SourceStatus(name, current_lsn=catalog.current_lsn(connection), error=absent), tables
    error = None
    if slot.lost_because is not None:
        error = f'The replication slot "{slot.slot}" is no longer usable: {slot.lost_because}.'
    else:
        error = capture_problem(captured, slot.active)
    return SourceStatus(
        slot.slot, slot.confirmed_flush_lsn, slot.current_lsn, slot.retained_bytes, slot.wal_status, slot.active, error
    ), tables


def _log(state: PipelineState, captured: CaptureState | None) -> tuple[LogStatus, LogContents]:
    try:
        contents = state.log.contents()
    except LogError as error:
        return LogStatus(None, None, 0, 0, str(error)), LogContents([], [], 0)
    end = contents.end or (captured.log_end if captured else None)
    segments = sum(len(stretch.segments) for stretch in contents.stretches) + len(contents.unfinished)
    return LogStatus(contents.start or end, end, segments, contents.bytes), contents


@dataclass(frozen=True)
class _Behind:
    """How far a sink is behind; see above."""

    log: ChangeLog
    contents: LogContents
    captured: CaptureState | None
    current: LSN | None  # None: the source was not asked or did not answer

    def bytes(self, sink: LSN | None) -> int | None:
        held, end = self._held(sink), self._end()
        return None if held is None or end is None else max(0, end - held)

    def seconds(self, sink: LSN | None) -> float | None:
        lag = self.bytes(sink)
        if not lag or self.captured is None:
            return None if lag is None else 0.0
        start = sink if sink is not None else self.captured.begin
        for stretch in self.contents.after(start):
            try:
                oldest = self.log.open(stretch.segments[0]).first_commit_time(start)
            except LogError:
                return None  # deleted since the listing, so the sink has it by now; or damaged, which others report
            if oldest is not None:
                return self._age(oldest / 1_000_000)
        return self._age(self.captured.updated_at)

    def _held(self, sink: LSN | None) -> LSN | None:
        if self.captured is None:
            return sink
        held = sink if sink is not None else self.captured.begin
        return max(held, self.captured.position) if held >= self.captured.log_end else held

    def _end(self) -> LSN | None:
        return self.current or (self.captured.position if self.captured else self.contents.end)

    @staticmethod
    def _age(moment: float) -> float:
        return round(max(0.0, now() - moment), 3)


def _sink(config: Config, state: PipelineState, name: str, kind: str, behind: _Behind) -> SinkStatus:
    known = state.sink(name) or SinkState(None, 0.0, "stopped")
    current = _state_now(known, state.delivering(name), config.source.heartbeat)
    fresh = current == "running" and now() - known.updated_at < _STILL_FAST
    return SinkStatus(
        name, kind, current, known.lsn, behind.bytes(known.lsn), behind.seconds(known.lsn), known.changes_total,
        round(known.changes_per_second, 1) if fresh else 0.0, known.error if current != "running" else None,
    )  # fmt: skip


def _dead_letters(settings: SinkSettings, pipeline: str) -> int | None:
    if settings.on_error != "dead_letter":
        return None
    with closing(sink_class(settings.type)(settings)) as sink:
        sink.pipeline = pipeline
        try:
            letters = sink.dead_letters()
            return letters.count() if letters is not None else None
        except SinkError:
            return None


def _state_now(known: SinkState, delivering: bool | None, heartbeat: float) -> str:
    """The record is as old as the last thing that happened. Whoever wrote it may be gone without a word since."""
    if known.state == "stopped" and delivering:
        return "starting"
    if known.state in ("stopped", "failed"):
        return known.state
    if delivering is None:
        silent = heartbeat > 0 and now() - known.updated_at > max(60.0, _SILENCE * heartbeat)
        return "stopped" if silent else known.state
    return known.state if delivering else "stopped"


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, LSN) else value
