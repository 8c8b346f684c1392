"""``penstock rules FILE preview``: a few rows of a table as the source has them, and as the rules would send them on.

They are read in a transaction that can write nothing and gives up soon. Raw values are shown on purpose: to compare them with
what the rules make of them is what it is for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TypeVar

import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.changes.batch import ChangeBatch, Relation, concat
from penstock.config.model import Config
from penstock.errors import ConfigError, SourceUnavailable
from penstock.imports.rule_checks import captured_tables, rule_findings
from penstock.lsn import ZERO
from penstock.postgres.connection import Connection, connect, source_error, translated_errors
from penstock.postgres.reading.copy_out import copy_out
from penstock.postgres.reading.csv_rows import read_rows
from penstock.postgres.reading.layout import table_layout
from penstock.postgres.replication_stream import PINNED_SETTINGS
from penstock.postgres.tables import Table, named_tables
from penstock.rules.checks.source_columns import kept_in_source
from penstock.rules.checks.source_tables import source_tables
from penstock.rules.compiled import Step
from penstock.rules.passage import Passage
from penstock.rules.routing import caught_by
from penstock.sinks.events.formats.json import append_new_row
from penstock.sinks.events.json_text import Line
from penstock.sinks.events.values import Shape, Values, lines_by_shape

T = TypeVar("T")
TextRow = tuple[str | None, ...]  # values as Postgres writes them

_PATIENCE = "10s"
_SETTINGS = f"""
{PINNED_SETTINGS}; set statement_timeout = '{_PATIENCE}'; set lock_timeout = '2s';
set max_parallel_workers_per_gather = 0; set jit = off
"""


@dataclass(frozen=True)
class Preview:
    """``before``: rows of the source as an import reads them; None if there are none. ``after``: those of them that go on,
    with the sequence numbers that they had; None if none does."""

    source: Relation
    target: Relation
    origins: tuple[int | None, ...]  # for each column of the target, which of the source's it was; None: a rule made it
    before: ChangeBatch | None
    after: ChangeBatch | None

    def rows(self) -> list[tuple[TextRow, TextRow | None]]:
        """Each row before and after; None where the filter holds it back."""
        return self._paired(_text_rows)

    def json_lines(self) -> list[str]:
        """An object for each row, with values as events have them."""
        return [f'{{"before":{before},"after":{after or "null"}}}' for before, after in self._paired(_json_rows)]

    def _paired(self, rows_of: Callable[[ChangeBatch], list[T]]) -> list[tuple[T, T | None]]:
        if self.before is None:
            return []
        after = {} if self.after is None else dict(zip(self.after.sequence.tolist(), rows_of(self.after), strict=True))
        numbers = self.before.sequence.tolist()
        return [(row, after.get(number)) for number, row in zip(numbers, rows_of(self.before), strict=True)]


ThroughFrames = Callable[[Passage, Relation, ChangeBatch | None], ChangeBatch | None]


def preview(config: Config, name: str, rows: int, through_frames: ThroughFrames) -> Preview:
    """What the rules make of up to ``rows`` rows of the table. Raises ConfigError for a table that is not captured, and for
    rules that do not fit it, with what ``validate`` finds. ``through_frames``: for tables with code that runs in Spark."""
    with closing(connect(config.source.url.get_secret_value(), application_name="penstock preview")) as connection:
        captured = captured_tables(connection, config)
        table = _captured(connection, name, captured)
        _refuse_misfits(config, connection, table, captured)
        relation, row_filter = _as_captured(connection, table, config)
        before = _read(connection, table, relation, row_filter, rows)
    passage = Passage(config.rules)
    if passage.runs_in_frame(relation):
        after = through_frames(passage, relation, before)
    else:
        after = None if before is None else next(passage.changes(iter([before])), None)
    rules = passage.compiled
    return Preview(relation, rules.output_relation(relation), _origins(rules.steps(relation), relation), before, after)


def _captured(connection: Connection, name: str, captured: Sequence[Table]) -> Table:
    (table,) = named_tables(connection, [name])
    found = next((each for each in captured if each.oid == table.oid), None)
    if found is None:
        raise ConfigError(
            f"{table.qualified_name} is not captured, so no rule applies to it.",
            "Include it in source.tables, or add it to the publication that source.publication names.",
        )
    return found


def _refuse_misfits(config: Config, connection: Connection, table: Table, captured: Sequence[Table]) -> None:
    """Only what concerns the rules for this table: a mistake in another is no reason not to look at this one."""
    own = [f"rules[{index}]" for index, rule in enumerate(config.rules) if caught_by(rule, table.schema, table.table)]
    wrong = [
        " ".join(filter(None, (f"{finding.name}:", finding.message, finding.remedy)))
        for finding in rule_findings(connection, config, source_tables(connection, captured))
        if finding.ok is False and finding.name.partition(".")[0] in own
    ]
    if wrong:
        raise ConfigError.of(wrong)


def _as_captured(connection: Connection, table: Table, config: Config) -> tuple[Relation, str | None]:
    """What changes of the table look like, and the row filter of the user's publications."""
    if config.source.publications:
        layout = table_layout(connection, table.oid, config.source.publications)
        if layout is not None:
            return layout.relation, layout.row_filter
    elif found := source_tables(connection, [table]):
        relation = found[0].relation
        kept = kept_in_source(config.rules, table.schema, table.table, relation.columns_by_name.keys())
        columns = tuple(column for column in relation.columns if column.name not in kept)
        return replace(relation, columns=columns), None
    raise ConfigError(f"{table.qualified_name} has no columns to show.", "Choose another table.")


