"""Private context: opaque state of the model's provider, kept for a run of the turn that goes on.

It may hold what a model thought and was not to say, so nobody is ever shown it: no person, no
auditor, no export. Only the holder of the lease has it back. It goes with the end of its turn, in
the same transaction: see `closing.rest`, and `store.writes`, which takes the row away.
"""

from dataclasses import replace

from engine_assistant.model.commands.runs import GetContext, PutContext
from engine_assistant.model.fields import stored_bytes
from engine_assistant.model.rows import ContextRow, Plan, ThreadRow
from engine_assistant.model.views.runs import ContextSize, ContextView
from engine_assistant.rules.draft import Draft
from engine_assistant.rules.runs import refuse_fenced, renew
from engine_assistant.rules.turns import refuse_closed

__all__ = ["get_context", "put_context"]


def put_context(draft: Draft, command: PutContext) -> Plan[ContextSize]:
    """Keep a context in place of the one before.

    Raises:
        Conflict: `thread_closed`, `run_fenced`.
    """
    refuse_closed(draft.thread)
    refuse_fenced(draft.thread, command.run_id, command.fence)
    size = stored_bytes(command.state)
    draft.thread = replace(draft.thread, context_bytes=size)
    draft.put(
        ContextRow(
            tenant_id=draft.thread.tenant_id,
            thread_id=draft.thread.id,
            turn=draft.thread.turn,
            fence=draft.thread.fence,
            state=command.state,
            updated_at=draft.now,
        )
    )
    renew(draft)
    return draft.plan(ContextSize(bytes=size))


def get_context(thread: ThreadRow, kept: ContextRow | None, command: GetContext) -> ContextView:
    """Give the context back to whoever holds the lease. That of another turn is never given.

    Raises:
        Conflict: `thread_closed`, `run_fenced`.
    """
    refuse_closed(thread)
    refuse_fenced(thread, command.run_id, command.fence)
    if kept is None or kept.turn != thread.turn:
        return ContextView(state=None, fence=None, updated_at=None)
    return ContextView(state=kept.state, fence=kept.fence, updated_at=kept.updated_at)
