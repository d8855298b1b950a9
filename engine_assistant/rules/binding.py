"""The digest of an approval, always made again from what is served, shown or about to run."""

from engine_assistant.model.codec import JsonValue
from engine_assistant.model.digests import ApprovalBinding, approval_digest
from engine_assistant.model.rows import ApprovalRow, CallRow

__all__ = ["digest_again", "digest_of"]


def digest_of(
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
            tenant=call.tenant_id,
            thread=call.thread_id,
            step=call.step,
            call=call.call_id,
            operation=operation,
            expires_at=expires_at,
            nonce=nonce,
            input=tool_input,
        )
    )


def digest_again(
    call: CallRow, approval: ApprovalRow, operation: str, version: str, tool_input: JsonValue
) -> str:
    """Return what an approval's digest would be for the operation, version and input given."""
    return digest_of(
        call,
        approver=approval.approver_id,
        nonce=approval.nonce,
        expires_at=call.expires_at or "",
        operation=operation,
        version=version,
        tool_input=tool_input,
    )
