"""The log: appended by the run that holds the lease, read by cursor."""

from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError

from engine_assistant.context import Context
from engine_assistant.model import codec
from engine_assistant.model.commands import AppendEvents, ReadEvents
from engine_assistant.model.errors import Internal, Raced, not_found
from engine_assistant.model.events import (
    EVENTS,
    WRITERS,
    ApprovalRequest,
    Known,
    ToolError,
    ToolInput,
    ToolOutput,
    TurnError,
    TurnFinish,
    Unknown,
)
from engine_assistant.model.permissions import RUN, USE
from engine_assistant.model.record import recorded
from engine_assistant.model.rows import ThreadRow
from engine_assistant.model.views import Appended, EventPage
from engine_assistant.operations.opening import lock, may_read, open_draft
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import batches
from engine_assistant.store import pages
from engine_assistant.store.dialect import Appending, Head
from engine_assistant.store.dialects import dialect_of
from engine_assistant.store.pages import EventsRead, StoredEvent
from engine_assistant.store.reads import find_thread
from engine_assistant.store.writes import write

__all__ = ["APPEND_EVENTS", "READ_EVENTS", "READ_EVENTS_JSON", "typed"]


def append_events(ctx: Context, command: AppendEvents) -> Appended:
    """Write the assistant's side. Plain events on Postgres are one statement."""
    if command.plain:
        return _append_plain(ctx, command)
    locked = lock(ctx, command.thread_id)
    if batches.is_repeated(locked.thread, command):
        return _first_answer(ctx, locked.thread)
    rests = any(isinstance(event, TurnFinish | TurnError) for event in command.events)
    asks = any(isinstance(event, ApprovalRequest) for event in command.events)
    named = {
        event.call_id
        for event in command.events
        if isinstance(event, ToolInput | ToolOutput | ToolError | ApprovalRequest)
    }
    uses = command.usage is not None
    draft = open_draft(ctx, locked, named, unended=rests or asks, run=rests or uses, queue=rests)
    return write(ctx.database, batches.append_events(draft, command))


def _append_plain(ctx: Context, command: AppendEvents) -> Appended:
    db = ctx.database
    head = dialect_of(ctx.connection).append(
        db,
        Appending(
            thread_id=command.thread_id,
            run_id=command.run_id,
            fence=command.fence,
            types=[event.type for event in command.events],
            bodies=command.bodies,
            batch=command.batch,
            digest=None if command.batch is None else command.digest,
        ),
    )
    if head is not None:
        return _appended(command, head)
    # No row: some guard said no. One look tells which; if it finds none, somebody was faster.
    thread = find_thread(db, command.thread_id)
    if thread is None:
        raise not_found()
    if batches.is_repeated(thread, command):
        return _first_answer(ctx, thread)
    batches.refuse_append(thread, command)
    batches.refuse_plain(thread)
    raise Raced("The thread changed meanwhile. Try again.")


def _appended(command: AppendEvents, head: Head) -> Appended:
    first = head.last_seq - len(command.events) + 1
    turn, at = head.turn, head.now
    return Appended.model_construct(
        events=tuple(
            [recorded(event, seq, turn, at) for seq, event in enumerate(command.events, first)]
        ),
        interrupt_requested=head.interrupt_requested,
        duplicate=False,
    )


def _first_answer(ctx: Context, thread: ThreadRow) -> Appended:
    """Answer a repeated batch with the events it wrote the first time."""
    first, last = thread.batch_first_seq or 1, thread.batch_last_seq or 0
    read = pages.read_events(
        ctx.database, thread.id, after=first - 1, limit=last - first + 1, last=None
    )
    return Appended(
        events=() if read is None else typed(read.rows),
        interrupt_requested=thread.interrupt_requested_at is not None,
        duplicate=True,
    )


def _read(ctx: Context, command: ReadEvents) -> tuple[EventsRead, int]:
    """Return a page that the caller may read, and the number it reaches to."""
    read = pages.read_events(
        ctx.database,
        command.thread_id,
        after=command.after,
        limit=command.limit,
        last=command.last,
    )
    if read is None or not may_read(ctx, read.subject_id):
        raise not_found()
    if command.last is not None:
        return read, read.head_seq
    return read, min(command.after + command.limit, read.head_seq)


def read_events(ctx: Context, command: ReadEvents) -> EventPage:
    """Return typed events after a number."""
    read, last_seq = _read(ctx, command)
    return EventPage.model_construct(
        events=typed(read.rows), last_seq=last_seq, head_seq=read.head_seq
    )


def read_events_json(ctx: Context, command: ReadEvents) -> bytes:
    """Return the same page as JSON, without making objects of it."""
    read, last_seq = _read(ctx, command)
    end = f'],"last_seq":{last_seq},"head_seq":{read.head_seq}}}'
    return _spliced(b'{"events":[', read.rows, end.encode())


def _spliced(begin: bytes, rows: Sequence[StoredEvent], end: bytes) -> bytes:
    """Put number, turn and time into each stored body, which stays as it is, and join them.

    Each record is encoded by itself, and one join makes the page: it is large enough that a second
    copy of it, text before bytes, costs as much as all the records.
    """
    if not rows:
        return begin + end
    records = [
        (
            f'{{"seq":{seq},"turn":{turn},"at":"{at}",'
            f"{body[1:] if kind in WRITERS else _of_newer_writer(kind, body)}"
        ).encode()
        for seq, kind, turn, body, at in rows
    ]
    records[0] = begin + records[0]
    records[-1] += end
    return b",".join(records)


def _of_newer_writer(kind: str, body: str) -> str:
    return f'"type":"unknown","name":{codec.dumps(kind)},"body":{body}}}'


def typed(rows: Sequence[StoredEvent]) -> tuple[Known | Unknown, ...]:
    """Validate stored events as one list.

    Raises:
        Internal: a stored event cannot be read; its number is named.
    """
    events = _validated(rows)
    if events is not None:
        return tuple(events)
    # One by one, because a body that is not JSON at all breaks the list around it.
    broken = next((row[0] for row in rows if _validated([row]) is None), None)
    raise Internal("A stored event cannot be read.", seq=broken)


def _validated(rows: Sequence[StoredEvent]) -> list[Known | Unknown] | None:
    """Return events that are what their rows say: a body is one object, and no other's.

    A field that a newer writer added to an event of ours is left out: both releases read the same
    log while one takes the other's place.
    """
    try:
        events = EVENTS.validate_json(_spliced(b"[", rows, b"]"), extra="ignore")
    except ValidationError:
        return None
    if len(events) != len(rows):
        return None
    for event, (seq, kind, turn, _, _) in zip(events, rows, strict=True):
        if event.seq != seq or event.turn != turn or event.type not in (kind, "unknown"):
            return None
    return events


APPEND_EVENTS: Final = Operation(
    "assistant/append-events",
    (RUN,),
    AppendEvents,
    Appended,
    append_events,
    one_statement=lambda command: command.plain,
)
READ_EVENTS: Final = Operation(
    "assistant/read-events",
    (USE, RUN),
    ReadEvents,
    EventPage,
    read_events,
    one_statement=lambda _: True,
    reads=True,
)
READ_EVENTS_JSON: Final = Operation(
    "assistant/read-events",
    (USE, RUN),
    ReadEvents,
    bytes,
    read_events_json,
    one_statement=lambda _: True,
    reads=True,
)
