"""A batch of run events: each sees what came before it, and all are kept or none."""

from dataclasses import replace
from typing import cast

from engine_assistant.model.commands import AppendEvents
from engine_assistant.model.errors import Conflict, ConflictReason, ValidationFailed
from engine_assistant.model.events import (
    WRITERS,
    ApprovalRequest,
    Known,
    ToolError,
    ToolInput,
    ToolOutput,
    TurnError,
    TurnFinish,
)
from engine_assistant.model.machines import TurnState
from engine_assistant.model.record import Writer
from engine_assistant.model.rows import Plan, ThreadRow
from engine_assistant.model.views import Appended
from engine_assistant.rules.calls import tool_error, tool_input, tool_output
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.requests import approval_request, refuse_resting
from engine_assistant.rules.runs import holds_lease, keep_usage, refuse_fenced, renew
from engine_assistant.rules.turns import finish_turn, no_turn_open, refuse_closed

__all__ = ["append_events", "is_repeated", "refuse_append", "refuse_plain"]


def is_repeated(thread: ThreadRow, command: AppendEvents) -> bool:
    """Return whether this batch was written before: a lost answer is asked for again.

    Judged before the lease, because the batch itself may have given it up.

    Raises:
        Conflict: `key_reused`, when the number came with other events.
    """
    if command.batch is None or (command.fence, command.batch) != (
        thread.fence,
        thread.last_batch,
    ):
        return False
    if thread.batch_digest != command.digest or thread.run_id not in (None, command.run_id):
        raise Conflict(
            ConflictReason.KEY_REUSED,
            "This batch number was used for other events. Use the next one.",
            batch=command.batch,
        )
    return True


def refuse_append(thread: ThreadRow, command: AppendEvents) -> None:
    """Refuse a batch that may not be written now, whatever is in it.

    Raises:
        Conflict: `thread_closed`, `run_fenced`, `batch_gap`.
    """
    refuse_closed(thread)
    refuse_fenced(thread, command.run_id, command.fence)
    if command.batch is not None and command.batch != thread.last_batch + 1:
        raise Conflict(
            ConflictReason.BATCH_GAP,
            "Batches of one fence are numbered 1, 2, 3 …; only the last may be given again.",
            expected=thread.last_batch + 1,
        )


def refuse_plain(thread: ThreadRow) -> None:
    """Refuse plain events while no turn is open.

    Raises:
        Conflict: `no_turn_open`.
    """
    if thread.turn_state is not TurnState.OPEN:
        raise no_turn_open()


def append_events(draft: Draft, command: AppendEvents) -> Plan[Appended]:
    """Judge the events one by one, and write them as one.

    Raises:
        ValidationFailed: an event claims to be late, or a request names its approvers wrongly.
        Conflict: what `refuse_append` says; `not_a_run_event`; `no_turn_open`; and by event:
            `call_state`, `approval_required`, `approval_denied`, `execution_not_claimed`,
            `call_closed`, `digest_mismatch`, `approval_expired`, `approval_pending`,
            `no_approval_pending`.
    """
    refuse_append(draft.thread, command)
    first = draft.thread.last_seq + 1
    stopping = draft.thread.interrupt_requested_at is not None
    if command.usage is not None:
        keep_usage(draft, command.usage)
    for event, body in zip(command.events, command.bodies, strict=True):
        _append(draft, command, cast("Known", event), body)
    if command.batch is not None:
        draft.thread = replace(
            draft.thread,
            last_batch=command.batch,
            batch_digest=command.digest,
            batch_first_seq=first,
            batch_last_seq=draft.thread.last_seq,
        )
    if holds_lease(draft.thread, command.run_id, command.fence):
        renew(draft)
    return draft.plan(Appended(events=tuple(draft.recorded), interrupt_requested=stopping))


def _append(draft: Draft, command: AppendEvents, event: Known, body: str) -> None:
    if WRITERS[event.type] is not Writer.RUN:
        raise Conflict(
            ConflictReason.NOT_A_RUN_EVENT,
            "A run may not write this event. It belongs to a person, or to the engine.",
            type=event.type,
        )
    if not holds_lease(draft.thread, command.run_id, command.fence):
        # An event before this one rested the turn, and gave the lease up with it.
        raise no_turn_open()
    refuse_resting(draft, event)
    if isinstance(event, ToolOutput | ToolError) and event.late:
        raise ValidationFailed("Only settle_execution records a late result.", path="events.late")
    match event:
        case ToolInput():
            tool_input(draft, event, body)
        case ApprovalRequest():
            approval_request(draft, event, body)
        case ToolOutput():
            tool_output(draft, event, body)
        case ToolError():
            tool_error(draft, event, body)
        case TurnFinish() | TurnError():
            finish_turn(draft, event, body)
        case _:
            draft.record(event, body)
