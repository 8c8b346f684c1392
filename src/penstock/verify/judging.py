"""Whether suspects really differ, while both sides are written to.

A round, for all suspects at once:

1. Their rows are read in the source, each with its version (xmin).
2. The sink has come to hold all that is committed by now.
3. The rows are read in the target.
4. The rows are read in the source again.

A suspect whose target row equals what 1 or 4 read is equal. One whose source row changed between 1 and 4 is tried again.
One whose row did not change in between, and yet differs from the target's, has a difference if the next round finds the
same rows on both sides: a row that was there only between 1 and 4 leaves no trace in either, but it does not come back
just as it was at the same moment of the next round. After a few rounds, those that still change are given up: nobody can
tell, and that is no difference.

Rules may give several rows of the source one key. Which of them the target has, if any, is a matter of their past: such keys
are counted, and not judged.

Which rows of two lists differ, found by DuckDB in memory that is bounded.

Whether a sink holds all that is committed in the source: asked before a difference is believed.

A sink holds everything up to a position if one of these is so:

1. Its own record says so.
2. Capture has read up to there, and the sink holds all that capture wrote to the log: the rest was not for us.
3. Nobody reads the slot, the sink holds the whole log, and the slot has no change behind what the sink holds.

The third is for a pipeline that does not run: WAL goes on without it, but as long as nothing in there is ours, it lacks
nothing.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from penstock.errors import SinkUnavailable, SlotBusy
from penstock.lsn import LSN, ZERO
from penstock.postgres import catalog
from penstock.postgres.connection import Connection, translated_errors
from penstock.sinks.verifying import Key, Row, TablePair
from penstock.state.pipeline_state import PipelineState
from penstock.subscription.subscription import Subscription
from penstock.verify.report import HIDDEN, Difference, Verdicts

ROUNDS = 6

# What a side has of a key: each row with its version. More than one row only in a target without a unique index, or by rules.
_Seen = tuple[tuple[str, Row], ...]


def judge(pair: TablePair, keys: Sequence[Key], catch_up: Callable[[], object], rounds: int = ROUNDS) -> Verdicts:
    verdicts = Verdicts()
    pending = list(keys)
    seen_before: dict[Key, tuple[_Seen, _Seen]] = {}
    for _ in range(rounds):
        if not pending:
            break
        before = _by_key(pair.source_rows(pending))
        catch_up()
        target = _by_key([(key, "", row) for key, row in pair.target_rows(pending)])
        after = _by_key(pair.source_rows(pending))
        waiting = []
        for key in pending:
            mirrored = target[key]
            if len(before[key]) > 1 or len(after[key]) > 1:
                verdicts.shared.append(key)
                continue
            if _rows(mirrored) in (_rows(before[key]), _rows(after[key])):
                continue
            if before[key] == after[key] and seen_before.get(key) == (after[key], mirrored):
                verdicts.differences.append(_difference(pair, key, after[key], mirrored))
                continue
            seen_before[key] = (after[key], mirrored)
            waiting.append(key)
        pending = waiting
    verdicts.unjudged.extend(named(pair, key, known=bool(seen_before[key][0])) for key in pending)
    return verdicts


def _by_key(rows: Sequence[tuple[Key, str, Row]]) -> defaultdict[Key, _Seen]:
    found: defaultdict[Key, _Seen] = defaultdict(tuple)
    for key, version, row in rows:
        found[key] = (*found[key], (version, row))
    return found


def _rows(seen: _Seen) -> list[Row]:
    return [row for _, row in seen]


def _difference(pair: TablePair, key: Key, source: _Seen, target: _Seen) -> Difference:
    shown = named(pair, key, known=bool(source))
    if not target:
        return Difference(shown, "missing")
    if not source:
        return Difference(shown, "extra")
    if len(target) > len(source):
        return Difference(shown, "repeated", rows=len(target))
    columns = zip(pair.columns, source[0][1], target[0][1], strict=True)
    return Difference(shown, "differs", tuple(name for name, here, there in columns if here != there))


def named(pair: TablePair, key: Key, known: bool) -> dict[str, str | None]:
    """A key as it is shown. Not ``known``: the target alone has it, and it may be what rules are to hide."""
    return {
        name: HIDDEN if value is not None and name in pair.hidden and not known else value
        for name, value in zip(pair.key, key, strict=True)
    }


def suspects(source: pa.Table, target: pa.Table, of_source: bool = False) -> list[Key]:
    """The keys that only one of the two has, or has more often, or with another hash. Columns k0, k1, …, h. ``of_source``: not
    those that the target alone has."""
    names = [name for name in source.column_names if name != "h"]
    same = " AND ".join(f"a.{name} IS NOT DISTINCT FROM b.{name}" for name in names)
    keys = ", ".join(f"coalesce(a.{name}, b.{name})" for name in names)
    rows = f"SELECT {', '.join(names)}, (count(*), min(h), max(h)) AS seen FROM {{}} GROUP BY ALL"
    join = "LEFT JOIN" if of_source else "FULL JOIN"
    query = (
        f"SELECT {keys} FROM ({rows.format('s')}) AS a {join} ({rows.format('t')}) AS b ON {same} "
        "WHERE a.seen IS DISTINCT FROM b.seen ORDER BY ALL"
    )
    return _asked(query, source, target)


def bag_differences(source: pa.Table, target: pa.Table) -> tuple[Counter[Key], Counter[Key]]:
    """Of rows without a key: those that the source has more often, and those that the target has. By all columns but h."""
    names = ", ".join(name for name in source.column_names if name != "h")
    one, other = (
        Counter(_asked(f"SELECT {names} FROM {this} EXCEPT ALL SELECT {names} FROM {that}", source, target))
        for this, that in (("s", "t"), ("t", "s"))
    )
    return one, other


def _asked(query: str, source: pa.Table, target: pa.Table) -> list[Key]:
    with duckdb.connect(config={"autoinstall_known_extensions": "false", "memory_limit": "1GB"}) as engine:
        engine.register("s", source)
        engine.register("t", target)
        return [tuple(row) for row in engine.execute(query).fetchall()]


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
