"""The life of a table in a sink: its states, what happens to it, and the one function that tells the next state.

    pending ──planned──▶ copying ──copied──▶ catching_up ──joined──▶ streaming
       ▲                    │                     │
       └──── claimed ──── failed ◀────────────────┘        removed, expired: no import of this job any more

Two processes follow the same life, each with its own record:

- The copier (``imports/copying.py``) and the manager (``imports/manager.py``) record what was *read* of the source, in
  ``penstock.import_jobs`` (``imports/jobs.py``). This is the state that ``penstock status`` shows. The copier's manifest
  (``imports/handover.py``) tells the delivery the same state in a file.
- The delivery (``delivery/import_delivery.py``) records what the sink *holds*, in the sink's own record where it keeps
  one and under ``state_dir`` (``delivery/table_record.py``). It is behind the copier until both are ``streaming``.

Everything here is pure. A module that records a state asks ``next_state`` (or ``moves``, for a statement in SQL).
"""

from __future__ import annotations

from enum import StrEnum


class TableState(StrEnum):
    """For each state: what it means; who sets it; what ends it."""

    PENDING = "pending"
    """Published, and its import has not begun to read. The manager creates the job; ends when the copier has planned its
    chunks, after the transactions that were running have ended."""

    COPYING = "copying"
    """Chunks are read and committed. Set by the copier with the plan; ends when every row was read."""

    CATCHING_UP = "catching_up"
    """Every row was read; the changes since the copy began are applied. Set by the copier; ends when the delivery has let
    the table join the stream."""

    STREAMING = "streaming"
    """The sink is complete: the table's changes come with those of all others. Set by the delivery in the sink's record,
    then by the copier in the queue; ends when the table is imported again or leaves the subscription."""

    FAILED = "failed"
    """The last try failed. Set by the copier; ends when a copier claims the job after its waiting time, and continues
    where it was. In the delivery's record: the sink lost rows, and the copier begins again with another job. ``status``
    also shows a table as failed that the role may not publish."""

    REMOVED = "removed"
    """The table left the subscription; the sink keeps its rows. Set by the manager, or by the copier that notices it."""

    EXPIRED = "expired"
    """Of a job, never of a table: another job of the same table and sink took its place."""

    @property
    def being_imported(self) -> bool:
        """There is something left to do for a copier, now or at the next try."""
        return self in (TableState.PENDING, TableState.COPYING, TableState.CATCHING_UP, TableState.FAILED)


class Event(StrEnum):
    """What happens to a table, by who sees it."""

    # The copier
    POSITION_TAKEN = "the LSN from which its changes will be replayed was taken"
    PLANNED = "its chunks were planned"
    COPIED = "all its rows were read"
    JOINED = "the sink is complete, and takes its changes from the stream"
    FAILED = "a step failed, and is tried again later"
    CLAIMED_UNPLANNED = "a copier takes the job, of which nothing was planned"
    CLAIMED_PLANNED = "a copier takes the job, whose chunks were planned"
    CLAIMED_COPIED = "a copier takes the job, whose rows were all read"
    STARTED_OVER = "what was copied is void"
    # The manager, or a command
    REMOVED = "it left the subscription"
    REPLACED = "another job takes the place of this one"
    # The delivery: the parts of an import in the order in which the sink commits them
    PART_BEGIN = "the sink made room for it"
    PART_ROWS = "the sink holds some of its rows"
    PART_CHANGES = "the sink applied some of its changes"
    PART_END = "the sink is complete"
    ROWS_LOST = "the sink lacks rows that it held before"
    # ``penstock status``, which looks at the queue and at the publications, and sets nothing
    SEEN_PUBLISHED = "it is published; its next import may not be in the queue yet"
    SEEN_UNPUBLISHED = "it is not published; the manager may not have noticed it yet"


_S = TableState
_IMPORTED = (_S.PENDING, _S.COPYING, _S.CATCHING_UP, _S.FAILED)  # a job that may still move on
_STAYS = {_S.PENDING: _S.PENDING, _S.COPYING: _S.COPYING, _S.CATCHING_UP: _S.CATCHING_UP}
_LIVING = (*_IMPORTED, _S.STREAMING)


