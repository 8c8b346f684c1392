"""``TRUNCATE … RESTART IDENTITY`` in the source: the sequences that the target's table owns start again as well."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from psycopg import sql

from penstock.changes import Relation
from penstock.postgres.connection import Connection
from penstock.sinks.postgres_staging import StagedChanges
from penstock.sinks.postgres_target import Target

logger = logging.getLogger(__name__)

# Owned by a column: of an identity column internally (i), of a serial one automatically (a).
_OWNED = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, seqstart, has_sequence_privilege(c.oid, 'UPDATE')
FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S' JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_sequence ON seqrelid = c.oid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
    AND d.refobjid IN (SELECT %(oid)s::bigint::oid UNION ALL SELECT relid FROM pg_partition_tree(%(oid)s::bigint::oid))
"""


def restart_sequences(
    connection: Connection, staged: Iterable[StagedChanges], target_of: Callable[[Relation], Target | None]
) -> bool:
    """Those of the tables that these changes truncate with RESTART IDENTITY, once the changes are applied. False: of none.

    Each starts where its own definition in the target says, as with Postgres's own subscriptions. ``setval`` needs no
    ownership and no lock. It is not undone with the transaction, but a batch that is rolled back comes again.
    """
    latest: dict[int, StagedChanges] = {}
    restarted = set()
    for change in staged:
        oid = change.relation.oid
        if oid not in latest or change.last_at >= latest[oid].last_at:
            latest[oid] = change
        if change.restarts_identity:
            restarted.add(oid)
    for oid in sorted(restarted):
        target = target_of(latest[oid].relation)
        if target is not None:
            _restart(connection, target)
    return bool(restarted)


def _restart(connection: Connection, target: Target) -> None:
    for oid, schema, name, start, may_set in connection.execute(_OWNED, {"oid": target.oid}).fetchall():
        if may_set:
            connection.execute("SELECT setval(%s::bigint::oid::regclass, %s, false)", [oid, start])
        else:
            grant = sql.SQL("GRANT UPDATE ON SEQUENCE {} TO {}").format(
                sql.Identifier(schema, name), sql.Identifier(connection.info.user)
            )
            logger.warning(
                "%s.%s was truncated with RESTART IDENTITY in the source. The role may not set its sequence %s.%s in the "
                "target, which stays as it is. For the next time, run there: %s.",
                target.schema, target.table, schema, name, grant.as_string(),
            )  # fmt: skip
