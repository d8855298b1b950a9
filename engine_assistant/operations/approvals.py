"""Asking people, taking their answers, and showing what waits for them."""

from typing import Final

from engine_assistant.context import Context
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.commands import ListApprovals, RequestApproval, ResolveApproval
from engine_assistant.model.cursors import read_cursor, write_cursor
from engine_assistant.model.errors import Internal, PermissionDenied, not_found
from engine_assistant.model.ids import new_nonce
from engine_assistant.model.machines import CallState
from engine_assistant.model.permissions import RUN, USE
from engine_assistant.model.rows import ApprovalRow, CallRow
from engine_assistant.model.views import ApprovalView, Decision, Page, Request
from engine_assistant.operations.opening import (
    lock,
    may_read,
    open_draft,
    read_stored,
)
from engine_assistant.operations.operation import Operation
from engine_assistant.rules import approvals, requests
from engine_assistant.store.pages import approval_page
from engine_assistant.store.reads import find_thread, read_body
from engine_assistant.store.writes import write

__all__ = ["LIST_APPROVALS", "REQUEST_APPROVAL", "RESOLVE_APPROVAL"]


def input_at(ctx: Context, call: CallRow, seq: int | None, kind: str) -> JsonValue:
    """Return the input that an event of this call carries.

    Raises:
        Internal: the event is missing, or is not what the call's row says it is.
    """
    stored, body = read_body(ctx.database, call.thread_id, seq)
    fields = read_stored(body, seq=seq)
    if stored != kind or not isinstance(fields, dict) or fields.get("call_id") != call.call_id:
        raise Internal("An event is not the one that the call refers to.", seq=seq)
    return fields["input"]


def request_approval(ctx: Context, command: RequestApproval) -> Request:
    """Ask people whether a call may run; the engine copies its input."""
    locked = lock(ctx, command.thread_id)
    draft = open_draft(ctx, locked, (command.call_id,), unended=command.reissue)
    call = draft.call(command.call_id)
    tool_input = None if call is None else input_at(ctx, call, call.input_seq, "tool-input")
    count = 1 if command.approvers is None else len(command.approvers)
    nonces = [new_nonce() for _ in range(count)]
    return write(ctx.database, requests.request_approval(draft, command, tool_input, nonces))


def resolve_approval(ctx: Context, command: ResolveApproval) -> Decision:
    """Record one person's answer. Who it is comes from the caller, never from the input."""
    if ctx.caller.system:
        raise PermissionDenied("A system principal never decides; only people do.")
    principal = ctx.caller.principal
    locked = lock(ctx, command.thread_id, decider=(command.call_id, principal))
    draft = open_draft(ctx, locked, (command.call_id,), unended=True)
    call = draft.call(command.call_id)
    mine = None if call is None else draft.approval_of(call, principal)
    if call is None or mine is None:
        raise not_found()
    tool_input = None
    if call.state is CallState.AWAITING:
        tool_input = input_at(ctx, call, call.request_seq, "approval-request")
    plan = approvals.resolve_approval(
        draft, command, call, mine, channel=ctx.caller.channel, tool_input=tool_input
    )
    return write(ctx.database, plan)


def list_approvals(ctx: Context, command: ListApprovals) -> Page[ApprovalView]:
    """Return one's own inbox, or everyone's approvals on a thread that one may read."""
    approver: str | None = ctx.caller.principal
    if command.thread_id is not None:
        thread = find_thread(ctx.database, command.thread_id)
        if thread is None:
            raise not_found()
        if may_read(ctx, thread.subject_id):
            approver = None
        elif not _asked(ctx, command.thread_id):
            raise not_found()
    scope = ("approvals", ctx.caller.tenant, approver, command.thread_id, command.state)
    after = None
    if command.cursor is not None:
        place = read_cursor(scope, command.cursor, (str, int, str, str))
        after = (str(place[0]), int(place[1]), str(place[2]), str(place[3]))
    rows = approval_page(
        ctx.database,
        thread_id=command.thread_id,
        approver=approver,
        state=command.state,
        limit=command.limit + 1,
        after=after,
    )
    page = rows[: command.limit]
    cursor = None
    if len(rows) > command.limit:
        last = page[-1][0]
        end = (last.thread_id, last.request_seq, last.call_id, last.approver_id)
        cursor = write_cursor(scope, end)
    return Page[ApprovalView](items=tuple(_view(*row) for row in page), cursor=cursor)


def _asked(ctx: Context, thread_id: str) -> bool:
    """Return whether the caller was ever asked on this thread."""
    rows = approval_page(
        ctx.database,
        thread_id=thread_id,
        approver=ctx.caller.principal,
        state=None,
        limit=1,
        after=None,
    )
    return bool(rows)


def _view(approval: ApprovalRow, call: CallRow, body: str) -> ApprovalView:
    """Show an approval as it was asked: from its own request, not from the call's newest."""
    asked = read_stored(body, seq=approval.request_seq)
    if not isinstance(asked, dict):
        raise Internal("A stored request cannot be read.", seq=approval.request_seq)
    shown = {name: asked[name] for name in _ASKED}
    return ApprovalView.model_validate(
        {
            **shown,
            "thread_id": approval.thread_id,
            "call_id": approval.call_id,
            "request_seq": approval.request_seq,
            "approver": approval.approver_id,
            "nonce": approval.nonce,
            "digest": approval.digest,
            "state": approval.state,
            "call_state": call.state,
            "decided_at": approval.decided_at,
            "decided_seq": approval.decided_seq,
            "channel": approval.channel,
            "reason": approval.reason,
        }
    )


_ASKED: Final = ("tool", "step", "operation", "version", "input", "expires_at", "required")

REQUEST_APPROVAL: Final = Operation(
    "assistant/request-approval", (RUN,), RequestApproval, Request, request_approval
)
RESOLVE_APPROVAL: Final = Operation(
    "assistant/resolve-approval", (USE,), ResolveApproval, Decision, resolve_approval
)
LIST_APPROVALS: Final = Operation(
    "assistant/list-approvals",
    (USE, RUN),
    ListApprovals,
    Page[ApprovalView],
    list_approvals,
    reads=True,
)
