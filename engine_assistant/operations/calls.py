"""Tool calls: claimed once, claimed again when they may be, settled late, resolved, looked at."""

from collections.abc import Mapping, Sequence
from typing import Final

from engine_assistant.context import Context
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.commands import ClaimExecution, GetCall, ListCalls, SettleExecution
from engine_assistant.model.commands.runs import ResolveUnknown, RetryCall
from engine_assistant.model.cursors import read_cursor, write_cursor
from engine_assistant.model.errors import Internal, PermissionDenied, not_found
from engine_assistant.model.machines import CallState
from engine_assistant.model.permissions import RUN, USE
from engine_assistant.model.rows import ApprovalRow, CallRow
from engine_assistant.model.views import CallView, Claim, Page, Say, Settled
from engine_assistant.operations.opening import (
    lock,
    may_read,
    open_draft,
    read_stored,
    readable_thread,
)
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import executions, settlements
from engine_assistant.store.pages import bodies_of, call_page
from engine_assistant.store.reads import find_run, find_thread, gather_calls
from engine_assistant.store.writes import write

__all__ = [
    "CLAIM_EXECUTION",
    "GET_CALL",
    "LIST_CALLS",
    "RESOLVE_UNKNOWN",
    "RETRY_CALL",
    "SETTLE_EXECUTION",
]

_RETRIED: Final = (CallState.UNKNOWN, CallState.RUNNING, CallState.EXECUTING)
"""In which states a call may run again, or does."""


def claim_execution(ctx: Context, command: ClaimExecution) -> Claim:
    """Take the right to execute an approved call. Run the tool only when this returns."""
    draft = open_draft(ctx, lock(ctx, command.thread_id), (command.call_id,))
    call = draft.call(command.call_id)
    claimed_by = None
    if call is not None and call.state is not CallState.APPROVED:
        claimed_by = find_run(ctx.database, call.thread_id, call.claimed_fence)
    return write(ctx.database, executions.claim_execution(draft, command, claimed_by))


def retry_call(ctx: Context, command: RetryCall) -> Claim:
    """Take the right to run an `unknown` call again. Run the tool only when this returns."""
    draft = open_draft(ctx, lock(ctx, command.thread_id), (command.call_id,))
    call = draft.call(command.call_id)
    repeatable = False
    if call is not None and call.state in _RETRIED:
        repeatable = _may_repeat(_proposal(ctx, call))
    return write(ctx.database, executions.retry_call(draft, command, repeatable=repeatable))


def settle_execution(ctx: Context, command: SettleExecution) -> Settled:
    """Bring a result that the call's own run could not record any more."""
    locked = lock(ctx, command.thread_id)
    draft = open_draft(ctx, locked, (command.call_id,))
    call = draft.call(command.call_id)
    if call is None:
        raise not_found()
    return write(ctx.database, settlements.settle_execution(draft, command, call))


def resolve_unknown(ctx: Context, command: ResolveUnknown) -> Settled:
    """Say, as the thread's owner, what became of a call that nobody can tell of."""
    if ctx.caller.system:
        raise PermissionDenied("A system principal resolves nothing; only people do.")
    author = ctx.caller.principal
    locked = lock(ctx, command.thread_id, owner=author)
    draft = open_draft(ctx, locked, (command.call_id,))
    call = draft.call(command.call_id)
    if call is None:
        raise not_found()
    plan = settlements.resolve_unknown(
        draft, command, call, author=author, channel=ctx.caller.channel
    )
    return write(ctx.database, plan)


def get_call(ctx: Context, command: GetCall) -> CallView:
    """Return one call, to whoever may read its thread or was asked about it."""
    thread = find_thread(ctx.database, command.thread_id)
    calls, approvals = gather_calls(ctx.database, command.thread_id, (command.call_id,))
    named = any(row.approver_id == ctx.caller.principal for row in approvals)
    if thread is None or not calls or not (named or may_read(ctx, thread.subject_id)):
        raise not_found()
    return _views(ctx, calls, approvals)[0]


