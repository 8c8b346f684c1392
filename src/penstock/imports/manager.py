"""Keeps three things in step: the tables that the config wants, those in the publication, and their imports.

The order, for a table that enters:

1. Sinks that know it from before are told to wait for a new import: what is written to it from now on is not theirs yet.
2. It enters the publication, and that is committed.
3. Its imports enter the queue, with the transactions that are running now.

Killed in between, the next look does the rest: a sink without a complete import of a table lets it wait anyway. It is the
same for a table of which more columns are published than before.

A table that left the publication and came back between two looks, or whose row filter, column list or operations were
altered, is imported again: each job records how the table was published (``penstock.subscription.membership``). Penstock's own
edits that miss nothing are recorded after they are committed; killed in between, the table is imported without need.

Tables that left their publication for a while, in mode ``stream``: nothing is imported there, so all that can be done is to
say so. ``parts/memberships.json`` has how each table was published at the last look.

What ``tables add`` and ``tables remove`` said: it overrules the patterns of the config file, whichever came first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.changelog.admission import Admission, read_admission, write_holds
from penstock.config.model import Config
from penstock.imports import jobs
from penstock.imports.handover import Handover
from penstock.imports.jobs import Job, NewJob
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.reading.layout import type_digests
from penstock.postgres.tables import Table
from penstock.postgres.transactions import subscription_lock
from penstock.rules.checks.source_columns import excludes_at_source, kept_in_source
from penstock.schema.log import triggers as schema_log
from penstock.schema.log.recomputations import Recomputation, recomputations
from penstock.settings.tables import LeftOut, TableSelection
from penstock.sinks.contract import Sink
from penstock.state.lifecycle import TableState
from penstock.state.pipeline_state import PipelineState
from penstock.state.publications_read import Since, publications_read, record_look
from penstock.storage import Directory
from penstock.subscription import migrations, publication, subscription
from penstock.subscription.membership import Membership, Memberships, memberships
from penstock.subscription.publication import PublishedTable, Reconciliation
from penstock.subscription.subscription import PATIENCE

logger = logging.getLogger(__name__)

_FILE = "memberships.json"


def warn_of_gaps(parts: Directory, published: Mapping[int, PublishedTable], members: Memberships) -> None:
    before = _recorded(parts)
    for oid, now in members.items():
        if oid in before and oid in published and not now.continues(before[oid]):
            logger.warning(
                "%s left its publication for a while, or is published otherwise than before: changes of it may not have been "
                "captured, and source.mode is stream, which imports nothing.",
                published[oid].qualified_name,
            )
    if members != before:
        _record(parts, members)


def record_replaced(parts: Directory, replaced: Mapping[int, tuple[Membership, Membership]]) -> None:
    """Tables that Penstock itself took out and put in at one moment: nothing is missing from there on."""
    before = _recorded(parts)
    now = {oid: new for oid, (old, new) in replaced.items() if before.get(oid) == old}
    if now:
        _record(parts, {**before, **now})


def _recorded(parts: Directory) -> Memberships:
    return {int(oid): Membership.from_json(routes) for oid, routes in (parts.read_json(_FILE) or {}).items()}


def _record(parts: Directory, members: Memberships) -> None:
    parts.write_json(_FILE, {str(oid): membership.to_json() for oid, membership in members.items()})


Choice = Literal["add", "remove"]


@dataclass(frozen=True)
class Choices:
    """By schema and table."""

    made: Mapping[tuple[str, str], Choice] = field(default_factory=dict)

    def selects(self, selection: TableSelection, schema: str, table: str) -> bool:
        choice = self.made.get((schema, table))
        return selection.selects(schema, table) if choice is None else choice == "add"


def choices(connection: Connection, pipeline: str) -> Choices:
    with translated_errors("Reading which tables were added and removed"):
        rows = connection.execute(
            "select schema_name, table_name, choice from penstock.table_choices where pipeline = %s", [pipeline]
        )
        return Choices({(schema, table): choice for schema, table, choice in rows})


def choose(connection: Connection, pipeline: str, schema: str, table: str, choice: Choice | None) -> None:
    """A later choice takes the place of an earlier one. None: the patterns decide again."""
    with translated_errors(f"Recording that {schema}.{table} was chosen"):
        if choice is None:
            connection.execute(
                "delete from penstock.table_choices where pipeline = %s and schema_name = %s and table_name = %s",
                [pipeline, schema, table],
            )
            return
        connection.execute(
            "insert into penstock.table_choices (pipeline, schema_name, table_name, choice) values (%s, %s, %s, %s) "
            "on conflict (pipeline, schema_name, table_name) do update set choice = excluded.choice",
            [pipeline, schema, table, choice],
        )


_LEFT_OUT = "left-out.json"


@dataclass(frozen=True)
class ChosenTables:
    """The config's patterns, overruled by ``penstock tables add|remove``; without the columns that rules keep in the source.

    ``left_out_before``: by table and number, the columns that were left out at the last look, with the names that they had
    then. One that was given another name stays left out for as long as a rule says so of its former one.
    """

    config: Config
    chosen: Choices | None
    left_out_before: Mapping[int, Mapping[int, str]] = field(default_factory=dict)

    def selects(self, schema: str, table: str) -> bool:
        selection = self.config.source.tables
        if self.chosen is None:
            return selection.selects(schema, table)
        return self.chosen.selects(selection, schema, table)

    def left_out(self, oid: int, schema: str, table: str) -> LeftOut | None:
        rules = self.config.rules
        if not excludes_at_source(rules):
            return None

        def found(columns: Mapping[int, str]) -> Mapping[int, str]:
            former = self.left_out_before.get(oid, {})
            kept = kept_in_source(rules, schema, table, {*columns.values(), *former.values()})
            names = {number: name if name in kept else former.get(number, name) for number, name in columns.items()}
            return {number: name for number, name in names.items() if name in kept}

        return found


def chosen_tables(connection: Connection, config: Config) -> ChosenTables:
    before = read_left_out(PipelineState(config.state_dir)) if excludes_at_source(config.rules) else {}
    return ChosenTables(config, choices(connection, config.name) if migrations.installed(connection) else None, before)


def read_left_out(state: PipelineState) -> dict[int, dict[int, str]]:
    found = state.parts.read_json(_LEFT_OUT) or {}
    return {int(oid): {int(number): name for number, name in names.items()} for oid, names in found.items()}


class Manager:
    """One look at a time, by whoever holds the subscription's lock."""

    def __init__(
        self, connection: Connection, config: Config, sinks: Sequence[Sink[Any, Any]], state: PipelineState
    ) -> None:
        self._connection, self._config, self._sinks, self._state = connection, config, sinks, state

    def keep_in_step(self) -> Reconciliation | None:
        """None: the publications are the user's, so there was nothing to edit; their tables are imported all the same."""
        managed = not self._config.source.publications
        with subscription_lock(self._connection, self._config.name, PATIENCE):
            changed = self._edit_publication() if managed else None
            if not managed:
                self._retire_own_publications()
            if self._config.source.mode != "stream":
                self._queue_imports()
                self._forget_ended()
            else:
                published = {table.oid: table for table in self.published()}
                warn_of_gaps(self._state.parts, published, self.memberships())
        return changed

    def _edit_publication(self) -> Reconciliation:
        """In mode stream sinks wait for nothing; but what they miss there, they must not take for theirs later."""
        wanted = chosen_tables(self._connection, self._config)
        read = self._read()
        changed = publication.reconcile(self._connection, self._config.name, wanted, self.hold_entering, read)
        if changed.left_out != wanted.left_out_before:
            names = {
                str(oid): {str(number): name for number, name in some.items()} for oid, some in changed.left_out.items()
            }
            self._state.parts.write_json(_LEFT_OUT, names)
        self.record_edit(changed)
        return changed

    def _retire_own_publications(self) -> None:
        """Once the pipeline has gone over to publications of the user's."""
        name, publications = self._config.name, self._config.source.publications
        if {*self._read(), *publications}.isdisjoint(publication.publication_names(name)):
            subscription.empty_own_publications(self._connection, name, publications)

    def record_edit(self, changed: Reconciliation) -> None:
        """Tables that Penstock itself took out and put in at one moment have missed nothing."""
        if changed.replaced:
            record_replaced(self._state.parts, changed.replaced)
        if changed.replaced and migrations.installed(self._connection):
            for oid, (before, now) in changed.replaced.items():
                jobs.record_membership(self._connection, self._config.name, oid, before, now)

    def hold_entering(self, entering: Sequence[Table]) -> None:
        oids = {table.oid for table in entering}
        if migrations.installed(self._connection):
            for sink in self._config.sinks:
                self.hold(sink.name, oids)

    def hold(self, sink: str, oids: set[int]) -> None:
        """The sink takes no change of these tables before an import newer than all that there are, under way or complete."""
        if not oids:
            return
        known = read_admission(self._state.parts, sink)
        newest = {oid: job.id for (name, oid), job in self._jobs().items() if name == sink}
        for oid, ready in known.ready.items():
            newest[oid] = max(ready.job, newest.get(oid, 0))
        newer = {oid: job + 1 for oid, job in newest.items() if oid in oids}
        if newer:
            write_holds(self._state.parts, sink, {**known.holds, **newer})

    def _jobs(self) -> dict[tuple[str, int], Job]:
        """By sink and table."""
        return {(job.sink, job.table_oid): job for job in jobs.active_jobs(self._connection, self._config.name)}

    def _queue_imports(self) -> None:
        read = self._read()
        published = {table.oid: table for table in publication.published_tables(self._connection, list(read))}
        members = memberships(self._connection, read)
        known = self._jobs()
        again = self._rewritten(known, published) + self._interrupted(known, members)
        current = [job for job in known.values() if job.state is not TableState.REMOVED]
        gone = {job.table_oid for job in current if job.table_oid not in published}
        if gone:
            jobs.remove_jobs(self._connection, self._config.name, sorted(gone))
        wanted = []
        for sink in self._sinks:
            name = sink.settings.name
            admission = read_admission(self._state.parts, name)
            due = {oid for oid in published if _is_due(known.get((name, oid)), admission, oid)}
            due |= {oid for sink_name, oid in again if sink_name == name and oid in published}
            if not sink.capabilities.swaps_tables:
                self.hold(name, due & admission.ready.keys())
            wanted += [
                NewJob(name, oid, table.schema, table.table, oid in admission.ready, members.get(oid))
                for oid, table in published.items()
                if oid in due
            ]
        jobs.create_jobs(self._connection, self._config.name, wanted)
        record_look(self._state.parts, self._connection, read)

    def _rewritten(
        self, known: Mapping[tuple[str, int], Job], published: Mapping[int, PublishedTable]
    ) -> list[tuple[str, int]]:
        """By sink and table: imports that are complete, of tables whose rows have got other values by a command since, which
        the sink cannot compute. An import under way sees for itself that its table is another one."""
        complete = {
            key: job for key, job in known.items() if job.state is TableState.STREAMING and job.from_lsn is not None
        }
        since = min((job.from_lsn for job in complete.values() if job.from_lsn is not None), default=None)
        if since is None:
            return []
        if not schema_log.installed(self._connection):
            return list(self._reshaped(complete, published))
        return list(self._due_again(complete, published, recomputations(self._connection, since)))

    def _reshaped(
        self, complete: Mapping[tuple[str, int], Job], published: Mapping[int, PublishedTable]
    ) -> Iterator[tuple[str, int]]:
        """Where no log tells of types: tables with a composite type that has other attributes than when they were imported."""
        digests = type_digests(self._connection, sorted(published))
        holding = {sink.settings.name for sink in self._sinks if sink.capabilities.swaps_tables}
        for (sink, oid), job in complete.items():
            if sink in holding and oid in published and job.layout and job.layout.types != digests.get(oid, ""):
                yield sink, oid
                logger.info(
                    'A type of %s was altered in the source: it is imported into "%s" again.', job.qualified_name, sink
                )

    def _due_again(
        self, complete: Mapping[tuple[str, int], Job], published: Mapping[int, PublishedTable],
        commands: Sequence[Recomputation],
    ) -> Iterator[tuple[str, int]]:  # fmt: skip
        for command in commands:
            for oid in command.oids & published.keys():
                for sink in self._sinks:
                    job = complete.get((sink.settings.name, oid))
                    if job is None or job.from_lsn is None or job.from_lsn >= command.lsn:
                        continue
                    if command.computed or not all(sink.recomputes(one, command.nested) for one in command.changes):
                        yield job.sink, oid
                        logger.info(
                            '%s has other values in the source since %s: it is imported into "%s" again.',
                            published[oid].qualified_name, command.tag, job.sink,
                        )  # fmt: skip

    def _interrupted(self, known: Mapping[tuple[str, int], Job], members: Memberships) -> list[tuple[str, int]]:
        """By sink and table: imports, complete or under way, of tables that are published otherwise than when they were made,
        or were not published at some moment since. What was committed then is not in the log."""
        found = []
        for (sink, oid), job in known.items():
            now = members.get(oid)
            if now is None or job.membership is None or now == job.membership or job.state is TableState.REMOVED:
                continue
            if now.continues(job.membership):
                jobs.record_membership(self._connection, self._config.name, oid, job.membership, now)
                continue
            found.append((sink, oid))
            logger.warning(
                '%s left its publication for a while, or is published otherwise than before: changes of it may not have been '
                'captured. It is imported into "%s" again.',
                job.qualified_name, sink,
            )  # fmt: skip
        return found

    def _forget_ended(self) -> None:
        """What is left of imports that ended while nobody copied: otherwise the log would be kept for them for ever.

        The manifests are read before the jobs, so that the job of one that a copier has just begun is known.
        """
        handovers = [Handover(self._state.root, sink.settings.name) for sink in self._sinks]
        found = [(handover, manifest.job) for handover in handovers for manifest in handover.manifests()]
        known = jobs.active_jobs(self._connection, self._config.name) if found else []
        alive = {job.id for job in known if job.state.being_imported}
        for handover, job in found:
            if job not in alive:
                handover.remove(job)

    def memberships(self) -> Memberships:
        return memberships(self._connection, self._read())

    def published(self) -> list[PublishedTable]:
        """The tables whose changes are captured: those of the publications that the slot is read with now."""
        return publication.published_tables(self._connection, list(self._read()))

    def _read(self) -> Since:
        found = subscription.find(self._connection, self._config.name, self._config.source.publications)
        return publications_read(self._state.parts, found.publications) if found is not None else {}


def _is_due(job: Job | None, admission: Admission, oid: int) -> bool:
    """There is no import; or one that is complete by the queue, but not by the sink: the sink was made anew or set back, or
    it was told to wait for another one by somebody who died before that was in the queue."""
    if job is None or job.state is TableState.REMOVED:
        return True
    ready = admission.ready.get(oid)
    return job.state is TableState.STREAMING and (ready is None or ready.job < max(job.id, admission.holds.get(oid, 0)))
