"""The log itself: numbers without a gap, and events that are byte for byte what is written.

Then each event is handed to what it moves: the turn, a call, an approval.
"""

import re
from collections.abc import Iterable
from typing import Final

from pydantic import TypeAdapter, ValidationError

from engine_assistant.doctor import approvals, calls, turns
from engine_assistant.doctor.derived import Derived
from engine_assistant.doctor.findings import Code
from engine_assistant.doctor.reading import StoredEvent
from engine_assistant.model import codec
from engine_assistant.model.codec import JsonRefused
from engine_assistant.model.events import (
    WRITERS,
    ApprovalRequest,
    ApprovalResolved,
    CallClosed,
    CallRetried,
    Event,
    ExecutionClaimed,
    Known,
    ToolError,
    ToolInput,
    ToolOutput,
    TurnError,
    TurnFinish,
    TurnStart,
    Unknown,
    UnknownResolved,
    UserMessage,
    body_of,
)

__all__ = ["follow", "read"]

_EVENT: Final[TypeAdapter[Known | Unknown]] = TypeAdapter(Event)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)


def follow(derived: Derived, page: Iterable[StoredEvent]) -> dict[int, Known]:
    """Read a page of events and let each tell its part; return those that could be read."""
    known: dict[int, Known] = {}
    for stored in page:
        _count(derived, stored)
        event = read(derived, stored)
        if event is not None:
            known[stored.seq] = event
            _tell(derived, event, stored)
    return known


def _count(derived: Derived, stored: StoredEvent) -> None:
    first, last = derived.last_seq + 1, stored.seq - 1
    if stored.seq < 1:
        derived.notes.add(Code.NUMBERS, stored.where, "Events are numbered from 1.")
        return
    if first == last:
        derived.notes.add(Code.NUMBERS, f"event {first}", "It is missing.")
    elif first < last:
        derived.notes.add(Code.NUMBERS, f"events {first} to {last}", "They are missing.")
    derived.last_seq = stored.seq


def read(derived: Derived, stored: StoredEvent) -> Known | None:
    """Return a stored event that can be read, and note what is wrong with its row.

    An event of a newer writer is counted and passed over.
    """
    notes, where = derived.notes, stored.where
    if not isinstance(stored.at, str) or _TIME.fullmatch(stored.at) is None:
        notes.add(Code.UNREADABLE, where, "Its time cannot be read.")
        return None
    if not isinstance(stored.body, str):
        notes.add(Code.UNREADABLE, where, "Its body is not text.")
        return None
    if stored.type not in WRITERS and _is_newer(derived, stored, stored.body):
        return None
    try:
        event = _EVENT.validate_json(stored.body)
        written = "" if isinstance(event, Unknown) else body_of(event)
    except (ValidationError, JsonRefused):
        notes.add(Code.UNREADABLE, where, "It cannot be read.")
        return None
    if isinstance(event, Unknown):
        notes.add(Code.UNREADABLE, where, "It claims to be of no type.")
        return None
    if event.type != stored.type:
        notes.add(Code.TYPE, where, f"It is stored as another type than {event.type}.")
    # What the log knows beside a body stands in columns, and in no body.
    if written != stored.body or event.seq or event.turn or event.at is not None:
        notes.add(Code.BYTES, where, "Its bytes are not those that are written for it.")
    return event


def _is_newer(derived: Derived, stored: StoredEvent, body: str) -> bool:
    """Return whether an event is of a type that no event here has; note what is wrong with it."""
    try:
        fields = codec.loads(body)
    except JsonRefused:
        derived.notes.add(Code.UNREADABLE, stored.where, "It cannot be read.")
        return True
    if not isinstance(fields, dict):
        derived.notes.add(Code.UNREADABLE, stored.where, "It is not an object.")
        return True
    if fields.get("type") in WRITERS:
        return False
    derived.unknown_events += 1
    if fields.get("type") != stored.type:
        derived.notes.add(Code.TYPE, stored.where, "It is stored as another type than its own.")
    if stored.turn != derived.turn:
        derived.notes.add(Code.TURN, stored.where, f"It stands in turn {derived.turn}.")
    return True


def _tell(derived: Derived, event: Known, stored: StoredEvent) -> None:
    seq, at = stored.seq, str(stored.at)
    turns.admit(derived, event, seq, at, stored.turn)
    match event:
        case UserMessage():
            turns.user_message(derived, event, seq, at, stored.turn)
        case TurnStart():
            turns.turn_start(derived, event, seq, at)
        case TurnFinish() | TurnError():
            turns.rest(derived, event, seq, at)
        case _:
            _tell_call(derived, event, seq, at)
    if stored.turn != derived.turn:
        derived.notes.add(Code.TURN, stored.where, f"It stands in turn {derived.turn}.")


def _tell_call(derived: Derived, event: Known, seq: int, at: str) -> None:
    match event:
        case ToolInput():
            calls.tool_input(derived, event, seq, at)
        case ToolOutput() | ToolError():
            calls.result(derived, event, seq, at)
        case CallClosed():
            calls.closed(derived, event, seq, at)
        case ApprovalRequest():
            approvals.request(derived, event, seq, at)
        case ApprovalResolved():
            approvals.resolved(derived, event, seq, at)
        case ExecutionClaimed():
            calls.claimed(derived, event, seq, at)
        case CallRetried():
            calls.retried(derived, event, seq, at)
        case UnknownResolved():
            calls.resolved(derived, event, seq, at)
