"""Replays that die at a chosen point: a warm process forks one child for each.

`python -m tests.rig.killing` reads one order a line from standard input and answers one line for
each. A point is the moment before a statement, before a commit, or before a gated tool takes
effect; between two points the database does not change.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tests.rig.command import environment


@dataclass(frozen=True)
class Attempt:
    """One replay. `die_at` 0 lets it live; each effect of a tool is a line in `effects`."""

    url: str
    file: str
    gated: tuple[str, ...]
    effects: str
    die_at: int = 0


@dataclass(frozen=True)
class Ended:
    """How it ended: killed or with an exit code, and how many points it passed if it lived."""

    killed: bool
    code: int
    points: int


class Zygote:
    """The warm process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.rig.killing"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def replay(self, attempt: Attempt) -> Ended:
        to, out = self._pipes
        to.write(json.dumps(asdict(attempt)) + "\n")
        to.flush()
        return Ended(**json.loads(out.readline()))

    def stop(self) -> None:
        to, out = self._pipes
        to.close()
        self._process.wait(30)
        out.close()


def _child(attempt: Attempt, points: int) -> int:
    """Replay, and die at the point; write the number of points passed to the pipe."""
    import sqlalchemy as sa

    from engine_assistant import Assistant
    from engine_assistant.cli.replay import Order, record_files
    from engine_assistant.cli.replay.script import Call
    from engine_assistant.cli.screen import Screen
    from engine_assistant.model.codec import JsonValue

    passed = 0

    def point(*_: object) -> None:
        nonlocal passed
        passed += 1
        if passed == attempt.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(conversation: str, call: Call) -> JsonValue:
        point()
        file = os.open(attempt.effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{conversation} {call.call_id}\n".encode())
        os.close(file)
        return call.output

    assistant = Assistant.from_url(attempt.url)
    sa.event.listen(assistant.engine, "before_cursor_execute", point)
    sa.event.listen(assistant.engine, "commit", point)
    order = Order((Path(attempt.file),), frozenset(attempt.gated))
    totals = record_files(Screen(json=True), assistant, order, execute)
    assistant.engine.dispose()
    os.write(points, str(passed).encode())
    return totals.failed


def _fork(attempt: Attempt) -> Ended:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = _child(attempt, writer)
        finally:
            os._exit(code)
    os.close(writer)
    passed = os.read(reader, 32)
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return Ended(status == -signal.SIGKILL, status, int(passed or b"0"))


def main() -> None:
    # Imported once here, so that a child costs no start.
    import engine_assistant.cli.replay  # noqa: F401 - for its effect

    for line in sys.stdin:
        values = json.loads(line)
        attempt = Attempt(**{**values, "gated": tuple(values["gated"])})
        sys.stdout.write(json.dumps(asdict(_fork(attempt))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
