"""What a mirror records about itself in its target: schema ``penstock``, for targets that speak SQL.

=====================  ==========================================================================================
``progress``           the position: up to which LSN the target holds every change, and of which source
``imports``            tables whose import is complete, and up to which LSN the import brought them
``imports_under_way``  imports that have begun, each with the shadow table that it fills
``import_parts``       the ``rows`` parts that each shadow holds
``tables``             which source table is which table of the target; some of its columns are the store's own
=====================  ==========================================================================================

Every row belongs to an owner, a sink of a pipeline. Reading and writing happen inside the caller's transaction, together with
the rows that the records are about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.changelog.admission import Ready
from penstock.lsn import LSN
from penstock.sinks.contract import ImportPart, UnderWay
from penstock.sinks.mirror.imports import ImportRecord, Shadow
from penstock.sinks.mirror.owner import Owner, table_of_another

Execute = Callable[[str, Sequence[object]], Sequence[tuple[Any, ...]]]  # a statement and its parameters: the rows


Values = Mapping[str, object]  # by column
_ALL: Values = {}


@dataclass(frozen=True)
class Dialect:
    """``name``: how two names of tables compare. ``row_lock``: locks the rows of a SELECT until the transaction ends.
    ``if_absent``: makes an INSERT do nothing where the row exists."""

    schema: str = "penstock"
    placeholder: str = "?"
    name: str = "{}"
    row_lock: str = ""
    if_absent: str = ""


class Records:
    """The records of one owner. ``origin`` and ``subscription`` are those of the source, and are recorded with the rest."""

    def __init__(
        self, execute: Execute, dialect: Dialect, owner: Owner, origin: str = "", subscription: str = ""
    ) -> None:
        self._execute, self._dialect, self.owner = execute, dialect, owner
        self._origin, self.subscription = origin, subscription

    # Position

    def position(self, lock: bool = False) -> LSN | None:
        """``lock``: nobody else moves it before the transaction ends."""
        rows = self._select("progress", ("lsn",), lock=lock)
        return LSN.parse(rows[0][0]) if rows else None

    def put_position(self, lsn: LSN) -> None:
        self._put("progress", {}, {"lsn": str(lsn), "source": self._origin}, committed_at="now()")

    def origins(self) -> set[str]:
        """The system identifiers of the sources that anything was recorded of."""
        tables = ("progress", "imports", "imports_under_way")
        return {origin for table in tables for (origin,) in self._select(table, ("source",))}

    # Imports

    def imports(self, part: ImportPart | None = None) -> ImportRecord:
        """All of them; of ``part``, only what concerns that part, unless it begins an import."""
        of_table, of_job, of_part = _ALL, _ALL, _ALL
        if part is not None and part.phase != "begin":
            of_table, of_job, of_part = {"oid": part.oid}, {"job": part.job}, {"job": part.job, "number": part.number}
        ready = self._select("imports", ("subscription", "oid", "job", "lsn"), of_table)
        under_way = self._select("imports_under_way", ("subscription", "oid", "job", "replayed"), of_job)
        numbers: dict[int, set[int]] = {}
        for job, number in self._select("import_parts", ("job", "number"), of_part):
            numbers.setdefault(job, set()).add(number)
        return ImportRecord(
            next((row[0] for row in [*ready, *under_way]), ""),
            {oid: Ready(job, LSN.parse(lsn)) for _, oid, job, lsn in ready},
            {job: UnderWay(frozenset(numbers.get(job, ())), _lsn(replayed)) for _, _, job, replayed in under_way},
            {job: oid for _, oid, job, _ in under_way},
        )

    def put_imports(self, before: ImportRecord, after: ImportRecord) -> None:
        """Writes what differs. An import that begins has its shadow recorded first: ``put_shadow``."""
        for job in before.under_way.keys() - after.under_way.keys():
            for table in ("imports_under_way", "import_parts"):
                self._delete(table, job=job)
        for job, under_way in after.under_way.items():
            former = before.under_way.get(job, UnderWay())
            for number in sorted(under_way.rows - former.rows):
                self._insert("import_parts", {"job": job, "number": number}, self._dialect.if_absent)
            if under_way.replayed != former.replayed:
                self._put("imports_under_way", {"job": job}, {"replayed": str(under_way.replayed)})
        for oid in before.ready.keys() - after.ready.keys():
            self._delete("imports", oid=oid)
        for oid, ready in after.ready.items():
            if ready != before.ready.get(oid):
                values = {
                    "source": self._origin,
                    "subscription": self.subscription,
                    "job": ready.job,
                    "lsn": str(ready.lsn),
                }
                self._put("imports", {"oid": oid}, values)

    def put_part(self, part: ImportPart) -> bool:
        """False: another process has put the part's rows into the shadow, and committed."""
        values = {"job": part.job, "number": part.number}
        return bool(self._insert("import_parts", values, f"{self._dialect.if_absent} RETURNING 1"))

    def shadow(self, job: int) -> Shadow:
        """Of an import under way."""
        columns = ("oid", "source_schema", "source_table", "target_schema", "target_table", "details")
        rows = self._select("imports_under_way", columns, {"job": job})
        oid, source_schema, source_table, schema, table, details = rows[0]
        return Shadow(job, oid, (source_schema, source_table), (schema, table), details)

    def put_shadow(self, shadow: Shadow) -> None:
        values = {
            "source": self._origin,
            "subscription": self.subscription,
            "oid": shadow.oid,
            "source_schema": shadow.source[0],
            "source_table": shadow.source[1],
            "target_schema": shadow.name[0],
            "target_table": shadow.name[1],
            "details": shadow.details,
        }
        self._put("imports_under_way", {"job": shadow.job}, values)

    def shadows_in(self, schema: str) -> set[str]:
        """The names of all owners' shadows there."""
        name = self._dialect.name
        statement = (
            f"SELECT target_table FROM {self._dialect.schema}.imports_under_way "
            f"WHERE {name.format('target_schema')} = {name.format('?')}"
        )
        return {table for (table,) in self._run(statement, [schema])}

    def imported_to(self, oid: int) -> LSN | None:
        """Up to where its last import brought the source's table."""
        rows = self._select("imports", ("lsn",), {"oid": oid})
        return LSN.parse(rows[0][0]) if rows else None

    # Owners

    def refuse_table_of_another(self, source: tuple[str, str], target: str) -> None:
        """SinkRefused if another owner fills table ``target`` of the source's schema, or is about to."""
        claims = (("tables", "target_table", target), ("imports_under_way", "source_table", source[1]))
        for records, column, table in claims:
            where = self._has_name(column)
            statement = (
                f"SELECT pipeline, sink FROM {self._dialect.schema}.{records} "
                f"WHERE {where} AND NOT (pipeline = ? AND sink = ?) LIMIT 1"
            )
            for row in self._run(statement, [source[0], table, *self.owner]):
                other = Owner(*row)
                release = "; ".join(self._release(other, *claim, source[0]) for claim in claims)
                raise table_of_another(self.owner, other, f"{source[0]}.{target}", release)

    def _has_name(self, column: str, schema: str = "?", table: str = "?") -> str:
        name = self._dialect.name.format
        return f"{name('source_schema')} = {name(schema)} AND {name(column)} = {name(table)}"

    def _release(self, other: Owner, records: str, column: str, table: str, schema: str) -> str:
        return (
            f"DELETE FROM penstock.{records} WHERE pipeline = {_literal(other.pipeline)} AND sink = {_literal(other.sink)} "
            f"AND {self._has_name(column, _literal(schema), _literal(table))}"
        )

    # Statements

    def _select(
        self, table: str, columns: Sequence[str], where: Values = _ALL, lock: bool = False
    ) -> Sequence[tuple[Any, ...]]:
        end = f" {self._dialect.row_lock}" if lock else ""
        statement = f"SELECT {', '.join(columns)} FROM {self._dialect.schema}.{table} WHERE {_ours(where)}{end}"
        return self._run(statement, [*self.owner, *where.values()])

    def _delete(self, table: str, **where: object) -> None:
        self._run(f"DELETE FROM {self._dialect.schema}.{table} WHERE {_ours(where)}", [*self.owner, *where.values()])

    def _insert(self, table: str, values: Values, end: str = "", **expressions: str) -> Sequence[tuple[Any, ...]]:
        names = ["pipeline", "sink", *values, *expressions]
        marks = ["?"] * (2 + len(values)) + list(expressions.values())
        statement = f"INSERT INTO {self._dialect.schema}.{table} ({', '.join(names)}) VALUES ({', '.join(marks)}) {end}"
        return self._run(statement, [*self.owner, *values.values()])

    def _put(self, table: str, key: Values, values: Values, **expressions: str) -> None:
        """Updates the row, or inserts it. Not by deleting it first: whoever waits for a lock on the row would miss it."""
        sets = ", ".join(
            [f"{name} = ?" for name in values] + [f"{name} = {text}" for name, text in expressions.items()]
        )
        update = f"UPDATE {self._dialect.schema}.{table} SET {sets} WHERE {_ours(key)} RETURNING 1"
        if not self._run(update, [*values.values(), *self.owner, *key.values()]):
            self._insert(table, {**key, **values}, **expressions)

    def _run(self, statement: str, values: Sequence[object]) -> Sequence[tuple[Any, ...]]:
        return self._execute(statement.replace("?", self._dialect.placeholder), values)


def _ours(where: Values) -> str:
    return " AND ".join(f"{name} = ?" for name in ("pipeline", "sink", *where))


def _lsn(text: str | None) -> LSN | None:
    return LSN.parse(text) if text is not None else None


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
