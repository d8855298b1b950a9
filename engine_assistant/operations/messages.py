"""The person speaks: a message opens a turn or waits, an interrupt stops one, files go along.

And a turn that nobody will finish is given up.
"""

from typing import Final

from engine_assistant.context import Context
from engine_assistant.model.commands import OnThread
from engine_assistant.model.commands.inputs import AbandonTurn, SendMessage
from engine_assistant.model.errors import not_found
from engine_assistant.model.events import TextDelta, TurnError, TurnFinish
from engine_assistant.model.ids import new_id
from engine_assistant.model.parts import FilePart
from engine_assistant.model.permissions import RUN, USE
from engine_assistant.model.rows import InputRow
from engine_assistant.model.views import Answer, Interrupt, MessageReceipt
from engine_assistant.model.views.inputs import Abandoned
from engine_assistant.operations.events import typed
from engine_assistant.operations.opening import lock, open_draft
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import messages, turns
from engine_assistant.store.inputs import find_input_by_key, read_answer
from engine_assistant.store.reads import find_files
from engine_assistant.store.writes import write

__all__ = ["ABANDON_TURN", "INTERRUPT_TURN", "SEND_MESSAGE", "attached"]


def send_message(ctx: Context, command: SendMessage) -> MessageReceipt:
    """Say something. The same key answers how its message stands, whatever happened since."""
    db, author = ctx.database, ctx.caller.principal
    locked = lock(ctx, command.thread_id, owner=author)
    digest = messages.message_digest(command)
    if command.key is not None:
        first = find_input_by_key(db, command.thread_id, author, command.key)
        if first is not None:
            receipt = messages.repeated_message(first, digest)
            over = messages.is_over(locked.thread, first.turn)
            return receipt.model_copy(update={"answer": _answer(ctx, first) if over else None})
    turns.refuse_closed(locked.thread)
    files = attached(ctx, command.thread_id, command.attachment_ids)
    draft = open_draft(ctx, locked, unended=True, run=True, queue=True)
    plan = messages.send_message(
        draft, command, input_id=new_id(), author=author, digest=digest, files=files
    )
    return write(db, plan)


def attached(
    ctx: Context, thread_id: str, ids: tuple[str, ...] | None
) -> tuple[FilePart, ...] | None:
    """Copy what is known of each attached file into the message.

    Raises:
        NotFound: one of them is not of this thread.
    """
    if ids is None:
        return None
    found = find_files(ctx.database, thread_id, ids)
    if any(file_id not in found for file_id in ids):
        raise not_found()
    rows = [found[file_id] for file_id in ids]
    return tuple(
        FilePart(**{name: getattr(row, name) for name in FilePart.model_fields}) for row in rows
    )


def _answer(ctx: Context, row: InputRow) -> Answer:
    """Return how the turn that holds a message answered it, now that it is over."""
    texts: list[str] = []
    reason, code = "superseded", None
    for event in typed(read_answer(ctx.database, row)):
        match event:
            case TextDelta():
                texts.append(event.text)
            case TurnError():
                reason, code = "error", event.code
            case TurnFinish() if event.reason != "awaiting-approval":
                reason = event.reason
    return Answer(turn=row.turn, reason=reason, text="".join(texts), code=code)


def interrupt_turn(ctx: Context, command: OnThread) -> Interrupt:
    """Press the stop button."""
    locked = lock(ctx, command.thread_id, owner=ctx.caller.principal)
    draft = open_draft(ctx, locked, unended=True, run=True, queue=True)
    return write(ctx.database, turns.interrupt_turn(draft))


def abandon_turn(ctx: Context, command: AbandonTurn) -> Abandoned:
    """Give up a turn that nobody will finish."""
    locked = lock(ctx, command.thread_id)
    draft = open_draft(ctx, locked, unended=True, run=True, queue=True)
    return write(ctx.database, turns.abandon_turn(draft, command))


SEND_MESSAGE: Final = Operation(
    "assistant/send-message", (USE,), SendMessage, MessageReceipt, send_message
)
INTERRUPT_TURN: Final = Operation(
    "assistant/interrupt-turn", (USE,), OnThread, Interrupt, interrupt_turn
)
ABANDON_TURN: Final = Operation(
    "assistant/abandon-turn", (RUN,), AbandonTurn, Abandoned, abandon_turn
)
