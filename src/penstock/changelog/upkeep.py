"""Merges small segments into larger ones, so that the log stays small in files whatever the rhythm of writes.

A trickle of small transactions makes ten segments a second, each of a few kilobytes. As long as sinks keep up they are
deleted as fast as they come; while an import or a sink is held up, they would pile up, and every reader pays for each file.

The guarantee, in order:

1. A group of whole segments that follow each other, without a schema change between them, is read and checked against its
   checksums. Readers go on with the group.
2. Their rows are written as one segment under the name of the union, ``<start of the first>-<end of the last>``: temporary
   name, fsync, rename. From here on readers take the union, and skip the segments that it covers
   (``ChangeLog.contents``). Killed before the rename, a temporary file is left, which the next start removes.
3. After ``GRACE_SECONDS`` the group is deleted: no listing that began before step 2 is still going on. Killed in between,
   the next start deletes what is left.

Readers that planned with the group before step 2 and open its segments after step 3 read the same rows from the union, by
their LSNs (``ChangeLog.open``); a batch that ends inside of the union takes no more of it than its end says
(``change_batches``). Retention and merging never edit the log at the same moment: a union must not appear after what
follows it was deleted. The last stretch is left as it is, so that retention can delete everything else.

Which segments of the log may go.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Container, Iterable, Iterator, Sequence

import pyarrow as pa

from penstock import failpoints
from penstock.changelog.log import ChangeLog, LogContents, Stretch
from penstock.changelog.segment import SegmentContent, SegmentName
from penstock.changes.batch import Relation
from penstock.errors import LogError
from penstock.lsn import LSN
from penstock.process import step_back

logger = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
MOST_UNION_BYTES = 32 << 20
FEWEST = 8  # segments in a union, unless it is a large one
_LOOK_SECONDS = 1.0
_QUIET_SECONDS = 5.0
_RETRY_SECONDS = 30.0


def group_to_merge(
    stretches: Sequence[Stretch], union_bytes: int, quiet: bool = False, apart: Container[SegmentName] = ()
) -> Sequence[Stretch]:
    """The first stretches that are worth a union of at most ``union_bytes``; none if there are none.

    A group is worth it if the union is large (at least half of ``union_bytes``: such a one is not merged again), or if it
    has ``FEWEST`` members of which none has more than a quarter of the bytes: so every byte is written again a few times
    at most, each time into a file four times as large. ``quiet``: nothing has come for a while, so the sizes do not matter.
    ``apart``: segments that cannot be merged.
    """
    for run in _runs(stretches, union_bytes // 2, apart):
        first = 0
        while first < len(run):
            group = _group(run, first, union_bytes)
            total, largest = sum(s.bytes for s in group), max(group, key=lambda s: s.bytes)
            is_large = len(group) > 1 and total >= union_bytes // 2
            if is_large or (len(group) >= FEWEST and (quiet or largest.bytes <= total // 4)):
                return group
            first += group.index(largest) + 1
    return ()


def _runs(stretches: Sequence[Stretch], small: int, apart: Container[SegmentName]) -> Iterator[Sequence[Stretch]]:
    """Neighbours that may be merged: whole, small, and without a schema change between them."""
    run: list[Stretch] = []
    for stretch in stretches[:-1]:
        mergeable = stretch.segments[0].whole and stretch.bytes < small and stretch.segments[0] not in apart
        if run and (stretch.schema_change or not mergeable):
            yield run
            run = []
        if mergeable:
            run.append(stretch)
    if run:
        yield run


def _group(run: Sequence[Stretch], first: int, union_bytes: int) -> Sequence[Stretch]:
    last, total = first, 0
    while last < len(run) and total + run[last].bytes <= union_bytes:
        total += run[last].bytes
        last += 1
    return run[first:last]


def union(log: ChangeLog, names: Sequence[SegmentName]) -> SegmentContent | None:
    """One segment with the rows of these. None: a table has two definitions among them, so they stay apart."""
    segments = [log.open(name) for name in names]
    rows: dict[int, list[pa.RecordBatch]] = {}
    relations: dict[int, Relation] = {}
    for segment in segments:
        for entry in segment.relations:
            relation = relations.setdefault(entry.relation.oid, entry.relation)
            if relation != entry.relation:
                return None
            rows.setdefault(relation.oid, []).extend(segment.rows(entry))
    name = SegmentName(names[0].start, names[-1].end, 0, True, names[0].schema_change)
    merged = [(relations[oid], [pa.concat_batches(batches)]) for oid, batches in sorted(rows.items())]
    return SegmentContent(name, merged, max(segment.last_commit_time for segment in segments))


class Merger:
    """Merges in a thread of its own, while the process that writes the log runs. Retention holds ``editing`` as well."""

    def __init__(self, log_uri: str, segment_bytes: int, editing: threading.Lock) -> None:
        self._log = ChangeLog(log_uri)  # of its own: the thread that captures has another
        self._union_bytes = min(segment_bytes, MOST_UNION_BYTES)
        self._editing = editing
        self._merged_since: dict[SegmentName, float] = {}  # segments that were merged and not deleted, and since when
        self._apart: set[SegmentName] = set()  # segments that cannot be merged
        self._end, self._end_since = LSN(0), 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="log merger", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        step_back()
        delay = _LOOK_SECONDS
        while not self._stopping.wait(delay):
            try:
                while self.step(time.monotonic()) and not self._stopping.is_set():
                    pass
                delay = _LOOK_SECONDS
            except (LogError, OSError) as error:  # no room or no right, or a damaged segment, which its readers report
                logger.debug("Segments are not merged for the moment: %s", error)
                delay = _RETRY_SECONDS

    def step(self, clock: float) -> bool:
        """Deletes what was merged a while ago, and merges one group; whether there was one."""
        contents = self._log.contents()
        self._delete_merged(contents, clock)
        if contents.end is not None and contents.end != self._end:
            self._end, self._end_since = contents.end, clock
        quiet = clock - self._end_since >= _QUIET_SECONDS
        group = group_to_merge(contents.stretches, self._union_bytes, quiet, self._apart)
        if group:
            self._merge([stretch.segments[0] for stretch in group])
        return bool(group)

    def _merge(self, names: Sequence[SegmentName]) -> None:
        try:
            content = union(self._log, names)
        except LogError:
            self._apart.update(names)
            raise
        if content is None:
            self._apart.update(names)
            return
        with self._editing:
            if not self._still_there(names):
                return
            self._log.directory.write(
                str(content.name), content.write, lambda: failpoints.reach(failpoints.UNION_WRITTEN)
            )
        failpoints.reach(failpoints.UNION_VISIBLE)

    def _still_there(self, names: Iterable[SegmentName]) -> bool:
        """Retention may have deleted some meanwhile. Now it waits for us."""
        visible = {
            name for stretch in ChangeLog(self._log.directory.uri).contents().stretches for name in stretch.segments
        }
        return visible.issuperset(names)

    def _delete_merged(self, contents: LogContents, clock: float) -> None:
        self._merged_since = {name: self._merged_since.get(name, clock) for name in contents.merged}
        for name, since in self._merged_since.items():
            if clock - since >= GRACE_SECONDS:
                self._log.delete([name])
                failpoints.reach(failpoints.MERGED_DELETED)


def expired(
    stretches: Sequence[Stretch], needed_from: LSN, commit_time_of: dict[LSN, int], oldest: int
) -> list[Stretch]:
    """From the front: what every sink holds, and whose last commit is older than ``oldest`` (µs since 1970).

    The last stretch stays, so that the log always knows its own end.
    """
    gone = []
    for stretch in stretches[:-1]:
        if stretch.end > needed_from or commit_time_of[stretch.end] > oldest:
            break
        gone.append(stretch)
    return gone


class Retention:
    """Deletes segments from the front of the log. Remembers commit times, so that each file is opened once."""

    def __init__(self, log: ChangeLog, seconds: float) -> None:
        self._log = log
        self._seconds = seconds
        self._commit_times: dict[LSN, int] = {}

    def enforce(self, needed_from: LSN, now: float) -> int:
        """Deletes what may go; returns the bytes that stay."""
        contents = self._log.contents()
        stretches = contents.stretches
        self._commit_times = {s.end: self._commit_time(s, needed_from) for s in stretches[:-1]}
        oldest = int((now - self._seconds) * 1_000_000)
        bytes_kept = contents.bytes
        for stretch in expired(stretches, needed_from, self._commit_times, oldest):
            # What was merged into it first: without the union, some of these without the others would be a hole.
            self._log.delete(name for name in contents.merged if stretch.segments[-1].covers(name))
            self._log.delete(reversed(stretch.segments))  # the complete one first: parts alone are invisible
            bytes_kept -= stretch.bytes
        return bytes_kept

    def _commit_time(self, stretch: Stretch, needed_from: LSN) -> int:
        if self._seconds == 0 or stretch.end > needed_from:
            return 0
        if self._commit_times.get(stretch.end):
            return self._commit_times[stretch.end]
        return self._log.open(stretch.segments[-1]).last_commit_time
