"""The person speaks: a message opens a turn, an interrupt stops it, files go with messages."""

from typing import Final

from engine_assistant.context import Context
from engine_assistant.model.commands import OnThread, SendMessage
from engine_assistant.model.errors import not_found
from engine_assistant.model.events import FilePart
from engine_assistant.model.ids import new_id
from engine_assistant.model.permissions import USE
from engine_assistant.model.views import Interrupt, MessageReceipt
from engine_assistant.operations.opening import lock, open_draft
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import turns
from engine_assistant.store.reads import find_files, find_input
from engine_assistant.store.writes import write

__all__ = ["INTERRUPT_TURN", "SEND_MESSAGE"]


def send_message(ctx: Context, command: SendMessage) -> MessageReceipt:
    """Say something. The same key answers the first receipt, whatever happened since."""
    db, author = ctx.database, ctx.caller.principal
    locked = lock(ctx, command.thread_id, owner=author)
    digest = turns.message_digest(command)
    if command.key is not None:
        first = find_input(db, command.thread_id, author, command.key)
        if first is not None:
            return turns.repeated_message(first, digest)
    turns.refuse_closed(locked.thread)
    files = _attached(ctx, command)
    draft = open_draft(ctx, locked, unended=True, run=True)
    plan = turns.send_message(
        draft, command, input_id=new_id(), author=author, digest=digest, files=files
    )
    return write(db, plan)


def _attached(ctx: Context, command: SendMessage) -> tuple[FilePart, ...] | None:
    """Copy what is known of each attached file into the message."""
    if command.attachment_ids is None:
        return None
    found = find_files(ctx.database, command.thread_id, command.attachment_ids)
    if any(file_id not in found for file_id in command.attachment_ids):
        raise not_found()
    rows = [found[file_id] for file_id in command.attachment_ids]
    return tuple(
        FilePart(**{name: getattr(row, name) for name in FilePart.model_fields}) for row in rows
    )


def interrupt_turn(ctx: Context, command: OnThread) -> Interrupt:
    """Press the stop button."""
    locked = lock(ctx, command.thread_id, owner=ctx.caller.principal)
    draft = open_draft(ctx, locked, unended=True, run=True)
    return write(ctx.database, turns.interrupt_turn(draft))


SEND_MESSAGE: Final = Operation(
    "assistant/send-message", (USE,), SendMessage, MessageReceipt, send_message
)
INTERRUPT_TURN: Final = Operation(
    "assistant/interrupt-turn", (USE,), OnThread, Interrupt, interrupt_turn
)
