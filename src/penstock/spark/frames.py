"""Code of rules that runs in Spark (``sql``, ``python_frame``): the driver's part.

A table's changes are one DataFrame, ``changes``; the code makes another of it, whose rows go back to their changes
(``frame_parts.py``). Only tables with such code pay for it, with two jobs for each of them that a batch has, and one for all.

What code of rules that runs in Spark makes of a few rows, for ``penstock rules FILE preview``.

By the same steps as a chunk of an import, with a sink that keeps what it is given, on a session of this machine.
"""

from __future__ import annotations

import logging
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.changelog.units import WorkUnit
from penstock.changes.batch import ChangeBatch, Relation, concat
from penstock.delivery.frame_parts import (
    FramedReceipt,
    FramedTable,
    FramedWriter,
    Inputs,
    KeptResult,
    LoggedChanges,
    RowsForCode,
    StagedRows,
    in_order,
)
from penstock.errors import ConfigError, PenstockError, RuleError, SparkLost
from penstock.lsn import ZERO
from penstock.rules.code.code import Code
from penstock.rules.code.rows import LSN_COLUMN, SEQUENCE_COLUMN, schema_of
from penstock.rules.model import CodeKey, Function, place_of, told
from penstock.rules.passage import Passage
from penstock.settings.sections import SparkSettings
from penstock.sinks.contract import Batch, Sink
from penstock.sinks.settings import SinkSettings
from penstock.spark.session import close_session, open_session
from penstock.storage import Directory

_VIEW = "changes"
_OF_THE_ROWS = ("22", "21", "38", "42", "P0")  # classes of SQLSTATE: a value, or what the code does with it


class FailsOnRow(RuleError):
    """The code takes other rows, and not this one."""


class Frames:
    """Of one sink. Its session has the catalog and the temporary views of the one that it is made from."""

    def __init__(self, spark: SparkSession, sink: Sink[Any, Any], rules: Passage) -> None:
        self._spark, self._sink, self._rules = spark, sink, rules
        self._own: SparkSession | None = None
        self._view = threading.Lock()  # between the view and the query that reads it
        rules.analyse_by(self.analyse)

    @property
    def sink_name(self) -> str:
        name: str = self._sink.settings.name
        return name

    @property
    def _session(self) -> SparkSession:
        if self._own is None:
            _say_nothing_of_queries()
            self._own = SparkSession(self._spark.sparkContext, self._spark._jsparkSession.cloneSession())
        return self._own

    def analyse(self, key: CodeKey, code: str | Function, path: str, relation: Relation) -> pa.Schema:
        """The columns that the code makes. ConfigError if Spark does not understand it."""
        from pyspark.sql.pandas.types import to_arrow_schema  # brings pandas

        with self._view:
            empty = self._session.createDataFrame([], _spark_schema(relation))
            return to_arrow_schema(self._made(key, code, path, relation, empty).schema, timezone="UTC")

    def write_logged(
        self, units: Sequence[tuple[Relation, WorkUnit]], log_uri: str, batch: Batch
    ) -> FramedReceipt | None:
        """Changes of tables with such code, from the log to the sink's receipt. None: there are none."""
        tables = [
            (relation, LoggedChanges(log_uri, some, batch.start, batch.end, self._ready(relation)))
            for definitions in in_order(units)
            for relation, some in definitions
        ]
        return self.write(tables, batch) if tables else None

    def logged(
        self, relation: Relation, units: Sequence[WorkUnit], log_uri: str, batch: Batch, snapshot: str | None
    ) -> Inputs:
        """One table's changes of a part of an import."""
        ((_, whole),) = (one for some in in_order([(relation, unit) for unit in units]) for one in some)
        return LoggedChanges(log_uri, whole, batch.start, batch.end, self._ready(relation), snapshot)

    def write(self, tables: Sequence[tuple[Relation, Inputs]], batch: Batch) -> FramedReceipt:
        """Raises what the code, or the sink, is refused for."""
        place = Directory(f"{batch.staging}/frames")
        try:
            framed = tuple(
                self._run_or_leave_out(self._rules.frame(relation), inputs, f"{place.uri}/{number}", batch)
                for number, (relation, inputs) in enumerate(tables)
            )
            writer = FramedWriter(self._sink, batch, self._rules, framed)
            (written,) = self._session.sparkContext.parallelize([0], 1).map(writer).collect()
        finally:
            place.delete_all()
        receipt: FramedReceipt = pickle.loads(written)
        if isinstance(receipt.outcome, PenstockError):
            raise receipt.outcome
        return receipt

    def _ready(self, relation: Relation) -> Passage:
        """The rules, with what the executors need to know of the table."""
        self._rules.frame(relation)
        return self._rules

    def _run_or_leave_out(self, code: Code, inputs: Inputs, uri: str, batch: Batch) -> FramedTable:
        """With ``on_error: dead_letter``, rows that the code fails on become letters, of a sink that keeps them. Rows of an
        import do not: one that lacked rows would be none."""
        whole, settings = RowsForCode(code, inputs), self._sink.settings
        try:
            return FramedTable(code, inputs, self._run(whole, uri))
        except FailsOnRow as error:
            if (
                not self._sink.capabilities.keeps_dead_letters
                or settings.on_error != "dead_letter"
                or batch.part is not None
            ):
                raise
            failing = self._failing(whole, uri, error, settings.dead_letters.max)
            kept = self._run(replace(whole, besides=frozenset(failing)), uri)
            places = [self._asked(replace(whole, window=(number, number + 1)).places)[0] for number in failing]
            return FramedTable(code, inputs, kept, frozenset(places), error.message.rstrip("."))

    def _failing(self, whole: RowsForCode, uri: str, error: FailsOnRow, most: int) -> list[int]:
        """The numbers of the rows that it fails on, by halves. Too many, and it is the code that is wrong."""
        found: list[int] = []
        left = [(0, self._asked(whole.count))]
        while left:
            first, end = left.pop()
            try:
                self._run(replace(whole, window=(first, end)), uri)
                continue
            except FailsOnRow:
                pass
            if end - first > 1:
                middle = (first + end) // 2
                left += [(middle, end), (first, middle)]
                continue
            found.append(first)
            if len(found) > most:
                raise RuleError(
                    f"{error.message} And on more than {most} rows of the batch.",
                    f"{error.advice or ''} Or raise dead_letters.max of the sink.".lstrip(),
                )
        return found

    def _asked(self, question: Callable[[Any], Any]) -> Any:
        (answer,) = self._session.sparkContext.parallelize([0], 1).map(question).collect()
        return answer

    def _run(self, giver: RowsForCode, uri: str) -> KeptResult:
        code, kept = giver.code, KeptResult(uri)
        Directory(uri).delete_all()
        with self._view:
            rows = self._session.range(0, 1, 1, 1).mapInArrow(giver, _spark_schema(code.relation))
            made = self._made(code.key, code.code, code.path, code.relation, rows)
        halves = [F.lpad(F.split_part(F.col(LSN_COLUMN), F.lit("/"), F.lit(part)), 8, "0") for part in (1, 2)]
        ordered = made.repartition(1).sortWithinPartitions(*halves, SEQUENCE_COLUMN)
        try:
            ordered.mapInArrow(kept, "rows long").collect()
        except PySparkException as error:
            raise self._failure(code, giver, error) from None
        return kept

    def _made(self, key: CodeKey, code: str | Function, path: str, relation: Relation, rows: DataFrame) -> DataFrame:
        """What the code makes of the rows; nothing is computed yet."""
        try:
            if isinstance(code, Function):
                return _framed(code, path, relation, rows)
            rows.createOrReplaceTempView(_VIEW)
            return self._session.sql(code)
        except AnalysisException as error:
            raise ConfigError(
                f"{path}: Spark does not understand it for {relation.qualified_name}: {_first_line(error)}",
                f"Correct the {'query' if key == 'sql' else 'function'}. The rows have these columns: "
                f"{', '.join(schema_of(relation).names)}.",
            ) from None

    def _failure(self, code: Code, giver: RowsForCode, error: PySparkException) -> PenstockError:
        """Spark's own words have values in them; its name for the error has none."""
        if isinstance(error, PythonException):
            (trouble,) = self._session.sparkContext.parallelize([0], 1).map(giver.trouble).collect()
            if trouble is not None:
                found: PenstockError = trouble
                return found
        name, state = error.getCondition() or told(error), error.getSqlState() or ""
        if not state.startswith(_OF_THE_ROWS):
            return SparkLost(f"Spark gave up {code.path} for {code.relation.qualified_name}: {name}.")
        return FailsOnRow(
            f"{code.path}: it fails on a row of {code.relation.qualified_name}: {name}.",
            "Let it take every row (try_cast, try_divide, coalesce), and start again.",
        )