def _read(
    connection: Connection, table: Table, relation: Relation, row_filter: str | None, rows: int
) -> ChangeBatch | None:
    """The first rows that come, whichever they are: to choose them would mean to read the whole table."""
    doing = f"Reading rows of {table.qualified_name}"
    with translated_errors(doing):
        connection.execute(_SETTINGS.encode())
        connection.execute("begin transaction read only")
    try:
        with closing(copy_out(connection, _query(table, relation, row_filter, rows))) as pieces:
            batches = list(read_rows(relation, pieces, ZERO, 1, 0))
    except psycopg.errors.QueryCanceled as error:
        raise SourceUnavailable(
            f"{doing} took longer than {_PATIENCE}, and was given up.",
            "Many dead rows, or a row filter that lets few through, may be in the way: VACUUM the table, or use --rows 1.",
        ) from error
    except psycopg.Error as error:
        raise source_error(error, doing) from error
    return concat(batches) if batches else None


def _query(table: Table, relation: Relation, row_filter: str | None, rows: int) -> sql.Composed:
    """ONLY: a table's heirs by old-style inheritance are tables of their own."""
    return sql.SQL("select {} from {}{}{} limit {}").format(
        sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns),
        sql.SQL("" if table.kind == "partitioned table" else "only "),
        sql.Identifier(table.schema, table.table),
        sql.SQL("") if row_filter is None else sql.SQL(" where {}").format(sql.SQL(row_filter)),
        sql.Literal(rows),
    )


def _origins(steps: Sequence[Step], relation: Relation) -> tuple[int | None, ...]:
    origins: list[int | None] = list(range(len(relation.columns)))
    for step in steps:
        if step.code is not None:
            before = {column.name: origins[index] for index, column in enumerate(step.relation.columns)}
            origins = [before.get(column.name) for column in step.code.output.columns]
        made = [None] if step.route.origin is not None else []
        origins = [*(origins[index] for index in step.route.kept), *made]
    return tuple(origins)


def _text_rows(batch: ChangeBatch) -> list[TextRow]:
    return list(zip(*(column.to_pylist() for column in batch.new), strict=True))


def _json_rows(batch: ChangeBatch) -> list[str]:
    return [str(line) for line in lines_by_shape(batch, _json_objects).to_pylist()]


def _json_objects(shape: Shape) -> pa.Array:
    line = Line()
    append_new_row(line, shape, Values("string"))
    return line.build()
