"""What a sink is: three methods, and the promises between them and the delivery that calls them.

A sink knows nothing of Spark. It is built from its settings on the driver, pickled, and used on both sides:

1. ``prepare`` runs on the driver before the first batch, and again after every failure. It creates what is missing and
   returns the LSN up to which the sink durably holds every change, or None if the sink keeps no record of its own.
2. ``write`` runs in the executors, any number of times per batch, in parallel, and may run again for the same batch
   after a failure. It makes the changes ready (stages them) and returns a receipt: anything that pickles.
3. ``commit`` runs on the driver once all receipts of the batch are there, in the order of the batches. When it returns,
   everything in the batch is durable in the sink.

A batch that was written but not committed when the process died comes again, with the same ``start`` and, as long as
Spark's checkpoint lives, the same ``end``. A batch never splits a transaction. Within one receipt, changes of the same
table are in commit order; the receipts of ``commit`` are ordered so that applying them one after the other applies each
key's changes in commit order.

Imports go through the same ``write`` and ``commit``. Such a batch has a ``part``, holds nothing but that part of one
table's import, and leaves the position where it is. Per import, in this order, each part once or again after a failure:

1. ``begin``, without receipts: a sink that fills the table anew makes room for it.
2. ``rows``: what was read of the table, as changes with op READ; any number of parts, in any order. Rows that were read
   at different times: of a key there may be two, or none where the row moved in between. ``replaces``: rows that take
   the place of those with the same key; these may come between the changes.
3. ``changes``: the table's changes since the import began, in order. Rows that an INSERT brings may be there already,
   rows that an UPDATE or DELETE is about may be absent. After the last of them the table is as it was at ``upto``.
4. ``end``, without receipts: from now on the table's changes come with those of all others. Until then, a sink that
   ``swaps_tables`` shows the table as it was before ``begin``, and its changes go on coming to that one.

A sink that keeps its position records in the same step which parts it holds (``imported``), or they may come again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from penstock.changelog.admission import Ready
from penstock.changes.batch import ChangeBatch, Relation
from penstock.errors import SinkRefused
from penstock.findings import Finding
from penstock.lsn import LSN
from penstock.schema.kinds import SchemaChange
from penstock.schema.log.row import LoggedCommand
from penstock.sinks.dead_letters import DeadLetters
from penstock.sinks.settings import SinkSettings
from penstock.state.lifecycle import TableState

if TYPE_CHECKING:
    from penstock.sinks.verifying import VerifiableTarget


@dataclass(frozen=True)
class Merged:
    """Of a table that rules put into one with others: its own oid, and the column and value that tell its rows from theirs."""

    oid: int
    origin: tuple[str, str] | None


@dataclass(frozen=True)
class ImportPart:
    """A part of a table's import; see above. ``number`` counts the parts of its phase from 1."""

    job: int
    relation: Relation
    phase: Literal["begin", "rows", "changes", "end"]
    number: int = 0
    replaces: bool = False  # of rows: they take the place of those with the same key
    again: bool = False  # the sink has rows of this table from an earlier import
    upto: LSN | None = None  # of changes and end
    settled: bool = False  # of changes: all rows are there; an UPDATE that needs values of another is refused
    merged: Merged | None = None  # ``end`` replaces the table's own rows among those of others

    @property
    def oid(self) -> int:
        """The source table's, under which the import is recorded; the relation's is the same, unless tables are merged."""
        return self.merged.oid if self.merged is not None else self.relation.oid


@dataclass(frozen=True)
class FailedChange:
    """A change that brings a row, of which a rule's code could make none. Whatever the sink has of the row is deleted."""

    relation: Relation
    op: str  # insert or update
    key: Mapping[str, str | None]
    lsn: LSN
    sequence: int
    reason: str


@dataclass(frozen=True)
class Batch:
    """One micro-batch: every transaction that ends after ``start`` and not after ``end``. Or a part of an import."""

    number: int
    start: LSN
    end: LSN
    staging: str  # a URI that executors and driver share; the sink may put files below it, delivery removes it
    part: ImportPart | None = None
    failed: tuple[FailedChange, ...] = ()  # for a sink that keeps dead letters, and has ``on_error: dead_letter``
    schema_log: tuple[LoggedCommand, ...] = ()  # commands within it that changed tables, in order; see schema_changes


