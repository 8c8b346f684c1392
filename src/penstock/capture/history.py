"""Whether the source's WAL is still the one that was read: a server that was set back writes other changes at the same LSNs.

A server is set back when it is restored from an earlier copy, or when a standby takes over that lacked its end. Once it has
written past our position, neither the LSN nor the system identifier tell. Two things do:

1. *The newest transaction that we hold.* The slot is set back together with the server, so its confirmed position lies in
   the history that both have in common. If our newest transaction lies behind that position, the server sends it again
   when asked to; commit LSN, xid and commit time must be the same ones. If it lies before, it is common history.
2. *WAL without changes for us*, which sinks have been taken across. When the server sends a change from there, it was
   written since.

See docs/decisions/0014-source-history.md for what this proves and what is left.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from penstock.changelog.log import ChangeLog, LogContents
from penstock.changelog.runs import HEADER, OWN_PREFIX
from penstock.errors import LogFull, PublicationMissing, SourceSetBack
from penstock.lsn import LSN, ZERO
from penstock.pgoutput import messages as pgoutput
from penstock.pgoutput.messages import Begin
from penstock.state.pipeline_state import HistoryState, PipelineState

logger = logging.getLogger(__name__)

_DESCRIPTIONS = bytes((pgoutput.ORIGIN, pgoutput.RELATION, pgoutput.TYPE))
_PREFIX_AT = HEADER + 10  # of a logical message: after kind, flags, LSN


def newest_transaction(log: ChangeLog, contents: LogContents, recorded: HistoryState | None) -> Begin | None:
    """The newest transaction that is known to have been in the source: the log's last one, or a later one without rows.

    The record is written about once a second, so after a kill the log may be ahead of it.
    """
    known = recorded.transaction if recorded is not None else None
    if contents.end is None or (known is not None and known.final_lsn >= contents.end):
        return known
    last = _last_in(log, contents)
    return max((found for found in (known, last) if found is not None), key=lambda found: found.final_lsn, default=None)


def _last_in(log: ChangeLog, contents: LogContents) -> Begin | None:
    """The last transaction of the log's last stretch. None: it holds but messages outside transactions."""
    last: Begin | None = None
    for name in contents.stretches[-1].segments:
        segment = log.open(name)
        for entry in segment.relations:
            for batch in segment.rows(entry):
                xids, lsns = batch.column("xid").to_numpy(), batch.column("commit_lsn").to_numpy()
                if not xids.any():
                    continue
                place = int(np.argmax(np.where(xids != 0, lsns, 0)))
                if last is None or int(lsns[place]) > last.final_lsn:
                    last = Begin(LSN(lsns[place]), batch.column("commit_time")[place].as_py(), int(xids[place]))
    return last


class History:
    """What a capture session remembers of the source's history and compares with it.

    1. ``expect``: from where to read, so that the newest transaction comes again if the slot still has it.
    2. ``begin``, when the slot is ours: the timeline is written down, before anything on it is confirmed.
    3. ``new_messages``, while ``watching``: compares, and drops changes that the log has.
    4. ``remember``: the newest transaction, once it is in the log or was found to hold nothing for us. Killed before
       that, the log's own last transaction or an older one is expected the next time: it is in the source's history, too.
    """

    def __init__(
        self, state: PipelineState, publications: tuple[str, ...], timeline: int | None, newest: Begin | None
    ) -> None:
        self._state, self._newest, self._recorded = state, newest, state.history()
        self._publications, self._timeline = publications, timeline
        self._known_to = ZERO
        self.read_from = ZERO
        self.check = HistoryCheck(None, ZERO, ZERO, True)

    def expect(self, confirmed: LSN, start: LSN, empty_to: LSN, readable_from: LSN = ZERO) -> None:
        """``start``: from where messages are wanted. ``empty_to``: below it there is nothing but what is in the log.
        ``readable_from``: before it, the publications may not have existed."""
        recorded, expected, self._known_to = self._recorded, self._newest, empty_to
        if expected is not None and expected.final_lsn < max(confirmed, readable_from):
            expected = None  # the slot confirmed it, and that slot is the source's own; or nobody can read it again
        self.read_from = max(readable_from, start if expected is None else min(start, expected.final_lsn))
        same = recorded is not None and recorded.publications == self._publications
        self.check = HistoryCheck(expected, start, empty_to, same)

    def begin(self) -> None:
        recorded = self._recorded or HistoryState(None, publications=() if self._newest else self._publications)
        if recorded.publications != self._publications:
            recorded = replace(recorded, publications=())  # until a transaction is remembered that was read by these
        self._save(replace(recorded, timeline=self._timeline))

    @property
    def proven(self) -> bool:
        return self.check.proven

    @property
    def watching(self) -> bool:
        return not self.check.done

    def new_messages(self, messages: list[bytes], server_end: LSN) -> list[bytes]:
        return self.check.new_messages(messages, server_end)

    def messages_before(self, missing: PublicationMissing, messages: list[bytes]) -> list[bytes]:
        """Those that came before the server found that a publication did not exist. The expected transaction was read with
        these publications, so it must have come by then."""
        kept = self.new_messages(messages, ZERO) if self.watching else messages
        if self.check.same_publications and not self.proven:
            raise SourceSetBack(f"The source was set back: {missing}") from missing
        return kept

    def remember(self, newest: Begin | None) -> None:
        """Not what lies in WAL that was read by other publications before: see HistoryCheck."""
        if newest is None or newest == self._newest or newest.final_lsn < self._known_to:
            return
        state = HistoryState(newest.final_lsn, newest.xid, newest.commit_time, self._publications, self._timeline)
        try:
            self._save(state)
        except LogFull:
            return  # an older one serves as well
        self._newest = newest

    def _save(self, state: HistoryState) -> None:
        if state != self._recorded:
            self._state.save(state)
            self._recorded = state