def list_calls(ctx: Context, command: ListCalls) -> Page[CallView]:
    """Return the calls of a thread in the order in which they were (last) proposed."""
    readable_thread(ctx, command.thread_id)
    scope = ("calls", ctx.caller.tenant, command.thread_id, command.state)
    after = None
    if command.cursor is not None:
        seq, call_id = read_cursor(scope, command.cursor, (int, str))
        after = (int(seq), str(call_id))
    rows = call_page(
        ctx.database,
        command.thread_id,
        state=command.state,
        limit=command.limit + 1,
        after=after,
    )
    page = rows[: command.limit]
    cursor = None
    if len(rows) > command.limit:
        cursor = write_cursor(scope, (page[-1].input_seq, page[-1].call_id))
    # Read again with their approvals, so that each call and its approvals are of one moment.
    calls, approvals = gather_calls(ctx.database, command.thread_id, [row.call_id for row in page])
    calls.sort(key=lambda row: (row.input_seq, row.call_id))
    return Page[CallView](items=tuple(_views(ctx, calls, approvals)), cursor=cursor)


def _views(
    ctx: Context, calls: Sequence[CallRow], approvals: Sequence[ApprovalRow]
) -> list[CallView]:
    if not calls:
        return []
    bodies = bodies_of(ctx.database, calls[0].thread_id, [row.input_seq for row in calls])
    views = []
    for call in calls:
        said = sorted(
            (row for row in approvals if row.call_id == call.call_id),
            key=lambda row: row.approver_id,
        )
        views.append(_view(call, said, _fields(call, bodies.get(call.input_seq))))
    return views


def _may_repeat(proposal: Mapping[str, JsonValue]) -> bool:
    return proposal.get("repeatable") is True


def _fields(call: CallRow, body: str | None) -> Mapping[str, JsonValue]:
    fields = None if body is None else read_stored(body, seq=call.input_seq)
    if not isinstance(fields, dict) or "input" not in fields:
        raise Internal("The input that a call refers to is missing.", seq=call.input_seq)
    return fields


def _proposal(ctx: Context, call: CallRow) -> Mapping[str, JsonValue]:
    """Return the event that proposed the call, as it is stored."""
    body = bodies_of(ctx.database, call.thread_id, (call.input_seq,)).get(call.input_seq)
    return _fields(call, body)


def _view(
    call: CallRow, said: Sequence[ApprovalRow], proposal: Mapping[str, JsonValue]
) -> CallView:
    own = set(CallView.model_fields) - {"input", "repeatable", "approvals", "result"}
    return CallView.model_validate(
        {
            **{name: getattr(call, name) for name in own},
            "input": proposal["input"],
            "repeatable": _may_repeat(proposal),
            "result": None if call.result is None else read_stored(call.result),
            "approvals": tuple(
                Say(
                    approver=row.approver_id,
                    state=row.state,
                    nonce=row.nonce,
                    digest=row.digest,
                    decided_at=row.decided_at,
                    decided_seq=row.decided_seq,
                    channel=row.channel,
                    reason=row.reason,
                )
                for row in said
            ),
        }
    )


CLAIM_EXECUTION: Final = Operation(
    "assistant/claim-execution", (RUN,), ClaimExecution, Claim, claim_execution
)
SETTLE_EXECUTION: Final = Operation(
    "assistant/settle-execution", (RUN,), SettleExecution, Settled, settle_execution
)
RETRY_CALL: Final = Operation("assistant/retry-call", (RUN,), RetryCall, Claim, retry_call)
RESOLVE_UNKNOWN: Final = Operation(
    "assistant/resolve-unknown", (USE,), ResolveUnknown, Settled, resolve_unknown
)
GET_CALL: Final = Operation(
    "assistant/get-call", (USE, RUN), GetCall, CallView, get_call, reads=True
)
LIST_CALLS: Final = Operation(
    "assistant/list-calls", (USE, RUN), ListCalls, Page[CallView], list_calls, reads=True
)
