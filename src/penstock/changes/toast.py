"""Which columns may have values that Postgres stores outside of the row (TOAST).

An update that leaves such a value alone does not send it again, so code that needs every value of a row has to know.
A value moves out of its row only if it takes more than 24 bytes, the aligned size of the pointer that would replace it.
https://www.postgresql.org/docs/current/storage-toast.html
"""

from __future__ import annotations

from penstock.changes.batch import Column

FIXED_WIDTH = frozenset(
    {
        "bool", "int2", "int4", "int8", "oid", "float4", "float8", "money", "date", "time", "timetz", "timestamp",
        "timestamptz", "interval", "uuid", "enum", "char", "name", "xid", "xid8", "cid", "tid", "pg_lsn", "macaddr",
        "macaddr8", "point", "lseg", "line", "box", "circle", "regclass", "regproc", "regprocedure", "regoper",
        "regoperator", "regtype", "regrole", "regnamespace", "regconfig", "regdictionary", "regcollation",
    }
)  # fmt: skip
_ALWAYS_SHORT = frozenset({"inet", "cidr"})
_SHORT = 5  # characters, of up to four bytes
_SHORT_NUMERIC = 20  # digits


def has_fixed_width(column: Column) -> bool:
    """Whether the type alone rules out TOAST, whatever its modifier says: for what must never be wrong."""
    return column.base in FIXED_WIDTH


def may_be_toasted(column: Column) -> bool:
    """Whether a value of the declared type can be long enough for TOAST: for advice."""
    if column.base in ("varchar", "bpchar") and 0 <= column.modifier - 4 <= _SHORT:
        return False
    if column.base == "numeric" and column.modifier >= 0 and (column.modifier - 4) >> 16 <= _SHORT_NUMERIC:
        return False
    return not has_fixed_width(column) and column.base not in _ALWAYS_SHORT
