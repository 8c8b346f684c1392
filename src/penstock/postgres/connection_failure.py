"""Why the server turned a connection down.

libpq reports a failed connection as a sentence, in the server's language, without its SQLSTATE. Yet whether to try
again (too many clients, starting up) or to stop (wrong password, no such database) hangs on it. So the attempt is made
once more with libpq's protocol trace on, which shows the code.
https://www.postgresql.org/docs/current/libpq-control.html
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Mapping
from typing import Any

from psycopg import conninfo, pq

_ERROR_CODE = re.compile(rb'^B\t\d+\tErrorResponse\t[^\n]*? C "([0-9A-Z]{5})"', re.MULTILINE)
_INVALID_PASSWORD = "28P01"
_PATIENCE = 10.0


def sqlstate_of_failure(parameters: Mapping[str, Any]) -> str | None:
    """The SQLSTATE that the server answers with; None if it does not answer, or takes the connection this time."""
    target = conninfo.make_conninfo(**parameters).encode()
    attempt = pq.PGconn.connect_start(target)
    try:
        # libpq traces on Linux only, which has memory files too: the trace of a plain-text login holds the password.
        if hasattr(os, "memfd_create"):
            return _by_trace(attempt)
        return _by_ping(attempt, target)
    finally:
        attempt.finish()


def _by_trace(attempt: pq.abc.PGconn) -> str | None:
    file = os.memfd_create("penstock-trace")
    try:
        attempt.trace(file)
        attempt.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        status = _poll(attempt)
        attempt.untrace()
        found = _ERROR_CODE.search(os.pread(file, 1 << 20, 0))
    finally:
        os.close(file)
    if found is not None:
        return found[1].decode()
    # The server asked for a password and we had none: libpq hung up by itself.
    return _INVALID_PASSWORD if status == pq.PollingStatus.FAILED and attempt.needs_password else None


def _by_ping(attempt: pq.abc.PGconn, target: bytes) -> str | None:
    """A server that is up and yet sends away somebody whose password it asked for."""
    status = _poll(attempt)
    asked = attempt.needs_password or attempt.used_password
    refused = status == pq.PollingStatus.FAILED and asked and pq.PGconn.ping(target) == pq.Ping.OK
    return _INVALID_PASSWORD if refused else None


def _poll(attempt: pq.abc.PGconn) -> int:
    deadline = time.monotonic() + _PATIENCE
    status: int = pq.PollingStatus.FAILED
    while attempt.status != pq.ConnStatus.BAD and time.monotonic() < deadline:
        status = attempt.connect_poll()
        if status in (pq.PollingStatus.OK, pq.PollingStatus.FAILED):
            break
        reading = [attempt.socket] if status == pq.PollingStatus.READING else []
        writing = [attempt.socket] if status == pq.PollingStatus.WRITING else []
        select.select(reading, writing, [], max(0.0, deadline - time.monotonic()))
    return status
