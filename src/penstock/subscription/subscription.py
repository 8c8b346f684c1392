"""Publication and slot as one: made together, named together, removed together.

Penstock's own publications are made first, empty, and stamped with a fresh id in their comment; the slot is
``<name>_<id>``. A crash in between leaves a publication without a slot, which the next ``create`` gives it.

For publications of the user's (``source.publication``) there is nothing to stamp: they are used as they are, and the id
is the hash of the database's name and the pipeline's. So another list of publications means the same slot.

A slot outlives the publications that it was made for: with other publications, or with the same ones made anew, reading goes
on as ``penstock.publications_read`` describes. So Penstock's own publications, when they are made for a slot that is there
already, are stamped with its id; and a pipeline that goes over to publications of the user's keeps the slot that it has.

What ``destroy`` may not remove: it belongs to another role, who gets the statement for it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import psycopg
from psycopg import sql

from penstock.errors import SourceError, SourceRefused, SourceUnavailable
from penstock.lsn import LSN
from penstock.postgres.catalog import server_identity
from penstock.postgres.connection import Connection
from penstock.postgres.slot import Report, SlotState, create_slot, drop_slot, require_logical_wal, slot_state
from penstock.postgres.tables import Table
from penstock.postgres.transactions import subscription_lock
from penstock.settings.tables import Selection, TableSelection
from penstock.subscription import publication as publications_of
from penstock.subscription.publication import Reconciliation


@dataclass(frozen=True)
class Leftover:
    what: str  # event triggers penstock_ddl, …
    owner: str
    statement: str


class NotAllRemoved(SourceRefused):
    """Everything else is gone: ``removed`` says what."""

    def __init__(self, message: str, advice: str | None = None, removed: Sequence[str] = ()) -> None:
        super().__init__(message, advice)
        self.removed = tuple(removed)

    @classmethod
    def of(cls, leftovers: Sequence[Leftover], removed: Sequence[str]) -> NotAllRemoved:
        parts = "; ".join(f"{left.what} (of {left.owner})" for left in leftovers)
        owners = " or ".join(dict.fromkeys(left.owner for left in leftovers))
        return cls(
            f"Left on the source, because the role may not remove it: {parts}.",
            f"As {owners}, or as a superuser, run: {' '.join(left.statement for left in leftovers)}",
            removed,
        )


def lacks_right(error: BaseException | None) -> bool:
    """Whether the server refused for a missing right, by the first of the errors that led to this one."""
    while error is not None:
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return True
        error = error.__cause__ or error.__context__
    return False


__all__ = ["Reconciliation", "SlotState", "Subscription", "create", "destroy", "find", "reconcile_tables", "slot_state"]

logger = logging.getLogger(__name__)

PATIENCE = 60.0
_STANDBY_SLOTS_SINCE = 160000


@dataclass(frozen=True)
class Subscription:
    name: str
    id: str
    slot: str
    publications: tuple[str, ...]  # for START_REPLICATION's publication_names
    managed: bool  # Penstock made the publications and edits them
    consistent_point: LSN | None = None  # when the slot has just been made
    edited: Reconciliation = field(default=Reconciliation(), compare=False)  # by ``create``


def create(
    connection: Connection, name: str, selection: Selection, publications: Sequence[str] = (),
    *, report: Report = logger.info, patience: float = PATIENCE,
    before_adding: Callable[[Sequence[Table]], None] = publications_of.nothing, slot: str | None = None,
) -> Subscription:  # fmt: skip
    """Makes what is missing; a second call changes nothing. ``report`` hears of long waits, ``before_adding`` of tables that
    are about to enter the publication. ``slot``: the one that the pipeline has read so far."""
    require_logical_wal(connection)
    identity = server_identity(connection)
    if identity.in_recovery and identity.version_num < _STANDBY_SLOTS_SINCE:
        raise SourceRefused("The source is a standby, and a standby has logical slots only from Postgres 16 on.")
    with subscription_lock(connection, name, patience):
        if publications:
            _require_publications(connection, publications)
            subscription = _existing(connection, name, publications)
        elif identity.in_recovery:
            subscription = _from_primary(connection, name)
        else:
            subscription = _managed(connection, name, selection, before_adding, slot)
        state = slot_state(connection, subscription.slot)
        if state is not None:
            _check_ours(connection, state)
            return subscription
        return replace(subscription, consistent_point=create_slot(connection, subscription.slot, report))


def find(connection: Connection, name: str, publications: Sequence[str] = ()) -> Subscription | None:
    """The subscription as it stands; ``slot_state`` tells whether its slot is there. None when it was never made.

    SourceUnavailable for a publication of the user's that was there when the slot was made: it may be about to be made anew.
    """
    if publications:
        subscription = _existing(connection, name, publications)
        slot = slot_state(connection, subscription.slot)
        _require_publications(connection, publications, SourceRefused if slot is None else SourceUnavailable)
        return subscription if slot is not None else None
    stamp = publications_of.publication_id(connection, name)
    return None if stamp is None else _own(name, stamp)


def destroy(
    connection: Connection, name: str, publications: Sequence[str] = (), *, patience: float = PATIENCE,
    slot: str | None = None, leftovers: list[Leftover] | None = None,
) -> list[str]:  # fmt: skip
    """Drops the slot and, where Penstock made them, the publications. Says what it dropped; nothing else is touched.

    ``slot``: the one that the pipeline has read so far, which must go even if the publications that it was made for are gone.
    ``leftovers``: takes what the role may not drop, which is an error otherwise.
    """
    with subscription_lock(connection, name, patience):
        subscription = _existing(connection, name, publications) if publications else find(connection, name)
        slots = {
            _slot_of_others(connection, name),
            *([subscription.slot] if subscription else []),
            *([slot] if slot else []),
        }
        # The slot first: as long as the publication stands, its comment leads to the slot.
        removed = [f"replication slot {each}" for each in sorted(slots) if _drop_ours(connection, each)]
        if _stamp(connection, name, publications) is not None and not server_identity(connection).in_recovery:
            removed += _drop_publications(connection, name, leftovers)
        return removed


def _drop_publications(connection: Connection, name: str, leftovers: list[Leftover] | None) -> list[str]:
    try:
        return publications_of.drop_publications(connection, name)
    except SourceRefused as error:
        if leftovers is None or not lacks_right(error):
            raise
    names, owner = publications_of.owned_publications(connection, name)
    statement = sql.SQL("DROP PUBLICATION {};").format(sql.SQL(", ").join(map(sql.Identifier, names)))
    leftovers.append(Leftover(f"publication {', '.join(names)}", owner, statement.as_string(connection)))
    return []


def _drop_ours(connection: Connection, slot: str) -> bool:
    state = slot_state(connection, slot)
    return state is not None and state.database == connection.info.dbname and drop_slot(connection, slot)


def empty_own_publications(connection: Connection, name: str, publications: Sequence[str]) -> None:
    """Takes all tables out of Penstock's own publications, of a pipeline that reads others. Nobody would move a table in them
    that loses its key, and Postgres would refuse updates of it."""
    ours = _stamp(connection, name, publications) is not None
    if ours and publications_of.published(connection, publications_of.publication_names(name)):
        publications_of.reconcile(connection, name, TableSelection(include=()))


def reconcile_tables(
    connection: Connection, name: str, selection: Selection, *, patience: float = PATIENCE
) -> Reconciliation:
    """Makes Penstock's own publications hold just the matching tables, while the pipeline runs or not."""
    with subscription_lock(connection, name, patience):
        if publications_of.publication_id(connection, name) is None:
            raise SourceRefused(
                f'The subscription "{name}" does not exist on the source.', "Run `penstock init` first."
            )
        return publications_of.reconcile(connection, name, selection)


