"""The lines of standard input, as they come: typed, piped, or from a file."""

import asyncio
import codecs
import os
from threading import Thread
from typing import Final

__all__ = ["Lines"]

_STANDARD_INPUT: Final = 0
_CHUNK: Final = 65536


class Lines:
    """Reads in a thread of its own, because files and terminals cannot be awaited alike.

    The thread reads the descriptor itself: one that sleeps inside Python's own reader when the
    process ends would hold its lock.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._over = False
        Thread(target=self._read, daemon=True).start()

    async def next(self) -> str | None:
        """Return the next line without its end; None when there will be none."""
        if self._over:
            return None
        line = await self._queue.get()
        self._over = line is None
        return line

    def typed(self) -> str | None:
        """Return a line that is there already; None if there is none now."""
        if self._queue.empty() or self._over:
            return None
        line = self._queue.get_nowait()
        self._over = line is None
        return line

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        rest = ""
        while True:
            try:
                chunk = os.read(_STANDARD_INPUT, _CHUNK)
            except OSError:  # the terminal has gone
                chunk = b""
            *lines, rest = (rest + decoder.decode(chunk, final=not chunk)).split("\n")
            if not chunk and rest:
                lines.append(rest)
            try:
                for line in lines:
                    self._loop.call_soon_threadsafe(self._queue.put_nowait, line.rstrip("\r"))
                if not chunk:
                    self._loop.call_soon_threadsafe(self._queue.put_nowait, None)
                    return
            except RuntimeError:  # the loop has ended
                return
