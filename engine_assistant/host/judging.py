"""Whether an answer can be used: decided from the result alone, before anything is kept."""

from collections.abc import Set as AbstractSet
from typing import Final

from engine_assistant.host.conversation import Status
from engine_assistant.host.errors import InvalidToolState, ResponseNotComplete
from engine_assistant.host.model import ModelResult, StopReason

__all__ = ["judge"]

_ENDS: Final = frozenset(StopReason) - {StopReason.MAX_TOKENS}


def judge(result: ModelResult, *, text_only: bool, known: AbstractSet[str]) -> Status | None:
    """Return how the conversation ends with this answer, or None if the answer counts.

    `known` are the ids of earlier calls.

    An answer cut at its longest is judged first: a call in it may lack half of its arguments. What
    is no end of an answer (the provider paused, or the stream just ceased) we never continue.

    Raises:
        ResponseNotComplete: it did not come to an end.
        InvalidToolState: it contradicts itself, or a call's id is not new.
        Exception: the error that the answer carries.
    """
    reason, calls = result.stop_reason, result.message.calls
    if reason == StopReason.MAX_TOKENS:
        return Status.MAX_TOKENS
    if result.error is not None:
        raise result.error
    if reason not in _ENDS:
        raise ResponseNotComplete(reason)
    if calls and reason != StopReason.TOOL_CALL:
        raise InvalidToolState("The answer came to its end and calls a tool.", reason)
    if not calls and reason == StopReason.TOOL_CALL:
        raise InvalidToolState("The answer stopped for a call and has none.", reason)
    ids = {call.call_id for call in calls}
    if len(ids) < len(calls) or not known.isdisjoint(ids):
        raise InvalidToolState("A call's id is not new.", reason)
    return Status.LIMIT if calls and text_only else None
