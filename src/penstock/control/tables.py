"""The life of a pipeline's tables: which are in, which come in, leave, or are copied again. While it runs or not."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from penstock.config.model import Config
from penstock.control.status import tables_of
from penstock.errors import ConfigError, PenstockError, SourceError, SourceRefused
from penstock.imports import jobs
from penstock.imports.jobs import NewJob
from penstock.imports.manager import Choice, Manager, choices, choose
from penstock.imports.progress import TableStatus
from penstock.postgres.connection import Connection
from penstock.postgres.tables import Table, named_tables
from penstock.postgres.transactions import subscription_lock
from penstock.sinks.contract import Sink
from penstock.state.pipeline_state import PipelineState
from penstock.subscription import migrations, subscription
from penstock.subscription.ownership import foreign_tables, remedy
from penstock.subscription.publication import PublishedTable, Reconciliation
from penstock.subscription.subscription import PATIENCE


class Tables:
    """Over one connection to the source. ``add`` and the like return what happened, in sentences."""

    def __init__(
        self, connection: Connection, config: Config, sinks: Sequence[Sink[Any, Any]], state: PipelineState
    ) -> None:
        self._connection, self._config, self._sinks, self._state = connection, config, sinks, state
        self._manager = Manager(connection, config, sinks, state)

    def keep_in_step(self) -> Reconciliation | None:
        return self._manager.keep_in_step()

    def listing(self) -> list[TableStatus]:
        found = subscription.find(self._connection, self._config.name, self._config.source.publications)
        return tables_of(self._connection, self._config, found)

    def find(self, names: Sequence[str]) -> list[PublishedTable]:
        """The published tables of these names; ConfigError if there is none of a name."""
        published: dict[str, PublishedTable] = {}
        for (
            table
        ) in self._manager.published():  # in the order of their schemas: where names are alike, the shortest wins
            published.setdefault(table.qualified_name, table)
        return [published[_known(name, published, "the subscription")] for name in names]

    def add(self, names: Sequence[str]) -> list[str]:
        self._require_own_publication("add tables to")
        tables = named_tables(self._connection, names)
        if refused := foreign_tables(self._connection, [table.oid for table in tables]):
            owned = " ".join(table.problem for table in refused)
            raise SourceRefused(f"{owned} The role must be owner of a table to publish it.", remedy(refused))
        published = {table.oid for table in self._manager.published()}
        self._choose(tables, "add")
        then = "its import is in the queue" if self._config.source.copies else "its changes from now on are captured"
        return [
            f"{table.qualified_name} is in the subscription already."
            if table.oid in published
            else f"{table.qualified_name} is in the subscription: {then}."
            for table in tables
        ]

    def remove(self, names: Sequence[str]) -> list[str]:
        self._require_own_publication("remove tables from")
        tables = self.find(names)
        self._choose(tables, "remove")
        sinks = ", ".join(f'"{sink.settings.name}"' for sink in self._sinks)
        holds = "holds" if len(self._sinks) == 1 else "hold"
        return [
            f"{table.qualified_name} left the subscription: changes committed until now are still delivered, later ones are "
            f"not captured. What {sinks} {holds} of it stays there; delete it there if it is not wanted."
            for table in tables
        ]

    def resync(self, names: Sequence[str], sinks: Sequence[str]) -> list[str]:
        if not self._config.source.copies:
            raise ConfigError(
                "source.mode is stream, which never copies a table.", "Set source.mode to copy_and_stream first."
            )
        tables = self.find(names)
        wanted = [sink for sink in self._sinks if not sinks or sink.settings.name in sinks]
        with subscription_lock(self._connection, self._config.name, PATIENCE):
            published = self._manager.memberships()
            for sink in wanted:
                if not sink.capabilities.swaps_tables:
                    self._manager.hold(sink.settings.name, {table.oid for table in tables})
            jobs.create_jobs(
                self._connection,
                self._config.name,
                [
                    NewJob(sink.settings.name, table.oid, table.schema, table.table, True, published.get(table.oid))
                    for sink in wanted
                    for table in tables
                ],
            )
        names_of_sinks = ", ".join(f'"{sink.settings.name}"' for sink in wanted)
        return [f"{table.qualified_name} will be copied again to {names_of_sinks}." for table in tables]

    def _choose(self, tables: Sequence[Table | PublishedTable], choice: Choice) -> None:
        """Records the choice and carries it out, or neither: one that cannot be would be in the way of all other edits."""
        migrations.migrate(self._connection)
        before = choices(self._connection, self._config.name).made
        for table in tables:
            choose(self._connection, self._config.name, table.schema, table.table, choice)
        try:
            self.keep_in_step()
        except PenstockError:
            with suppress(SourceError):  # what went wrong first is what matters
                for table in tables:
                    name = table.schema, table.table
                    choose(self._connection, self._config.name, *name, before.get(name))
            raise

    def _require_own_publication(self, what: str) -> None:
        if self._config.source.publications:
            raise ConfigError(
                f"source.publication names publications of yours; Penstock does not {what} them.",
                "Use ALTER PUBLICATION … ADD TABLE or DROP TABLE; a running pipeline follows.",
            )
        if subscription.find(self._connection, self._config.name) is None:
            raise ConfigError(
                f'The subscription "{self._config.name}" does not exist on the source.', "Run `penstock init` first."
            )


def _known(name: str, known: dict[str, Any], where: str) -> str:
    """``orders`` is public.orders; any other name is as Postgres has it, with its schema."""
    for candidate in (name, f"public.{name}"):
        if candidate in known:
            return candidate
    near = _nearest(name, known)
    hint = f"Did you mean {near}?" if near else "`penstock tables FILE list` shows those of the subscription."
    raise ConfigError(f"There is no table {name} in {where}.", hint)


def _nearest(name: str, known: Iterable[str]) -> str | None:
    """A name without a schema is compared with names without one: what all have in common makes none of them likely."""
    compared = {each if "." in name else each.partition(".")[2]: each for each in known}
    near = difflib.get_close_matches(name, compared, 1)
    return compared[near[0]] if near else None
