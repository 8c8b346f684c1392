"""A way to a Postgres server that breaks exactly at a COMMIT: before the server hears it, or before its answer is heard."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Literal

from psycopg import conninfo

Where = Literal["before", "after"]


class BreakingWay:
    """``url`` leads through it. After ``break_at_commit``, the next COMMIT breaks its connection; later ones hold."""

    def __init__(self, url: str) -> None:
        parameters = conninfo.conninfo_to_dict(url)
        self._server = str(parameters["host"]), int(str(parameters["port"]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = conninfo.make_conninfo(url, host="127.0.0.1", port=self._listener.getsockname()[1])
        self._where: Where | None = None
        self.broken = False

    def __enter__(self) -> BreakingWay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def break_at_commit(self, where: Where) -> None:
        self._where, self.broken = where, False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            _Connection(self, client, socket.create_connection(self._server)).start()

    def breaks(self, sent: bytes) -> Where | None:
        """Where to break the connection through which a client sends this."""
        if self._where is None or b"COMMIT" not in sent:
            return None
        where, self._where, self.broken = self._where, None, True
        return where


class _Connection:
    def __init__(self, way: BreakingWay, client: socket.socket, server: socket.socket) -> None:
        self._way, self._client, self._server = way, client, server
        self._mute = False

    def start(self) -> None:
        for carry in (self._carry_questions, self._carry_answers):
            threading.Thread(target=carry, daemon=True).start()

    def _carry_questions(self) -> None:
        with contextlib.suppress(OSError):
            while sent := self._client.recv(1 << 16):
                where = self._way.breaks(sent)
                if where == "before":
                    break
                self._mute = where == "after"
                self._server.sendall(sent)
        self._close()

    def _carry_answers(self) -> None:
        with contextlib.suppress(OSError):
            while (answer := self._server.recv(1 << 16)) and not self._mute:
                self._client.sendall(answer)
        self._close()

    def _close(self) -> None:
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
