"""A thread in memory, as the person sees it: what is said, what waits, what is stopped or closed.

The half of the model that all of it stands on. `model` has the run's half, and says what both are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn

from tests.machines.tables import ENDINGS, OPEN

AWAITING, APPROVED = "awaiting-approval", "approved"
PATIENCE = 10_000
ROOM = 4
"""Messages that may wait at once."""


class Refused(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def refuse(reason: str) -> NoReturn:
    raise Refused(reason)


@dataclass(frozen=True)
class Ask:
    """What a request asks for. Two that are equal are the same request."""

    people: tuple[str, ...]
    required: int
    expires: int
    input: int
    nonce: str


@dataclass(frozen=True)
class Event:
    """An event that a run gives. Only requests have an `ask`."""

    type: str
    call: str = ""
    input: int = 0
    reason: str = ""
    ask: Ask | None = None
    reissue: bool = False
    repeatable: bool = False


@dataclass
class Call:
    input: int
    order: int
    repeatable: bool = False
    state: str = "running"
    fence: int | None = None
    attempt: int | None = None
    result: object = None
    ask: Ask | None = None
    ask_seq: int = 0
    says: dict[str, str] = field(default_factory=dict)


@dataclass
class Run:
    """One holding of the lease: how it stands, by what it ended, and what it used up."""

    state: str = "running"
    reason: str | None = None
    usage: int | None = None


@dataclass
class Batch:
    number: int
    events: list[Event]
    first: int
    last: int


@dataclass
class Said:
    """A message. Its place in line is a position and the position of whom it joins."""

    sent: str
    text: str
    state: str
    when_busy: str | None = None
    urgent: bool = False
    position: int = 0
    joins: int = 0
    turn: int = 0
    first: int = 0
    last: int = 0


@dataclass
class Talk:
    """One thread, its log, its calls and its lease."""

    now: int = 0
    closed: bool = False
    turn_state: str = "idle"
    turn: int = 0
    run: str | None = None
    fence: int = 0
    stale: int = 0
    until: int = 0
    since: int = 0
    deadline: int = 0
    stop: int | None = None
    batch: Batch | None = None
    calls: dict[str, Call] = field(default_factory=dict)
    runs: dict[int, Run] = field(default_factory=dict)
    context: str | None = None
    messages: list[Said] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    """What each turn said, and"""
    ends: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    """how it ended: why, and with what code."""
    log: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    milestones: list[str] = field(default_factory=lambda: ["thread-created"])

    @contextmanager
    def trying(self) -> Iterator[None]:
        before = copy.deepcopy(self.__dict__)
        try:
            yield
        except Refused:
            self.__dict__ = before
            raise

    # ------------------------------------------------------------ what all of them use

    def record(self, kind: str, what: str | None = None, state: str | None = None) -> int:
        """Log an event of a call, or of a message."""
        self.log.append((kind, what, state))
        return len(self.log)

    def in_order(self) -> list[str]:
        return sorted(self.calls, key=lambda name: (self.calls[name].order, name))

    def lapsed(self, call: Call) -> bool:
        asked = call.state in (AWAITING, APPROVED)
        return asked and call.ask is not None and self.now >= call.ask.expires

    def waiting(self) -> list[Call]:
        return [call for call in self.calls.values() if call.state == AWAITING]

    def waits(self) -> bool:
        return any(not self.lapsed(call) for call in self.waiting())

    def live(self) -> bool:
        return self.run is not None and self.until > self.now

    def held_by(self, run: str, fence: int) -> bool:
        return (self.run, self.fence) == (run, fence)

    def close_call(self, name: str, state: str) -> None:
        call = self.calls[name]
        self.record("call-closed", name, state)
        self.milestones.append("call-closed")
        call.state = state
        self.drop_pending(call, state)

    def drop_pending(self, call: Call, state: str) -> None:
        call.says = {who: state if say == "pending" else say for who, say in call.says.items()}

    def expire(self, besides: str | None = None) -> None:
        for name in self.in_order():
            if name != besides and self.lapsed(self.calls[name]):
                self.close_call(name, "expired")

    def end_calls(self, row: str, *, lapse: bool = True) -> None:
        for name in self.in_order():
            call = self.calls[name]
            if call.state not in OPEN:
                continue
            cell = "expired" if lapse and self.lapsed(call) else ENDINGS[row][call.state]
            if "_" in cell:
                refuse(cell)
            if cell != "-":
                self.close_call(name, cell)

    def end_run(self, how: str, reason: str) -> None:
        if self.run is not None:
            self.runs[self.fence] = replace(self.runs[self.fence], state=how, reason=reason)
        self.run = None

    def take_lease(self, reason: str, how: str = "lost") -> None:
        self.end_run(how, reason)
        self.fence += 1
        self.batch = None

    def reopen(self) -> None:
        if self.turn_state == "awaiting":
            self.turn_state, self.since = "open", self.now

    def rest(self, state: str) -> None:
        self.turn_state, self.stop = state, None
        self.context = None if state == "idle" else self.context
        self.deadline = max((c.ask.expires for c in self.waiting() if c.ask), default=0)

    def runnable(self) -> str | None:
        if self.turn_state == "open" and not self.live():
            return "no-run" if self.run is None else "lease-ran-out"
        if self.turn_state == "awaiting" and self.now >= self.deadline and not self.live():
            return "approvals-lapsed"
        return None

    # ------------------------------------------------------------ what waits

    def line(self) -> list[Said]:
        waiting = [said for said in self.messages if said.state == "queued"]
        return sorted(waiting, key=lambda said: (not said.urgent, said.joins, said.position))

    def line_up(self, said: Said, *, coalesce: bool) -> None:
        waiting = self.line()
        if len(waiting) >= ROOM:
            refuse("queue_full")
        said.position = said.joins = max((one.position for one in waiting), default=0) + 1
        alike = [one for one in waiting if one.urgent == said.urgent]
        if coalesce and alike:
            said.joins = alike[-1].joins
        said.state = "queued"

    def begin(self, group: list[Said]) -> None:
        if self.run is not None:
            self.take_lease("superseded")
        self.context = None
        self.turn_state, self.turn, self.since, self.stop = "open", self.turn + 1, self.now, None
        for said in group:
            said.state, said.turn = "opened", self.turn
            said.first = self.record("user-message", said.text)
        start = self.record("turn-start")
        for said in group:
            said.last = start
        self.milestones.append("turn-started")

    def move_up(self) -> None:
        """Let the next in line open a turn. The turn before is over."""
        waiting = self.line()
        if waiting:
            self.begin([said for said in waiting if said.joins == waiting[0].joins])

    def answer(self, said: Said) -> tuple[str, str, str | None] | None:
        """Answer what the turn of a message said and how it ended, once it has."""
        over = self.turn > said.turn or self.turn_state == "idle"
        if not said.turn or not over:
            return None
        return self.texts.get(said.turn, ""), *self.ends.get(said.turn, ("superseded", None))

    # ------------------------------------------------------------ the person

    def send(
        self,
        text: str,
        key: str | None,
        *,
        supersede: bool,
        busy: str,
        urgent: bool,
        coalesce: bool,
    ) -> tuple[Said, bool]:
        """Answer the message, and whether its key was used before."""
        if key in self.keys:
            first = self.messages[self.keys[key]]
            return (first, True) if first.sent == text else refuse("key_reused")
        if self.closed:
            refuse("thread_closed")
        said = Said(text, text, "opened")
        if self._makes_way(busy, supersede=supersede):
            self.begin([said])
        else:
            said.when_busy, said.urgent = busy, urgent or busy != "queue"
            self.line_up(said, coalesce=coalesce)
        if key is not None:
            self.keys[key] = len(self.messages)
        self.messages.append(said)
        if self.turn_state == "idle":
            self.move_up()
        return said, False

    def _makes_way(self, busy: str, *, supersede: bool) -> bool:
        if self.turn_state == "idle":
            return True
        nobody_waits = not self.waits() and not self._is_behind(busy)
        if self.turn_state == "awaiting" and (supersede or nobody_waits):
            self.end_calls("superseded")
            return True
        if busy == "refuse":
            refuse("turn_in_progress" if self.turn_state == "open" else "approval_pending")
        return busy == "interrupt" and self._stopped() and not self._is_behind(busy)

    def _is_behind(self, busy: str) -> bool:
        before = {"queue": self.line(), "steer": self.line()}
        before["interrupt"] = [said for said in self.line() if said.urgent]
        return bool(before.get(busy))

    def _stopped(self) -> bool:
        asked = self.stop
        if self.turn_state == "open" and self.live():
            if asked is None:
                self.stop = self.now
            if asked is None or self.now - asked < PATIENCE:
                return False
        self.end_turn("turn-finish", "interrupted")
        self.take_lease("interrupted")
        return True

    def interrupt(self) -> bool:
        if self.closed:
            refuse("thread_closed")
        if self.turn_state == "idle" or not self._stopped():
            return False
        self.move_up()
        return True

    def close(self) -> None:
        if self.closed:
            return
        if self.turn_state != "idle":
            self.end_turn("turn-finish", "interrupted")
        self.take_lease("closed", "closed")
        for said in self.line():
            said.state = "cancelled"
        self.closed = True
        self.milestones.append("thread-closed")

    def end_turn(self, kind: str, why: str, code: str | None = None) -> int:
        """End a turn from outside; answer the number of its last event."""
        self.end_calls("interrupt or close")
        seq = self.record(kind)
        self.ends[self.turn] = (why, code)
        self.rest("idle")
        self.milestones.append("turn-failed" if code else "turn-finished")
        return seq

    def edit(self, which: int, text: str) -> Said:
        said = self._waiting(which)
        said.text = text
        return said

    def cancel(self, which: int) -> Said:
        if which < len(self.messages) and self.messages[which].state == "cancelled":
            return self.messages[which]
        said = self._waiting(which)
        said.state = "cancelled"
        return said

    def _waiting(self, which: int) -> Said:
        if which >= len(self.messages):
            refuse("not_found")
        said = self.messages[which]
        return said if said.state == "queued" else refuse("input_settled")
