"""How many rows per second one core filters and transforms: `python -m bench.rules [rows]`. Every value is another one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes import INSERT, OLD_NONE, ChangeBatch
from penstock.rules.compiled import CompiledRules
from penstock.rules.model import RuleSettings
from penstock.rules.transforms import parse_transform
from penstock.rules.transforms.contract import Columns
from penstock.testing.change_batches import relation

_ROUNDS = 3
_NO_ROW = Columns()

# What is measured besides the figures that have a bar.
OTHERS: dict[str, dict[str, object]] = {
    "mask, email": {"transform": "mask", "kind": "email"},
    "mask, name": {"transform": "mask", "kind": "name"},
    "mask, phone": {"transform": "mask", "kind": "phone"},
    "regex": {"transform": "regex", "pattern": "[0-9]", "replace": "#"},
    "hash, sha256": {"transform": "hash", "salt": "pepper"},
    "hash, xxhash": {"transform": "hash", "algorithm": "xxhash"},
    "encrypt": {"transform": "encrypt", "key_hex": bytes(range(32)).hex()},
    "template": {"transform": "template", "template": "<{value|upper}>"},
    "string": {"transform": "string", "min_length": 16, "max_length": 16},
    "full_name, of the same length": {"transform": "full_name", "preserve_length": True},
    "email, of the same domain": {"transform": "email", "preserve_domain": True, "unique": True},
    "phone, of the same form": {"transform": "phone", "preserve_format": True},
}


def texts(rows: int) -> pa.StringArray:
    """As many different e-mail addresses."""
    return pc.binary_join_element_wise("person ", pa.array(np.arange(rows)).cast(pa.string()), "@example.org", "")


def rows_per_second(rows: int, work: Callable[[], object]) -> float:
    """Of the fastest of three runs."""
    work()  # dictionaries are made once
    seconds = []
    for _ in range(_ROUNDS):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return rows / min(seconds)


def mask_rate(rows: int) -> float:
    values, mask = texts(rows), parse_transform({"transform": "mask"})
    return rows_per_second(rows, lambda: mask.apply(values, _NO_ROW))


def filter_and_mask_rate(rows: int) -> float:
    """A rule over inserted rows: a number is compared, which half of them pass, and an e-mail address is masked."""
    table = relation("public", "people", id="int8", age="int4", email="text", key=("id",))
    numbers = np.arange(rows)
    columns = [pa.array(numbers).cast(pa.string()), pa.array(numbers % 100).cast(pa.string()), texts(rows)]
    batch = ChangeBatch(
        table, np.full(rows, INSERT, np.uint8), numbers.astype(np.uint64), np.ones(rows, np.uint32),
        np.ones(rows, np.uint32), np.zeros(rows, np.int64), columns, [pa.nulls(rows, pa.string())] * 3,
        np.full(rows, OLD_NONE, np.uint8),
    )  # fmt: skip
    rule = {"tables": ["people"], "where": {"column": "age", "gte": 50}, "columns": {"email": {"transform": "mask"}}}
    rules = CompiledRules([RuleSettings.model_validate(rule)])
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
    print(f"{'filter by a number, and mask':32} {filter_and_mask_rate(rows):14,.0f} rows/s")
    print(f"{'mask':32} {mask_rate(rows):14,.0f} rows/s")
    print(f"{'full_name, email and phone':32} {fake_person_rate(rows):14,.0f} rows/s")
    values = texts(rows)
    for what, settings in OTHERS.items():
        transform = parse_transform(settings)
        rate = rows_per_second(rows, lambda transform=transform: transform.apply(values, _NO_ROW))  # type: ignore[misc]
        print(f"{what:32} {rate:14,.0f} rows/s", flush=True)


if __name__ == "__main__":
    main()
