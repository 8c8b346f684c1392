"""Tables of a DuckDB file that are not this sink's: another pipeline or sink fills them, or somebody else made them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import duckdb

from penstock.sinks.duckdb_file import CATALOG
from penstock.sinks.duckdb_target import Target
from penstock.sinks.existing_rows import ExistingRows, needs_key, table_of_others
from penstock.sinks.target_owner import Owner, table_of_another

_OTHERS = f"""
    SELECT pipeline, sink FROM {CATALOG}.penstock.tables
    WHERE lower(source_schema) = lower($schema) AND lower(target_table) = lower($target)
        AND (pipeline, sink) <> ($pipeline, $sink)
    UNION ALL SELECT pipeline, sink FROM {CATALOG}.penstock.imports_under_way
    WHERE lower(source_schema) = lower($schema) AND lower(source_table) = lower($table)
        AND (pipeline, sink) <> ($pipeline, $sink)
    LIMIT 1
"""


def refuse_table_of_another(
    connection: duckdb.DuckDBPyConnection, owner: Owner, source: tuple[str, str], target: str
) -> None:
    """SinkRefused if another one fills the table, or is about to. DuckDB's names do not tell capitals apart."""
    schema, table = source
    found = connection.execute(
        _OTHERS, {"schema": schema, "table": table, "target": target, **owner._asdict()}
    ).fetchall()
    if found:
        other = Owner(*found[0])
        release = "; ".join(
            f"DELETE FROM penstock.{records} WHERE pipeline = {_literal(other.pipeline)} AND sink = {_literal(other.sink)} "
            f"AND lower(source_schema) = lower({_literal(schema)}) AND lower({column}) = lower({_literal(name)})"
            for records, column, name in (
                ("tables", "target_table", target), ("imports_under_way", "source_table", table),
            )
        )  # fmt: skip
        raise table_of_another(owner, other, f"{schema}.{target}", release)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def in_the_file(
    connection: duckdb.DuckDBPyConnection,
    schema: str,
    kind: Literal["tables and views", "views"] = "tables and views",
) -> set[str]:
    """Names in small letters."""
    tables = "" if kind == "views" else "SELECT lower(table_name) FROM duckdb_tables() WHERE {} UNION "
    query = f"{tables}SELECT lower(view_name) FROM duckdb_views() WHERE {{}}"
    where = "database_name = $1 AND lower(schema_name) = lower($2)"
    return {name for (name,) in connection.execute(query.replace("{}", where), [CATALOG, schema]).fetchall()}


def refuse_foreign(
    connection: duckdb.DuckDBPyConnection,
    owner: Owner,
    target: Target,
    existing_rows: ExistingRows = "refuse",
    key: Sequence[str] = (),
) -> None:
    """SinkRefused if somebody else made what has the target's name, and ``existing_rows`` does not say what becomes of it."""
    name = target.table.lower()
    if name not in in_the_file(connection, target.schema):
        return
    shown = f"{target.schema}.{target.table}"
    is_view = name in in_the_file(connection, target.schema, "views")
    if is_view or existing_rows == "refuse":
        raise table_of_others(owner.sink, shown, is_view)
    if existing_rows == "keep" and not key:
        raise needs_key(owner.sink, shown)
