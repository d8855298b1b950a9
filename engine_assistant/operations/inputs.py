"""Messages that wait: looked at, edited, taken back by their owner, or taken in by a run."""

from typing import Final, cast

from engine_assistant.context import Context
from engine_assistant.model.commands.inputs import CancelInput, EditInput, ListInputs, TakeInputs
from engine_assistant.model.cursors import read_cursor, write_cursor
from engine_assistant.model.errors import not_found
from engine_assistant.model.permissions import RUN, USE
from engine_assistant.model.rows import InputRow
from engine_assistant.model.views import Page
from engine_assistant.model.views.inputs import InputView, Taken
from engine_assistant.operations.messages import attached
from engine_assistant.operations.opening import Locked, lock, open_draft, readable_thread
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import inputs
from engine_assistant.rules.queue import message_of
from engine_assistant.store.inputs import Place, find_input, input_page, place_of
from engine_assistant.store.writes import write

__all__ = ["CANCEL_INPUT", "EDIT_INPUT", "LIST_INPUTS", "TAKE_INPUTS"]


def input_view(row: InputRow) -> InputView:
    said = None if row.body is None else message_of(row)
    return InputView(
        input_id=row.id,
        author=row.author_id,
        key=row.key,
        state=row.state,
        turn=row.turn,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        when_busy=row.when_busy,
        priority=row.priority,
        position=row.position,
        joins=row.joins,
        queued_at=row.queued_at,
        text=None if said is None else said.text,
        files=None if said is None else said.files,
    )


def take_inputs(ctx: Context, command: TakeInputs) -> Taken:
    """Take the steering messages that wait into the open turn."""
    draft = open_draft(ctx, lock(ctx, command.thread_id), queue=True)
    return write(ctx.database, inputs.take_inputs(draft, command))


def list_inputs(ctx: Context, command: ListInputs) -> Page[InputView]:
    """Return a thread's messages in the order in which they are taken up."""
    readable_thread(ctx, command.thread_id)
    scope = ("inputs", ctx.caller.tenant, command.thread_id, command.state)
    after = None
    if command.cursor is not None:
        place = read_cursor(scope, command.cursor, (int, int, int, int, int, str))
        after = cast("Place", tuple(place))
    rows = input_page(
        ctx.database,
        command.thread_id,
        state=command.state,
        limit=command.limit + 1,
        after=after,
    )
    page = rows[: command.limit]
    more = len(rows) > command.limit
    return Page[InputView](
        items=tuple(input_view(row) for row in page),
        cursor=write_cursor(scope, place_of(page[-1])) if more else None,
    )


def cancel_input(ctx: Context, command: CancelInput) -> InputView:
    """Take a message back that waits."""
    locked, row = _own(ctx, command)
    draft = open_draft(ctx, locked, inputs=(row,))
    return input_view(write(ctx.database, inputs.cancel_input(draft, row)))


def edit_input(ctx: Context, command: EditInput) -> InputView:
    """Say a message that waits in other words."""
    locked, row = _own(ctx, command)
    files = attached(ctx, command.thread_id, command.attachment_ids)
    draft = open_draft(ctx, locked, inputs=(row,))
    return input_view(write(ctx.database, inputs.edit_input(draft, command, row, files)))


def _own(ctx: Context, command: CancelInput | EditInput) -> tuple[Locked, InputRow]:
    """Lock a thread of the caller's and return it with the message named.

    Raises:
        NotFound: no such thread of theirs, or no such message on it.
    """
    locked = lock(ctx, command.thread_id, owner=ctx.caller.principal)
    row = find_input(ctx.database, command.thread_id, command.input_id)
    if row is None:
        raise not_found()
    return locked, row


TAKE_INPUTS: Final = Operation("assistant/take-inputs", (RUN,), TakeInputs, Taken, take_inputs)
LIST_INPUTS: Final = Operation(
    "assistant/list-inputs", (USE, RUN), ListInputs, Page[InputView], list_inputs, reads=True
)
CANCEL_INPUT: Final = Operation(
    "assistant/cancel-input", (USE,), CancelInput, InputView, cancel_input
)
EDIT_INPUT: Final = Operation("assistant/edit-input", (USE,), EditInput, InputView, edit_input)
