"""Code in rules: what it is given of a batch of changes, and the batch that its result makes.

Each change that brings a row (insert, update, read) is a row, known by its ``_lsn`` and ``_sequence``. Of those that come
out, the new row is what came out. An UPDATE that does not is a DELETE by key, as with filters; an INSERT or READ that does not
is dropped. A DELETE goes on by its key and a TRUNCATE as it is, past the code. Why: ``docs/decisions/0011-code-in-rules.md``.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.changes.batch import (
    DELETE,
    INSERT,
    OLD_KEY,
    OLD_NONE,
    READ,
    UPDATE,
    Bools,
    ChangeBatch,
    Column,
    Int64s,
    Relation,
    UInt8s,
    UInt64s,
)
from penstock.changes.net import fill_from_old_rows, with_values_from_batch
from penstock.errors import ConfigError, RuleError
from penstock.lsn import LSN
from penstock.pgoutput.types.written import NoPostgresType, NotWritable, column_for, plain, written
from penstock.rules.code.rows import (
    ABOUT_NAMES,
    LSN_COLUMN,
    SEQUENCE_COLUMN,
    Unseen,
    lsns_of,
    rows_of,
    schema_of,
    seen,
    seen_type,
)
from penstock.rules.model import CodeKey, Function, place_of, told
from penstock.rules.where.filters import as_deletes, null_elsewhere

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Code:
    """One rule's code for one relation, and what it makes of it. ``path``: the key's place in the config."""

    key: CodeKey
    code: str | Function
    path: str
    relation: Relation  # what goes in
    result: pa.Schema  # what comes out, without what is about the change
    output: Relation

    @classmethod
    def of(cls, key: CodeKey, code: str | Function, path: str, relation: Relation, result: pa.Schema) -> Code:
        """``result``: the columns of what comes out. ConfigError if changes cannot be made of it."""
        refuse_unfit_table(path, relation)
        names = result.names
        for name in (LSN_COLUMN, SEQUENCE_COLUMN, *relation.key):
            if name not in names:
                what = "the key of the table" if name in relation.key else "what tells changes apart"
                raise ConfigError(
                    f"{path}: the result for {relation.qualified_name} lacks {name}, {what}.", f"Select {name} as well."
                )
        twin = next((name for name in names if names.count(name) > 1), None)
        if twin is not None:
            raise ConfigError(
                f"{path}: the result for {relation.qualified_name} has two columns called {twin}.",
                "Name the columns that you want, each once.",
            )
        own = pa.schema([pa.field(field.name, plain(field.type)) for field in result if field.name not in ABOUT_NAMES])
        columns = tuple(_column(field, relation, path) for field in own)
        output = replace(relation, columns=columns, identity="d" if relation.identity == "f" else relation.identity)
        return cls(key, code, path, relation, own, output)

    def prepared(self, batch: ChangeBatch) -> tuple[ChangeBatch, Bools]:
        """With all values that can be known, and which changes bring a row. RuleError if one of these lacks a value."""
        batch = fill_from_old_rows(with_values_from_batch(batch))
        brings: Bools = np.isin(batch.op, (INSERT, UPDATE, READ))
        for index, mask in batch.unchanged.items():
            if (mask & brings).any():
                name = self.relation.columns[index].name
                lsn = LSN(int(batch.commit_lsn[np.flatnonzero(mask & brings)[0]]))
                raise RuleError(
                    f"{self.path}: an update of {self.relation.qualified_name} (commit {lsn}) does not say what {name} is: "
                    "the value is stored apart (TOAST) and did not change, so it was not sent.",
                    "Set REPLICA IDENTITY FULL on the table, so that later updates have it. To get past this one, take the "
                    "code out of the rule, start, put it back, and resync the table.",
                )
        return batch, brings

    def rows(self, batch: ChangeBatch) -> pa.Table:
        """What the code is given of a prepared batch, of the changes in it that bring a row."""
        try:
            return rows_of(batch)
        except Unseen as unseen:
            raise RuleError(
                f"{self.path}: a value of {self.relation.qualified_name}.{unseen.column} (commits {_span(batch)}) has no "
                f"place in {unseen.kind}, as which code sees the column.",
                "Exclude or transform the column in a rule before this one, or mend the value and resync the table.",
            ) from None

    def apply(self, batch: ChangeBatch) -> ChangeBatch:
        """For ``python``: with the function's result."""
        assert isinstance(self.code, Function)
        batch, brings = self.prepared(batch)
        if not brings.any():
            return self.rejoined(batch, brings, self.result_of(self.empty_rows()))
        rows = self.rows(batch if brings.all() else batch.take(np.flatnonzero(brings)))
        return self.rejoined(batch, brings, self.result_of(called(self.code, self.path, self.relation, rows, batch)))

    def empty_rows(self) -> pa.Table:
        return pa.schema(
            [*self.result, pa.field(LSN_COLUMN, pa.string()), pa.field(SEQUENCE_COLUMN, pa.int64())]
        ).empty_table()

    def result_of(self, table: pa.Table) -> pa.Table:
        """With the columns that ``result`` says, and those that tell changes apart. RuleError if it has others."""
        wanted = self.empty_rows().schema
        lost = [name for name in wanted.names if table.schema.get_field_index(name) < 0]
        more = [name for name in table.column_names if name not in {*wanted.names, *ABOUT_NAMES}]
        if lost or more:
            raise self.refused(f"has {'no' if lost else 'a'} column {(lost or more)[0]}, other than for other rows")
        try:
            return table.select(wanted.names).cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise self.refused("has values of other types than for other rows") from None

    def rejoined(self, batch: ChangeBatch, brings: Bools, result: pa.Table) -> ChangeBatch:
        """The batch with the rows that came out. ``result``: see ``result_of``."""
        places = self._places(batch, brings, result)
        come = places >= 0
        result = result.combine_chunks()
        taken = pa.array(np.where(come, places, 0), mask=~come)
        new = [self._text(batch, field, result.column(field.name), taken, come) for field in self.result]
        self._refuse_other_keys(batch, new, come)
        gone = brings & ~come & (batch.op == UPDATE)
        if gone.any():
            batch = as_deletes(batch, gone)
        old, old_kind = self._old_keys(batch, new)
        made = replace(batch, relation=self.output, new=new, old=old, old_kind=old_kind, unchanged={})
        stays = come | gone | ~brings
        return made if stays.all() else made.take(np.flatnonzero(stays))

    def _places(self, batch: ChangeBatch, brings: Bools, result: pa.Table) -> Int64s:
        """For each change, the row of the result that is its; -1 if none is."""
        places = np.full(len(batch), -1, np.int64)
        lsns = lsns_of(result.column(LSN_COLUMN).combine_chunks())
        numbers = result.column(SEQUENCE_COLUMN).combine_chunks()
        if lsns is None or numbers.null_count:
            raise self.refused(f"has rows in which {LSN_COLUMN} or {SEQUENCE_COLUMN} is not a change's")
        known, code = np.unique(batch.commit_lsn, return_inverse=True)
        own = code.astype(np.int64) << 32 | batch.sequence.astype(np.int64)
        order = np.argsort(own, kind="stable")
        commit = np.searchsorted(known, lsns)
        there = (commit < len(known)) & (known[np.minimum(commit, len(known) - 1)] == lsns)
        wanted = commit.astype(np.int64) << 32 | numbers.to_numpy(zero_copy_only=False).astype(np.int64)
        at = np.searchsorted(own[order], wanted)
        rows = order[np.minimum(at, len(own) - 1)]
        if not (there & (own[rows] == wanted) & brings[rows]).all():
            raise self.refused(f"has rows with {LSN_COLUMN} and {SEQUENCE_COLUMN} of no change that went in")
        places[rows] = np.arange(len(rows))
        if np.count_nonzero(places >= 0) != len(rows):
            twice = LSN(int(lsns[np.flatnonzero(places[rows] != np.arange(len(rows)))[0]]))
            raise self.refused(
                f"has a change (commit {twice}) more than once",
                "Let each change come out once at most: a join must not find several rows for one.",
            )
        return places

    def _text(
        self, batch: ChangeBatch, field: pa.Field, column: pa.ChunkedArray, taken: pa.Array, come: Bools
    ) -> pa.Array:
        """As Postgres writes it; a value that went through the code unchanged, as Postgres wrote it."""
        values = _one_array(column).take(taken)
        index = _like(self.relation, field)
        if index is not None:
            there = null_elsewhere(come, batch.new[index])
            before = seen(there, self.relation.columns[index])
            same = pc.fill_null(pc.equal(values, before), False)
            if pc.all(pc.or_(same, pc.and_(pc.is_null(values), pc.is_null(before)))).as_py():
                return there
            return pc.if_else(same, there, self._written(field, values))
        return self._written(field, values)

    def _written(self, field: pa.Field, values: pa.Array) -> pa.StringArray:
        try:
            return written(values)
        except (NotWritable, pa.ArrowInvalid):
            raise self.refused(f"has a value in {field.name} that Postgres's {field.type} does not take") from None

    def _refuse_other_keys(self, batch: ChangeBatch, new: list[pa.Array], come: Bools) -> None:
        for name, index in zip(self.output.key, self.output.key_indexes, strict=True):
            before = null_elsewhere(come, batch.new[self.relation.key_indexes[self.relation.key.index(name)]])
            if not new[index].equals(before):
                raise self.refused(f"has other values in {name}, which is in the key", f"Leave {name} as it is.")

    def _old_keys(self, batch: ChangeBatch, new: list[pa.Array]) -> tuple[list[pa.Array], UInt8s]:
        """Of old rows the key alone goes on, and of an update's only where it changed."""
        positions = {column.name: index for index, column in enumerate(self.relation.columns)}
        nothing = pa.nulls(len(batch), pa.string())
        old = [
            batch.old[positions[name]] if name in self.output.key else nothing for name in self.output.columns_by_name
        ]
        moved = np.zeros(len(batch), np.bool_)
        for index in self.output.key_indexes:
            moved |= ~pc.fill_null(pc.equal(old[index], new[index]), False).to_numpy(zero_copy_only=False)
        sent = (batch.old_kind != OLD_NONE) & ((batch.op == DELETE) | ((batch.op == UPDATE) & moved))
        kinds = np.where(sent, OLD_KEY, OLD_NONE).astype(np.uint8)
        return [null_elsewhere(sent, values) for values in old], kinds

    def refused(self, what: str, advice: str = "") -> RuleError:
        return RuleError(
            f"{self.path}: the result for {self.relation.qualified_name} {what}.",
            advice or "Correct the code, and start again.",
        )


