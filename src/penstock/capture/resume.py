"""Where capture goes on after a start, or why it must not.

The slot, the log, the sinks and the server each know a position. Any set of them from which a change could be missing is
a loud stop; nothing is ever skipped in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import SlotLost, SourceGap, SourceSetBack, WrongServer
from penstock.lsn import LSN, ZERO
from penstock.state.pipeline_state import CaptureState, SourceState


@dataclass(frozen=True)
class Positions:
    """What everyone knows at the start. None: knows nothing yet."""

    slot: str
    slot_confirmed: LSN | None  # None: the slot does not exist
    slot_lost_because: str | None
    system_identifier: str
    server_end: LSN  # up to where the server's WAL is flushed
    recorded: SourceState | None  # what this state_dir was made for
    log_end: LSN | None  # None: the log is empty
    captured: CaptureState | None
    sinks: Mapping[str, LSN | None]
    last_commit: LSN | None = None  # of the newest transaction that we know of
    timeline_end: LSN | None = (
        None  # where the server left the timeline that we read last; None: it is on it, or who knows
    )

    @property
    def empty_to(self) -> LSN:
        """Below it there is nothing for us but what is in the log. 0/0: the log was lost."""
        if self.captured is None or (self.log_end is None and self.captured.log_end > self.captured.begin):
            return ZERO
        return self.captured.position


def resume_point(known: Positions) -> LSN:
    """The LSN from which the slot is read on.

    1. The server must be the one that this state was made on: LSNs of another mean nothing.
    2. The slot must exist and still have its WAL, and that must reach as far as what we hold: a server that was restored
       from a backup would give new transactions LSNs that we take for old ones.
    3. A server on a new timeline must have left the old one behind what we hold, and brought the slot along: one that was
       made or advanced there may have passed changes by.
    4. What the slot has confirmed must be in our hands: in the log, or known to hold nothing for us, or, when the log is
       gone, in every sink. Otherwise the server no longer has changes that somebody needs.
    """
    require_same_server(known.system_identifier, known.recorded)
    confirmed = _usable_slot(known)
    _not_set_back(known)
    _same_history(known, confirmed)
    if known.log_end is None:
        return _resume_without_log(known, confirmed)
    held = max(known.log_end, known.captured.position) if known.captured else known.log_end
    if confirmed > held:
        raise SourceGap(
            f'Slot "{known.slot}" stands at {confirmed}, but the log ends at {held}: it was advanced or made anew behind '
            "our back, and the changes between are gone."
        )
    return known.log_end


def _resume_without_log(known: Positions, confirmed: LSN) -> LSN:
    """A new pipeline, one that has not seen a change yet, or one whose log was deleted."""
    begin = known.captured.begin if known.captured else None
    needed = {name: lsn if lsn is not None else begin for name, lsn in known.sinks.items()}
    for name, lsn in needed.items():
        nothing_between = known.captured is not None and lsn == begin and known.captured.log_end == begin
        if lsn is not None and lsn < confirmed and not (nothing_between and confirmed <= _position(known)):
            raise SourceGap(
                f'The change log is empty, sink "{name}" holds changes up to {lsn}, and slot "{known.slot}" has confirmed '
                f"everything up to {confirmed}: the changes between are gone."
            )
    return confirmed


def _not_set_back(known: Positions) -> None:
    held = {"the log": known.log_end, "capture": known.captured.position if known.captured else None}
    held |= {f'sink "{name}"': lsn for name, lsn in known.sinks.items()}
    for who, lsn in held.items():
        if lsn is not None and lsn > known.server_end:
            raise SourceSetBack(
                f"The server's WAL ends at {known.server_end}, but {who} stands at {lsn}: the server was set back (restored "
                "from a backup, or failed over to a standby that lacked the end), and what it writes now cannot be told "
                "from what it wrote before."
            )


def _same_history(known: Positions, confirmed: LSN) -> None:
    """As far as timelines tell. The rest is told by what the server sends: history.py."""
    if known.timeline_end is None:
        return
    if known.last_commit is not None and known.last_commit >= known.timeline_end:
        raise SourceSetBack(
            f"The source was set back: the server went over to a new timeline at {known.timeline_end}, and the transaction "
            f"that committed at {known.last_commit} is not in its history."
        )
    if confirmed > known.timeline_end:
        raise SourceGap(
            f'The server went over to a new timeline at {known.timeline_end}, and slot "{known.slot}" stands at {confirmed}: '
            "it was made or advanced there, and changes between may be missing."
        )


def _position(known: Positions) -> LSN:
    return known.captured.position if known.captured else ZERO


def require_same_server(system_identifier: str, recorded: SourceState | None) -> None:
    if recorded is not None and recorded.system_identifier != system_identifier:
        raise WrongServer(
            f"source.url leads to database system {system_identifier}, but this pipeline's state belongs to "
            f"{recorded.system_identifier}."
        )


def _usable_slot(known: Positions) -> LSN:
    if known.slot_confirmed is None:
        advice = "Run `penstock init` first." if known.recorded is None else None
        raise SlotLost(f'The replication slot "{known.slot}" does not exist on the source.', advice)
    if known.slot_lost_because is not None:
        raise SlotLost(f'The replication slot "{known.slot}" is no longer usable: {known.slot_lost_because}.')
    if known.recorded is not None and known.recorded.slot != known.slot:
        raise SlotLost(
            f'This pipeline\'s state belongs to slot "{known.recorded.slot}", but the subscription now has "{known.slot}": '
            "the publication was made anew."
        )
    if known.recorded is not None and known.recorded.slot_remade and known.captured is not None:
        raise SourceGap(
            f'Slot "{known.slot}" was missing and was made again at {known.slot_confirmed}: the changes since '
            f"{known.captured.position} that were committed before are gone."
        )
    return known.slot_confirmed