def _framed(function: Function, path: str, relation: Relation, rows: DataFrame) -> DataFrame:
    loaded = function.load(path)
    try:
        made = loaded(rows)
    except AnalysisException:
        raise
    except Exception as error:  # noqa: BLE001  whatever somebody's function raises
        raise ConfigError(
            f"{path}: the function {function} raised {told(error)} for {relation.qualified_name} "
            f"({place_of(error, function)}).",
            "Correct the function. It is given a DataFrame, and returns one that is not computed yet.",
        ) from None
    if not isinstance(made, DataFrame):
        raise ConfigError(
            f"{path}: the function {function} returned {type(made).__name__}.", "Return a Spark DataFrame."
        )
    return made


def _spark_schema(relation: Relation) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema_of(relation), prefer_timestamp_ntz=True)


def _first_line(error: PySparkException) -> str:
    """Without the plan and the query below it."""
    return str(error).strip().splitlines()[0].rstrip(";")


def _say_nothing_of_queries() -> None:
    """PySpark prints every failure of a query, with the values in it."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


class _Keeping(Sink[Any, Any]):
    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> list[ChangeBatch]:
        return list(changes)


class FramePreview:
    """``rules.preview`` calls it for tables with such code; it starts Spark then."""

    def __init__(self, settings: SparkSettings) -> None:
        self._settings = settings.model_copy(update={"master": "local[1]"})

    def __call__(self, rules: Passage, relation: Relation, rows: ChangeBatch | None) -> ChangeBatch | None:
        """What goes on of the rows. From then on the rules know what columns the code makes."""
        session = open_session(self._settings)
        try:
            frames = Frames(session, _Keeping(SinkSettings(name="preview", type="preview")), rules)
            rules.frame(relation)
            if rows is None:
                return None
            with tempfile.TemporaryDirectory(prefix="penstock-preview-") as directory:
                staged = StagedRows(str(Path(directory, "rows")))
                staged.store(rules, iter([rows]))
                batch = Batch(-1, ZERO, ZERO, directory)
                made: list[ChangeBatch] = frames.write([(relation, staged)], batch).outcome
            return concat(made) if made else None
        finally:
            close_session(session)
