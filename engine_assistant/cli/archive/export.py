"""`export`: a thread, or all that a person owns, to standard output or to a file."""

import hashlib
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from engine_assistant import Assistant, Internal
from engine_assistant.cli.archive import bar, counted
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.look import auditor, located, looked_at
from engine_assistant.cli.screen import Screen, printable

__all__ = ["Wanted", "export"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be exported: one thread, or what one person of a tenant owns."""

    thread: str | None
    subject: str | None
    tenant: str | None
    output: Path | None


@dataclass(slots=True)
class _Given:
    """What was written so far."""

    threads: int = 0
    events: int = 0
    size: int = 0


def export(screen: Screen, url: str, wanted: Wanted) -> ExitCode:
    """Write an archive. Standard output, when it takes one, holds nothing else."""
    if wanted.output is None:
        screen.step_aside()
    given, digest = _Given(), hashlib.sha256()
    with looked_at(url) as assistant:
        lines, total = _lines(assistant, wanted)
        with closing(lines):
            # A refusal comes with the first line, before there is a file.
            first = next(lines)
            with _opened(wanted.output) as file, bar(screen, "events") as progress:
                task = progress.add_task("Exporting", total=total, done=0)
                for line in chain((first,), lines):
                    file.write(line)
                    digest.update(line)
                    _count(given, line)
                    progress.update(task, completed=given.events, done=given.events)
    _conclude(screen, wanted, given, digest.hexdigest())
    return ExitCode.GOOD


def _lines(assistant: Assistant, wanted: Wanted) -> tuple[Generator[bytes, None, None], int | None]:
    """Return the lines, and how many events they will hold, if that is known."""
    if wanted.thread is None:
        caller = auditor(wanted.tenant or "")
        return assistant.export_subject(caller, subject=wanted.subject or ""), None
    thread = located(assistant, wanted.thread, wanted.tenant)
    caller = auditor(thread.tenant_id)
    return assistant.export_thread(caller, thread_id=thread.id), thread.last_seq


def _count(given: _Given, line: bytes) -> None:
    given.size += len(line)
    given.events += line.startswith(b'{"event":')
    given.threads += line.startswith(b'{"end":"thread"')


@contextmanager
def _opened(output: Path | None) -> Iterator[BinaryIO]:
    """Open what takes the archive. A file has its name only when it is whole."""
    if output is None:
        yield sys.stdout.buffer
        # Before anybody is told that all is written.
        sys.stdout.buffer.flush()
        return
    if output.exists() and not output.is_file():  # A device or a pipe.
        with output.open("wb") as file:
            yield file
        return
    # Of a name that is no longer than any other.
    unfinished = output.with_name(f".{os.getpid()}.part")
    try:
        file = unfinished.open("wb")
    except OSError as error:
        raise Internal(f"{output} cannot be written: {error.strerror}.") from None
    try:
        with file:
            yield file
        unfinished.replace(output)
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _conclude(screen: Screen, wanted: Wanted, given: _Given, digest: str) -> None:
    if screen.json:
        screen.data(
            {
                "ok": True,
                "file": None if wanted.output is None else str(wanted.output),
                "threads": given.threads,
                "events": given.events,
                "bytes": given.size,
                "sha256": digest,
            }
        )
        return
    what = wanted.thread or counted(given.threads, "thread")
    screen.say(
        f"Exported {printable(what)}: {counted(given.events, 'event')},"
        f" {counted(given.size, 'byte')}, SHA-256 {digest}."
    )
