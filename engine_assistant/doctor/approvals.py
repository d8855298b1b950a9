"""What people were asked, and what they answered. Every digest is made again."""

from engine_assistant.doctor.calls import known, refused
from engine_assistant.doctor.derived import APPROVAL_MOVES, CALL_MOVES, Call, Derived, Say
from engine_assistant.doctor.findings import Code
from engine_assistant.model.digests import (
    ApprovalBinding,
    approval_digests,
    arguments_digest,
    request_digest,
)
from engine_assistant.model.events import ApprovalRequest, ApprovalResolved
from engine_assistant.model.limits import LIMITS
from engine_assistant.model.machines import ApprovalState, CallState, Trigger
from engine_assistant.model.milestones import MilestoneType

__all__ = ["request", "resolved"]


def request(derived: Derived, event: ApprovalRequest, seq: int, at: str) -> None:
    """Ask people: a new request, one asked again, or the same one repeated while it waits."""
    call = known(derived, event.call_id, seq)
    if call is None:
        return
    _check_request(derived, call, event, seq)
    slots = sorted(event.requests, key=lambda slot: slot.approver.encode())
    digest = request_digest(event.required, [slot.digest for slot in slots])
    if not event.reissue and call.state is CallState.AWAITING and call.request_digest == digest:
        return
    trigger = Trigger.REISSUE if event.reissue else Trigger.REQUEST
    if not derived.move(call, trigger, at):
        refused(derived, call, seq)
        return
    if at >= event.expires_at:
        derived.notes.add(Code.EXPIRY, f"event {seq}", "It had run out when it was asked.")
    if {slot.digest for slot in slots} & {say.digest for say in call.says.values()}:
        derived.notes.add(Code.REQUEST, f"event {seq}", "An old answer would answer it, too.")
    call.end_says(trigger)
    call.operation, call.version = event.operation, event.version
    call.expires_at, call.required = event.expires_at, event.required
    call.request_seq, call.request_digest = seq, digest
    call.claimed_fence = None
    call.says = {
        slot.approver: Say(slot.nonce, slot.digest, ApprovalState.PENDING) for slot in slots
    }
    for approver, say in call.says.items():
        derived.says[call.call_id, seq, approver] = say
    derived.milestones.expect(
        MilestoneType.APPROVAL_REQUESTED, at, call_id=call.call_id, tool=call.tool, seq=seq
    )


def _check_request(derived: Derived, call: Call, event: ApprovalRequest, seq: int) -> None:
    """Note what is asked for something that the call is not, and digests that are not its own."""
    notes, where = derived.notes, f"event {seq}"
    if (event.tool, event.step) != (call.tool, call.step):
        notes.add(Code.REQUEST, where, "It is for another tool or step than the call's.")
    if arguments_digest(event.input) != call.input_digest:
        notes.add(Code.REQUEST, where, "It shows another input than the call's.")
    approvers = {slot.approver for slot in event.requests}
    most = LIMITS.approvers
    if len(approvers) != len(event.requests) or not event.required <= len(approvers) <= most:
        notes.add(Code.REQUEST, where, "Its approvers are not enough, too many, or named twice.")
    made = approval_digests(
        ApprovalBinding(
            version=event.version,
            approver=slot.approver,
            tenant=derived.origin,
            thread=derived.thread_id,
            step=event.step,
            call=event.call_id,
            operation=event.operation,
            expires_at=event.expires_at,
            nonce=slot.nonce,
            input=event.input,
        )
        for slot in event.requests
    )
    for slot, digest in zip(event.requests, made, strict=True):
        if slot.digest != digest:
            where = f"approval {call.call_id}/{slot.approver}"
            notes.add(Code.DIGEST, where, f"Its digest in event {seq} is not what it is made of.")


def resolved(derived: Derived, event: ApprovalResolved, seq: int, at: str) -> None:
    """Take one person's answer, and settle the call when it is the last that was missing."""
    call = known(derived, event.call_id, seq)
    if call is None:
        return
    notes, where = derived.notes, f"event {seq}"
    if call.state is not CallState.AWAITING:
        refused(derived, call, seq, Code.DECISION)
        return
    say = call.says.get(event.approver)
    if say is None:
        notes.add(Code.DECISION, where, "Somebody decided who was not asked.")
        return
    if say.state is not ApprovalState.PENDING:
        notes.add(Code.DECISION, where, "The same person decided twice.")
        return
    if event.digest != say.digest:
        notes.add(Code.DIGEST, where, "It answers another digest than the one asked.")
    if event.approved and call.expires_at is not None and at >= call.expires_at:
        notes.add(Code.EXPIRY, where, "The time to approve was over.")
    missing, state = _outcome(call, approved=event.approved)
    if (event.missing, event.state) != (missing, state):
        notes.add(Code.DECISION, where, "What it says of the call does not follow from it.")
    trigger = Trigger.APPROVE if event.approved else Trigger.DENY
    say.state = APPROVAL_MOVES[trigger, say.state]
    say.decided_at, say.decided_seq = at, seq
    say.channel, say.reason = event.channel, event.reason
    if not missing:
        derived.move(call, trigger, at)
        call.end_says(Trigger.SETTLE)
        derived.reopen(at)
    derived.milestones.expect(
        MilestoneType.APPROVAL_RESOLVED,
        at,
        call_id=call.call_id,
        tool=call.tool,
        approved=event.approved,
        state=state.value,
    )


def _outcome(call: Call, *, approved: bool) -> tuple[int, CallState]:
    """Return how many approvals are missing after an answer, and the call's state."""
    if not approved:
        return 0, CALL_MOVES[Trigger.DENY, call.state]
    missing = max((call.required or 1) - call.approved_by() - 1, 0)
    return missing, call.state if missing else CALL_MOVES[Trigger.APPROVE, call.state]
