"""What became of a call that its run left behind: its late result, or what a person knows of it.

Either is said once, and only adds to the log: what the model was told before is never rewritten.
"""

from dataclasses import replace

from engine_assistant.model import codec
from engine_assistant.model.commands import SettleExecution
from engine_assistant.model.commands.runs import ResolveUnknown
from engine_assistant.model.errors import ConflictReason
from engine_assistant.model.events import ToolError, ToolOutput, UnknownResolved
from engine_assistant.model.machines import CALL, ThreadStatus, Trigger
from engine_assistant.model.outcomes import outcome_of
from engine_assistant.model.rows import CallRow, Plan
from engine_assistant.model.views import Settled
from engine_assistant.rules.calls import admit, end_call, refused
from engine_assistant.rules.draft import Draft

__all__ = ["resolve_unknown", "settle_execution"]


def settle_execution(draft: Draft, command: SettleExecution, call: CallRow) -> Plan[Settled]:
    """Keep the late result of a call, once, whoever holds the lease by now.

    Raises:
        Conflict: `run_fenced` when the call was not claimed under this fence; `call_state` when
            it is neither `executing` nor `unknown`, or has another result already.
    """
    if call.claimed_fence != command.claimed_fence:
        raise refused(ConflictReason.RUN_FENCED, call)
    error = command.error
    if error is None:
        output = ToolOutput(call_id=call.call_id, output=command.output, late=True)
        return _settle(draft, call, Trigger.LATE_OUTPUT, output)
    failed = ToolError(call_id=call.call_id, code=error.code, message=error.message, late=True)
    return _settle(draft, call, Trigger.LATE_ERROR, failed)


def resolve_unknown(
    draft: Draft, command: ResolveUnknown, call: CallRow, *, author: str, channel: str | None
) -> Plan[Settled]:
    """Keep what the thread's owner says of an `unknown` call: it happened, so, or it did not.

    Raises:
        Conflict: `call_state` when it is not `unknown`, or something else is known of it already.
    """
    event = UnknownResolved(
        call_id=call.call_id,
        happened=command.happened,
        author=author,
        output=command.output,
        channel=channel,
        reason=command.reason,
    )
    trigger = Trigger.HAPPENED if command.happened else Trigger.DID_NOT_HAPPEN
    return _settle(draft, call, trigger, event)


def _settle(
    draft: Draft, call: CallRow, trigger: Trigger, event: ToolOutput | ToolError | UnknownResolved
) -> Plan[Settled]:
    """Keep a result, once. The same one again is a duplicate.

    On a closed thread nothing is appended: the row takes the result and keeps its state.
    """
    text = codec.dumps(outcome_of(event))
    if call.result == text:
        return draft.plan(Settled(call_id=call.call_id, state=call.state, seq=None, duplicate=True))
    if call.result is not None:
        raise refused(ConflictReason.CALL_STATE, call)
    admit(trigger, call)
    if draft.thread.status is ThreadStatus.CLOSED:
        draft.put(replace(call, result=text, updated_at=draft.now))
        return draft.plan(Settled(call_id=call.call_id, state=call.state, seq=None))
    seq = draft.record(event)
    end_call(draft, call, trigger, event)
    return draft.plan(Settled(call_id=call.call_id, state=CALL.step(trigger, call.state), seq=seq))
