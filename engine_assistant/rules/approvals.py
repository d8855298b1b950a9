"""Taking people's answers: one denial denies, enough approvals approve."""

from dataclasses import replace

from engine_assistant.model.codec import JsonValue
from engine_assistant.model.commands import ResolveApproval
from engine_assistant.model.errors import ConflictReason, Fact, Internal
from engine_assistant.model.events import ApprovalResolved
from engine_assistant.model.machines import APPROVAL, CALL, ApprovalState, Trigger
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.rows import ApprovalRow, CallRow, Plan, ThreadRow
from engine_assistant.model.times import to_text
from engine_assistant.model.views import Decision
from engine_assistant.rules.binding import digest_again
from engine_assistant.rules.calls import admit, refused
from engine_assistant.rules.closing import end_approvals, expire_lapsed, reopen
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.turns import refuse_closed

__all__ = ["resolve_approval"]


def resolve_approval(
    draft: Draft,
    command: ResolveApproval,
    call: CallRow,
    mine: ApprovalRow,
    *,
    channel: str | None,
    tool_input: JsonValue,
) -> Plan[Decision]:
    """Take one person's answer to the current request.

    One denial denies. An approval below the threshold is recorded and leaves the call waiting.
    A denial needs neither version nor time, so a stale request can always be cleared.

    Raises:
        Conflict: `thread_closed`; what the refusal table says; `already_resolved` with who
            decided what and when; `approval_expired` when approving at the expiry or after it;
            `digest_mismatch` naming the value that differs.
    """
    refuse_closed(draft.thread)
    admit(Trigger.RESOLVE, call, **_decided(draft, call))
    if mine.state is not ApprovalState.PENDING:
        raise refused(ConflictReason.ALREADY_RESOLVED, call, **_facts(mine))
    if command.approved and draft.has_lapsed(call):
        raise refused(ConflictReason.APPROVAL_EXPIRED, call, expires_at=call.expires_at)
    differs = _differs(draft.thread, command, call, mine, tool_input)
    if differs is not None:
        raise refused(ConflictReason.DIGEST_MISMATCH, call, differs=differs)
    expire_lapsed(draft, besides=call.call_id)
    return _decide(draft, command, call, mine, channel=channel)


def _decide(
    draft: Draft,
    command: ResolveApproval,
    call: CallRow,
    mine: ApprovalRow,
    *,
    channel: str | None,
) -> Plan[Decision]:
    """Record an admitted answer, and let the turn go on if it settles the call."""
    trigger = Trigger.APPROVE if command.approved else Trigger.DENY
    given = [a for a in draft.approvals_of(call) if a.state is ApprovalState.APPROVED]
    missing = (call.required or 1) - len(given) - 1 if command.approved else 0
    state = call.state if missing else CALL.step(trigger, call.state)
    seq = draft.record(
        ApprovalResolved(
            call_id=call.call_id,
            approved=command.approved,
            approver=mine.approver_id,
            digest=mine.digest,
            state=state,
            missing=missing,
            channel=channel,
            reason=command.reason,
        )
    )
    draft.put(
        replace(
            mine,
            state=APPROVAL.step(trigger, mine.state),
            decided_at=draft.now,
            decided_seq=seq,
            channel=channel,
            reason=command.reason,
        )
    )
    if not missing:
        draft.put(replace(call, state=state, updated_at=draft.now))
        end_approvals(draft, call, Trigger.SETTLE)
        reopen(draft, Trigger.SETTLE)
    draft.announce(
        MilestoneType.APPROVAL_RESOLVED,
        call_id=call.call_id,
        tool=call.tool,
        approved=command.approved,
        state=state.value,
    )
    return draft.plan(Decision(seq=seq, state=state, missing=missing))


def _decided(draft: Draft, call: CallRow) -> dict[str, Fact]:
    """Return who settled the call, for a refusal that comes too late."""
    decided = [a for a in draft.approvals_of(call) if a.decided_seq is not None]
    return _facts(max(decided, key=lambda a: a.decided_seq or 0)) if decided else {}


def _facts(approval: ApprovalRow) -> dict[str, Fact]:
    return {
        "decision": approval.state.value,
        "approver": approval.approver_id,
        "at": None if approval.decided_at is None else to_text(approval.decided_at),
        "seq": approval.decided_seq,
    }


def _differs(
    thread: ThreadRow,
    command: ResolveApproval,
    call: CallRow,
    mine: ApprovalRow,
    tool_input: JsonValue,
) -> str | None:
    """Return which bound value differs from the request, or None."""
    if command.digest != mine.digest:
        return "digest"
    if not command.approved:
        return None
    if call.operation is None or command.version is None:
        raise Internal("A waiting call has no binding.", call_id=call.call_id)
    made = digest_again(
        thread,
        call,
        mine,
        operation=call.operation,
        version=command.version,
        tool_input=tool_input,
    )
    if made == mine.digest:
        return None
    return "version" if command.version != call.version else "record"
