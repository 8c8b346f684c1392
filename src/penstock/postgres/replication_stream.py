"""The replication connection: START_REPLICATION … LOGICAL with pgoutput, as raw messages.

https://www.postgresql.org/docs/current/protocol-replication.html
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Sequence
from types import TracebackType

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from penstock.errors import (
    DecodeError,
    PenstockError,
    PublicationMissing,
    SlotBusy,
    SlotLost,
    SourceRefused,
    SourceUnavailable,
)
from penstock.lsn import LSN, ZERO
from penstock.pgoutput.messages import POSTGRES_EPOCH
from penstock.postgres.connection import connect

# The text form of a value must not depend on how the server is configured.
PINNED_SETTINGS = (
    "SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET extra_float_digits = 3; SET bytea_output = 'hex'; "
    "SET timezone = 'UTC'; SET client_encoding = 'UTF8'; SET xmlbinary = 'base64'; SET lc_monetary = 'C'; "
    "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_session_timeout = 0"
)
_KEEPALIVE = struct.Struct("!cQQB")
_KEEPALIVE_LENGTH = 18  # k, end LSN, clock, reply wanted; any XLogData is longer
_STATUS = struct.Struct("!cQQQqB")
_NOT_IN_PREREQUISITE_STATE, _UNDEFINED_OBJECT = "55000", "42704"


class ReplicationStream:
    """One connection that reads a slot. Not thread-safe."""

    def __init__(self, url: str, slot: str, publications: Sequence[str], start: LSN) -> None:
        self._slot, self._publications = slot, publications
        self._connection = connect(make_conninfo(url, replication="database"), application_name="penstock capture")
        self._pg = self._connection.pgconn
        self.server_end = ZERO  # the server has nothing for us below this, but for what it sent before saying so
        self.reply_requested = False
        self.idle = False  # the server has sent all it has, and said so
        self._skipping: PenstockError | None = None
        self._received: list[bytes] = []  # by the call under way
        self._whole = 0  # of those, before the server began to leave out changes
        self._connection.add_notice_handler(self._notice)
        try:
            self._command(PINNED_SETTINGS, pq.ExecStatus.COMMAND_OK)
            self._command(_start_command(slot, publications, start), pq.ExecStatus.COPY_BOTH)
        except BaseException:
            self.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._pg.socket, select.POLLIN)

    def _command(self, command: str, expected: pq.ExecStatus) -> None:
        try:
            result = self._pg.exec_(command.encode())
        except psycopg.OperationalError as error:
            raise self._broken(error) from None
        if result.status != expected:
            raise self._refused(result)

    def receive(self, messages: list[bytes], most: int) -> int:
        """Appends what the server sent (XLogData, header included) until about ``most`` bytes; 0 when it sent nothing.

        The only loop over messages in Penstock: one call of libpq for each, about 1.5 µs.
        """
        get, append, size, dry = self._pg.get_copy_data, messages.append, 0, False
        self._received = messages
        try:
            while size < most:
                length, message = get(1)
                if length > _KEEPALIVE_LENGTH:
                    append(message.tobytes())  # copied at once, so that libpq's buffer is reused
                    size += length
                    self.idle = dry = False
                elif length == 0:
                    if dry:
                        break
                    self._pg.consume_input()
                    dry = True
                elif length == _KEEPALIVE_LENGTH:
                    self._keepalive(message.tobytes())
                else:
                    raise self._ended()
        except psycopg.OperationalError as error:
            raise self._broken(error) from None
        if self._skipping is not None:
            del messages[self._whole :]
            raise self._skipping
        return size

    def _notice(self, notice: psycopg.errors.Diagnostic) -> None:
        """From Postgres 18 on, a publication that does not exist is a mere warning, and its changes are left out."""
        if notice.sqlstate == _NOT_IN_PREREQUISITE_STATE and self._skipping is None:
            said = ": ".join(filter(None, (notice.message_primary, notice.message_detail))).rstrip(".")
            self._whole = len(self._received)
            self._skipping = self._missing(notice.message_primary or "") or SlotLost(
                f"The source leaves out changes: {said}."
            )

    def _keepalive(self, message: bytes) -> None:
        kind, end, _clock, reply = _KEEPALIVE.unpack(message)
        if kind != b"k":
            raise DecodeError(f"The server sent a message of unknown kind {kind!r} on the replication connection.")
        self.server_end = max(self.server_end, LSN(end))
        self.idle = True
        self.reply_requested = self.reply_requested or bool(reply)

    def wait(self, seconds: float, pause: float = 0) -> None:
        """Until the server sends something, at most so long; and then for a ``pause``, in which more of it comes.

        Whoever waits is woken by each row that the server sends, which costs it more than to send the row (measured: a tenth
        of all CPU time of a backlog, the server's included).
        """
        if self._poll.poll(max(seconds, 0) * 1000) and pause:
            time.sleep(pause)

    def confirm(self, received: LSN, durable: LSN) -> None:
        """Standby status update: the server may forget what lies below ``durable``."""
        clock = int(time.time() * 1_000_000) - POSTGRES_EPOCH
        try:
            self._pg.put_copy_data(_STATUS.pack(b"r", max(received, durable), durable, durable, clock, 0))
            self._pg.flush()
        except psycopg.OperationalError as error:
            raise self._broken(error) from None
        self.reply_requested = False

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> ReplicationStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ended(self) -> PenstockError:
        result = self._pg.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            state, said = _state_and_message(result)
            return (self._missing(said) if state == _UNDEFINED_OBJECT else None) or self._refused(result)
        return SourceUnavailable("The server ended the replication connection.")

    def _broken(self, error: psycopg.Error) -> SourceUnavailable:
        return SourceUnavailable(f"The replication connection broke: {str(error).strip()}")

    def _refused(self, result: pq.abc.PGresult) -> PenstockError:
        state, said = _state_and_message(result)
        return _error_for(state, f'Replication from slot "{self._slot}" was refused: {said}.')

    def _missing(self, said: str) -> PublicationMissing | None:
        """The message may be in any language; it has the name, most often in quotation marks."""
        named = sorted((name for name in self._publications if name in said), key=lambda n: (f'"{n}"' in said, len(n)))
        if not named:
            return None
        error = PublicationMissing(
            f'Postgres cannot decode all of the WAL that slot "{self._slot}" is to be read from: the publication '
            f'"{named[-1]}" did not exist there. It was dropped, renamed or made anew since, or is younger.'
        )
        error.publication = named[-1]
        return error


def _state_and_message(result: pq.abc.PGresult) -> tuple[str, str]:
    state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    return state, (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode(errors="replace")


def _error_for(state: str, message: str) -> PenstockError:
    if state == "55006":  # object_in_use
        return SlotBusy(message)
    if state in (_UNDEFINED_OBJECT, _NOT_IN_PREREQUISITE_STATE):  # undefined_object; an invalidated slot
        return SlotLost(message)
    if state[:2] in ("57", "53", "08") or not state:  # operator intervention, resources, connection
        return SourceUnavailable(message)
    return SourceRefused(message)


def _start_command(slot: str, publications: Sequence[str], start: LSN) -> str:
    names = ",".join('"' + name.replace('"', '""') + '"' for name in publications).replace("'", "''")
    return (
        f'START_REPLICATION SLOT "{slot}" LOGICAL {start} '
        f"(proto_version '1', publication_names '{names}', messages 'true')"
    )
