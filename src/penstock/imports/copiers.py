"""Who works on imports. A copier is alive as long as its connection holds the advisory lock of its number.

So nobody needs to say that it is alive, and the claims of a killed one are free as soon as the server notices.
"""

from __future__ import annotations

import secrets

from penstock.postgres.connection import Connection, translated_errors

_LOCK_CLASS = 0x50454E53

# Numbers of copiers that are alive in this database.
LIVING = f"""(
    select l.objid::bigint from pg_locks l
    where l.locktype = 'advisory' and l.classid = {_LOCK_CLASS} and l.objsubid = 2 and l.granted
        and l.database = (select d.oid from pg_database d where d.datname = current_database())
)"""


def register_copier(connection: Connection) -> int:
    """A fresh number, which is taken until this connection ends."""
    with translated_errors("Registering as a copier"):
        while True:
            copier = secrets.randbelow(2**31 - 1) + 1
            if connection.execute("select pg_try_advisory_lock(%s, %s)", [_LOCK_CLASS, copier]).fetchone() == (True,):
                return copier


def release(connection: Connection, copier: int) -> None:
    """Gives back everything that the copier has claimed, and its number if this connection holds it."""
    with translated_errors("Giving back imports"), connection.transaction():
        connection.execute("select from penstock.import_jobs where copier = %s order by id for update", [copier])
        connection.execute("update penstock.import_jobs set copier = null where copier = %s", [copier])
        connection.execute(
            "update penstock.import_chunks set state = 'todo', copier = null, claim = null "
            "where state = 'copying' and copier = %s",
            [copier],
        )
        connection.execute(
            "select pg_advisory_unlock(%s, %s) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() "
            "and classid = %s and objid = %s and objsubid = 2",
            [_LOCK_CLASS, copier, _LOCK_CLASS, copier],
        )
