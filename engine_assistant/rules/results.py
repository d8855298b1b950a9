"""What an event says of a call's end, in the words that a model reads."""

from collections.abc import Mapping
from typing import Final

from engine_assistant.model.codec import JsonValue
from engine_assistant.model.events import (
    ApprovalResolved,
    CallClosed,
    Known,
    ToolError,
    ToolOutput,
    Unknown,
    UnknownResolved,
)
from engine_assistant.model.views.history import HistoryCall, HistoryResult, ResultStatus

__all__ = ["RESULTS", "pending", "result_of"]

RESULTS: Final = (ToolOutput, ToolError, ApprovalResolved, CallClosed, UnknownResolved)
"""The events that may give a call a result."""

_SENTENCES: Final = {
    ResultStatus.DENIED: "A person denied this call. It did not run.",
    ResultStatus.EXPIRED: "The time to approve or to run this call is over. It did not run.",
    ResultStatus.SUPERSEDED: "The person said something else instead. This call did not run.",
    ResultStatus.CANCELLED: "This call was ended before it ran.",
    ResultStatus.UNKNOWN: "Nobody knows whether this call ran. Do not repeat it unasked.",
    ResultStatus.PENDING: "This call has no result yet.",
}
"""What a model reads where there is no result of the tool's own."""


def pending(call: HistoryCall) -> HistoryResult:
    """Return the result of a call that has none."""
    return _result(ResultStatus.PENDING, call.call_id, call.tool)


def result_of(event: Known | Unknown, tools: Mapping[str, str]) -> HistoryResult | None:
    """Return the result that an event gives to a call, or None if it gives none.

    Args:
        event: any event.
        tools: the tools of calls, by call id.
    """
    if not isinstance(event, RESULTS):
        return None
    call = (event.call_id, tools.get(event.call_id, ""))
    match event:
        case ToolOutput(output=output):
            return _result(ResultStatus.OUTPUT, *call, output=output)
        case ToolError(code=code, message=message):
            return _result(ResultStatus.ERROR, *call, code=code, message=message)
        case ApprovalResolved(approved=approved, reason=reason):
            return None if approved else _result(ResultStatus.DENIED, *call, reason=reason)
        case UnknownResolved(happened=True, output=output, reason=reason):
            return _result(ResultStatus.OUTPUT, *call, output=output, reason=reason)
        case UnknownResolved(reason=reason):
            return _result(ResultStatus.CANCELLED, *call, reason=reason)
        case CallClosed(state=state, why=why):
            return _result(ResultStatus(state.value), *call, reason=why)


def _result(
    status: ResultStatus,
    call_id: str,
    tool: str,
    *,
    output: JsonValue = None,
    code: str | None = None,
    message: str | None = None,
    reason: str | None = None,
) -> HistoryResult:
    if status is not ResultStatus.OUTPUT:
        code, message = code or status.value, message or _SENTENCES[status]
    return HistoryResult(
        call_id=call_id,
        tool=tool,
        status=status,
        output=output,
        code=code,
        message=message,
        reason=reason,
    )
