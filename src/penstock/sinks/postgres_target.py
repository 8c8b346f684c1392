"""A table of the target, as its catalog describes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from penstock.changes import Relation
from penstock.errors import SinkRefused
from penstock.postgres.connection import Connection

# Types of extensions have their own operator for equality, which an empty search_path does not find.
_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod), attnotnull, attgenerated <> '', coalesce(equal.schema, 'pg_catalog'),
    (WITH RECURSIVE base (oid, type) AS (
        SELECT t.oid, t.typbasetype FROM pg_type t WHERE t.oid = a.atttypid AND t.typtype = 'd' UNION ALL
        SELECT t.oid, t.typbasetype FROM base JOIN pg_type t ON t.oid = base.type AND t.typtype = 'd'
    ) SELECT format_type(base.type, -1) FROM base WHERE base.type NOT IN (SELECT oid FROM base))
FROM pg_attribute a LEFT JOIN LATERAL (
    WITH RECURSIVE below (oid) AS (
        SELECT a.atttypid UNION ALL
        SELECT t.typbasetype FROM below JOIN pg_type t ON t.oid = below.oid WHERE t.typbasetype <> 0
    )
    SELECT n.nspname AS schema FROM below
    JOIN pg_opclass c ON c.opcintype = below.oid AND c.opcdefault
    JOIN pg_am am ON am.oid = c.opcmethod AND am.amname = 'btree'
    JOIN pg_amop o ON o.amopfamily = c.opcfamily AND o.amoplefttype = below.oid AND o.amoprighttype = below.oid
        AND o.amopstrategy = 3
    JOIN pg_operator op ON op.oid = o.amopopr AND op.oprname = '='
    JOIN pg_namespace n ON n.oid = op.oprnamespace
) equal ON true
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
# An index on an expression may hang on any column: it counts as one on all of them.
_UNIQUE = """
SELECT array(
    SELECT attname::text FROM pg_attribute
    WHERE attrelid = indrelid AND attnum > 0 AND NOT attisdropped AND (0 = ANY (indkey) OR attnum = ANY (indkey))
)
FROM pg_index WHERE indrelid = %s AND (indisunique OR indisexclusion)
"""
_REFERENCED = (
    "SELECT EXISTS (SELECT FROM pg_constraint WHERE confrelid = %s AND contype = 'f' AND conrelid <> confrelid)"
)


@dataclass(frozen=True)
class TargetColumn:
    name: str
    type: str
    not_null: bool = False
    generated: bool = False
    equal_schema: str = "pg_catalog"  # where the type's operator = is
    base: str | None = None  # of a domain: the type below all domains, which takes any value of it and NULL


@dataclass(frozen=True)
class Target:
    schema: str
    table: str
    oid: int
    columns: tuple[TargetColumn, ...]
    unique: tuple[tuple[str, ...], ...]  # the columns of each unique index, exclusion constraints among them
    partitioned: bool = False

    @property
    def name(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table)

    @property
    def rows(self) -> sql.Composed:
        """Its own rows, to read, change and delete: those of tables that inherit from it are other tables' rows."""
        return sql.SQL("{}" if self.partitioned else "ONLY {}").format(self.name)

    def column(self, name: str) -> TargetColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    def writable(self, relation: Relation) -> list[int]:
        """The relation's columns that the target takes a value for: what it generates by itself it does by itself."""
        return [
            index for index, column in enumerate(relation.columns) if not self._column(relation, column.name).generated
        ]

    def staged(self, name: str, may_lack: bool) -> sql.Composed:
        """The column as it is in a table beside this one, of its type; of a domain's base type where it may be NULL."""
        column = self.column(name)
        if may_lack and column is not None and column.base is not None:
            return sql.SQL("{}::{}").format(sql.Identifier(name), sql.SQL(column.base))
        return sql.SQL("{}").format(sql.Identifier(name))

    def same(self, columns: Sequence[tuple[str, str]], other: str, this: str = "t") -> sql.Composed:
        """That rows agree in these columns of the target: their names in table ``other``, and here."""
        return sql.SQL(" AND ").join(
            sql.SQL("{} {} {}").format(sql.Identifier(this, name), self._equal(name), sql.Identifier(other, alias))
            for alias, name in columns
        )

    def _equal(self, name: str) -> sql.Composed:
        column = self.column(name)
        schema = column.equal_schema if column is not None else "pg_catalog"
        return sql.SQL("OPERATOR({}.=)").format(sql.Identifier(schema))

    def unique_besides(self, key: Sequence[str]) -> list[str]:
        """The columns that are unique in some way other than by the key."""
        return sorted({name for names in self.unique if set(names) != set(key) for name in names})

    def _column(self, relation: Relation, name: str) -> TargetColumn:
        column = self.column(name)
        if column is None:
            raise SinkRefused(
                f"Table {self.schema}.{self.table} of the target has no column {name}, which {relation.qualified_name} has.",
                "Add the column, or set `schema: create` on the sink.",
            )
        return column


def find(connection: Connection, schema: str, table: str) -> Target | None:
    row = connection.execute(
        "SELECT c.oid::bigint, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s",
        [schema, table],
    ).fetchone()
    if row is None:
        return None
    oid, kind = row
    if kind not in ("r", "p"):
        raise SinkRefused(
            f"{schema}.{table} of the target is not a table, but the source's is.", "Move it away, or drop it."
        )
    columns = tuple(TargetColumn(*found) for found in connection.execute(_COLUMNS, [oid]))
    unique = tuple(tuple(names) for (names,) in connection.execute(_UNIQUE, [oid]))
    return Target(schema, table, oid, columns, unique, kind == "p")


def is_referenced(connection: Connection, target: Target) -> bool:
    """By another table's foreign key, just now."""
    row = connection.execute(_REFERENCED, [target.oid]).fetchone()
    return bool(row and row[0])
