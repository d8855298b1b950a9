"""A wire to a real Postgres that can be cut in the middle of one exchange.

It passes bytes between clients and the server. Told to, it cuts the connection that says a given
word next: before the server hears it, or after the server has done it and before the client hears
of that.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import URL

from tests.rig.races import PATIENCE

needs_safe_cancel = pytest.mark.skipif(
    not psycopg.capabilities.has_cancel_safe(),
    reason="a libpq before 17 holds the whole process while it cancels, and the wire with it",
)
"""An async client that is cut while it waits cancels what it asked for, through this wire."""

_PORT = 5432
# The server's last word of an exchange, when no transaction is left open.
_READY_AND_IDLE = b"Z\x00\x00\x00\x05I"


class Wire:
    """A listening socket in front of one server; close it when the test is over."""

    def __init__(self, server: URL) -> None:
        self._server = server
        # Unix sockets: there libpq never encrypts, so the words can be seen.
        self._folder = Path(tempfile.mkdtemp(prefix="wire-"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / f".s.PGSQL.{_PORT}"))
        self._listener.listen()
        self._word: bytes | None = None
        self._after = False
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> URL:
        query = {"host": str(self._folder), "port": str(_PORT)}
        return self._server.set(host=None, port=None, query=query)

    def cut(self, word: str, *, after: bool) -> None:
        """Cut the next connection that says `word`, before or after the server has done it."""
        self._after = after
        self._word = word.encode()

    def close(self) -> None:
        # Closing alone would leave the thread waiting for a client.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            _Line(self, client, _connect(self._server)).start()

    def _is_said_in(self, words: bytes) -> bool:
        if self._word is None or self._word not in words:
            return False
        self._word = None
        self.cuts += 1
        return True


class _Line:
    """One connection: two threads that copy, and an end for both."""

    def __init__(self, wire: Wire, client: socket.socket, server: socket.socket) -> None:
        self._wire = wire
        self._client = client
        self._server = server
        self._deaf = threading.Event()

    def start(self) -> None:
        for copy in (self._to_server, self._to_client):
            threading.Thread(target=self._copying, args=(copy,), daemon=True).start()

    def _copying(self, copy: Callable[[], None]) -> None:
        try:
            copy()
        except OSError:
            pass  # the other direction has hung up
        finally:
            if not self._deaf.is_set():
                self._hang_up()

    def _to_server(self) -> None:
        while words := self._client.recv(65536):
            if self._wire._is_said_in(words):
                if not self._wire._after:
                    return
                self._deaf.set()
            self._server.sendall(words)

    def _to_client(self) -> None:
        unheard = b""
        while words := self._server.recv(65536):
            if not self._deaf.is_set():
                self._client.sendall(words)
                continue
            unheard += words
            if _READY_AND_IDLE in unheard:
                self._hang_up()
                return

    def _hang_up(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _connect(server: URL) -> socket.socket:
    host = str(server.query.get("host") or server.host or "localhost")
    port = int(str(server.query.get("port") or server.port or _PORT))
    if not host.startswith("/"):
        return socket.create_connection((host, port), timeout=PATIENCE)
    line = socket.socket(socket.AF_UNIX)
    line.connect(f"{host}/.s.PGSQL.{port}")
    return line
