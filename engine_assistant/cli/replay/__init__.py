"""`engine-assistant replay`: record real conversations through the public API."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from engine_assistant import Assistant, AssistantError, Conflict, Internal, Unavailable
from engine_assistant.cli.database import opened, prepare, shown
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.replay.files import Found, conversations
from engine_assistant.cli.replay.host import Execute, Host, recorded_output
from engine_assistant.cli.replay.recorder import record
from engine_assistant.cli.replay.script import Broken, Conversation
from engine_assistant.cli.screen import Screen, printable

__all__ = ["Order", "Totals", "record_files", "replay"]


@dataclass(frozen=True, slots=True)
class Order:
    """What the command line asks for."""

    files: tuple[Path, ...]
    gated: frozenset[str]
    tenant: str = "replay"
    owner: str = "usr_replay"


@dataclass(slots=True)
class Totals:
    """What was done. All but `failed` count conversations that are recorded to their end.

    `unused` are the gates that no call of these conversations went through.
    """

    conversations: int = 0
    already: int = 0
    failed: int = 0
    messages: int = 0
    calls: int = 0
    gated: int = 0
    seconds: float = 0.0
    unused: tuple[str, ...] = ()

    def add(self, conversation: Conversation, host: Host, *, was_missing: bool) -> None:
        """Count a conversation that is recorded."""
        self.conversations += 1
        self.already += not was_missing
        self.messages += conversation.messages
        for call in conversation.calls:
            self.calls += 1
            self.gated += host.gates(call)
        if self.unused:
            used = {call.tool for call in conversation.calls}
            self.unused = tuple(name for name in self.unused if name not in used)


def replay(screen: Screen, url: str, order: Order) -> ExitCode:
    """Record every conversation of the files."""
    with opened(url) as assistant:
        prepare(assistant)
        totals = record_files(screen, assistant, order)
    if screen.json:
        screen.data({"ok": not totals.failed, "database": shown(url), **asdict(totals)})
    else:
        _say_recorded(screen, totals)
        if totals.unused:
            screen.say(f"No call of {printable(', '.join(totals.unused))} was seen.", "yellow")
        if totals.failed:
            screen.say(f"{totals.failed} could not be recorded.", "bold red")
        screen.say(f"The record is in {shown(url)}, tenant {printable(order.tenant)}.")
    return ExitCode.FAILED if totals.failed else ExitCode.GOOD


def _say_recorded(screen: Screen, totals: Totals) -> None:
    new = totals.conversations - totals.already
    if totals.already and not new:
        screen.say(f"Nothing new: all {totals.already} conversations had been recorded before.")
        return
    again = f" ({totals.already} had been recorded before). All together" if totals.already else ""
    screen.say(
        f"Recorded {new} conversations{again}: {totals.messages} messages,"
        f" {totals.calls} calls, {totals.gated} of them gated, in {totals.seconds:.1f} s."
    )


def record_files(
    screen: Screen, assistant: Assistant, order: Order, execute: Execute = recorded_output
) -> Totals:
    """Record every conversation, and go on after those that cannot be.

    Raises:
        Unavailable: the database has gone; what was recorded stays, and a restart continues.
        ValidationFailed: the tenant or the owner is no id.
    """
    host = Host.of(assistant, order.tenant, order.owner, order.gated, execute)
    totals, began = Totals(unused=tuple(sorted(order.gated))), time.monotonic()
    with _bar(screen) as progress:
        size = sum(path.stat().st_size for path in order.files)
        task = progress.add_task("Recording", total=size, done=0)
        for path in order.files:
            for found in conversations(path):
                _one(screen, host, totals, found)
                progress.update(task, advance=found.size, done=totals.conversations)
    totals.seconds = round(time.monotonic() - began, 3)
    return totals


def _one(screen: Screen, host: Host, totals: Totals, found: Found) -> None:
    try:
        if isinstance(found.what, Broken):
            raise found.what
        was_missing = record(host, found.what)
    except (Unavailable, Internal):
        raise
    except Broken as broken:
        _report(screen, totals, found.place, str(broken))
    except AssistantError as error:
        name = error.reason.value if isinstance(error, Conflict) else error.code
        _report(screen, totals, found.place, f"{name}: {error.message}")
    else:
        totals.add(found.what, host, was_missing=was_missing)


def _report(screen: Screen, totals: Totals, place: str, reason: str) -> None:
    totals.failed += 1
    screen.err.print(printable(f"{place}: {reason}"), markup=False)


def _bar(screen: Screen) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[done]} conversations"),
        TimeRemainingColumn(),
        console=screen.bars,
        transient=True,
    )
