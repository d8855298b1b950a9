"""`show` and `tail`: one thread as a conversation, and as a numbered timeline."""

import json as json_module
import sys
import time
from collections.abc import Iterator

from rich.text import Text

from engine_assistant import Operations
from engine_assistant.cli.demo.telling import timeline
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.look import auditor, located, looked_at
from engine_assistant.cli.screen import Screen, printable
from engine_assistant.model.events import Event, TextDelta, UserMessage
from engine_assistant.model.views import CallView, EventPage
from engine_assistant.model.views.inputs import InputView

__all__ = ["show", "tail"]

_PAGE = 500


def show(screen: Screen, url: str, thread_id: str, *, tenant: str | None) -> ExitCode:
    """Print the conversation, what waits, the calls with what became of them, and the timeline."""
    with looked_at(url) as assistant:
        thread = located(assistant, thread_id, tenant)
        ops = assistant.acting_as(auditor(thread.tenant_id))
        if screen.json:
            _show_json(screen, ops, thread.model_dump(mode="json"), thread_id)
            return ExitCode.GOOD
        screen.say(f"{thread.id}  {printable(thread.title or '')}".rstrip(), "bold")
        screen.say("\nConversation", "bold")
        _conversation(screen, _events(ops, thread_id))
        waiting = list(_waiting(ops, thread_id))
        if waiting:
            screen.say("\nWaiting", "bold")
        for said in waiting:
            screen.out.print(_waiting_line(said))
        calls = list(_calls(ops, thread_id))
        if calls:
            screen.say("\nCalls", "bold")
        for call in calls:
            screen.out.print(_call_line(call))
        screen.say("\nTimeline", "bold")
        for page in _pages(ops, thread_id):
            timeline(screen, page.events)
    return ExitCode.GOOD


def _show_json(screen: Screen, ops: Operations, thread: dict[str, object], thread_id: str) -> None:
    """Print one object a line: the thread, each message that waits, each call, each event."""
    screen.data({"thread": thread})
    for said in _waiting(ops, thread_id):
        screen.data({"input": said.model_dump(mode="json")})
    for call in _calls(ops, thread_id):
        screen.data({"call": call.model_dump(mode="json")})
    for page in _pages(ops, thread_id):
        for event in page.events:
            screen.data({"event": event.model_dump(mode="json")})


def _conversation(screen: Screen, events: Iterator[Event]) -> None:
    """Print who said what; the pieces of an answer are joined as they come."""
    speaking = False
    for event in events:
        if isinstance(event, TextDelta):
            if not speaking:
                screen.out.print(Text("assistant: ", "cyan"), end="")
            screen.out.print(Text(_kept(event.text)), end="")
            speaking = True
            continue
        if speaking:
            screen.out.print()
            speaking = False
        if isinstance(event, UserMessage):
            line = Text.assemble((f"{printable(event.author)}: ", "green"), _kept(event.text))
            screen.out.print(line)
    if speaking:
        screen.out.print()


def _kept(text: str) -> str:
    """Return text for a terminal: line breaks stay, what could steer it does not."""
    return "\n".join(printable(line) for line in text.split("\n"))


def _waiting_line(said: InputView) -> Text:
    joins = "" if said.joins == said.position else f", joins {said.joins}"
    how = f"{said.when_busy}, {said.priority}{joins}"
    return Text.assemble(
        (f"  {said.position}  ", "dim"),
        (f"{printable(said.author)}: ", "green"),
        _kept(said.text or ""),
        (f"  ({how})", "dim"),
    )


def _waiting(ops: Operations, thread_id: str) -> Iterator[InputView]:
    """Walk the messages that wait, in the order in which they open turns."""
    cursor: str | None = None
    while True:
        page = ops.list_inputs(thread_id=thread_id, state="queued", limit=_PAGE, cursor=cursor)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return


def _call_line(call: CallView) -> Text:
    said = ", ".join(f"{printable(say.approver)} {say.state}" for say in call.approvals)
    return Text.assemble(
        f"  {printable(call.call_id)}  ",
        (printable(call.tool), "bold"),
        f"  turn {call.turn}  ",
        (call.state.value, "cyan"),
        (f"  ({said})" if said else "", "dim"),
    )


def _calls(ops: Operations, thread_id: str) -> Iterator[CallView]:
    cursor: str | None = None
    while True:
        page = ops.list_calls(thread_id=thread_id, limit=_PAGE, cursor=cursor)
        yield from page.items
        cursor = page.cursor
        if cursor is None:
            return


def _pages(ops: Operations, thread_id: str, after: int = 0) -> Iterator[EventPage]:
    while True:
        page = ops.read_events(thread_id=thread_id, after=after, limit=_PAGE)
        yield page
        after = page.last_seq
        if after >= page.head_seq:
            return


def _events(ops: Operations, thread_id: str) -> Iterator[Event]:
    for page in _pages(ops, thread_id):
        yield from page.events


def tail(
    screen: Screen,
    url: str,
    thread_id: str,
    *,
    tenant: str | None,
    after: int | None,
    every: float,
) -> ExitCode:
    """Print events as they are recorded, until the thread is closed or Ctrl-C."""
    with looked_at(url) as assistant:
        thread = located(assistant, thread_id, tenant)
        ops = assistant.acting_as(auditor(thread.tenant_id))
        seen = max(0, thread.last_seq - 10) if after is None else after
        while True:
            # Asked before the page: a thread closed by then gets no further event.
            closed = ops.get_thread(thread_id=thread_id).closed_at is not None
            for page in _pages(ops, thread_id, seen):
                seen = page.last_seq
                _print(screen, page)
            if closed:
                return ExitCode.GOOD
            time.sleep(every)


def _print(screen: Screen, page: EventPage) -> None:
    if screen.json:
        for event in page.events:
            sys.stdout.write(json_module.dumps(event.model_dump(mode="json")) + "\n")
    else:
        timeline(screen, page.events)
    sys.stdout.flush()
