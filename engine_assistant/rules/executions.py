"""The one right to execute: claimed once, under the lease, for exactly what was approved.

What a tool did cannot be taken back, so the claim is recorded before the tool starts. When its run
dies after that, nobody can tell whether it happened: the call ends as `unknown` and is not claimed
again, and only a late result, under the fence that claimed it, can still settle it.
"""

from dataclasses import replace

from engine_assistant.model import codec
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.commands import ClaimExecution, SettleExecution
from engine_assistant.model.digests import arguments_digest
from engine_assistant.model.errors import ConflictReason, not_found
from engine_assistant.model.events import ExecutionClaimed, ToolError, ToolOutput
from engine_assistant.model.machines import CALL, ApprovalState, CallState, ThreadStatus, Trigger
from engine_assistant.model.rows import ApprovalRow, CallRow, Plan, RunRow
from engine_assistant.model.views import Claim, Settled
from engine_assistant.rules.binding import digest_again
from engine_assistant.rules.calls import admit, end_call, refused
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.runs import holds_lease, refuse_fenced, renew
from engine_assistant.rules.turns import refuse_closed

__all__ = ["claim_execution", "settle_execution"]


def claim_execution(
    draft: Draft, command: ClaimExecution, claimed_by: RunRow | None
) -> Plan[Claim]:
    """Give the right to execute an approved call to the run that holds the lease.

    The digest of every approval that counted is made again from what is about to run. The move
    to `executing` is single use: it is a conditional write on the state and the request's digest.

    Raises:
        NotFound: there is no such call.
        Conflict: `thread_closed`; `run_fenced`; `call_state` for an ungated call; what the
            refusal table says; `approval_expired` at the expiry and after it; `digest_mismatch`
            when what would run is not what was approved; `key_reused` when the attempt number
            claimed something else.
    """
    call = draft.call(command.call_id)
    if call is not None and _is_repeated(draft, command, call):
        return draft.plan(Claim(call_id=call.call_id, claimed_fence=command.fence, duplicate=True))
    refuse_closed(draft.thread)
    refuse_fenced(draft.thread, command.run_id, command.fence)
    if call is None:
        raise not_found()
    return _claim(draft, command, _claimable(draft, command, call, claimed_by))


def _is_repeated(draft: Draft, command: ClaimExecution, call: CallRow) -> bool:
    """Return whether this attempt holds the right already, so that a lost answer is given again.

    Only while the call still executes under the very lease that claimed it. A run that was
    replaced must not hear that it may execute: then `run_fenced` is the answer, and the log
    decides what happened.
    """
    if (
        command.attempt is None
        or call.state is not CallState.EXECUTING
        or not holds_lease(draft.thread, command.run_id, command.fence)
        or (call.claimed_fence, call.claimed_attempt) != (command.fence, command.attempt)
    ):
        return False
    if _difference(draft, command, call) is not None:
        raise refused(ConflictReason.KEY_REUSED, call)
    return True


def _claimable(
    draft: Draft, command: ClaimExecution, call: CallRow, claimed_by: RunRow | None
) -> CallRow:
    """Return the call if this very thing was approved, in time, and not yet claimed."""
    if call.request_digest is None:
        raise refused(ConflictReason.CALL_STATE, call)
    admit(
        Trigger.CLAIM,
        call,
        claimed_fence=call.claimed_fence,
        claimed_run_id=None if claimed_by is None else claimed_by.run_id,
    )
    if draft.has_lapsed(call):
        raise refused(ConflictReason.APPROVAL_EXPIRED, call)
    differs = _difference(draft, command, call)
    if differs is not None:
        raise refused(ConflictReason.DIGEST_MISMATCH, call, differs=differs)
    return call


def _claim(draft: Draft, command: ClaimExecution, call: CallRow) -> Plan[Claim]:
    """Record the claim before anything runs: it is the proof of execution."""
    draft.record(
        ExecutionClaimed(
            call_id=call.call_id,
            run_id=command.run_id,
            fence=command.fence,
            attempt=command.attempt,
            version=command.version,
            request_digest=call.request_digest or "",
        )
    )
    draft.put(
        replace(
            call,
            state=CALL.step(Trigger.CLAIM, call.state),
            claimed_fence=command.fence,
            claimed_attempt=command.attempt,
            claimed_at=draft.now,
            updated_at=draft.now,
        )
    )
    renew(draft)
    return draft.plan(Claim(call_id=call.call_id, claimed_fence=command.fence))


def _difference(draft: Draft, command: ClaimExecution, call: CallRow) -> str | None:
    """Return which bound value differs from what people approved, or None."""
    counted = [a for a in draft.approvals_of(call) if a.state is ApprovalState.APPROVED]
    if call.required is None or len(counted) < call.required:
        # The absence of a decision is never an approval.
        return "approvals"
    if all(approval.digest == _again(draft, command, call, approval) for approval in counted):
        return None
    if command.operation != call.operation:
        return "operation"
    if command.version != call.version:
        return "version"
    return "input" if arguments_digest(command.input) != call.input_digest else "record"


def _again(draft: Draft, command: ClaimExecution, call: CallRow, approval: ApprovalRow) -> str:
    """Return the digest that an approval would have for what is about to run."""
    return digest_again(
        draft.thread,
        call,
        approval,
        operation=command.operation,
        version=command.version,
        tool_input=command.input,
    )


def settle_execution(draft: Draft, command: SettleExecution, call: CallRow) -> Plan[Settled]:
    """Keep the late result of a call, once, whoever holds the lease by now.

    On a closed thread nothing is appended: the row takes the result and keeps its state.

    Raises:
        Conflict: `run_fenced` when the call was not claimed under this fence; `call_state` when
            it is neither `executing` nor `unknown`, or has another result already.
    """
    error = command.error
    result: JsonValue = {"output": command.output}
    if error is not None:
        result = {"error": {"code": error.code, "message": error.message}}
    if call.claimed_fence != command.claimed_fence:
        raise refused(ConflictReason.RUN_FENCED, call)
    if call.result == codec.dumps(result):
        return draft.plan(Settled(call_id=call.call_id, state=call.state, seq=None, duplicate=True))
    if call.result is not None:
        raise refused(ConflictReason.CALL_STATE, call)
    trigger = Trigger.LATE_OUTPUT if error is None else Trigger.LATE_ERROR
    admit(trigger, call)
    if draft.thread.status is ThreadStatus.CLOSED:
        draft.put(replace(call, result=codec.dumps(result), updated_at=draft.now))
        return draft.plan(Settled(call_id=call.call_id, state=call.state, seq=None))
    if error is None:
        seq = draft.record(ToolOutput(call_id=call.call_id, output=command.output, late=True))
    else:
        seq = draft.record(
            ToolError(call_id=call.call_id, code=error.code, message=error.message, late=True)
        )
    end_call(draft, call, trigger, result)
    return draft.plan(Settled(call_id=call.call_id, state=CALL.step(trigger, call.state), seq=seq))