class HistoryCheck:
    """Watches the first messages of a connection, until a change has come that lies where new ones may.

    ``expected``: the transaction that the server has to send first, from which the stream was asked for. ``log_end``: what
    ends there or before is in the log, so its changes are dropped. ``position``: below it there is nothing for us but what
    is in the log. ``same_publications``: as when that was read. With others, what the server sends may differ without
    being another history; then only a contradiction in what it does send counts.
    """

    def __init__(self, expected: Begin | None, log_end: LSN, position: LSN, same_publications: bool) -> None:
        self._expected, self._log_end, self.same_publications = expected, log_end, same_publications
        self._position = position if same_publications else log_end
        self._commit_lsn = ZERO  # of the transaction whose messages come
        self._dropping = False
        self._change_seen = False

    @property
    def proven(self) -> bool:
        """The server has what we hold."""
        return self._expected is None

    @property
    def done(self) -> bool:
        """Nothing that comes from now on can tell anything more."""
        return self._expected is None and self._change_seen

    def new_messages(self, messages: Sequence[bytes], server_end: LSN) -> list[bytes]:
        """Without changes that are in the log already. ``server_end``: the server has sent all it has for us below it.

        Raises SourceSetBack.
        """
        kept = [message for message in messages if self._is_new(message)]
        if self._expected is not None and not self._dropping and server_end > self._expected.final_lsn:
            self._missing(self._expected)
        return kept

    def _is_new(self, message: bytes) -> bool:
        kind = message[HEADER]
        if kind == pgoutput.BEGIN:
            begin = pgoutput.parse(message[HEADER:])
            assert isinstance(begin, Begin)
            self._compare(begin)
            self._commit_lsn = begin.final_lsn
            self._dropping = begin.final_lsn < self._log_end
        elif kind == pgoutput.MESSAGE and not message[HEADER + 1] & 1:
            alone = pgoutput.parse(message[HEADER:])
            assert isinstance(alone, pgoutput.LogicalMessage)
            return self._is_new_message(alone)
        elif kind == pgoutput.COMMIT:
            self._dropping = False
        elif self._dropping:
            return kind in _DESCRIPTIONS  # the server sends a table's definition once, and later transactions need it
        elif not self._change_seen and _is_change(message):
            self._change(self._commit_lsn)
        return True

    def _is_new_message(self, message: pgoutput.LogicalMessage) -> bool:
        """Of one outside any transaction; its LSN is where its record ends."""
        new = message.lsn > self._log_end
        if new and not self._change_seen and message.prefix != OWN_PREFIX[:-1].decode():
            self._change(LSN(message.lsn - 1))
        return new

    def _compare(self, begin: Begin) -> None:
        expected = self._expected
        if expected is None or begin.final_lsn < expected.final_lsn:
            return
        if begin.final_lsn > expected.final_lsn:
            self._missing(expected)
        elif begin != expected:
            raise SourceSetBack(
                f"The source was set back: the transaction {expected.xid}, which committed at {expected.final_lsn}, is no "
                f"longer in its WAL; at that position there is another one ({begin.xid})."
            )
        self._expected = None

    def _missing(self, expected: Begin) -> None:
        if self.same_publications:
            raise SourceSetBack(
                f"The source was set back: the transaction {expected.xid}, which committed at {expected.final_lsn}, is no "
                "longer in its WAL."
            )
        logger.warning(
            "Nobody can tell whether the source was set back: the last transaction before %s does not show in the "
            "publications of now.",
            expected.final_lsn,
        )
        self._expected = None

    def _change(self, commit_lsn: LSN) -> None:
        if commit_lsn < self._position:
            raise SourceSetBack(
                f"The source was set back: it sent a change that committed at {commit_lsn}, and up to {self._position} there "
                "was none when this was read before."
            )
        self._change_seen = True


def _is_change(message: bytes) -> bool:
    kind = message[HEADER]
    if kind == pgoutput.MESSAGE:
        return message[_PREFIX_AT : _PREFIX_AT + len(OWN_PREFIX)] != OWN_PREFIX
    return kind in pgoutput.ROW_KINDS or kind == pgoutput.TRUNCATE
