"""What all sinks do that mirror the source's tables in a target with transactions, and record their progress there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar, Generic, TypeVar

from penstock import failpoints
from penstock.errors import SinkUnavailable
from penstock.lsn import LSN
from penstock.sinks.contract import Batch, Capabilities, Imported, R, S, Sink
from penstock.sinks.mirror.owner import Owner
from penstock.sinks.mirror.records import Records

C = TypeVar("C")


class MirrorSink(Sink[S, R], Generic[S, R, C]):
    """``C``: a connection to the target. A sink gives its target by three methods, ``_opened``, ``_transaction`` and
    ``_records``, and applies changes and parts of imports inside the transactions that are made here."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        guarantee="exactly-once", keeps_position=True, swaps_tables=True, imports_beside=True
    )

    _held: LSN | None = None  # up to where the target held every change when it was last read

    def _opened(self) -> AbstractContextManager[C]:
        """A connection in no transaction. The tables of the records exist."""
        raise NotImplementedError

    def _transaction(self) -> AbstractContextManager[C]:
        """The same in a transaction, which is durable once this is left without an error, and else never happened."""
        raise NotImplementedError

    def _records(self, connection: C) -> Records:
        raise NotImplementedError

    @property
    def _owner(self) -> Owner:
        return Owner(self.pipeline, self.settings.name)

    def imported(self) -> Imported:
        with self._opened() as connection:
            return self._records(connection).imports().imported()

    def _read_position(self, connection: C) -> LSN | None:
        """For ``prepare``. SinkRefused if the target was filled from another source."""
        self._refuse_other_source(connection)
        self._held = self._records(connection).position()
        return self._held

    def _refuse_other_source(self, connection: C) -> None:
        for origin in self._records(connection).origins():
            self.refuse_other_origin(origin)

    def _commit_batch(self, batch: Batch, apply: Callable[[C], None]) -> bool:
        """One transaction of the target. False: there was nothing to do.

        1. The position is read and, where the target has such locks, locked: another process that is still committing this
           batch is waited for, whatever becomes of its commit.
        2. A position that is lower than before is that of a target which was restored or replaced: the batch would leave a
           gap. ``prepare`` reads the position again.
        3. A batch at or below the position was committed by a process that died, or lost its connection, before it knew.
        4. ``apply`` applies the batch: tables are made or altered to fit, schema changes followed, changes applied, in order.
        5. The position is recorded, and all of it committed. Killed before that, the target rolls everything back.
        """
        held = self._held
        with self._transaction() as connection:
            records = self._records(connection)
            position = records.position(lock=True)
            self._refuse_set_back(position, held)
            if position is not None and batch.end <= position:
                return False
            apply(connection)
            records.put_position(batch.end)
            failpoints.reach(failpoints.BATCH_APPLIED)
        self._held = batch.end
        return True

    @contextmanager
    def _import_transaction(self) -> Iterator[C]:
        """For a part of an import, which has a record of its own (``imports.commit_part``) and leaves the position alone. It
        may be committed beside a batch: each writes to tables that the other does not use."""
        held = self._held  # before the transaction begins: another thread may raise it meanwhile
        with self._transaction() as connection:
            self._refuse_set_back(self._records(connection).position(), held)
            yield connection

    def _refuse_set_back(self, position: LSN | None, held: LSN | None) -> None:
        if held is not None and (position is None or position < held):
            raise SinkUnavailable(
                f"The target of sink {self.settings.name} held changes up to {held} and now holds them up to "
                f"{position or 'none at all'}: it was replaced or set back while we were running.",
                "Delivery looks for what it lacks in the change log.",
            )