def _managed(
    connection: Connection, name: str, selection: Selection, before_adding: Callable[[Sequence[Table]], None],
    slot: str | None,
) -> Subscription:  # fmt: skip
    stamp = publications_of.publication_id(connection, name)
    is_new = stamp is None
    if stamp is None:
        kept = (each for each in (slot, _slot_of_others(connection, name)) if each and slot_state(connection, each))
        stamp = next((each[len(name) + 1 :] for each in kept if each.startswith(f"{name}_")), None)
    stamp = publications_of.create_publications(connection, name, stamp)
    # Before the slot: so the slot's very first transaction finds the tables published.
    edited = publications_of.reconcile(connection, name, selection, before_adding, strict=is_new)
    return replace(_own(name, stamp), edited=edited)


def _from_primary(connection: Connection, name: str) -> Subscription:
    """On a standby nothing can be written, but what was made on its primary is there."""
    stamp = publications_of.publication_id(connection, name)
    if stamp is None:
        raise SourceRefused(
            f"The source is a standby and the publication {name} does not exist yet.",
            "Run `penstock init` with the URL of the primary first, or name an existing one in source.publication.",
        )
    return _own(name, stamp)


def _own(name: str, stamp: str) -> Subscription:
    return Subscription(name, stamp, f"{name}_{stamp}", publications_of.publication_names(name), managed=True)


def _existing(connection: Connection, name: str, publications: Sequence[str]) -> Subscription:
    slot, stamp = _slot_of_others(connection, name), _stamp(connection, name, publications)
    if stamp is not None and slot_state(connection, f"{name}_{stamp}") is not None:
        slot = f"{name}_{stamp}"  # it began with publications of its own
    return Subscription(name, slot[len(name) + 1 :], slot, tuple(sorted(set(publications))), managed=False)


def _slot_of_others(connection: Connection, name: str) -> str:
    """The slot of a pipeline that began with publications of the user's."""
    hashed = hashlib.sha256("\0".join([connection.info.dbname, name]).encode())
    return f"{name}_{hashed.hexdigest()[:8]}"


def _stamp(connection: Connection, name: str, publications: Sequence[str]) -> str | None:
    """Of Penstock's own publications. With publications of the user's, others may have their names."""
    try:
        return publications_of.publication_id(connection, name)
    except SourceRefused:
        if publications:
            return None
        raise


def _require_publications(
    connection: Connection, publications: Sequence[str], kind: type[SourceError] = SourceRefused
) -> None:
    missing = sorted(set(publications) - publications_of.existing(connection, publications))
    if missing:
        raise kind(
            "The source has no publication " + ", ".join(f'"{name}"' for name in missing) + ".",
            "Create it, correct source.publication, or leave that key out to let Penstock make its own.",
        )


def _check_ours(connection: Connection, state: SlotState) -> None:
    if state.plugin != "pgoutput" or state.database != connection.info.dbname:
        raise SourceRefused(
            f"The server has a slot {state.slot} already, of plug-in {state.plugin} and database {state.database}.",
            "Drop that slot if nobody needs it, or give the pipeline another name.",
        )
