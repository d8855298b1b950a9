"""The life of each call, followed through the events: proposed, claimed, ended; tried again."""

import hashlib

from engine_assistant.doctor.derived import Call, Derived
from engine_assistant.doctor.findings import Code
from engine_assistant.model import codec
from engine_assistant.model.digests import arguments_digest
from engine_assistant.model.events import (
    CallClosed,
    CallRetried,
    ExecutionClaimed,
    ToolError,
    ToolInput,
    ToolOutput,
    UnknownResolved,
)
from engine_assistant.model.machines import CLOSED_BY, CallState, Trigger, TurnState
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.outcomes import outcome_of

__all__ = ["claimed", "closed", "known", "resolved", "result", "retried", "tool_input"]

_ENDED_WITH_RESULT = (CallState.DONE, CallState.FAILED)


def known(derived: Derived, call_id: str, seq: int) -> Call | None:
    """Return the call that an event speaks of, and note when it was never proposed."""
    call = derived.calls.get(call_id)
    if call is None:
        derived.notes.add(
            Code.CALL_MOVE, f"event {seq}", "It speaks of a call that was never proposed."
        )
    return call


def refused(derived: Derived, call: Call, seq: int, code: Code = Code.CALL_MOVE) -> None:
    """Note an event that the call's state does not admit."""
    derived.notes.add(
        code, f"event {seq}", f"It cannot happen to call {call.call_id} while {call.state.value}."
    )


def tool_input(derived: Derived, event: ToolInput, seq: int, at: str) -> None:
    """Open a call, or propose it anew while it still runs."""
    call = derived.calls.get(event.call_id)
    if call is None:
        call = Call(
            call_id=event.call_id,
            turn=derived.turn,
            step=event.step,
            tool=event.tool,
            state=CallState.RUNNING,
            provider_call_id=None,
            input_seq=seq,
            input_digest="",
            created_at=at,
            updated_at=at,
        )
        derived.calls[call.call_id] = derived.open_calls[call.call_id] = call
    elif call.tool != event.tool or not derived.move(call, Trigger.TOOL_INPUT, at):
        refused(derived, call, seq)
        return
    call.step = event.step
    call.provider_call_id = event.provider_call_id
    call.input_seq = seq
    call.input_digest = arguments_digest(event.input)
    call.repeatable = event.repeatable


def claimed(derived: Derived, event: ExecutionClaimed, seq: int, at: str) -> None:
    """Give the call to one run, in time and with enough approvals: once, or again if it may be."""
    call = _taken(derived, event, seq)
    if call is None:
        return
    trigger = Trigger.RECLAIM if call.state is CallState.UNKNOWN else Trigger.CLAIM
    notes, where = derived.notes, f"event {seq}"
    if call.required is None or call.approved_by() < call.required:
        notes.add(Code.CLAIM, where, "Fewer people approved than the request requires.")
    if event.version != call.version:
        notes.add(Code.CLAIM, where, "It claims another version than was approved.")
    if event.request_digest != call.request_digest:
        notes.add(Code.DIGEST, where, "Its digest is not that of the request.")
    if call.expires_at is not None and at >= call.expires_at:
        notes.add(Code.EXPIRY, where, "The approval had run out.")
    if trigger is Trigger.RECLAIM and not call.repeatable:
        notes.add(Code.CLAIM, where, "It runs again, and nobody said that it may.")
    if 0 < (call.request_seq or 0) <= derived.imported_seq < seq:
        notes.add(Code.CLAIM, where, "It was approved before the thread was imported.")
    _give(derived, trigger, event, seq, at)


def retried(derived: Derived, event: CallRetried, seq: int, at: str) -> None:
    """Let a call that nobody had to approve run again, if it may."""
    call = _taken(derived, event, seq)
    if call is None:
        return
    notes, where = derived.notes, f"event {seq}"
    if call.request_digest is not None:
        notes.add(Code.CLAIM, where, "It runs again without a claim, and it is gated.")
    if not call.repeatable:
        notes.add(Code.CLAIM, where, "It runs again, and nobody said that it may.")
    _give(derived, Trigger.RETRY, event, seq, at)


def _taken(derived: Derived, event: ExecutionClaimed | CallRetried, seq: int) -> Call | None:
    """Return the call that a run takes, and keep under which fence."""
    derived.claims.append((seq, event.fence, event.run_id, derived.turn))
    return known(derived, event.call_id, seq)


def _give(
    derived: Derived, trigger: Trigger, event: ExecutionClaimed | CallRetried, seq: int, at: str
) -> None:
    call = derived.calls[event.call_id]
    if not derived.move(call, trigger, at):
        refused(derived, call, seq, Code.CLAIM)
        return
    call.claimed_fence = event.fence
    call.claimed_attempt = event.attempt
    call.claimed_at = at


def resolved(derived: Derived, event: UnknownResolved, seq: int, at: str) -> None:
    """End an unknown call as somebody says that it ended."""
    call = known(derived, event.call_id, seq)
    if call is None:
        return
    trigger = Trigger.HAPPENED if event.happened else Trigger.DID_NOT_HAPPEN
    if not derived.move(call, trigger, at):
        again = call.state in _ENDED_WITH_RESULT
        refused(derived, call, seq, Code.RESULT if again else Code.CALL_MOVE)
        return
    call.result = _digest(event)


def result(derived: Derived, event: ToolOutput | ToolError, seq: int, at: str) -> None:
    """End a call with what its tool returned, or with how it failed."""
    call = known(derived, event.call_id, seq)
    if call is None:
        return
    if isinstance(event, ToolOutput):
        trigger = Trigger.LATE_OUTPUT if event.late else Trigger.OUTPUT
    else:
        trigger = Trigger.LATE_ERROR if event.late else Trigger.ERROR
    before, expires_at = call.state, call.expires_at
    if not derived.move(call, trigger, at):
        again = call.state in _ENDED_WITH_RESULT
        refused(derived, call, seq, Code.RESULT if again else Code.CALL_MOVE)
        return
    if before is CallState.APPROVED and expires_at is not None and at >= expires_at:
        derived.notes.add(Code.EXPIRY, f"event {seq}", "The call had lapsed, it did not fail.")
    call.result = _digest(event)


def _digest(event: ToolOutput | ToolError | UnknownResolved) -> str:
    return hashlib.sha256(codec.dumps(outcome_of(event)).encode()).hexdigest()


def closed(derived: Derived, event: CallClosed, seq: int, at: str) -> None:
    """End a call without a result."""
    call = known(derived, event.call_id, seq)
    if call is None:
        return
    trigger = CLOSED_BY.get(event.state)
    if trigger is None or not derived.move(call, trigger, at):
        refused(derived, call, seq)
        return
    early = call.expires_at is None or at < call.expires_at
    if event.state is CallState.EXPIRED and early:
        derived.notes.add(Code.EXPIRY, f"event {seq}", "The call had not run out yet.")
    call.end_says(trigger)
    derived.milestones.expect(
        MilestoneType.CALL_CLOSED,
        at,
        call_id=call.call_id,
        tool=call.tool,
        state=event.state.value,
        why=event.why,
    )
    if derived.turn_state is TurnState.AWAITING and not derived.waiting():
        # Nobody can answer any more, so the turn goes on.
        derived.let_go = (seq, at)
        derived.reopen(at)
