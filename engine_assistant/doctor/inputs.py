"""Messages: each receipt compared with the log, and those that wait with each other.

What waits is in no event, so nothing but the rows can be asked about it: whether they form a line
at all, and whether the thread counts them. Where a turn has taken messages up, the log says so.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from engine_assistant.doctor.derived import Derived, Message
from engine_assistant.doctor.findings import Code
from engine_assistant.doctor.reading import Columns
from engine_assistant.doctor.rows import differing
from engine_assistant.model.codec import JsonRefused
from engine_assistant.model.events import UserMessage, body_of
from engine_assistant.model.machines import (
    InputState,
    Priority,
    ThreadStatus,
    TurnState,
    WhenBusy,
)
from engine_assistant.model.parts import FilePart

__all__ = ["Inputs"]

_URGENT: Final = (WhenBusy.STEER, WhenBusy.INTERRUPT)
_LINED_UP: Final = (WhenBusy.QUEUE, *_URGENT)


@dataclass(slots=True)
class _Place:
    """Where a message stood in line, and where its turn put it."""

    joins: int
    position: int
    first_seq: int


@dataclass(slots=True)
class Inputs:
    """The receipts of one thread, looked at one by one, and then as a line."""

    derived: Derived
    keys: set[tuple[str, str]] = field(default_factory=set)
    positions: Counter[int] = field(default_factory=Counter)
    groups: dict[int, set[object]] = field(default_factory=lambda: defaultdict(set))
    """The priorities of those that wait, by the turn that they join."""
    turns: dict[int, list[_Place]] = field(default_factory=lambda: defaultdict(list))
    """Those that opened each turn."""
    files: dict[str, tuple[FilePart, ...]] = field(default_factory=dict)
    """The files that messages name which wait."""

    def check(self, row: Columns) -> None:
        """Compare the receipt of a message with its events, or with what waiting is."""
        derived, where = self.derived, f"input {row['id']}"
        message = derived.messages.pop(str(row["id"]), None)
        self._check_key(row, where)
        wrong = _wrong_place(row)
        if wrong is not None:
            derived.notes.add(Code.QUEUE, where, wrong)
        if message is not None:
            self._check_held(row, message, where)
        elif row["state"] in (InputState.QUEUED, InputState.CANCELLED):
            self._check_unheld(row, where)
        else:
            derived.notes.add(Code.INPUT_STRAY, where, "It is of no message.")

    def _check_key(self, row: Columns, where: str) -> None:
        if row["key"] is None:
            return
        key = (str(row["author_id"]), str(row["key"]))
        if key in self.keys:
            message = "Its author used its key for another message, too."
            self.derived.notes.add(Code.INPUT_ROW, where, message)
        self.keys.add(key)

    def _check_held(self, row: Columns, message: Message, where: str) -> None:
        """Compare a receipt with the events of the turn that holds its message."""
        absorbed = message.last_seq == message.first_seq
        expected: dict[str, object] = {
            "author_id": message.author,
            "state": InputState.ABSORBED if absorbed else InputState.OPENED,
            "turn": message.turn,
            "first_seq": message.first_seq,
            "last_seq": message.last_seq,
            "body": None,
        }
        if row["position"] == 0:
            # Its text may have been changed while it waited; its key stands for the first.
            expected["key_digest"] = message.digest
        if absorbed:
            expected["when_busy"] = WhenBusy.STEER
        names = differing(row, expected)
        if names:
            self.derived.notes.add(
                Code.INPUT_ROW, where, f"It differs from the events in: {names}."
            )
        if not absorbed:
            place = _Place(_number(row["joins"]), _number(row["position"]), message.first_seq)
            self.turns[message.turn].append(place)

    def _check_unheld(self, row: Columns, where: str) -> None:
        """Check a receipt whose message is in no turn: it waits, or was taken back."""
        notes = self.derived.notes
        names = differing(row, {"turn": 0, "first_seq": 0, "last_seq": 0})
        if names:
            notes.add(Code.INPUT_ROW, where, f"No turn holds it, and yet it has: {names}.")
        if row["position"] == 0:
            notes.add(Code.QUEUE, where, "It never waited, and no turn holds it.")
        if row["state"] == InputState.CANCELLED:
            if row["body"] is not None:
                notes.add(Code.INPUT_ROW, where, "It was taken back, and still says something.")
            return
        self.positions[_number(row["position"])] += 1
        self.groups[_number(row["joins"])].add(row["priority"])
        message = _said(row["body"])
        if message is None or (message.author, message.input_id) != (row["author_id"], row["id"]):
            notes.add(Code.INPUT_ROW, where, "What it will say cannot be read, or is another's.")
        elif message.files:
            self.files[where] = message.files

    def finish(self, thread: Columns) -> None:
        """Check the line as a whole. Called after the rows."""
        notes, waiting = self.derived.notes, self.positions.total()
        if thread["queued"] != waiting:
            message = f"It counts {thread['queued']} messages that wait; there are {waiting}."
            notes.add(Code.QUEUE, "thread", message)
        over = thread["status"] == ThreadStatus.CLOSED or thread["turn_state"] == TurnState.IDLE
        if waiting and over:
            notes.add(Code.QUEUE, "thread", "Messages wait, and no turn that they could wait for.")
        for wrong in self._disorder():
            notes.add(Code.QUEUE, "thread", wrong)

    def _disorder(self) -> Iterator[str]:
        if any(count > 1 for count in self.positions.values()):
            yield "Two messages wait at one place."
        if any(len(priorities) > 1 for priorities in self.groups.values()):
            yield "Messages that wait for one turn have different priorities."
        for turn, places in self.turns.items():
            if len({place.joins for place in places}) > 1:
                yield f"Turn {turn} was opened by messages that did not wait for one turn."
            places.sort(key=lambda place: place.first_seq)
            order = [place.position for place in places]
            if order != sorted(set(order)):
                yield f"Turn {turn} was opened by its messages in another order than they came."


def _wrong_place(row: Columns) -> str | None:
    """Return what cannot be true of where a message stands, or stood, in line."""
    position, joins = _number(row["position"]), _number(row["joins"])
    waited = row["queued_at"] is not None
    if row["priority"] not in tuple(Priority) or row["when_busy"] not in (None, *WhenBusy):
        return "Its priority, or what it was to do when busy, is none that there is."
    if position == 0:
        known = (row["when_busy"], row["priority"], joins, waited)
        if known != (None, Priority.NORMAL, 0, False):
            return "It never waited, and yet it is described as if it had."
        return None
    if row["when_busy"] not in _LINED_UP or not waited:
        return "It waited, and it is not said why or since when."
    if row["when_busy"] in _URGENT and row["priority"] != Priority.NEXT:
        return "It was to come next, and its priority is another."
    return None if 1 <= joins <= position else "It joins a message that did not wait before it."


def _said(body: object) -> UserMessage | None:
    """Return what a message says that waits, if its bytes are those that the engine writes."""
    if not isinstance(body, str):
        return None
    try:
        message = UserMessage.model_validate_json(body)
        written = body_of(message)
    except (ValidationError, JsonRefused):
        return None
    return message if written == body else None


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
