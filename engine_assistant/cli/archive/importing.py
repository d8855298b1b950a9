"""`import`: every thread of one or several files, each by itself."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import Final, cast

from engine_assistant import (
    RUN,
    Caller,
    Imported,
    Refused,
    ValidationFailed,
)
from engine_assistant.cli.archive import bar, counted
from engine_assistant.cli.database import opened, prepare, shown
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.screen import Screen, printable

__all__ = ["Order", "bring_in"]

_PIECE: Final = 64 * 1024
_STDIN: Final = Path("-")


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line asks for."""

    files: tuple[Path, ...]
    tenant: str
    cancel_open: bool


@dataclass(slots=True)
class _Totals:
    imported: int = 0
    already: int = 0
    events: int = 0
    refused: int = 0


def bring_in(screen: Screen, url: str, order: Order) -> ExitCode:
    """Import what can be, say what cannot, and go on with the next."""
    caller = Caller(tenant=order.tenant, principal="operator", permissions={RUN}, system=True)
    totals = _Totals()
    with opened(url) as assistant:
        prepare(assistant)
        with bar(screen, "threads") as progress:
            task = progress.add_task("Importing", total=_size(order.files), done=0)

            def read(size: int) -> None:
                progress.update(task, advance=size, done=totals.imported + totals.already)

            for path in order.files:
                pieces = _pieces(path, read)
                taken = assistant.import_threads(caller, pieces, cancel_open=order.cancel_open)
                _report(screen, totals, path, taken)
    _conclude(screen, url, order, totals)
    return ExitCode.FAILED if totals.refused else ExitCode.GOOD


def _report(
    screen: Screen, totals: _Totals, path: Path, taken: Iterator[Imported | Refused]
) -> None:
    """Say what became of each thread of a file, as soon as it is known."""
    try:
        for one in taken:
            if isinstance(one, Refused):
                _refused(screen, totals, path, one.error, one.thread_id)
            else:
                _imported(screen, totals, path, one)
    except ValidationFailed as damaged:
        _refused(screen, totals, path, damaged.to_dict())


def _imported(screen: Screen, totals: _Totals, path: Path, one: Imported) -> None:
    totals.imported += one.created
    totals.already += not one.created
    totals.events += one.events if one.created else 0
    if screen.json:
        screen.data({"file": str(path), **one.model_dump(mode="json")})
    else:
        events = counted(one.events, "event")
        what = events if one.created else "was here already"
        screen.say(f"{printable(one.thread_id)}  {what}")
    # Whoever reads this through a pipe sees it when it is in.
    sys.stdout.flush()


def _refused(
    screen: Screen,
    totals: _Totals,
    path: Path,
    error: Mapping[str, object],
    thread_id: str | None = None,
) -> None:
    totals.refused += 1
    if screen.json:
        screen.data({"file": str(path), "thread_id": thread_id, "error": dict(error)})
        sys.stdout.flush()
    name = error.get("reason") or error["code"]
    place = str(path) if thread_id is None else f"{path}: {thread_id}"
    # The engine names an argument, a terminal has the option.
    message = str(error["message"]).replace("cancel_open", "--cancel-open")
    screen.error(f"{place}: {name}: {message}")


def _conclude(screen: Screen, url: str, order: Order, totals: _Totals) -> None:
    if screen.json:
        screen.data({"ok": not totals.refused, "tenant": order.tenant, **asdict(totals)})
        return
    if totals.already and not totals.imported:
        told = f"Nothing new: {counted(totals.already, 'thread')} had been here before"
    else:
        again = f" ({totals.already:,} had been here before)" if totals.already else ""
        told = f"Imported {counted(totals.imported, 'thread')}{again}"
    screen.say(f"{told}, tenant {printable(order.tenant)}, {shown(url)}.")
    if totals.refused:
        screen.say(f"{totals.refused:,} could not be imported.", "bold red")


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    if path == _STDIN:
        yield cast("BufferedReader", sys.stdin.buffer)
        return
    with path.open("rb") as file:
        yield file


def _pieces(path: Path, read: Callable[[int], None]) -> Iterator[bytes]:
    """Give a file in pieces.

    Raises:
        ValidationFailed: it cannot be read, or not to its end.
    """
    try:
        with _opened(path) as file:
            # What is there, and not all that was asked for: a pipe may be slow.
            while piece := file.read1(_PIECE):
                read(len(piece))
                yield piece
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ValidationFailed(f"The file cannot be read: {why}.", path="lines") from None


def _size(files: Sequence[Path]) -> int | None:
    """Return how many bytes there are to read, if all of it is in files."""
    if not all(path.is_file() for path in files):
        return None
    return sum(path.stat().st_size for path in files)
