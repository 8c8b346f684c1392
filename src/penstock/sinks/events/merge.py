"""Many runs of events, each in commit order, as one stream of lines in commit order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from penstock.changes import Int64s
from penstock.sinks.events.json_text import constant, joined, offsets_of

SLICE_BYTES = 16 << 20


def merged_lines(runs: Sequence[pa.RecordBatch]) -> Iterator[pa.Buffer]:
    """The lines of all runs, each ended by a newline, in the order of ``commit_lsn``, ``sequence``.

    Between equals the earlier run comes first. Only positions are held for all rows; lines are read slice by slice.
    """
    runs = [run for run in runs if len(run)]
    if not runs:
        return
    starts = np.concatenate([[0], np.cumsum([len(run) for run in runs])])
    order = _order(runs)
    lengths = np.concatenate([np.diff(offsets_of(run["line"])) for run in runs])
    for picked in _slices(order, lengths):
        yield _text(_gathered(runs, starts, picked))


def _order(runs: Sequence[pa.RecordBatch]) -> Int64s:
    lsn = np.concatenate([run["commit_lsn"].to_numpy() for run in runs])
    sequence = np.concatenate([run["sequence"].to_numpy() for run in runs])
    return np.lexsort((sequence, lsn))


def _slices(order: Int64s, lengths: Int64s) -> Iterator[Int64s]:
    """``order`` cut where another SLICE_BYTES of lines are full; a single line may be longer than that."""
    ends = np.cumsum(lengths[order])
    start = 0
    while start < len(order):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + SLICE_BYTES, side="right")))
        yield order[start:stop]
        start = stop


def _gathered(runs: Sequence[pa.RecordBatch], starts: Int64s, picked: Int64s) -> pa.Array:
    """The lines at these rows. Each run is in order, so what is picked of one run is one piece of it."""
    run_of_row = np.searchsorted(starts, picked, side="right") - 1
    used, first, counts = np.unique(run_of_row, return_index=True, return_counts=True)
    low = picked[first] - starts[used]
    pieces = [runs[run]["line"].slice(at, count) for run, at, count in zip(used, low, counts, strict=True)]
    place_of_run = np.zeros(len(runs), np.int64)
    place_of_run[used] = np.cumsum(counts) - counts - low - starts[used]
    return pa.concat_arrays(pieces).take(pa.array(picked + place_of_run[run_of_row]))


def _text(lines: pa.Array) -> pa.Buffer:
    text = joined(lines, constant("\n"))
    offsets = offsets_of(text)
    return text.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
