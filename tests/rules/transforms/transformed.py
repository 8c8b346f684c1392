"""How tests apply transforms to plain lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.changes.batch import Column
from penstock.rules.transforms import parse_transform
from penstock.rules.transforms.contract import Columns, Transform
from penstock.testing.change_batches import relation

Values = Sequence[str | None]


def text(values: Values) -> pa.StringArray:
    return pa.array(values, pa.string())


def transform(name: str, **settings: Any) -> Transform:
    return parse_transform({"transform": name, **settings})


def applied(transform: Transform, values: Values, row: Mapping[str, Values] | None = None) -> list[str | None]:
    columns = Columns({name: text(column) for name, column in (row or {}).items()})
    result = transform.apply(text(values), columns)
    assert result.type == pa.string()
    result.validate(full=True)
    changed: list[str | None] = result.to_pylist()
    return changed


def column(type_name: str) -> Column:
    return relation("public", "t", {"c": type_name}).columns[0]
