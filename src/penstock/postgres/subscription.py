"""Publication and slot as one: made together, named together, removed together.

Penstock's own publications are made first, empty, and stamped with a fresh id in their comment; the slot is
``<name>_<id>``, so a recreated publication always gets a fresh slot. A crash in between leaves a publication without a
slot, which the next ``create`` gives it.

For publications of the user's (``source.publication``) there is nothing to stamp: they are used as they are, and the id
is the hash of the database's name and theirs. So another list of publications means another slot, and the same list
finds its slot again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from psycopg import sql

from penstock.config.tables import Selection
from penstock.errors import SourceRefused
from penstock.lsn import LSN
from penstock.postgres import publication as publications_of
from penstock.postgres.catalog import server_identity
from penstock.postgres.connection import Connection, translated_errors
from penstock.postgres.leftovers import Leftover, lacks_right
from penstock.postgres.locks import subscription_lock
from penstock.postgres.publication import Reconciliation
from penstock.postgres.slot import Report, SlotState, create_slot, drop_slot, require_logical_wal, slot_state
from penstock.postgres.tables import Table

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
    before_adding: Callable[[Sequence[Table]], None] = publications_of.nothing,
) -> Subscription:  # fmt: skip
    """Makes what is missing; a second call changes nothing. ``report`` hears of long waits, ``before_adding`` of tables that
    are about to enter the publication."""
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
            subscription = _managed(connection, name, selection, before_adding)
        state = slot_state(connection, subscription.slot)
        if state is not None:
            _check_ours(connection, state)
            return subscription
        return replace(subscription, consistent_point=create_slot(connection, subscription.slot, report))


def find(connection: Connection, name: str, publications: Sequence[str] = ()) -> Subscription | None:
    """The subscription as it stands; ``slot_state`` tells whether its slot is there. None when it was never made."""
    if publications:
        _require_publications(connection, publications)
        subscription = _existing(connection, name, publications)
        return subscription if slot_state(connection, subscription.slot) is not None else None
    stamp = publications_of.publication_id(connection, name)
    return None if stamp is None else _own(name, stamp)


def destroy(
    connection: Connection, name: str, publications: Sequence[str] = (), *, patience: float = PATIENCE,
    leftovers: list[Leftover] | None = None,
) -> list[str]:  # fmt: skip
    """Drops the slot and, where Penstock made them, the publications. Says what it dropped; nothing else is touched.

    ``leftovers``: takes what the role may not drop, which is an error otherwise.
    """
    with subscription_lock(connection, name, patience):
        # Not ``find``: a slot must go even if the publications that it was made for are gone.
        subscription = _existing(connection, name, publications) if publications else find(connection, name)
        if subscription is None:
            return []
        # The slot first: as long as the publication stands, its comment leads to the slot.
        removed = [f"replication slot {subscription.slot}"] if drop_slot(connection, subscription.slot) else []
        if subscription.managed and not server_identity(connection).in_recovery:
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
    connection: Connection, name: str, selection: Selection, before_adding: Callable[[Sequence[Table]], None]
) -> Subscription:
    stamp = publications_of.publication_id(connection, name)
    if stamp is None:
        stamp = publications_of.create_publications(connection, name)
    # Before the slot: so the slot's very first transaction finds the tables published.
    edited = publications_of.reconcile(connection, name, selection, before_adding)
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
    names = sorted(set(publications))
    stamp = hashlib.sha256("\0".join([connection.info.dbname, *names]).encode()).hexdigest()[:8]
    return Subscription(name, stamp, f"{name}_{stamp}", tuple(names), managed=False)


def _require_publications(connection: Connection, publications: Sequence[str]) -> None:
    with translated_errors("Looking for the publications"):
        rows = connection.execute("select pubname from pg_publication where pubname = any(%s)", [list(publications)])
        missing = sorted(set(publications) - {found for (found,) in rows})
    if missing:
        raise SourceRefused(
            f"The source has no publication {', '.join(missing)}.",
            "Create it, correct source.publication, or leave that key out to let Penstock make its own.",
        )


def _check_ours(connection: Connection, state: SlotState) -> None:
    if state.plugin != "pgoutput" or state.database != connection.info.dbname:
        raise SourceRefused(
            f"The server has a slot {state.slot} already, of plug-in {state.plugin} and database {state.database}.",
            "Drop that slot if nobody needs it, or give the pipeline another name.",
        )
