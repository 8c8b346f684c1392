"""How many events per second one core encodes: `python bench/encode_events.py [rows]`."""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import INSERT, OLD_FULL, OLD_KEY, OLD_NONE, UPDATE, ChangeBatch, Relation
from penstock.sinks.events.format import EventFormat
from penstock.sinks.events.formats.json import JsonFormat
from penstock.sinks.events.formats.pgsink import PgsinkFormat
from penstock.testing.change_batches import FIRST_COMMIT_TIME, relation

COLUMNS = {
    "id": "int8", "quantity": "int4", "note": "text", "amount": "numeric(10,2)", "at": "timestamptz", "paid": "bool",
    "details": "jsonb",
}  # fmt: skip


def rows_of(relation: Relation, count: int, old: int, per_transaction: int) -> ChangeBatch:
    """Rows of mixed columns, a few of the notes with something to escape."""
    numbers = np.arange(count)
    text = pa.array(numbers).cast(pa.string())
    notes = pc.binary_join_element_wise(
        "note ", text, pc.if_else(pa.array(numbers % 50 == 0), ' says "hello"', " on an order"), ""
    )
    new = [
        text,
        pa.array(numbers % 1000 - 500).cast(pa.string()),
        pc.if_else(pa.array(numbers % 10 == 3), None, notes),
        pc.binary_join_element_wise(text, "50", "."),
        pa.array(["2026-11-15 07:02:40.290389+00"] * count),
        pc.if_else(pa.array(numbers % 2 == 0), "t", "f"),
        pc.binary_join_element_wise('{"n": ', text, ', "tags": ["a", "b"]}', ""),
    ]
    nothing = pa.nulls(count, pa.string())
    transaction = numbers // per_transaction
    return ChangeBatch(
        relation=relation,
        op=np.full(count, INSERT if old == OLD_NONE else UPDATE, np.uint8),
        commit_lsn=(transaction * 1000 + (1 << 33)).astype(np.uint64),
        sequence=(numbers % per_transaction + 1).astype(np.uint32),
        xid=transaction.astype(np.uint32),
        commit_time=FIRST_COMMIT_TIME + transaction * 250,
        new=new,
        old=new if old == OLD_FULL else [new[0], *[nothing] * 6] if old == OLD_KEY else [nothing] * 7,
        old_kind=np.full(count, old, np.uint8),
    )


def measure(label: str, event_format: EventFormat, changes: ChangeBatch) -> None:
    best, lines_bytes = float("inf"), 0
    for _ in range(3):
        lines_bytes = 0
        started = time.process_time()
        for _, events in event_format.runs(changes):
            lines_bytes += events["line"].nbytes
        best = min(best, time.process_time() - started)
    print(f"{label:44} {len(changes) / best:12,.0f} events/s  {lines_bytes / best / 1e6:7,.0f} MB/s")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    pa.set_cpu_count(1)
    keyed = relation("public", "orders", COLUMNS, key=("id",))
    full = relation("public", "orders", COLUMNS, key=("id",), identity="f")
    inserts = rows_of(keyed, count, OLD_NONE, 1000)
    measure("json, inserts", JsonFormat(), inserts)
    measure("json, inserts, a transaction each", JsonFormat(), rows_of(keyed, count, OLD_NONE, 1))
    measure("json, updates of the key", JsonFormat(), rows_of(keyed, count, OLD_KEY, 1000))
    measure("json, updates with the whole old row", JsonFormat(), rows_of(full, count, OLD_FULL, 1000))
    measure("pgsink, inserts", PgsinkFormat(), inserts)


if __name__ == "__main__":
    main()
