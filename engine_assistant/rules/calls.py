"""The life of a tool call in the run's stream: it is proposed, and it ends with a result."""

from collections.abc import Mapping
from dataclasses import replace

from engine_assistant.model import codec
from engine_assistant.model.digests import arguments_digest
from engine_assistant.model.errors import Conflict, ConflictReason, Fact
from engine_assistant.model.events import ToolError, ToolInput, ToolOutput, UnknownResolved
from engine_assistant.model.machines import CALL, CallState, Trigger
from engine_assistant.model.outcomes import outcome_of
from engine_assistant.model.refusals import REFUSALS
from engine_assistant.model.rows import CallRow
from engine_assistant.rules.closing import close_call
from engine_assistant.rules.draft import Draft

__all__ = ["admit", "end_call", "known_call", "refused", "tool_error", "tool_input", "tool_output"]

_SENTENCES: Mapping[ConflictReason, str] = {
    ConflictReason.CALL_STATE: "The call is not in a state that admits this.",
    ConflictReason.APPROVAL_REQUIRED: "The call still waits for approval.",
    ConflictReason.APPROVAL_DENIED: "The call was denied and must not run.",
    ConflictReason.APPROVAL_EXPIRED: "The approval ran out before it was used. Ask again.",
    ConflictReason.EXECUTION_NOT_CLAIMED: "The call is approved but not claimed. Claim it first.",
    ConflictReason.ALREADY_EXECUTED: "The call was claimed before. It must not run again.",
    ConflictReason.ALREADY_RESOLVED: "The call was decided before.",
    ConflictReason.CALL_CLOSED: "The call was closed before it ran.",
    ConflictReason.DIGEST_MISMATCH: "This is not what was asked and approved. Ask again.",
    ConflictReason.KEY_REUSED: "This attempt claimed something else. Use a new attempt number.",
    ConflictReason.NOT_REPEATABLE: (
        "Nobody said that this tool may run twice. Settle the call, or let a person resolve it."
    ),
    ConflictReason.RUN_FENCED: "The call was not claimed under this fence.",
}


def refused(reason: ConflictReason, call: CallRow, **facts: Fact) -> Conflict:
    """Return a refusal about one call, with its id and state; the rule raises it."""
    return Conflict(
        reason, _SENTENCES[reason], call_id=call.call_id, state=call.state.value, **facts
    )


def admit(trigger: Trigger, call: CallRow, **facts: Fact) -> None:
    """Refuse what the refusal table refuses in the call's state.

    Raises:
        Conflict: with the reason of the table, the call id and its state.
    """
    reason = REFUSALS[trigger].get(call.state)
    if reason is not None:
        raise refused(reason, call, **facts)


def known_call(draft: Draft, call_id: str, tool: str | None = None) -> CallRow:
    """Return the call that a run's event speaks of.

    Raises:
        Conflict: `call_state`, when no such call was proposed, or for another tool.
    """
    call = draft.call(call_id)
    if call is None or (tool is not None and call.tool != tool):
        raise Conflict(
            ConflictReason.CALL_STATE,
            "No such call was proposed." if call is None else "The call is for another tool.",
            call_id=call_id,
            state=None if call is None else call.state.value,
        )
    return call


def tool_input(draft: Draft, event: ToolInput, body: str) -> None:
    """Record a proposal. The same call may be proposed again while it is still running."""
    call = draft.call(event.call_id)
    if call is not None:
        known_call(draft, event.call_id, event.tool)
        admit(Trigger.TOOL_INPUT, call)
    seq = draft.record(event, body)
    if call is None:
        call = _new_call(draft, event, seq)
    else:
        call = replace(call, state=CALL.step(Trigger.TOOL_INPUT, call.state))
    draft.put(
        replace(
            call,
            step=event.step,
            provider_call_id=event.provider_call_id,
            input_seq=seq,
            input_digest=arguments_digest(event.input),
            claimed_fence=draft.thread.fence,
            updated_at=draft.now,
        )
    )


def _new_call(draft: Draft, event: ToolInput, seq: int) -> CallRow:
    return CallRow(
        tenant_id=draft.thread.tenant_id,
        thread_id=draft.thread.id,
        call_id=event.call_id,
        turn=draft.thread.turn,
        step=event.step,
        tool=event.tool,
        state=CALL.step(Trigger.TOOL_INPUT, None),
        provider_call_id=event.provider_call_id,
        input_seq=seq,
        input_digest="",
        operation=None,
        version=None,
        expires_at=None,
        required=None,
        request_seq=None,
        request_digest=None,
        claimed_fence=None,
        claimed_attempt=None,
        claimed_at=None,
        result=None,
        created_at=draft.now,
        updated_at=draft.now,
    )


def tool_output(draft: Draft, event: ToolOutput, body: str) -> None:
    """End a call with what its tool returned."""
    call = known_call(draft, event.call_id)
    admit(Trigger.OUTPUT, call)
    draft.record(event, body)
    end_call(draft, call, Trigger.OUTPUT, event)


def tool_error(draft: Draft, event: ToolError, body: str) -> None:
    """End a call with how its tool failed.

    An approved call that nobody claimed in time did not fail: it is closed as `expired`.
    """
    call = known_call(draft, event.call_id)
    admit(Trigger.ERROR, call)
    if call.state is CallState.APPROVED and draft.has_lapsed(call):
        close_call(draft, call, CallState.EXPIRED, "lapsed")
        return
    draft.record(event, body)
    end_call(draft, call, Trigger.ERROR, event)


def end_call(
    draft: Draft,
    call: CallRow,
    trigger: Trigger,
    event: ToolOutput | ToolError | UnknownResolved,
) -> None:
    """Move a call to its end and keep on the row what the event says of it."""
    draft.put(
        replace(
            call,
            state=CALL.step(trigger, call.state),
            result=codec.dumps(outcome_of(event)),
            updated_at=draft.now,
        )
    )
