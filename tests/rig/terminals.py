"""A command in front of a terminal, and the person who types."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
from collections.abc import Mapping
from time import monotonic
from typing import Final, Self

from tests.rig.command import COMMAND, as_from_a_shell, environment

__all__ = ["CTRL_C", "CTRL_D", "Terminal"]

CTRL_C: Final = b"\x03"
CTRL_D: Final = b"\x04"
_PATIENCE: Final = 60.0
_LOOK_EVERY: Final = 1.0


class Terminal:
    """One run of the command. Leave it by `with`: what still runs is killed."""

    def __init__(self, *words: str, env: Mapping[str, str] | None = None) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [*COMMAND, *words],
            env=environment(TERM="dumb", COLUMNS="100", **(env or {})),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: _take_terminal(theirs),  # noqa: PLW1509 - only this thread is there
        )
        os.close(theirs)
        self.shown = ""
        self._read_until = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        os.close(self._ours)

    def see(self, text: str) -> None:
        """Wait until the text is shown, behind what was waited for before."""
        end = monotonic() + _PATIENCE
        while (found := self.shown.find(text, self._read_until)) < 0:
            if monotonic() > end or not self._read():
                raise AssertionError(f"{text!r} was not shown:\n{self.shown}")
        self._read_until = found + len(text)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._ours, keys)

    def end(self) -> int:
        """Return the exit code, once the command has ended."""
        until = monotonic() + _PATIENCE
        while monotonic() < until and self._read():
            pass
        return self._process.wait(_PATIENCE)

    def _read(self) -> bool:
        """Read a little; False when the other side has gone."""
        if not select.select([self._ours], [], [], _LOOK_EVERY)[0]:
            return True
        try:
            read = os.read(self._ours, 4096)
        except OSError:  # Linux says so when the other side has gone
            return False
        self.shown += read.decode(errors="replace").replace("\r\n", "\n")
        return bool(read)


def _take_terminal(terminal: int) -> None:
    as_from_a_shell()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
