"""Tables of a DuckDB file that another pipeline, or another sink, fills."""

from __future__ import annotations

import duckdb

from penstock.sinks.duckdb_file import CATALOG
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
