"""Up to where the log has everything."""

from __future__ import annotations

from penstock.lsn import LSN, ZERO
from penstock.state import PipelineState


def captured_upto(state: PipelineState) -> LSN:
    """Everything that was committed below is in the log, or was not for us.

    Capture's own word is a second old; the log's end is of now, but stands still while nothing is for us.
    """
    captured = state.capture()
    end = state.log.contents().end
    return max(captured.position if captured is not None else ZERO, end or ZERO)
