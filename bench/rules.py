"""How many rows per second one core filters and transforms: `python -m bench.rules [rows]`. Every value is another one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import INSERT, OLD_NONE, ChangeBatch
from penstock.rules.compiled import CompiledRules
from penstock.rules.model import RuleSettings
from penstock.rules.transforms import parse_transform
from penstock.rules.transforms.contract import Columns
from penstock.testing.change_batches import FIRST_COMMIT_TIME, relation

_ROUNDS = 3
_NO_ROW = Columns()

# What is measured besides the figures that have a bar.
OTHERS: dict[str, dict[str, object]] = {
    "mask": {"transform": "mask"},
    "mask, email": {"transform": "mask", "kind": "email"},
    "mask, name": {"transform": "mask", "kind": "name"},
    "mask, phone": {"transform": "mask", "kind": "phone"},
    "regex": {"transform": "regex", "pattern": "[0-9]", "replace": "#"},
    "hash, sha256": {"transform": "hash", "salt": "pepper"},
    "hash, xxhash": {"transform": "hash", "algorithm": "xxhash"},
    "encrypt": {"transform": "encrypt", "key_hex": bytes(range(32)).hex()},
    "template": {"transform": "template", "template": "<{value|upper}>"},
    "round": {"transform": "round", "digits": 1},
    "shift_dates": {"transform": "shift_dates", "days": 1},
    "string": {"transform": "string", "min_length": 16, "max_length": 16},
    "full_name, of the same length": {"transform": "full_name", "preserve_length": True},
    "email, of the same domain": {"transform": "email", "preserve_domain": True, "unique": True},
    "phone, of the same form": {"transform": "phone", "preserve_format": True},
}


def texts(rows: int) -> pa.StringArray:
    """As many different e-mail addresses."""
    return pc.binary_join_element_wise("person ", pa.array(np.arange(rows)).cast(pa.string()), "@example.org", "")


def numbers(rows: int) -> pa.StringArray:
    return pc.binary_join_element_wise(pa.array(np.arange(rows)).cast(pa.string()), "25", ".")


def timestamps(rows: int) -> pa.StringArray:
    moments = pa.array(np.arange(rows) * 1_234_567_890).view(pa.timestamp("us"))
    return pc.replace_substring_regex(pc.cast(moments, pa.string()), r"\.?0*\z", "")


def rows_per_second(rows: int, work: Callable[[], object]) -> float:
    """Of the fastest of three runs."""
    work()  # dictionaries are made once
    seconds = []
    for _ in range(_ROUNDS):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return rows / min(seconds)


def filter_and_mask_rate(rows: int) -> float:
    """Of inserts: nine in ten pass a filter on an integer, and the e-mail address of those is masked."""
    rule = RuleSettings.model_validate(
        {
            "tables": ["public.people"],
            "where": {"column": "age", "gte": 10},
            "columns": {"email": {"transform": "mask", "kind": "email"}},
        }
    )
    people = relation("public", "people", id="int8", age="int4", email="text", key=("id",))
    numbers = np.arange(rows)
    new = [pa.array(numbers).cast(pa.string()), pa.array(numbers % 100).cast(pa.string()), texts(rows)]
    batch = ChangeBatch(
        relation=people,
        op=np.full(rows, INSERT, np.uint8),
        commit_lsn=np.full(rows, 1 << 33, np.uint64),
        sequence=(numbers + 1).astype(np.uint32),
        xid=np.full(rows, 731, np.uint32),
        commit_time=np.full(rows, FIRST_COMMIT_TIME, np.int64),
        new=new,
        old=[pa.nulls(rows, pa.string())] * 3,
        old_kind=np.full(rows, OLD_NONE, np.uint8),
    )
    rules = CompiledRules([rule])
    return rows_per_second(rows, lambda: rules.apply(batch))


def fake_person_rate(rows: int) -> float:
    """Full name, e-mail address and phone number, all three by hash, from three columns of distinct values."""
    people = [
        (parse_transform({"transform": name, "salt": "pepper"}), pc.binary_join_element_wise(name, texts(rows), " "))
        for name in ("full_name", "email", "phone")
    ]
    return rows_per_second(rows, lambda: [transform.apply(values, _NO_ROW) for transform, values in people])


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    pa.set_cpu_count(1)
    print(f"{'filter on a number, mask':32} {filter_and_mask_rate(rows):14,.0f} rows/s")
    print(f"{'full_name, email and phone':32} {fake_person_rate(rows):14,.0f} rows/s")
    values = texts(rows)
    of_type = {"round": numbers(rows), "shift_dates": timestamps(rows)}
    for what, settings in OTHERS.items():
        transform, column = parse_transform(settings), of_type.get(what, values)
        rate = rows_per_second(rows, partial(transform.apply, column, _NO_ROW))
        print(f"{what:32} {rate:14,.0f} rows/s", flush=True)


if __name__ == "__main__":
    main()
