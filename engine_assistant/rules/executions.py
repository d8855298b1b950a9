"""The one right to execute: claimed once, under the lease, for exactly what was approved.

What a tool did cannot be taken back, so the claim is recorded before the tool starts. When its run
dies after that, nobody can tell whether it happened: the call ends as `unknown`. Then its late
result, or a person, says what became of it (see `settlements`); or, if its proposal said that the
tool may run twice, the run that holds the lease by now takes the right anew. Whoever had it before
has lost it with that: the right is always that of one fence.
"""

from dataclasses import replace
from typing import NamedTuple

from engine_assistant.model.codec import JsonValue
from engine_assistant.model.commands import ClaimExecution
from engine_assistant.model.commands.runs import RetryCall
from engine_assistant.model.digests import arguments_digest
from engine_assistant.model.errors import Conflict, ConflictReason, ValidationFailed, not_found
from engine_assistant.model.events import CallRetried, ExecutionClaimed
from engine_assistant.model.machines import CALL, ApprovalState, CallState, Trigger, TurnState
from engine_assistant.model.rows import ApprovalRow, CallRow, Plan, RunRow
from engine_assistant.model.times import to_text
from engine_assistant.model.views import Claim
from engine_assistant.rules.binding import digest_again
from engine_assistant.rules.calls import admit, refused
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.runs import holds_lease, refuse_fenced, renew
from engine_assistant.rules.turns import no_turn_open, refuse_closed

__all__ = ["claim_execution", "retry_call"]


class _Served(NamedTuple):
    """What is about to run."""

    operation: str
    version: str
    input: JsonValue


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
    served = _Served(command.operation, command.version, command.input)
    call = draft.call(command.call_id)
    if call is not None and _is_repeated(draft, command, call, served):
        return _again(draft, command)
    refuse_closed(draft.thread)
    refuse_fenced(draft.thread, command.run_id, command.fence)
    if call is None:
        raise not_found()
    if call.request_digest is None:
        raise refused(ConflictReason.CALL_STATE, call)
    admit(
        Trigger.CLAIM,
        call,
        claimed_fence=call.claimed_fence,
        claimed_run_id=None if claimed_by is None else claimed_by.run_id,
    )
    _refuse_unapproved(draft, call, served)
    return _take(draft, command, call, Trigger.CLAIM, served)


def retry_call(draft: Draft, command: RetryCall, *, repeatable: bool) -> Plan[Claim]:
    """Give the right to run an `unknown` call again to the run that holds the lease.

    An ungated call runs again as it was proposed. A gated one is claimed again, with every check
    of a claim: people approved this input of this version, until this time, and here: what was
    asked before the thread was imported was not asked of them for here.

    Raises:
        NotFound: there is no such call.
        ValidationFailed: what is about to run was not given for a gated call, or was for another.
        Conflict: `thread_closed`; `run_fenced`; `no_turn_open`; `call_state` when it is not
            `unknown`; `not_repeatable`; `approval_expired`; `digest_mismatch`; `key_reused`.
    """
    served = None if command.served is None else _Served(*command.served)
    call = draft.call(command.call_id)
    # What may not run twice was claimed by another operation: that answer is not this one's.
    if call is not None and repeatable and _is_repeated(draft, command, call, served):
        return _again(draft, command)
    refuse_closed(draft.thread)
    refuse_fenced(draft.thread, command.run_id, command.fence)
    if call is None:
        raise not_found()
    if draft.thread.turn_state is not TurnState.OPEN:
        raise no_turn_open()
    gated = call.request_digest is not None
    trigger = Trigger.RECLAIM if gated else Trigger.RETRY
    admit(trigger, call)
    if not repeatable:
        raise refused(ConflictReason.NOT_REPEATABLE, call)
    if gated and (call.request_seq or 0) <= draft.thread.imported_seq:
        # Each place that the thread was brought to could use the one approval once more.
        raise Conflict(
            ConflictReason.NOT_REPEATABLE,
            "It was approved before the thread was imported, and so not for here. Settle the call,"
            " or let a person resolve it.",
            call_id=call.call_id,
            state=call.state.value,
        )
    if gated is (served is None):
        raise ValidationFailed(
            "Give operation, version and input of a gated call, and of no other.", path="operation"
        )
    if served is not None:
        _refuse_unapproved(draft, call, served)
    return _take(draft, command, call, trigger, served)


