"""A small HTTP server on loopback, in a thread of its own: what the servers of this kit stand on.

It serves one request on each connection and remembers all of them. Tests with and without an event
loop use it alike: `with` or `async with`, then any client at `url`.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Thread
from typing import Final, Self

from pydantic import JsonValue

__all__ = ["EVENT_STREAM", "JSON", "LocalServer", "Received", "Reply"]

JSON: Final = "application/json"
EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
LONGEST_LINE: Final = 1 << 20
HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came in. `path` is without the query; names of headers are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    def json(self) -> JsonValue:
        """Return the body, read as JSON.

        Raises:
            ValueError: it is none.
        """
        read: JsonValue = json.loads(self.body)
        return read


class Reply:
    """The answer to one request, written piece by piece."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._chunked = False

    async def start(self, status: int, content_type: str, length: int | None = None) -> None:
        """Write the head.

        Without a length the body is chunked, so that a client can tell when it was cut.
        """
        self._chunked = length is None
        known = status in {one.value for one in HTTPStatus}
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase if known else 'Unknown'}"]
        lines += [f"content-type: {content_type}", "connection: close"]
        lines.append(
            "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        )
        await self._write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def send(self, piece: bytes) -> None:
        """Write a piece of the body."""
        if self._chunked and piece:
            piece = b"%x\r\n%b\r\n" % (len(piece), piece)
        await self._write(piece)

    async def end(self) -> None:
        """Say that the body is whole. Whoever does not has cut it."""
        if self._chunked:
            await self._write(b"0\r\n\r\n")

    async def whole(self, status: int, content_type: str, body: bytes) -> None:
        """Write all of an answer."""
        await self.start(status, content_type, len(body))
        await self.send(body)

    async def error(self, status: int, message: str) -> None:
        """Write an error in the form of the OpenAI API."""
        error = {"message": message, "type": "testing_error", "param": None, "code": str(status)}
        await self.whole(status, JSON, json.dumps({"error": error}).encode())

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


class LocalServer(ABC):
    """A server on an ephemeral port of loopback."""

    def __init__(self) -> None:
        self._received: list[Received] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._running: _Running | None = None
        self._thread: Thread | None = None

    @abstractmethod
    async def answer(self, received: Received, reply: Reply) -> None:
        """Answer one request. To return without an answer drops the connection."""

    @property
    def url(self) -> str:
        """Where it listens: `http://127.0.0.1:…`, without a slash at its end.

        Raises:
            RuntimeError: it is not running.
        """
        if self._running is None:
            raise RuntimeError("the server is not running: use it in a `with`")
        return f"http://{HOST}:{self._running.port}"

    @property
    def requests(self) -> tuple[Received, ...]:
        """Every request until now, in the order in which they came in."""
        return tuple(self._received)

    def start(self) -> None:
        """Listen.

        Raises:
            RuntimeError: it is running.
        """
        if self._running is not None:
            raise RuntimeError("the server is running")
        ready: Future[_Running] = Future()
        # A test that dies must not be kept alive by its server.
        self._thread = Thread(target=self._run, args=(ready,), name="testing-server", daemon=True)
        self._thread.start()
        self._running = ready.result()

    def stop(self) -> None:
        """Close every connection and the port. Stopping it again changes nothing."""
        if self._running is not None and self._thread is not None:
            self._running.loop.call_soon_threadsafe(self._running.stopping.set)
            self._thread.join()
            self._running = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    # ------------------------------------------------------------ in the thread

    def _run(self, ready: "Future[_Running]") -> None:
        try:
            asyncio.run(self._listen(ready))
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def _listen(self, ready: "Future[_Running]") -> None:
        stopping = asyncio.Event()
        listening = await asyncio.start_server(self._connected, HOST, 0, limit=LONGEST_LINE)
        port: int = listening.sockets[0].getsockname()[1]
        ready.set_result(_Running(port, asyncio.get_running_loop(), stopping))
        await stopping.wait()
        listening.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, Reply(writer))
            writer.close()
            await writer.wait_closed()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # a client that goes away has its reasons
        except asyncio.CancelledError:
            pass  # the server stops, which is no error that asyncio should tell of
        finally:
            self._connections.discard(task)
            # Of a client that does not read, and of a server that stops, nothing stays.
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, reply: Reply) -> None:
        received = await _read(reader)
        self._received.append(received)
        await self.answer(received, reply)


@dataclass(frozen=True, slots=True)
class _Running:
    """A server that listens."""

    port: int
    loop: asyncio.AbstractEventLoop
    stopping: asyncio.Event


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    path, _, query = target.partition("?")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, query, headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        body += (await reader.readexactly(size + 2))[:-2]
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers, which mean nothing here
    return body