class Results:
    """The result of code over all rows of a table, sorted by change, of which batches take their part one after the other."""

    def __init__(self, code: Code, tables: Iterator[pa.Table]) -> None:
        self._code, self._tables = code, tables
        self._pending, self._at = code.empty_rows(), (np.zeros(0, np.uint64), np.zeros(0, np.int64))

    def apply(self, batch: ChangeBatch) -> ChangeBatch:
        batch, brings = self._code.prepared(batch)
        last = int(batch.commit_lsn[-1]), int(batch.sequence[-1])
        while not len(self._at[0]) or (int(self._at[0][-1]), int(self._at[1][-1])) <= last:
            if not self._read():
                break
        lsns, numbers = self._at
        mine = int(np.count_nonzero((lsns < last[0]) | ((lsns == last[0]) & (numbers <= last[1]))))
        result, self._pending = self._pending.slice(0, mine), self._pending.slice(mine)
        self._at = lsns[mine:], numbers[mine:]
        return self._code.rejoined(batch, brings, result)

    def refuse_leftovers(self) -> None:
        if len(self._at[0]) or self._read():
            raise self._code.refused(f"has rows with {LSN_COLUMN} and {SEQUENCE_COLUMN} of no change that went in")

    def _read(self) -> bool:
        for table in self._tables:
            if not len(table):
                continue
            table = self._code.result_of(table)
            lsns, numbers = _positions(self._code, table)
            self._pending = pa.concat_tables([self._pending, table])
            self._at = np.concatenate([self._at[0], lsns]), np.concatenate([self._at[1], numbers])
            return True
        return False


