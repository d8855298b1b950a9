"""Several threads in one transaction: locked in one order, so that no two wait in a circle."""

from collections.abc import Iterable

from engine_assistant.context import Context
from engine_assistant.model.errors import ValidationFailed
from engine_assistant.model.permissions import RUN, USE
from engine_assistant.model.views import Thread
from engine_assistant.operations.opening import lock
from engine_assistant.operations.threads import GET_THREAD, thread_view
from engine_assistant.store.faults import translated

__all__ = ["lock_threads"]


def lock_threads(ctx: Context, thread_ids: Iterable[str]) -> tuple[Thread, ...]:
    """Lock several threads in one order, so that two transactions cannot wait for each other.

    Raises:
        PermissionDenied: the caller holds neither `use` nor `run`.
        ValidationFailed: one of them is not an id.
        NotFound: one of them does not exist, or is not for this caller.
        Raced: another transaction was in the way.
    """
    ctx.require((USE, RUN))
    if not isinstance(thread_ids, Iterable):
        raise ValidationFailed("Threads are named one by one.", path="thread_ids")
    ids = {GET_THREAD.parse({"thread_id": one}, ctx.limits).thread_id for one in thread_ids}
    owner = None if ctx.holds(RUN) else ctx.caller.principal
    with translated():
        locked = [lock(ctx, thread_id, owner=owner) for thread_id in sorted(ids)]
    return tuple(thread_view(one.thread) for one in locked)
