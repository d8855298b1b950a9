"""Private context: put there and had back by the run that holds the lease, and by nobody else."""

from typing import Final

from engine_assistant.context import Context
from engine_assistant.model.commands.runs import GetContext, PutContext
from engine_assistant.model.errors import not_found
from engine_assistant.model.permissions import RUN
from engine_assistant.model.views.runs import ContextSize, ContextView
from engine_assistant.operations.opening import lock, open_draft
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import contexts
from engine_assistant.store.contexts import read_context
from engine_assistant.store.writes import write

__all__ = ["GET_CONTEXT", "PUT_CONTEXT"]


def put_context(ctx: Context, command: PutContext) -> ContextSize:
    """Keep what the next run of this turn needs to go on."""
    draft = open_draft(ctx, lock(ctx, command.thread_id))
    return write(ctx.database, contexts.put_context(draft, command))


def get_context(ctx: Context, command: GetContext) -> ContextView:
    """Have it back, under the lease."""
    found = read_context(ctx.database, command.thread_id)
    if found is None:
        raise not_found()
    return contexts.get_context(*found, command)


PUT_CONTEXT: Final = Operation(
    "assistant/put-context", (RUN,), PutContext, ContextSize, put_context
)
GET_CONTEXT: Final = Operation(
    "assistant/get-context",
    (RUN,),
    GetContext,
    ContextView,
    get_context,
    one_statement=lambda _: True,
    reads=True,
)
