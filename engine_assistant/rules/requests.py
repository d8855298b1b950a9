"""Asking people whether a call may run: who may say so, to exactly what, and until when.

There are two ways in and one set of checks. `request_approval` is the operation: it mints nonces,
expiry and digests, and makes the event. `approval_request` takes that event, or one that a host
made itself, believes none of it, and makes every digest again.
"""

from collections.abc import Sequence
from dataclasses import replace

from engine_assistant.model.codec import JsonValue
from engine_assistant.model.commands import RequestApproval
from engine_assistant.model.digests import arguments_digest, request_digest
from engine_assistant.model.errors import ConflictReason, ValidationFailed
from engine_assistant.model.events import ApprovalRequest, Known, body_of
from engine_assistant.model.limits import LONGEST_WAIT
from engine_assistant.model.machines import APPROVAL, CALL, CallState, Trigger, TurnState
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.parts import ApprovalSlot
from engine_assistant.model.rows import ApprovalRow, CallRow, Plan, ThreadRow
from engine_assistant.model.times import from_text, later, to_text
from engine_assistant.model.views import Request
from engine_assistant.rules.binding import digest_of
from engine_assistant.rules.calls import admit, known_call, refused
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.runs import refuse_fenced, renew
from engine_assistant.rules.turns import no_turn_open, refuse_closed

__all__ = ["approval_request", "refuse_resting", "request_approval"]


def refuse_resting(draft: Draft, event: Known) -> None:
    """Refuse a run's event while no turn is open.

    A request that is asked again is the one event that a waiting turn admits.

    Raises:
        Conflict: `no_turn_open`.
    """
    state = draft.thread.turn_state
    if state is TurnState.OPEN:
        return
    if state is TurnState.AWAITING and isinstance(event, ApprovalRequest) and event.reissue:
        call = draft.call(event.call_id)
        if call is not None and call.state is CallState.AWAITING:
            return
    raise no_turn_open()


def request_approval(
    draft: Draft, command: RequestApproval, tool_input: JsonValue, nonces: Sequence[str]
) -> Plan[Request]:
    """Ask: copy the input under the lock, and mint nonces, expiry and digests.

    Raises:
        ValidationFailed: the approvers are not 1 to 20 different people, or fewer than required.
        Conflict: `thread_closed`, `run_fenced`, `no_turn_open`, `call_state`.
    """
    refuse_closed(draft.thread)
    refuse_fenced(draft.thread, command.run_id, command.fence)
    call = known_call(draft, command.call_id)
    approvers = (draft.thread.subject_id,) if command.approvers is None else command.approvers
    expires_at = to_text(later(draft.now, command.expires_in))
    slots = tuple(
        ApprovalSlot(
            approver=approver,
            nonce=nonce,
            digest=digest_of(
                draft.thread,
                call,
                approver=approver,
                nonce=nonce,
                expires_at=expires_at,
                operation=command.operation,
                version=command.version,
                tool_input=tool_input,
            ),
        )
        for approver, nonce in zip(approvers, nonces, strict=True)
    )
    event = ApprovalRequest(
        call_id=call.call_id,
        tool=call.tool,
        input=tool_input,
        step=call.step,
        operation=command.operation,
        version=command.version,
        expires_at=expires_at,
        required=command.required,
        requests=slots,
        reissue=command.reissue,
        why=command.why,
    )
    refuse_resting(draft, event)
    seq = approval_request(draft, event, body_of(event))
    renew(draft)
    return draft.plan(Request(seq=seq, requests=slots, expires_at=expires_at))