@dataclass(frozen=True)
class UnderWay:
    """An import that has begun: the numbers of its ``rows`` parts that the sink holds, and its changes up to where."""

    rows: frozenset[int] = frozenset()
    replayed: LSN | None = None

    @property
    def state(self) -> TableState:
        """Of the table in the sink, by what the sink holds."""
        return TableState.COPYING if self.replayed is None else TableState.CATCHING_UP


@dataclass(frozen=True)
class Imported:
    """What a sink has recorded of imports. Of another subscription than the one in use it means nothing."""

    subscription: str
    ready: Mapping[int, Ready] = field(default_factory=dict)  # by the table's oid
    under_way: Mapping[int, UnderWay] = field(default_factory=dict)  # by job


@dataclass(frozen=True)
class SinkContext:
    """What a sink is told about the pipeline that it belongs to."""

    pipeline: str = ""
    source_url: str = ""  # for a sink that asks the source more than the stream tells
    publications: Sequence[str] = ()


@dataclass(frozen=True)
class Capabilities:
    """What a sink can do and what it promises, as far as the delivery acts on it."""

    guarantee: Literal["exactly-once", "effectively-once", "at-least-once"] = "at-least-once"  # as on its page
    keeps_position: bool = False  # the sink itself records up to where it holds everything
    swaps_tables: bool = False  # an import fills a table of its own, which replaces the old one in one step
    imports_beside: bool = False  # parts but ``end`` may be committed in one thread while a batch is in another
    keeps_dead_letters: bool = False  # takes ``on_error: dead_letter``, and has ``dead_letters``
    verifiable: bool = False  # holds tables that ``verify`` can compare, and has ``verification``


S = TypeVar("S", bound=SinkSettings)
R = TypeVar("R")


class Sink(Generic[S, R]):
    """Base class of all sinks. ``S``: its settings. ``R``: its receipts, which pickle."""

    Settings: ClassVar[type[SinkSettings]] = SinkSettings  # the config file's keys for this sink
    capabilities: ClassVar[Capabilities] = Capabilities()

    origin: str = ""  # the source's system identifier, known before ``prepare``: positions of another mean nothing
    subscription: str = ""  # the replication slot, likewise known before ``prepare``
    pipeline: str = ""  # its name, likewise; positions of another mean nothing either
    source_tables: Sequence[tuple[str, str]] = ()  # for ``check``: their names, where the source can be asked
    source_is_copied: bool = False  # there are, or will be, imports; known before ``check`` and ``prepare``
    source: str = ""  # the source's URL, for a sink that asks it more than the stream says; "" where there is none

    def __init__(self, settings: S) -> None:
        self.settings = settings

    def refuse_other_origin(self, recorded: str | None) -> None:
        """For a sink that keeps a position: SinkRefused if what it has recorded is of another source."""
        if recorded and self.origin and recorded != self.origin:
            raise SinkRefused(
                f"Sink {self.settings.name} holds changes of database system {recorded}, but this source is {self.origin}.",
                "Give the sink a new place for its data, or point source.url at the database it was filled from.",
            )

    def check(self) -> Sequence[Finding] | None:
        """Raises SinkError if the sink would not work: reachable, writable, rights. Changes nothing.

        What it returns is shown beside: what is worth knowing, or a warning.
        """
        return None

    def prepare(self) -> LSN | None:
        """Driver: creates what is missing; the sink's own position, or None if it keeps none."""
        return None

    def imported(self) -> Imported | None:
        """Driver, after ``prepare``: what the sink has recorded of imports; None if it keeps no such record."""
        return None

    def write(self, batch: Batch, changes: Iterator[ChangeBatch]) -> R:
        """Executor: makes the changes ready and returns a picklable receipt."""
        raise NotImplementedError

    def commit(self, batch: Batch, receipts: Sequence[R]) -> None:
        """Driver: makes everything in the batch durable, and the position with it where the sink keeps one."""
        raise NotImplementedError

    def recomputes(self, change: SchemaChange, nested: bool = False) -> bool:
        """Driver: whether the rows that the sink holds have exactly the source's values once it has followed the change,
        without an import. False: the tables concerned are imported again. A sink that holds no rows has none to recompute.

        ``nested``: the type that is changed is within that of a column: in an array, in another type."""
        return True

    def dead_letters(self) -> DeadLetters | None:
        """What the sink refused; None if it keeps no such thing."""
        return None

    def verification(self, context: SinkContext) -> VerifiableTarget | None:
        """What ``verify`` reads the sink's tables through; None if the sink holds no tables."""
        return None

    def close(self) -> None:
        """Driver: gives back connections and locks."""
