"""What becomes of a message: it opens a turn at once, waits for one, or is refused."""

from dataclasses import replace

from engine_assistant.model.commands.inputs import SendMessage
from engine_assistant.model.digests import arguments_digest
from engine_assistant.model.errors import Conflict, ConflictReason
from engine_assistant.model.events import UserMessage
from engine_assistant.model.machines import (
    INPUT,
    Ending,
    Priority,
    Trigger,
    TurnState,
    WhenBusy,
)
from engine_assistant.model.parts import FilePart
from engine_assistant.model.rows import InputRow, Plan, ThreadRow
from engine_assistant.model.views import MessageReceipt
from engine_assistant.rules.closing import close_calls
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.queue import begin_turn, enqueue, open_next
from engine_assistant.rules.turns import end_or_ask, refuse_closed

__all__ = ["is_over", "message_digest", "repeated_message", "send_message"]

_IN_LINE = (WhenBusy.QUEUE, WhenBusy.STEER)
"""What keeps a message behind those that wait already."""

_NEXT = (WhenBusy.STEER, WhenBusy.INTERRUPT)
"""What puts a message before the ordinary ones, whatever priority was asked for."""


def message_digest(command: SendMessage) -> str:
    """Return what a key stands for: the same key must bring the same message."""
    files = None if command.attachment_ids is None else list(command.attachment_ids)
    return arguments_digest([command.text, files])


def repeated_message(first: InputRow, digest: str) -> MessageReceipt:
    """Answer a key that was used before with what has become of its message.

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


def is_over(thread: ThreadRow, turn: int) -> bool:
    """Return whether a turn has ended. Number 0 stands for none."""
    return 0 < turn < thread.turn or (turn == thread.turn and thread.turn_state is TurnState.IDLE)


def send_message(
    draft: Draft,
    command: SendMessage,
    *,
    input_id: str,
    author: str,
    digest: str,
    files: tuple[FilePart, ...] | None,
) -> Plan[MessageReceipt]:
    """Open a turn with a message: `user-message`, then `turn-start`. Or let it wait.

    Raises:
        ValidationFailed: its event would be too long.
        Conflict: `thread_closed`; `turn_in_progress` while the assistant answers, or
            `approval_pending` while a call waits, if it may neither wait nor supersede;
            `queue_full`.
    """
    refuse_closed(draft.thread)
    message = UserMessage(text=command.text, author=author, input_id=input_id, files=files)
    row = InputRow(
        tenant_id=draft.thread.tenant_id,
        thread_id=draft.thread.id,
        id=input_id,
        author_id=author,
        key=command.key,
        key_digest=digest,
        state=INPUT.step(Trigger.SEND, None),
        turn=0,
        first_seq=0,
        last_seq=0,
    )
    if _may_open(draft, command):
        (first,), last = begin_turn(draft, Trigger.SEND, [(message, None)])
        row = replace(row, turn=draft.thread.turn, first_seq=first, last_seq=last)
        draft.put(row)
    else:
        urgent = command.when_busy in _NEXT
        row = replace(
            row,
            when_busy=command.when_busy,
            priority=Priority.NEXT if urgent else command.priority,
        )
        row = enqueue(draft, row, message, coalesce=command.coalesce)
        if draft.thread.turn_state is TurnState.IDLE:
            # It ended the turn, and somebody who was to be next before it opens.
            open_next(draft)
            row = draft.input(row.id) or row
    return draft.plan(_receipt(row))


def _may_open(draft: Draft, command: SendMessage) -> bool:
    """Return whether the message opens a turn now. What it passes by is ended."""
    thread = draft.thread
    if thread.turn_state is TurnState.IDLE:
        return True
    if thread.turn_state is TurnState.AWAITING:
        in_vain = all(draft.has_lapsed(call) for call in draft.waiting_calls())
        if command.supersede_approvals or (in_vain and not _is_behind(draft, command)):
            close_calls(draft, Ending.SUPERSEDED, "superseded")
            return True
    if command.when_busy is WhenBusy.REFUSE:
        raise _busy(thread)
    stops = command.when_busy is WhenBusy.INTERRUPT and end_or_ask(draft).ended
    return stops and not _is_behind(draft, command)


def _is_behind(draft: Draft, command: SendMessage) -> bool:
    """Return whether somebody who waits already goes before the message."""
    if command.when_busy is WhenBusy.INTERRUPT:
        return any(row.priority is Priority.NEXT for row in draft.queued_inputs())
    return command.when_busy in _IN_LINE and draft.thread.queued > 0


def _busy(thread: ThreadRow) -> Conflict:
    """Return why a message that may not wait is refused."""
    if thread.turn_state is TurnState.AWAITING:
        return Conflict(
            ConflictReason.APPROVAL_PENDING,
            "A call waits for approval. Answer it, or send with supersede_approvals=True.",
            turn=thread.turn,
        )
    return Conflict(
        ConflictReason.TURN_IN_PROGRESS,
        "The assistant is answering. Wait for its turn to rest, interrupt it, or send with"
        ' when_busy="queue".',
        turn=thread.turn,
    )


def _receipt(row: InputRow, *, duplicate: bool = False) -> MessageReceipt:
    return MessageReceipt(
        state=row.state,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        turn=row.turn,
        input_id=row.id,
        duplicate=duplicate,
    )