def approval_request(draft: Draft, event: ApprovalRequest, body: str) -> int:
    """Record a request whose every value is checked; return its number.

    The same request given again while it waits is recorded and changes nothing. A request asked
    again on purpose (`reissue`) supersedes the approvals before it, and the count starts again.

    Raises:
        ValidationFailed: the approvers are not 1 to 20 different people, or fewer than required.
        Conflict: `call_state`, `digest_mismatch`, `approval_expired`.
    """
    call = known_call(draft, event.call_id, event.tool)
    _check_approvers(draft, event)
    differs = _mismatch(draft.thread, call, event)
    if differs is not None:
        raise refused(ConflictReason.DIGEST_MISMATCH, call, differs=differs)
    slots = sorted(event.requests, key=lambda slot: slot.approver.encode())
    digest = request_digest(event.required, [slot.digest for slot in slots])
    if not event.reissue and call.state is CallState.AWAITING and call.request_digest == digest:
        return draft.record(event, body)
    trigger = Trigger.REISSUE if event.reissue else Trigger.REQUEST
    admit(trigger, call)
    if to_text(draft.now) >= event.expires_at:
        raise refused(ConflictReason.APPROVAL_EXPIRED, call)
    if event.expires_at > to_text(later(draft.now, LONGEST_WAIT)):
        raise ValidationFailed(
            f"A request may wait {LONGEST_WAIT // 86400} days at most.", path="expires_at"
        )
    if {slot.digest for slot in slots} & {row.digest for row in draft.approvals_of(call)}:
        # The threshold is not in a person's digest: only a fresh nonce keeps an old card away.
        raise ValidationFailed("A request asked again needs new nonces.", path="requests")
    for approval in draft.approvals_of(call):
        if APPROVAL.allows(trigger, approval.state):
            draft.put(replace(approval, state=APPROVAL.step(trigger, approval.state)))
    seq = draft.record(event, body)
    asked = replace(
        call,
        state=CALL.step(trigger, call.state),
        operation=event.operation,
        version=event.version,
        expires_at=event.expires_at,
        required=event.required,
        request_seq=seq,
        request_digest=digest,
        claimed_fence=None,
        updated_at=draft.now,
    )
    draft.put(asked)
    for slot in slots:
        draft.put(_new_approval(asked, slot, seq))
    _move_deadline(draft)
    draft.announce(MilestoneType.APPROVAL_REQUESTED, call_id=call.call_id, tool=call.tool, seq=seq)
    return seq


def _check_approvers(draft: Draft, event: ApprovalRequest) -> None:
    approvers = {slot.approver for slot in event.requests}
    if not 1 <= len(approvers) <= draft.limits.approvers or len(approvers) != len(event.requests):
        raise ValidationFailed(
            f"A request must name 1 to {draft.limits.approvers} different approvers.",
            path="approvers",
        )
    if event.required > len(approvers):
        raise ValidationFailed(
            "A request cannot require more approvals than it has approvers.", path="required"
        )


def _mismatch(thread: ThreadRow, call: CallRow, event: ApprovalRequest) -> str | None:
    """Return which value of a request is not that of the call, or whose digest is wrong."""
    if event.step != call.step:
        return "step"
    if arguments_digest(event.input) != call.input_digest:
        return "input"
    for slot in event.requests:
        made = digest_of(
            thread,
            call,
            approver=slot.approver,
            nonce=slot.nonce,
            expires_at=event.expires_at,
            operation=event.operation,
            version=event.version,
            tool_input=event.input,
        )
        if made != slot.digest:
            return "digest"
    return None


def _new_approval(call: CallRow, slot: ApprovalSlot, seq: int) -> ApprovalRow:
    return ApprovalRow(
        tenant_id=call.tenant_id,
        thread_id=call.thread_id,
        call_id=call.call_id,
        request_seq=seq,
        approver_id=slot.approver,
        nonce=slot.nonce,
        digest=slot.digest,
        state=APPROVAL.step(Trigger.REQUEST, None),
        decided_at=None,
        decided_seq=None,
        channel=None,
        reason=None,
    )


def _move_deadline(draft: Draft) -> None:
    """Let a turn that waits already wait for the request just asked, too."""
    if draft.thread.turn_state is TurnState.AWAITING:
        last = max(call.expires_at or "" for call in draft.waiting_calls())
        draft.thread = replace(draft.thread, next_deadline=from_text(last))