def _positions(code: Code, table: pa.Table) -> tuple[UInt64s, Int64s]:
    lsns = lsns_of(_one_array(table.column(LSN_COLUMN)))
    numbers = _one_array(table.column(SEQUENCE_COLUMN))
    if lsns is None or numbers.null_count:
        raise code.refused(f"has rows in which {LSN_COLUMN} or {SEQUENCE_COLUMN} is not a change's")
    return lsns, numbers.to_numpy(zero_copy_only=False)


def refuse_unfit_table(path: str, relation: Relation) -> None:
    """ConfigError for a table that no code can be for."""
    taken = next((column.name for column in relation.columns if column.name in ABOUT_NAMES), None)
    if taken is not None:
        raise ConfigError(
            f"{path}: {relation.qualified_name} has a column {taken}, which is the name of what code is told of a change.",
            "Rename or exclude the column in a rule before this one.",
        )
    if not relation.key:
        raise ConfigError(
            f"{path}: {relation.qualified_name} has no key, by which a change would find what code made of a row.",
            "Give the table a primary key, or take it out of the rule.",
        )


def called(
    function: Function, path: str, relation: Relation, rows: pa.Table, batch: ChangeBatch | None = None
) -> pa.Table:
    """The function's table. What it raises is told by its type and place alone: its words may repeat values."""
    loaded = function.load(path)
    try:
        result = loaded(rows)
    except Exception as error:  # noqa: BLE001  whatever somebody's function raises
        logger.debug("%s: %s", path, _where(error))
        which = (
            f"{relation.qualified_name} (commits {_span(batch)})"
            if batch is not None
            else f"no rows of {relation.qualified_name}"
        )
        kind = RuleError if batch is not None else ConfigError
        raise kind(
            f"{path}: the function {function} raised {told(error)} with {which} ({place_of(error, function)}).",
            "Correct the function, and start again."
            if batch is not None
            else "It is called once with an empty table, to learn its columns; let it take that.",
        ) from None
    if not isinstance(result, pa.Table):
        raise ConfigError(
            f"{path}: the function {function} returned {type(result).__name__}.", "Return a pyarrow.Table."
        )
    return result


