"""Which transactions a snapshot saw. https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-SNAPSHOT"""

from __future__ import annotations

import numpy as np

from penstock.changes import Bools, UInt32s


def seen_by(snapshot: str, xids: UInt32s) -> Bools:
    """Of committed transactions: whether the snapshot (``xmin:xmax:xip,…``, 64 bits each) sees what they wrote.

    The ids in the WAL have 32 bits and wrap around; two that are compared are never half of the circle apart.
    """
    _xmin, xmax, running = snapshot.split(":")
    distance = (np.uint64(int(xmax)).astype(np.uint32) - xids).astype(np.int32)
    in_progress = np.array([int(xid) & 0xFFFFFFFF for xid in running.split(",") if xid], np.uint32)
    seen: Bools = (distance > 0) & ~np.isin(xids, in_progress)
    return seen
