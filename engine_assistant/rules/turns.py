"""How a turn begins and ends: a person opens, stops or closes it, and its own run rests it.

Whoever ends a turn that another one runs takes the lease with it, so that a process which slept
through the end can write nothing into the next turn.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Final

from engine_assistant.model.commands import SendMessage
from engine_assistant.model.digests import arguments_digest
from engine_assistant.model.errors import Conflict, ConflictReason
from engine_assistant.model.events import (
    STREAM_VERSION,
    FilePart,
    TurnError,
    TurnFinish,
    TurnStart,
    UserMessage,
)
from engine_assistant.model.machines import (
    INPUT,
    TURN,
    Ending,
    ThreadStatus,
    Trigger,
    TurnState,
)
from engine_assistant.model.milestones import MilestoneType
from engine_assistant.model.rows import InputRow, Plan, ThreadRow
from engine_assistant.model.views import Interrupt, MessageReceipt
from engine_assistant.rules.closing import (
    close_calls,
    end_run,
    raise_fence,
    rest,
)
from engine_assistant.rules.draft import Draft

__all__ = [
    "INTERRUPT_PATIENCE",
    "close_thread",
    "finish_turn",
    "interrupt_turn",
    "message_digest",
    "no_turn_open",
    "refuse_closed",
    "repeated_message",
    "send_message",
]

INTERRUPT_PATIENCE: Final = timedelta(seconds=10)
"""How long a live run may take to stop. Asked again after that, the turn ends without it."""


def refuse_closed(thread: ThreadRow) -> None:
    """Refuse everything that would append to a closed thread.

    Raises:
        Conflict: `thread_closed`.
    """
    if thread.status is ThreadStatus.CLOSED:
        raise Conflict(ConflictReason.THREAD_CLOSED, "The thread is closed. Open a new one.")


def no_turn_open() -> Conflict:
    """Return the refusal of what only an open turn admits; the rule raises it."""
    return Conflict(ConflictReason.NO_TURN_OPEN, "No turn is open. There is nothing to run.")


def message_digest(command: SendMessage) -> str:
    """Return what a key stands for: the same key must bring the same message."""
    files = None if command.attachment_ids is None else list(command.attachment_ids)
    return arguments_digest([command.text, files])


def repeated_message(first: InputRow, digest: str) -> MessageReceipt:
    """Answer a key that was used before with the first receipt.

    Raises:
        Conflict: `key_reused`, when it came with another text or other attachments.
    """
    if first.key_digest != digest:
        raise Conflict(
            ConflictReason.KEY_REUSED,
            "This key was used for another message. Use a new key for a new message.",
            input_id=first.id,
        )
    return _receipt(first, duplicate=True)


def send_message(
    draft: Draft,
    command: SendMessage,
    *,
    input_id: str,
    author: str,
    digest: str,
    files: tuple[FilePart, ...] | None,
) -> Plan[MessageReceipt]:
    """Open a turn with a message: `user-message`, then `turn-start`.

    Raises:
        Conflict: `thread_closed`; `turn_in_progress` while the assistant answers;
            `approval_pending` while a call waits and the message is not to supersede it.
    """
    refuse_closed(draft.thread)
    if draft.thread.turn_state is TurnState.OPEN:
        raise Conflict(
            ConflictReason.TURN_IN_PROGRESS,
            "The assistant is answering. Wait for its turn to rest, or interrupt it.",
            turn=draft.thread.turn,
        )
    if draft.thread.turn_state is TurnState.AWAITING:
        _leave_waiting_calls(draft, supersede=command.supersede_approvals)
    if draft.thread.run_id is not None:
        raise_fence(draft, "superseded")
    draft.thread = replace(
        draft.thread,
        turn_state=TURN.step(Trigger.SEND, draft.thread.turn_state),
        turn=draft.thread.turn + 1,
        open_since=draft.now,
        next_deadline=None,
        interrupt_requested_at=None,
        last_active_at=max(draft.now, draft.thread.last_active_at),
    )
    first = draft.record(
        UserMessage(text=command.text, author=author, input_id=input_id, files=files)
    )
    last = draft.record(TurnStart(v=STREAM_VERSION))
    row = InputRow(
        tenant_id=draft.thread.tenant_id,
        thread_id=draft.thread.id,
        id=input_id,
        author_id=author,
        key=command.key,
        key_digest=digest,
        state=INPUT.step(Trigger.SEND, None),
        turn=draft.thread.turn,
        first_seq=first,
        last_seq=last,
    )
    draft.put(row)
    draft.announce(MilestoneType.TURN_STARTED, turn=draft.thread.turn)
    return draft.plan(_receipt(row))


def _leave_waiting_calls(draft: Draft, *, supersede: bool) -> None:
    """Close the calls of a waiting turn, if the person may pass them by."""
    if not supersede and not all(draft.has_lapsed(call) for call in draft.waiting_calls()):
        raise Conflict(
            ConflictReason.APPROVAL_PENDING,
            "A call waits for approval. Answer it, or send with supersede_approvals=True.",
            turn=draft.thread.turn,
        )
    close_calls(draft, Ending.SUPERSEDED, "superseded")


def _receipt(row: InputRow, *, duplicate: bool = False) -> MessageReceipt:
    return MessageReceipt(
        state=row.state,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        turn=row.turn,
        input_id=row.id,
        duplicate=duplicate,
    )


def interrupt_turn(draft: Draft) -> Plan[Interrupt]:
    """Stop the turn: now when nobody live runs it, else by asking its run.

    The owner is never locked out: asked again after `INTERRUPT_PATIENCE`, the turn ends.

    Raises:
        Conflict: `thread_closed`.
    """
    refuse_closed(draft.thread)
    if draft.thread.turn_state is TurnState.IDLE:
        return draft.plan(Interrupt(ended=False))
    asked = draft.thread.interrupt_requested_at
    runs = draft.thread.turn_state is TurnState.OPEN and draft.thread.has_live_run(draft.now)
    if runs and (asked is None or draft.now - asked < INTERRUPT_PATIENCE):
        asked = asked or draft.now
        draft.thread = replace(draft.thread, interrupt_requested_at=asked)
        return draft.plan(Interrupt(ended=False, requested_at=asked))
    _end_turn(draft, "interrupted")
    raise_fence(draft, "interrupted")
    return draft.plan(Interrupt(ended=True, requested_at=asked))


def close_thread(draft: Draft) -> Plan[ThreadRow]:
    """Close the thread for ever. A turn that is not idle ends as interrupted."""
    if draft.thread.status is ThreadStatus.CLOSED:
        return draft.plan(draft.thread)
    if draft.thread.turn_state is not TurnState.IDLE:
        _end_turn(draft, "closed")
    raise_fence(draft, "closed", Trigger.CLOSE)
    draft.thread = replace(draft.thread, status=ThreadStatus.CLOSED, closed_at=draft.now)
    draft.announce(MilestoneType.THREAD_CLOSED)
    return draft.plan(draft.thread)


def _end_turn(draft: Draft, why: str) -> None:
    close_calls(draft, Ending.ENDED, why)
    draft.record(TurnFinish(reason="interrupted"))
    rest(draft, Trigger.END)
    draft.announce(MilestoneType.TURN_FINISHED, turn=draft.thread.turn, reason="interrupted")


def finish_turn(draft: Draft, event: TurnFinish | TurnError, body: str) -> None:
    """Rest the turn by its own run's event, and give the lease up with it.

    Raises:
        Conflict: `no_approval_pending` when it would wait and nothing unlapsed waits;
            `approval_pending` when it says `done` while a call waits;
            `execution_not_claimed` when it would wait while an approved call is unclaimed.
    """
    reason = event.reason if isinstance(event, TurnFinish) else "error"
    if reason == "awaiting-approval":
        if all(draft.has_lapsed(call) for call in draft.waiting_calls()):
            raise Conflict(
                ConflictReason.NO_APPROVAL_PENDING, "No call waits for approval any more."
            )
        close_calls(draft, Ending.RESTED, "turn-finish")
    elif reason == "done":
        close_calls(draft, Ending.DONE, "turn-finish")
    else:
        close_calls(draft, Ending.FINISHED, event.type)
    draft.record(event, body)
    trigger = Trigger.REST if reason == "awaiting-approval" else Trigger.FINISH
    rest(draft, trigger)
    end_run(draft, trigger, reason)
    if isinstance(event, TurnError):
        draft.announce(MilestoneType.TURN_FAILED, turn=draft.thread.turn, code=event.code)
    else:
        draft.announce(MilestoneType.TURN_FINISHED, turn=draft.thread.turn, reason=event.reason)