def function_result(function: Function, path: str, relation: Relation) -> pa.Schema:
    """The columns that the function makes, told by what it makes of no rows."""
    return called(function, path, relation, schema_of(relation).empty_table()).schema


def _where(error: BaseException) -> str:
    """Places alone: the text of lines and messages may hold values."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{told(error)} in " + ", ".join(f"{frame.filename}:{frame.lineno} ({frame.name})" for frame in frames)


def _span(batch: ChangeBatch) -> str:
    first, last = LSN(int(batch.commit_lsn[0])), LSN(int(batch.commit_lsn[-1]))
    return f"{first}" if first == last else f"{first} to {last}"


def _column(field: pa.Field, relation: Relation, path: str) -> Column:
    index = _like(relation, field)
    in_key = field.name in relation.key
    if index is not None:
        return replace(relation.columns[index], in_identity=in_key)
    try:
        return column_for(field.name, field.type, in_key)
    except NoPostgresType:
        raise ConfigError(
            f"{path}: column {field.name} of the result for {relation.qualified_name} is {field.type}, which no type of "
            "Postgres stands for here.",
            "Make it text, in sql with to_json().",
        ) from None


def _like(relation: Relation, field: pa.Field) -> int | None:
    """The column of this name and type that went in."""
    for index, column in enumerate(relation.columns):
        if column.name == field.name and seen_type(column) == field.type:
            return index
    return None


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)
