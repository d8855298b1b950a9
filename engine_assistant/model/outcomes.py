"""What a call's row keeps of how the call ended: its output, or its error."""

from engine_assistant.model.codec import JsonValue
from engine_assistant.model.events import ToolError, ToolOutput, UnknownResolved
from engine_assistant.model.machines import CallState

__all__ = ["outcome_of"]


def outcome_of(event: ToolOutput | ToolError | UnknownResolved) -> JsonValue:
    """Return `{"output": …}`, or `{"error": {"code": …, "message": …}}`.

    What a person says did not happen is kept as an error, so that every call of which something
    is known has an outcome on its row.
    """
    match event:
        case ToolError():
            return {"error": {"code": event.code, "message": event.message}}
        case UnknownResolved() if not event.happened:
            said = event.reason or "It did not happen."
            return {"error": {"code": CallState.CANCELLED.value, "message": said}}
    return {"output": event.output}