def _all(states: tuple[TableState, ...], to: TableState) -> dict[TableState, TableState]:
    return dict.fromkeys(states, to)


_TRANSITIONS: dict[Event, dict[TableState, TableState]] = {
    Event.POSITION_TAKEN: {_S.PENDING: _S.PENDING},
    Event.PLANNED: {_S.PENDING: _S.COPYING, _S.COPYING: _S.COPYING},
    # A chunk that another copier read may have failed a moment before it was read again here.
    Event.COPIED: _all((_S.COPYING, _S.CATCHING_UP, _S.FAILED), _S.CATCHING_UP),
    # From any state: the copier may have died before it recorded what it had told the delivery.
    Event.JOINED: _all(_LIVING, _S.STREAMING),
    # Not of a complete one: the chunk that failed was not needed any more.
    Event.FAILED: _all(_IMPORTED, _S.FAILED),
    Event.CLAIMED_UNPLANNED: {**_STAYS, _S.FAILED: _S.PENDING},
    Event.CLAIMED_PLANNED: {**_STAYS, _S.FAILED: _S.COPYING},
    Event.CLAIMED_COPIED: {**_STAYS, _S.FAILED: _S.CATCHING_UP},
    Event.STARTED_OVER: _all(_LIVING, _S.PENDING),
    Event.REMOVED: _all(_LIVING, _S.REMOVED),
    Event.REPLACED: _all((*_LIVING, _S.REMOVED), _S.EXPIRED),
    Event.PART_BEGIN: {_S.PENDING: _S.COPYING, _S.COPYING: _S.COPYING},
    # Rows that were read again come between the changes.
    Event.PART_ROWS: {_S.PENDING: _S.COPYING, _S.COPYING: _S.COPYING, _S.CATCHING_UP: _S.CATCHING_UP},
    Event.PART_CHANGES: {_S.COPYING: _S.CATCHING_UP, _S.CATCHING_UP: _S.CATCHING_UP},
    Event.PART_END: {_S.COPYING: _S.STREAMING, _S.CATCHING_UP: _S.STREAMING, _S.STREAMING: _S.STREAMING},
    Event.ROWS_LOST: _all(_IMPORTED, _S.FAILED),
    Event.SEEN_PUBLISHED: {**{state: state for state in _LIVING}, _S.REMOVED: _S.PENDING},
    Event.SEEN_UNPUBLISHED: {**{state: state for state in _IMPORTED}, **_all((_S.STREAMING, _S.REMOVED), _S.REMOVED)},
}


def next_state(state: TableState, event: Event) -> TableState | None:
    """The state after the event. None: the event means nothing in this state, and must change nothing."""
    return _TRANSITIONS[event].get(state)


def moves(event: Event) -> dict[str, str]:
    """Every state in which the event means something, and the state that follows: for a statement in SQL."""
    return {before.value: after.value for before, after in _TRANSITIONS[event].items()}


def claimed(planned: bool, copied: bool) -> Event:
    """The claim of a job that has got so far."""
    if copied:
        return Event.CLAIMED_COPIED
    return Event.CLAIMED_PLANNED if planned else Event.CLAIMED_UNPLANNED


class ChunkState(StrEnum):
    """Of a chunk of a table that is being copied, in ``penstock.import_chunks``; set by ``imports/chunk_queue.py``."""

    TODO = "todo"  # no copier has it, or one that is dead
    COPYING = "copying"  # a copier claimed it, and an executor reads it
    STAGED = "staged"  # read and handed over: its receipt is durable
    DONE = "done"  # committed by the sink, or not needed any more


class Trouble(StrEnum):
    """What the delivery tells the copier of an error with an import, and what the copier makes of it."""

    RETRY = "retry"  # it may pass: the delivery tries again, and the table stays in its state
    STOP = "stop"  # it will not pass by itself: the table is FAILED until the next try
    LOST = "lost"  # staged rows, or the log since the copy began, are gone: another job begins
