"""How calls end without a result of their own, and how a turn and its lease end with them.

A model's history needs one result for every call that it proposed, and a person must be able to see
what became of each. So whatever ends a turn or a lease asks the closing table about every open
call, and each closing is a `call-closed` event.
"""

from dataclasses import replace
from typing import Final

from engine_assistant.model.errors import Conflict, ConflictReason
from engine_assistant.model.events import CallClosed
from engine_assistant.model.machines import (
    APPROVAL,
    CALL,
    CLOSED_BY,
    CLOSING,
    RUN,
    TURN,
    ApprovalState,
    CallState,
    Ending,
    Trigger,
    TurnState,
)
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.rows import CallRow
from engine_assistant.model.times import from_text
from engine_assistant.rules.draft import Draft

__all__ = ["close_calls", "end_run", "expire_lapsed", "raise_fence", "reopen", "rest"]

_REFUSED: Final = {
    ConflictReason.APPROVAL_PENDING: (
        "A call still waits for approval. Finish with awaiting-approval instead."
    ),
    ConflictReason.EXECUTION_NOT_CLAIMED: (
        "A call is approved and not yet claimed. Claim and run it first."
    ),
}


def close_calls(draft: Draft, ending: Ending, why: str, *, lapsed: bool = True) -> None:
    """Close every open call as the closing table says, in call order.

    A lapsed one becomes `expired` in its place, unless `lapsed` is False: then it is nothing
    special.

    Raises:
        Conflict: the table refuses the ending itself.
    """
    row = CLOSING[ending]
    for call in draft.open_calls():
        if lapsed and draft.has_lapsed(call):
            _expire(draft, call)
            continue
        outcome = row[call.state]
        if isinstance(outcome, ConflictReason):
            raise Conflict(outcome, _REFUSED[outcome], call_id=call.call_id)
        if outcome is not None:
            close_call(draft, call, outcome, why)


def close_call(draft: Draft, call: CallRow, outcome: CallState, why: str) -> None:
    """Close one call: its event, its row, and the approvals that nobody gave."""
    trigger = CLOSED_BY[outcome]
    draft.record(CallClosed(call_id=call.call_id, state=outcome, why=why))
    draft.put(replace(call, state=CALL.step(trigger, call.state), updated_at=draft.now))
    end_approvals(draft, call, trigger)
    draft.announce(
        MilestoneType.CALL_CLOSED, call_id=call.call_id, tool=call.tool, state=outcome, why=why
    )


def end_approvals(draft: Draft, call: CallRow, trigger: Trigger) -> None:
    """End the approvals of a call that are still pending."""
    for approval in draft.approvals_of(call):
        if approval.state is ApprovalState.PENDING:
            draft.put(replace(approval, state=APPROVAL.step(trigger, approval.state)))


def expire_lapsed(draft: Draft, *, besides: str | None = None) -> None:
    """Close every lapsed call as `expired`, except the one named."""
    for call in draft.open_calls():
        if draft.has_lapsed(call) and call.call_id != besides:
            _expire(draft, call)


def _expire(draft: Draft, call: CallRow) -> None:
    close_call(draft, call, CallState.EXPIRED, "lapsed")


def reopen(draft: Draft, trigger: Trigger) -> None:
    """Let a waiting turn go on; an open one is left as it is."""
    if draft.thread.turn_state is TurnState.AWAITING:
        draft.thread = replace(
            draft.thread,
            turn_state=TURN.step(trigger, TurnState.AWAITING),
            open_since=draft.now,
            next_deadline=None,
        )


def rest(draft: Draft, trigger: Trigger) -> None:
    """Bring the turn to rest: idle, or waiting for people until the last of them is too late."""
    state = TURN.step(trigger, draft.thread.turn_state)
    deadlines = [call.expires_at for call in draft.waiting_calls() if call.expires_at]
    draft.thread = replace(
        draft.thread,
        turn_state=state,
        open_since=None,
        next_deadline=from_text(max(deadlines)) if state is TurnState.AWAITING else None,
        interrupt_requested_at=None,
        last_active_at=max(draft.now, draft.thread.last_active_at),
        context_bytes=0 if state is TurnState.IDLE else draft.thread.context_bytes,
    )


def end_run(draft: Draft, trigger: Trigger, reason: str) -> None:
    """Give or take the lease away from whoever holds it. The fence stays."""
    if draft.run is not None:
        state = RUN.step(trigger, draft.run.state)
        draft.put(replace(draft.run, state=state, ended_at=draft.now, reason=reason))
    draft.thread = replace(draft.thread, run_id=None, stale_after=None, lease_until=None)


def raise_fence(draft: Draft, reason: str, trigger: Trigger = Trigger.REPLACE) -> None:
    """Take the lease, so that whoever held it, or sleeps, can write nothing any more."""
    end_run(draft, trigger, reason)
    draft.thread = replace(
        draft.thread,
        fence=draft.thread.fence + 1,
        last_batch=0,
        batch_digest=None,
        batch_first_seq=None,
        batch_last_seq=None,
    )
