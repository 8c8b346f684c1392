"""The event format once more, change by change and as plainly as possible, to hold the vectorised encoder against."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.changes.batch import DELETE, MESSAGE, OLD_KEY, OLD_NONE, OP_NAMES, TRUNCATE, ChangeBatch, Column
from penstock.lsn import LSN


class Verbatim(str):
    """A JSON number, kept as it is written so that no comparison rounds it."""


def parsed(line: str) -> Any:
    return json.loads(line, parse_int=Verbatim, parse_float=Verbatim)


def event(changes: ChangeBatch, row: int, numeric: str = "string") -> dict[str, Any]:
    op, relation = int(changes.op[row]), changes.relation
    transaction = {
        "lsn": str(LSN(changes.commit_lsn[row])),
        "sequence": Verbatim(changes.sequence[row]),
        "xid": Verbatim(changes.xid[row]),
        "timestamp": timestamp(int(changes.commit_time[row])),
    }
    new = {c.name: value(changes.new[i][row].as_py(), c, numeric) for i, c in enumerate(relation.columns)}
    if op == MESSAGE:
        return {"op": "message", **new, **transaction}
    old = {c.name: value(changes.old[i][row].as_py(), c, numeric) for i, c in enumerate(relation.columns)}
    unchanged = [relation.columns[i].name for i in sorted(changes.unchanged) if changes.unchanged[i][row]]
    key = {name: old[name] if op == DELETE or name in unchanged else new[name] for name in relation.key}
    return {
        "op": OP_NAMES[op],
        "schema": relation.schema,
        "table": relation.table,
        "key": key if relation.key and op != TRUNCATE else None,
        "before": _before(changes, row, old),
        "after": None if op in (DELETE, TRUNCATE) else {k: v for k, v in new.items() if k not in unchanged},
        **({"unchanged": unchanged} if unchanged else {}),
        **transaction,
    }


def _before(changes: ChangeBatch, row: int, old: dict[str, Any]) -> dict[str, Any] | None:
    kind = changes.old_kind[row]
    if kind == OLD_NONE:
        return None
    return {c.name: old[c.name] for c in changes.relation.columns if c.in_identity or kind != OLD_KEY}


def timestamp(microseconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def value(text: str | None, column: Column, numeric: str) -> Any:
    base = column.base
    if text is None:
        return None
    if base == "bool":
        return text == "t"
    if base in ("int2", "int4", "int8", "float4", "float8") or (base == "numeric" and numeric == "number"):
        return text if text in ("NaN", "Infinity", "-Infinity") else Verbatim(text)
    if base in ("json", "jsonb"):
        return parsed(text)
    if base == "bytea":
        return base64.b64encode(bytes.fromhex(text[2:])).decode()
    return text
