"""What the events alone say: the thread, its calls and its approvals as they must stand.

Nothing here knows the rules that wrote the record. It keeps what rows must say, and digests
instead of contents, so that a thread takes some hundred bytes for each call and message of it and
nothing for its text.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from engine_assistant.doctor.findings import Notes
from engine_assistant.doctor.milestones import Milestones
from engine_assistant.model.machines import (
    APPROVAL,
    CALL,
    OPEN_CALLS,
    ApprovalState,
    CallState,
    Trigger,
    TurnState,
)

__all__ = ["APPROVAL_MOVES", "CALL_MOVES", "Call", "Derived", "Message", "Say"]

CALL_MOVES: Final = {(move.trigger, move.source): move.target for move in CALL.moves}
APPROVAL_MOVES: Final = {(move.trigger, move.source): move.target for move in APPROVAL.moves}


@dataclass(slots=True)
class Say:
    """One person's say over one request, as events tell it."""

    nonce: str
    digest: str
    state: ApprovalState
    decided_at: str | None = None
    decided_seq: int | None = None
    channel: str | None = None
    reason: str | None = None


@dataclass(slots=True)
class Call:
    """A call, as events tell it. `result` is a digest of the result that the row must hold."""

    call_id: str
    turn: int
    step: str
    tool: str
    state: CallState
    provider_call_id: str | None
    input_seq: int
    input_digest: str
    created_at: str
    updated_at: str
    repeatable: bool = False
    operation: str | None = None
    version: str | None = None
    expires_at: str | None = None
    required: int | None = None
    request_seq: int | None = None
    request_digest: str | None = None
    claimed_fence: int | None = None
    claimed_attempt: int | None = None
    claimed_at: str | None = None
    result: str | None = None
    says: dict[str, Say] = field(default_factory=dict)
    """The says over the request in force, by approver."""

    @property
    def where(self) -> str:
        """Return its place, for a finding."""
        return f"call {self.call_id}"

    def approved_by(self) -> int:
        """Return how many approved the request in force."""
        return sum(say.state is ApprovalState.APPROVED for say in self.says.values())

    def end_says(self, trigger: Trigger) -> None:
        """Move what of the request in force this trigger moves."""
        for say in self.says.values():
            say.state = APPROVAL_MOVES.get((trigger, say.state), say.state)


@dataclass(slots=True)
class Message:
    """A message, as its events tell it.

    `last_seq` is its turn-start, once there was one, or its own number in a turn that took it in.
    """

    author: str
    digest: str
    turn: int
    first_seq: int
    last_seq: int | None = None


@dataclass(slots=True, kw_only=True)
class Derived:
    """Everything that events said so far about one thread."""

    origin: str
    """The tenant in which the thread began, which every digest names."""
    thread_id: str
    notes: Notes
    milestones: Milestones
    last_active_at: str
    closed_at: str | None
    imported_seq: int = 0
    """Its last event when it was imported: nobody may use an approval of before again."""
    last_seq: int = 0
    turn: int = 0
    turn_state: TurnState = TurnState.IDLE
    open_since: str | None = None
    unknown_events: int = 0
    starting: list[Message] = field(default_factory=list)
    """The messages whose turn-start must come next."""
    let_go: tuple[int, str] | None = None
    """Number and time of the closing after which nothing waited in a waiting turn."""
    after_close: int | None = None
    """Since which event everything is dated after the thread was closed."""
    calls: dict[str, Call] = field(default_factory=dict)
    open_calls: dict[str, Call] = field(default_factory=dict)
    says: dict[tuple[str, int, str], Say] = field(default_factory=dict)
    """Every say by (call id, number of its request, approver)."""
    messages: dict[str, Message] = field(default_factory=dict)
    claims: list[tuple[int, int, str, int]] = field(default_factory=list)
    """(number, fence, run id, turn) of every claim."""
    rests: Counter[str] = field(default_factory=Counter)
    """When turns came to rest, and"""
    own_rests: Counter[str] = field(default_factory=Counter)
    """when by what only a run can have written; and"""
    rest_reasons: set[tuple[str, str]] = field(default_factory=set)
    """(when, by what)."""

    def waiting(self) -> list[Call]:
        """Return the calls that wait for people."""
        return [call for call in self.open_calls.values() if call.state is CallState.AWAITING]

    def move(self, call: Call, trigger: Trigger, at: str) -> bool:
        """Move a call if its state admits the trigger; return whether it did."""
        target = CALL_MOVES.get((trigger, call.state))
        if target is None:
            return False
        call.state = target
        call.updated_at = at
        if target in OPEN_CALLS:
            self.open_calls[call.call_id] = call
        else:
            self.open_calls.pop(call.call_id, None)
        return True

    def reopen(self, at: str) -> None:
        """Let a waiting turn go on; an open one is left as it is."""
        if self.turn_state is TurnState.AWAITING:
            self.turn_state = TurnState.OPEN
            self.open_since = at
