"""Named points at which a test lets the process die, as kill -9 would.

``PENSTOCK_FAILPOINT=segment_written`` dies at the first pass, ``segment_written:3`` at the third. Unset, a point costs
one dictionary look-up.
"""

from __future__ import annotations

import os
import signal

SEGMENT_WRITTEN = "segment_written"  # on disk under its temporary name, not visible
SEGMENT_VISIBLE = "segment_visible"  # renamed, not yet acknowledged to Postgres
UNION_WRITTEN = "union_written"  # of small segments: on disk under its temporary name, not visible
UNION_VISIBLE = "union_visible"  # renamed; the segments that it is made of are still there
MERGED_DELETED = "merged_deleted"  # one of those is deleted, others are still there
BATCH_STAGED = "batch_staged"  # every receipt is there, the sink has not committed
BATCH_COMMITTED = "batch_committed"  # the sink has committed, Spark's checkpoint does not know
SCHEMA_FOLLOWED = "schema_followed"  # the target's transaction has a schema change, but not all of the batch
BATCH_APPLIED = "batch_applied"  # the target's transaction has all of it, and is not committed
CHUNK_COPIED = "chunk_copied"  # the target's transaction has its rows and their record, and is not committed
CHUNK_KEPT = "chunk_kept"  # the target has committed them, there is no receipt
CHUNK_STAGED = "chunk_staged"  # its receipt is there, the queue in the source does not know
CHUNK_COMMITTED = "chunk_committed"  # the sink has it, the receipt is still there
IMPORT_CAUGHT_UP = "import_caught_up"  # the table's changes are in the sink, the table has not joined the stream
TABLE_SWAPPED = "table_swapped"  # in the target's transaction the new table has the old one's place; not committed
IMPORT_ENDED = "import_ended"  # the table has joined in the sink's record, nobody else knows
NAMES = (
    SEGMENT_WRITTEN, SEGMENT_VISIBLE, UNION_WRITTEN, UNION_VISIBLE, MERGED_DELETED,
    BATCH_STAGED, SCHEMA_FOLLOWED, BATCH_APPLIED, BATCH_COMMITTED,
    CHUNK_COPIED, CHUNK_KEPT, CHUNK_STAGED, CHUNK_COMMITTED, IMPORT_CAUGHT_UP, TABLE_SWAPPED, IMPORT_ENDED,
)  # fmt: skip

_passes: dict[str, int] = {}


def reach(name: str) -> None:
    wanted, _, at = os.environ.get("PENSTOCK_FAILPOINT", "").partition(":")
    if wanted != name:
        return
    _passes[name] = _passes.get(name, 0) + 1
    if _passes[name] >= int(at or 1):
        os.kill(os.getpid(), signal.SIGKILL)
