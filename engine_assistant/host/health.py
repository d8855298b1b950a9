"""How a service is doing, for whoever watches the process: `GET /health`."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

from engine_assistant.host.serving import Service

__all__ = ["serve_health"]

_LOOPBACK: Final = "127.0.0.1"
_PATIENCE: Final = 5.0
"""Seconds that a client may take to ask."""


@asynccontextmanager
async def serve_health(
    service: Service, port: int, *, address: str = _LOOPBACK
) -> AsyncIterator[int]:
    """Answer `GET /health` for as long as the block runs: what `Service.health` says, as JSON.

    The status is 200, and 503 once the service drains.

    Args:
        service: whose health.
        port: where; 0 is any that is free.
        address: which of the machine's addresses to listen on. The default is loopback; what is
            answered holds no name and no id, and nobody is asked who they are.

    Yields:
        the port.

    Raises:
        OSError: the address or the port cannot be had.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(service, head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asked is gone, or asked for nothing
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    server = await asyncio.start_server(answer, address, port)
    async with server:
        yield server.sockets[0].getsockname()[1]


def _answer(service: Service, head: bytes) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if path != b"/health":
        return _reply(HTTPStatus.NOT_FOUND, {})
    if method not in (b"GET", b"HEAD"):
        return _reply(HTTPStatus.METHOD_NOT_ALLOWED, {})
    health = service.health
    body = {
        "running": health.running,
        "picked_up": health.picked_up,
        "failed": health.failed,
        "last_poll": health.last_poll.isoformat() if health.last_poll else None,
        "draining": health.draining,
    }
    status = HTTPStatus.SERVICE_UNAVAILABLE if health.draining else HTTPStatus.OK
    return _reply(status, body, silent=method == b"HEAD")


def _reply(status: HTTPStatus, body: Mapping[str, object], *, silent: bool = False) -> bytes:
    text = json.dumps(body).encode()
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        "Content-Type: application/json",
        f"Content-Length: {len(text)}",
        "Connection: close",
        "",
        "",
    ]
    return "\r\n".join(head).encode() + (b"" if silent else text)
