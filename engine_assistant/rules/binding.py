"""The digest of an approval, always made again from what is served, shown or about to run.

It names the tenant in which the thread began: what people approved stays provable when the thread
is imported somewhere else.
"""

from engine_assistant.model.codec import JsonValue
from engine_assistant.model.digests import ApprovalBinding, approval_digest
from engine_assistant.model.rows import ApprovalRow, CallRow, ThreadRow

__all__ = ["digest_again", "digest_of"]


def digest_of(
    thread: ThreadRow,
    call: CallRow,
    *,
    approver: str,
    nonce: str,
    expires_at: str,
    operation: str,
    version: str,
    tool_input: JsonValue,
) -> str:
    """Return the digest that binds one approver to one call, run as given."""
    return approval_digest(
        ApprovalBinding(
            version=version,
            approver=approver,
            tenant=thread.origin,
            thread=thread.id,
            step=call.step,
            call=call.call_id,
            operation=operation,
            expires_at=expires_at,
            nonce=nonce,
            input=tool_input,
        )
    )


def digest_again(
    thread: ThreadRow,
    call: CallRow,
    approval: ApprovalRow,
    *,
    operation: str,
    version: str,
    tool_input: JsonValue,
) -> str:
    """Return what an approval's digest would be for the operation, version and input given."""
    return digest_of(
        thread,
        call,
        approver=approval.approver_id,
        nonce=approval.nonce,
        expires_at=call.expires_at or "",
        operation=operation,
        version=version,
        tool_input=tool_input,
    )
