"""How every operation begins: a write with lock, clock and rows, a read with who may read.

What is missing and what the caller may not see are told in the same words, so that nobody learns
from a refusal that a thread exists.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from engine_assistant.context import Context
from engine_assistant.model import codec
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.errors import Internal, not_found
from engine_assistant.model.permissions import AUDIT, RUN
from engine_assistant.model.rows import InputRow, ThreadRow
from engine_assistant.rules.draft import Draft
from engine_assistant.store.inputs import queued_inputs
from engine_assistant.store.locks import lock_thread
from engine_assistant.store.reads import find_run, find_thread, gather_calls

__all__ = [
    "Locked",
    "lock",
    "may_read",
    "open_draft",
    "read_stored",
    "readable_thread",
]


@dataclass(frozen=True, slots=True)
class Locked:
    """A thread under its lock, and the clock read after it."""

    thread: ThreadRow
    now: datetime


def lock(
    ctx: Context,
    thread_id: str,
    *,
    owner: str | None = None,
    decider: tuple[str, str] | None = None,
) -> Locked:
    """Lock a thread for this owner or decider, or for any run.

    Raises:
        NotFound: there is no such thread, or not for them.
    """
    found = lock_thread(ctx.database, thread_id, owner=owner, decider=decider)
    if found is None:
        raise not_found()
    return Locked(*found)


def open_draft(
    ctx: Context,
    locked: Locked,
    call_ids: Collection[str] = (),
    *,
    unended: bool = False,
    run: bool = False,
    queue: bool = False,
    inputs: Collection[InputRow] = (),
) -> Draft:
    """Gather rows under the lock: named calls, those not ended, the run that may end, the queue.

    A queue in which nobody waits is not asked for. `inputs` were found already.
    """
    db, thread = ctx.database, locked.thread
    calls, approvals = gather_calls(db, thread.id, call_ids, unended=unended)
    holds = run and thread.run_id is not None
    return Draft(
        thread,
        locked.now,
        calls=calls,
        approvals=approvals,
        inputs=queued_inputs(db, thread.id) if queue and thread.queued else inputs,
        run=find_run(db, thread.id, thread.fence) if holds else None,
        limits=ctx.limits,
    )


def may_read(ctx: Context, subject: str) -> bool:
    """Return whether the caller may read a thread of `subject`. Others' threads need a key."""
    return subject == ctx.caller.principal or ctx.holds(AUDIT) or ctx.holds(RUN)


def readable_thread(ctx: Context, thread_id: str) -> ThreadRow:
    """Return a thread that the caller may read.

    Raises:
        NotFound: there is none, or it is not for this caller.
    """
    thread = find_thread(ctx.database, thread_id)
    if thread is None or not may_read(ctx, thread.subject_id):
        raise not_found()
    return thread


def read_stored(text: str, **facts: int | str | None) -> JsonValue:
    """Read JSON that the engine wrote. Its own object stands around a value of the full depth.

    Raises:
        Internal: it cannot be read, so the record is broken.
    """
    try:
        return codec.loads(text, depth=codec.MAX_DEPTH + 1)
    except codec.JsonRefused:
        pass
    raise Internal("A stored value cannot be read.", **facts)
