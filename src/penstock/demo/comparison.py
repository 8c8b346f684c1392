"""The proof: every row of every table, compared by value.

The source's rows come by COPY, as Postgres prints them, and DuckDB itself reads them into the types of the mirror's
columns. Penstock's own decoding has no part in that, so it cannot hide a mistake of its own.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
from psycopg import sql

from penstock.postgres.connection import Connection


@dataclass(frozen=True)
class TableComparison:
    table: str
    source_rows: int
    target_rows: int
    missing: int  # rows of the source that the mirror lacks
    extra: int  # rows of the mirror that the source lacks

    @property
    def equal(self) -> bool:
        return self.missing == self.extra == 0 and self.source_rows == self.target_rows


def compare(connection: Connection, mirror: Path, schema: str = "public") -> list[TableComparison]:
    """All tables of the schema. Nothing may be writing to either side meanwhile."""
    tables = connection.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY 1", [schema]
    ).fetchall()
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as duck:
        duck.execute(f"ATTACH '{str(mirror).replace(chr(39), chr(39) * 2)}' AS mirror (READ_ONLY)")
        return [_compare_table(connection, duck, schema, table) for (table,) in tables]


def _compare_table(connection: Connection, duck: duckdb.DuckDBPyConnection, schema: str, table: str) -> TableComparison:
    target = f"mirror.{_quoted(schema)}.{_quoted(table)}"
    columns = _mirrored_columns(duck, schema, table)
    names = [name for (name,) in connection.execute(_COLUMNS, [schema, table]).fetchall()]
    if set(columns) != set(names):  # a table that was never created, or a column that never came
        (rows,) = connection.execute(
            sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, table))
        ).fetchone() or (0,)
        return TableComparison(f"{schema}.{table}", rows, 0, missing=rows or 1, extra=0)
    with tempfile.NamedTemporaryFile(prefix="penstock-demo-", suffix=".csv") as file:
        _copy_out(connection, schema, table, names, Path(file.name))
        duck.read_csv(
            file.name, header=False, dtype={name: columns[name] for name in names}, names=names, quotechar='"',
            escapechar='"', sep=",", allow_quoted_nulls=False, parallel=False,
        ).to_table("source")  # fmt: skip
    listed = ", ".join(map(_quoted, names))
    counted = duck.execute(
        f"""
        SELECT (SELECT count(*) FROM source), (SELECT count(*) FROM {target}),
            (SELECT count(*) FROM (SELECT {listed} FROM source EXCEPT ALL SELECT {listed} FROM {target})),
            (SELECT count(*) FROM (SELECT {listed} FROM {target} EXCEPT ALL SELECT {listed} FROM source))
        """
    ).fetchone()
    duck.execute("DROP TABLE source")
    assert counted is not None
    return TableComparison(f"{schema}.{table}", *counted)


def _copy_out(connection: Connection, schema: str, table: str, names: list[str], to: Path) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    statement = sql.SQL("COPY {} ({}) TO STDOUT (FORMAT csv)").format(sql.Identifier(schema, table), columns)
    with connection.transaction(), to.open("wb") as file:
        connection.execute("SET LOCAL TimeZone = 'UTC'")
        connection.execute("SET LOCAL DateStyle = 'ISO'")
        with connection.cursor().copy(statement) as copy:
            for data in copy:
                file.write(data)


def _mirrored_columns(duck: duckdb.DuckDBPyConnection, schema: str, table: str) -> dict[str, str]:
    rows = duck.execute(
        "SELECT column_name, data_type FROM duckdb_columns() "
        "WHERE database_name = 'mirror' AND schema_name = ? AND table_name = ?",
        [schema, table],
    ).fetchall()
    return dict(rows)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_COLUMNS = """
SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
