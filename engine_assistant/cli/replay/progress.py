"""How far a thread has come, read from its record and held against the script."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from engine_assistant import Operations
from engine_assistant.cli.replay.script import Broken, Conversation, Turn
from engine_assistant.model.events import (
    Data,
    Event,
    StepFinish,
    StepStart,
    TextDelta,
    ToolInput,
    TurnError,
    TurnFinish,
    UserMessage,
    body_of,
)

__all__ = ["Done", "read"]

_PAGE: Final = 500
_UNRECORDED: Final = {"seq": 0, "turn": 0, "at": None}
_DIFFERS: Final = "the record holds something else under this id"


@dataclass(slots=True)
class Done:
    """What is recorded of one turn: how many entries, and whether it rests for good."""

    entries: int = 0
    finished: bool = False


@dataclass(slots=True)
class _Recorded:
    text: str
    bodies: list[str] = field(default_factory=list)
    finished: bool = False


def read(person: Operations, thread_id: str, conversation: Conversation) -> list[Done]:
    """Return what is recorded of each turn that was begun.

    Raises:
        Broken: the thread holds something else than the beginning of this conversation.
    """
    recorded = list(_turns(person, thread_id))
    if len(recorded) > len(conversation.turns):
        raise Broken(f"{_DIFFERS}: it goes on where this one ends")
    return [
        _held_against(turn, number, one)
        for number, (turn, one) in enumerate(zip(conversation.turns, recorded, strict=False), 1)
    ]


def _held_against(turn: Turn, number: int, recorded: _Recorded) -> Done:
    """Count the entries that stand in the record, as they are here."""
    rest = recorded.bodies
    entries = 0
    for entry in turn.entries:
        if not rest:
            break
        bodies = [body_of(event) for event in entry.events]
        if rest[: len(bodies)] != bodies:
            raise Broken(f"{_DIFFERS}: turn {number} differs")
        rest = rest[len(bodies) :]
        entries += 1
    if recorded.text != turn.text or rest:
        raise Broken(f"{_DIFFERS}: turn {number} differs")
    if recorded.finished and entries < len(turn.entries):
        raise Broken(f"{_DIFFERS}: turn {number} ended with fewer messages")
    return Done(entries, recorded.finished)


def _turns(person: Operations, thread_id: str) -> Iterator[_Recorded]:
    """Fold the log: a turn begins with its message."""
    turn: _Recorded | None = None
    for event in _events(person, thread_id):
        if isinstance(event, UserMessage):
            if turn is not None:
                yield turn
            turn = _Recorded(event.text)
        elif turn is None:
            continue
        elif isinstance(event, StepStart | TextDelta | ToolInput | StepFinish | Data):
            turn.bodies.append(body_of(event.model_copy(update=_UNRECORDED)))
        elif isinstance(event, TurnFinish | TurnError):
            turn.finished = event.type == "turn-error" or event.reason != "awaiting-approval"
    if turn is not None:
        yield turn


def _events(person: Operations, thread_id: str) -> Iterator[Event]:
    after = 0
    while True:
        page = person.read_events(thread_id=thread_id, after=after, limit=_PAGE)
        yield from page.events
        if page.last_seq >= page.head_seq:
            return
        after = page.last_seq
