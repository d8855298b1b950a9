"""The working copy that a rule decides on, and the plan it becomes.

A rule never writes. It moves rows in a draft, records events there, and either raises a refusal
(the draft is thrown away, nothing has happened) or returns the draft's plan. Each step sees what
the steps before it did, so a batch of events is judged one by one and written as one net change
per row.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from engine_assistant.model import codec
from engine_assistant.model.errors import Fact, ValidationFailed
from engine_assistant.model.events import Known, body_of
from engine_assistant.model.limits import LIMITS, Limits
from engine_assistant.model.machines import OPEN_CALLS, CallState, InputState, Priority
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.record import recorded
from engine_assistant.model.rows import (
    ApprovalRow,
    CallRow,
    Change,
    EventRow,
    InputRow,
    MilestoneRow,
    Plan,
    Row,
    RunRow,
    ThreadRow,
)
from engine_assistant.model.times import to_text

__all__ = ["Draft"]

A = TypeVar("A")


def _key(row: Row) -> tuple[object, ...]:
    return (type(row), *(getattr(row, name) for name in row.KEY))


class Draft:
    """One locked thread, the clock, and the rows that the rule needs.

    Attributes:
        thread: the thread row as it would stand now; a rule replaces it to move it.
        now: the clock, read after the lock.
        limits: the bounds of what the engine itself records.
        recorded: the events recorded so far, in their read form.
    """

    def __init__(
        self,
        thread: ThreadRow,
        now: datetime,
        *,
        calls: Iterable[CallRow] = (),
        approvals: Iterable[ApprovalRow] = (),
        inputs: Iterable[InputRow] = (),
        run: RunRow | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        """Start from the rows as they were gathered under the lock."""
        self.thread = thread
        self.now = now
        self._before = thread
        self.limits = limits
        self._rows: dict[tuple[object, ...], Row] = {}
        self._run = None if run is None else _key(run)
        for row in (*calls, *approvals, *inputs, *(() if run is None else (run,))):
            self._rows[_key(row)] = row
        self._gathered = dict(self._rows)
        self._events: list[EventRow] = []
        self._milestones: list[MilestoneRow] = []
        self.recorded: list[Known] = []

    # -- looking ---------------------------------------------------------------------------

    @property
    def run(self) -> RunRow | None:
        """Return the run that held the lease when the thread was locked."""
        row = None if self._run is None else self._rows[self._run]
        return row if isinstance(row, RunRow) else None

    def call(self, call_id: str) -> CallRow | None:
        """Return one call as it would stand now."""
        row = self._rows.get((CallRow, self.thread.tenant_id, self.thread.id, call_id))
        return row if isinstance(row, CallRow) else None

    def open_calls(self) -> list[CallRow]:
        """Return the calls that have not ended, in call order."""
        found = [
            row
            for row in self._rows.values()
            if isinstance(row, CallRow) and row.state in OPEN_CALLS
        ]
        return sorted(found, key=lambda call: (call.input_seq, call.call_id))

    def waiting_calls(self) -> list[CallRow]:
        """Return the calls that wait for people, in call order."""
        return [call for call in self.open_calls() if call.state is CallState.AWAITING]

    def has_lapsed(self, call: CallRow) -> bool:
        """Return whether the time to answer or to claim is over: at the instant, or after it."""
        return (
            call.state in (CallState.AWAITING, CallState.APPROVED)
            and call.expires_at is not None
            and to_text(self.now) >= call.expires_at
        )

    def approvals_of(self, call: CallRow) -> list[ApprovalRow]:
        """Return the approvals of the call's current request, in approver order."""
        found = [
            row
            for row in self._rows.values()
            if isinstance(row, ApprovalRow)
            and row.call_id == call.call_id
            and row.request_seq == call.request_seq
        ]
        return sorted(found, key=lambda row: row.approver_id)

    def approval_of(self, call: CallRow, person: str) -> ApprovalRow | None:
        """Return one person's approval of the call's current request."""
        return next((row for row in self.approvals_of(call) if row.approver_id == person), None)

    def input(self, input_id: str) -> InputRow | None:
        """Return one message as it would stand now."""
        row = self._rows.get((InputRow, self.thread.tenant_id, self.thread.id, input_id))
        return row if isinstance(row, InputRow) else None

    def queued_inputs(self) -> list[InputRow]:
        """Return the messages that wait, in the order in which they open turns."""
        found = [
            row
            for row in self._rows.values()
            if isinstance(row, InputRow) and row.state is InputState.QUEUED
        ]
        return sorted(
            found, key=lambda row: (row.priority is not Priority.NEXT, row.joins, row.position)
        )

    # -- moving ----------------------------------------------------------------------------

    def put(self, row: Row) -> None:
        """Let a row stand like this."""
        self._rows[_key(row)] = row

    def bounded(self, event: Known, body: str | None = None) -> str:
        """Return the body of an event, made of it if it is not given.

        Raises:
            ValidationFailed: it is longer than an event may be.
        """
        body = body_of(event) if body is None else body
        if len(body.encode()) > self.limits.event_bytes:
            raise ValidationFailed(
                f"The {event.type} would be longer than {self.limits.event_bytes} bytes.",
                path="event",
            )
        return body

    def record(self, event: Known, body: str | None = None, *, admitted: bool = False) -> int:
        """Number an event, put it into the log and return its number.

        `admitted`: its body was bounded when it was given to the engine, and is kept as it is.

        Raises:
            ValidationFailed: its body is longer than an event may be.
        """
        if body is None or not admitted:
            body = self.bounded(event, body)
        seq, turn = self.thread.last_seq + 1, self.thread.turn
        self.thread = replace(self.thread, last_seq=seq)
        self._events.append(
            EventRow(seq=seq, type=event.type, turn=turn, body=body, created_at=self.now)
        )
        self.recorded.append(recorded(event, seq=seq, turn=turn, at=self.now))
        return seq

    def announce(self, milestone: MilestoneType, **facts: Fact) -> None:
        """Number a milestone for the rest of the platform: ids, names, verdicts, no content."""
        n = self.thread.milestones + 1
        self.thread = replace(self.thread, milestones=n)
        payload = {"thread_id": self.thread.id, "subject_id": self.thread.subject_id, **facts}
        self._milestones.append(
            MilestoneRow(
                tenant_id=self.thread.tenant_id,
                thread_id=self.thread.id,
                n=n,
                type=milestone.value,
                payload=codec.dumps(payload),
                created_at=self.now,
            )
        )

    def plan(self, answer: A) -> Plan[A]:
        """Return everything that this draft would write, with the answer for the caller."""
        changes = (
            Change(self._gathered.get(key), row)
            for key, row in self._rows.items()
            if self._gathered.get(key) != row
        )
        return Plan(
            answer=answer,
            before=self._before,
            after=self.thread,
            events=tuple(self._events),
            changes=tuple(changes),
            milestones=tuple(self._milestones),
        )
