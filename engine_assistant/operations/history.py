"""What a model is told of a thread, and the summaries that shorten it."""

from collections.abc import Sequence
from typing import Final

from engine_assistant.context import Context
from engine_assistant.model.commands.history import Compact, ListCompactions, ReadHistory
from engine_assistant.model.cursors import read_cursor, write_cursor
from engine_assistant.model.errors import not_found
from engine_assistant.model.permissions import RUN, USE
from engine_assistant.model.rows import CompactionRow
from engine_assistant.model.views import Page
from engine_assistant.model.views.history import Compaction, History
from engine_assistant.operations.events import typed
from engine_assistant.operations.opening import lock, may_read, readable_thread
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import compaction as rule
from engine_assistant.rules.budgets import within_budget
from engine_assistant.rules.history import TOLD, Telling, tell, untold_calls
from engine_assistant.store import history as store
from engine_assistant.store.writes import write

__all__ = ["COMPACT", "HISTORY", "LIST_COMPACTIONS"]


def history(ctx: Context, command: ReadHistory) -> History:
    """Return the messages of a thread as a model reads them."""
    found = store.find_summarised(ctx.database, command.thread_id)
    if found is None or not may_read(ctx, found.subject_id):
        raise not_found()
    messages, omitted = (
        _telling(ctx, command.thread_id, found.effective, found.head_seq).messages,
        0,
    )
    if command.budget is not None:
        messages, omitted = within_budget(messages, command.budget)
    return History(messages=tuple(messages), head_seq=found.head_seq, omitted=omitted)


def _telling(
    ctx: Context, thread_id: str, effective: Sequence[CompactionRow], head: int
) -> Telling:
    """Tell the events that no summary stands for. Events never change, so no lock is needed."""
    rows = store.read_ranges(ctx.database, thread_id, rule.gaps(effective, head), TOLD)
    events = typed(rows)
    tools = store.tools_of(ctx.database, thread_id, untold_calls(events))
    return tell(events, effective, tools)


def compact(ctx: Context, command: Compact) -> Compaction:
    """Let a summary stand for a range of messages. The log is not touched."""
    locked = lock(ctx, command.thread_id)
    of = (command.from_seq, command.to_seq)
    standing = store.find_standing(ctx.database, command.thread_id, of)
    first = rule.repeated_compaction(standing, command)
    if first is not None:
        return first
    effective = [row for row in standing if row.covered_by is None]
    rule.refuse_compaction(locked.thread, command)
    telling = _telling(ctx, command.thread_id, effective, locked.thread.last_seq)
    plan = rule.compact(locked.thread, locked.now, command, effective, telling)
    return write(ctx.database, plan)


def list_compactions(ctx: Context, command: ListCompactions) -> Page[Compaction]:
    """Return the summaries of a thread, also those that a later one covers."""
    readable_thread(ctx, command.thread_id)
    scope = ("compactions", ctx.caller.tenant, command.thread_id)
    after = None
    if command.cursor is not None:
        (n,) = read_cursor(scope, command.cursor, (int,))
        after = int(n)
    rows = store.compaction_page(
        ctx.database, command.thread_id, limit=command.limit + 1, after=after
    )
    page = rows[: command.limit]
    more = len(rows) > command.limit
    return Page[Compaction](
        items=tuple(rule.compaction_view(row) for row in page),
        cursor=write_cursor(scope, (page[-1].n,)) if more else None,
    )


HISTORY: Final = Operation(
    "assistant/history", (USE, RUN), ReadHistory, History, history, reads=True
)
COMPACT: Final = Operation("assistant/compact", (RUN,), Compact, Compaction, compact)
LIST_COMPACTIONS: Final = Operation(
    "assistant/list-compactions",
    (USE, RUN),
    ListCompactions,
    Page[Compaction],
    list_compactions,
    reads=True,
)
