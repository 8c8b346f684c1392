"""Whether a sink holds all that is committed in the source: asked before a difference is believed.

A sink holds everything up to a position if one of these is so:

1. Its own record says so.
2. Capture has read up to there, and the sink holds all that capture wrote to the log: the rest was not for us.
3. Nobody reads the slot, the sink holds the whole log, and the slot has no change behind what the sink holds.

The third is for a pipeline that does not run: WAL goes on without it, but as long as nothing in there is ours, it lacks
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import SinkUnavailable, SlotBusy
from penstock.lsn import LSN, ZERO
from penstock.postgres import catalog
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.subscription import Subscription
from penstock.state import PipelineState

PATIENCE = 60.0  # seconds for which a sink may stand still
_PAUSE = 0.1
_START = "Start the pipeline, or bring the sink up to date with `penstock run FILE --once`; then verify again."
_LOOK = "`penstock status FILE` shows what holds the sink up; verify again when it moves."
_PEEKED = 10_000  # changes; whether there is one, not how many there are


@dataclass(frozen=True)
class Standing:
    """``position``: the target's own record. ``connection``: to the source, in autocommit."""

    connection: Connection
    subscription: Subscription
    state: PipelineState
    sink: str
    position: Callable[[], LSN | None]
    patience: float = PATIENCE

    def catch_up(self) -> LSN:
        """Waits until the sink holds all that is committed now. SinkUnavailable if it does not come that far."""
        until = catalog.wal_marker(self.connection)
        last, since = self._position(until), time.monotonic()
        while not self._holds(last, until):
            if self.state.delivering(self.sink) is False:
                raise self._behind(last, until, "and nothing delivers to it", _START)
            if time.monotonic() - since > self.patience:
                raise self._stuck(last, until)
            time.sleep(_PAUSE)
            position = self._position(until)
            if position != last:
                last, since = position, time.monotonic()
        return until

    def _position(self, until: LSN) -> LSN | None:
        """The target's own record; but as long as a delivery notes that it has not come so far, that will do: to look into a
        DuckDB file again and again would keep out the sink that is waited for."""
        noted = self.state.sink(self.sink) if self.state.delivering(self.sink) else None
        if noted is not None and noted.lsn is not None and not self._holds(noted.lsn, until):
            return noted.lsn
        return self.position()

    def _holds(self, position: LSN | None, until: LSN) -> bool:
        held = position or ZERO
        if held >= until:
            return True
        captured = self.state.capture()
        if captured is not None and held < captured.log_end:
            return False
        if captured is not None and captured.position >= until:
            return True
        return self.state.capturing() is False and self.state.delivering(self.sink) is False and self._slot_is_dry(held)

    def _slot_is_dry(self, held: LSN) -> bool:
        """Looks without taking anything. B and C, the beginning and end of a transaction, say nothing by themselves."""
        try:
            with translated_errors("Looking whether the slot holds changes"):
                row = self.connection.execute(
                    "select not exists (select from pg_logical_slot_peek_binary_changes(%s, null, %s, "
                    "'proto_version', '1', 'publication_names', %s) where lsn > %s::pg_lsn "
                    "and get_byte(data, 0) not in (ascii('B'), ascii('C')))",
                    [
                        self.subscription.slot,
                        _PEEKED,
                        ",".join(map(_quoted, self.subscription.publications)),
                        str(held),
                    ],
                ).fetchone()
        except SlotBusy:  # somebody began to read it
            return False
        return row == (True,)

    def _stuck(self, position: LSN | None, until: LSN) -> SinkUnavailable:
        why = f"and did not move for {self.patience:.0f} s"
        if not self.state.delivering(self.sink):
            return self._behind(position, until, why, _START)
        noted = self.state.sink(self.sink)
        error = f" ({noted.error.rstrip('.')})" if noted is not None and noted.error else ""
        return self._behind(position, until, f"{why} although the pipeline runs{error}", _LOOK)

    def _behind(self, position: LSN | None, until: LSN, why: str, advice: str) -> SinkUnavailable:
        stands = f"stands at {position}" if position else "holds nothing yet"
        return SinkUnavailable(
            f'Sink "{self.sink}" {stands}, the source at {until}, {why}: what differs may be on its way.',
            advice,
        )


def _quoted(publication: str) -> str:
    return '"' + publication.replace('"', '""') + '"'
