"""Summaries: what each may stand for, where it cuts the log, and which later one covers it."""

from collections.abc import Iterable
from dataclasses import dataclass

from engine_assistant.doctor.findings import Code, Notes
from engine_assistant.doctor.reading import Columns
from engine_assistant.model.events import (
    ApprovalResolved,
    CallClosed,
    CallRetried,
    ExecutionClaimed,
    Known,
    StepFinish,
    StepStart,
    TextDelta,
    ToolError,
    ToolInput,
    ToolOutput,
    TurnError,
    TurnFinish,
    UserMessage,
)
from engine_assistant.model.limits import LIMITS

__all__ = ["Cuts"]


@dataclass(frozen=True, slots=True)
class _Summary:
    """A range that a summary stands for."""

    n: int
    first: int
    last: int
    covered_by: object

    def holds(self, other: "_Summary") -> bool:
        return self.first <= other.first and other.last <= self.last

    def meets(self, other: "_Summary") -> bool:
        return self.first <= other.last and other.first <= self.last


class Cuts:
    """The summaries of a thread, compared with one another and with the events that come by.

    A cut is good where nothing has begun. Within an answer it is good if that does not go on, and
    before the results of its calls if they have none when the next answer begins: so it was told.
    """

    def __init__(self, notes: Notes, rows: Iterable[Columns]) -> None:
        """Look at the rows, in the order of their numbers."""
        self._notes = notes
        self._summaries = [found for row in rows if (found := self._read(row)) is not None]
        self._check_cover()
        self._cuts: dict[int, set[int]] = {}
        for one in self._summaries:
            for place in (one.first - 1, one.last):
                self._cuts.setdefault(place, set()).add(one.n)
        self._speaks = False
        self._calls: set[str] = set()
        """The calls of the newest answer, and"""
        self._ended: set[str] = set()
        """those that have a result."""
        self._told: set[str] = set()
        self._undecided: dict[tuple[int, int], frozenset[str]] = {}
        """Cuts within it, by summary and place, with the calls that had no result there."""

    def take(self, event: Known | None, seq: int) -> None:
        """Take the next event; None if it could not be read."""
        if not self._cuts:
            return
        match event:
            case StepStart():
                self._freeze()
            case TextDelta():
                self._speak()
            case ToolInput():
                self._propose(event.call_id)
            case ApprovalResolved(approved=False) | ToolOutput() | ToolError() | CallClosed():
                if event.call_id in self._calls:
                    self._ended.add(event.call_id)
                    self._speaks = False
            case CallRetried() | ExecutionClaimed():
                self._ended.discard(event.call_id)
            case UserMessage() | StepFinish() | TurnFinish() | TurnError():
                self._speaks = False
        self._place(seq)

    def finish(self, last_seq: int) -> None:
        """Say that there are no more events."""
        self._go_on()
        for one in self._summaries:
            if one.last > last_seq:
                self._note(one.n, "It stands for events that there are not.")

    def _place(self, seq: int) -> None:
        """Keep the cuts behind this event that are not yet known to be good."""
        lacking = frozenset(self._calls - self._ended)
        if not self._speaks:
            self._undecided = {cut: calls for cut, calls in self._undecided.items() if calls}
        if self._speaks or lacking:
            self._undecided |= {(n, seq): lacking for n in self._cuts.get(seq, ())}

    def _freeze(self) -> None:
        """The next answer begins: nothing of the one before will change."""
        self._undecided = {
            cut: calls for cut, calls in self._undecided.items() if calls & self._ended
        }
        self._go_on()
        self._told |= self._calls
        self._calls, self._ended = set(), set()
        self._speaks = False

    def _speak(self) -> None:
        if self._speaks:
            self._go_on()
        else:
            self._freeze()
        self._speaks = True

    def _propose(self, call_id: str) -> None:
        if call_id in self._told:
            return
        if call_id in self._calls:
            self._go_on()
            return
        self._speak()
        self._calls.add(call_id)

    def _go_on(self) -> None:
        """What was cut goes on behind the cut."""
        for n, _ in sorted(self._undecided):
            self._note(n, "It ends or begins within a message, or between a call and its result.")
        self._undecided = {}

    def _read(self, row: Columns) -> _Summary | None:
        """Return what a row says, and note what it cannot say."""
        n, first, last = row["n"], row["from_seq"], row["to_seq"]
        if not (isinstance(n, int) and isinstance(first, int) and isinstance(last, int)):
            self._note(n, "Its numbers cannot be read.")
            return None
        if not 1 <= first <= last:
            self._note(n, "Its range is none.")
            return None
        text = row["summary"]
        size = len(text.encode()) if isinstance(text, str) and "\0" not in text else 0
        if not 1 <= size <= LIMITS.summary_bytes:
            self._note(n, "Its summary is empty, too long, holds NUL, or is no text.")
        return _Summary(n, first, last, row["covered_by"])

    def _check_cover(self) -> None:
        """Let one after the other be made again, and see which covers which."""
        in_force: list[_Summary] = []
        covered: dict[int, int] = {}
        for number, one in enumerate(self._summaries, 1):
            if one.n != number:
                self._note(one.n, "Summaries are numbered from 1, without a gap.")
            for other in in_force:
                if one.holds(other):
                    covered[other.n] = one.n
                elif one.meets(other):
                    self._note(one.n, f"It stands for a part of what compaction {other.n} does.")
            in_force = [*(other for other in in_force if other.n not in covered), one]
        for one in self._summaries:
            if one.covered_by != covered.get(one.n):
                self._note(one.n, "It is not covered by the one that stands for it, too.")

    def _note(self, n: object, message: str) -> None:
        self._notes.add(Code.COMPACTION, f"compaction {n}", message)