def _is_repeated(
    draft: Draft, command: ClaimExecution | RetryCall, call: CallRow, served: _Served | None
) -> bool:
    """Return whether this attempt holds the right already, so that a lost answer is given again.

    Only while the call still runs under the very lease that claimed it. A run that was replaced
    must not hear that it may execute: then `run_fenced` is the answer, and the log decides what
    happened.
    """
    if (
        command.attempt is None
        or call.state is not (CallState.RUNNING if served is None else CallState.EXECUTING)
        or not holds_lease(draft.thread, command.run_id, command.fence)
        or (call.claimed_fence, call.claimed_attempt) != (command.fence, command.attempt)
    ):
        return False
    if served is not None and _difference(draft, call, served) is not None:
        raise refused(ConflictReason.KEY_REUSED, call)
    return True


def _again(draft: Draft, command: ClaimExecution | RetryCall) -> Plan[Claim]:
    return draft.plan(Claim(call_id=command.call_id, claimed_fence=command.fence, duplicate=True))


def _take(
    draft: Draft,
    command: ClaimExecution | RetryCall,
    call: CallRow,
    trigger: Trigger,
    served: _Served | None,
) -> Plan[Claim]:
    """Record the right before anything runs: it is the proof of execution."""
    if served is None:
        draft.record(
            CallRetried(
                call_id=call.call_id,
                run_id=command.run_id,
                fence=command.fence,
                attempt=command.attempt,
            )
        )
    else:
        draft.record(
            ExecutionClaimed(
                call_id=call.call_id,
                run_id=command.run_id,
                fence=command.fence,
                attempt=command.attempt,
                version=served.version,
                request_digest=call.request_digest or "",
            )
        )
    draft.put(
        replace(
            call,
            state=CALL.step(trigger, call.state),
            claimed_fence=command.fence,
            claimed_attempt=command.attempt,
            claimed_at=draft.now,
            updated_at=draft.now,
        )
    )
    renew(draft)
    return draft.plan(Claim(call_id=call.call_id, claimed_fence=command.fence))


def _refuse_unapproved(draft: Draft, call: CallRow, served: _Served) -> None:
    """Refuse what people did not approve, or not for now.

    Raises:
        Conflict: `approval_expired`, `digest_mismatch`.
    """
    if call.expires_at is not None and to_text(draft.now) >= call.expires_at:
        raise refused(ConflictReason.APPROVAL_EXPIRED, call)
    differs = _difference(draft, call, served)
    if differs is not None:
        raise refused(ConflictReason.DIGEST_MISMATCH, call, differs=differs)


def _difference(draft: Draft, call: CallRow, served: _Served) -> str | None:
    """Return which bound value differs from what people approved, or None."""
    counted = [a for a in draft.approvals_of(call) if a.state is ApprovalState.APPROVED]
    if call.required is None or len(counted) < call.required:
        # The absence of a decision is never an approval.
        return "approvals"
    if all(approval.digest == _digest(draft, call, approval, served) for approval in counted):
        return None
    if served.operation != call.operation:
        return "operation"
    if served.version != call.version:
        return "version"
    return "input" if arguments_digest(served.input) != call.input_digest else "record"


def _digest(draft: Draft, call: CallRow, approval: ApprovalRow, served: _Served) -> str:
    """Return the digest that an approval would have for what is about to run."""
    return digest_again(
        draft.thread,
        call,
        approval,
        operation=served.operation,
        version=served.version,
        tool_input=served.input,
    )
