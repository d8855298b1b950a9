"""A history that fits: the oldest turns are left out first, and never a part of one."""

from collections.abc import Sequence

from engine_assistant.model import codec
from engine_assistant.model.views.history import (
    HistoryAssistant,
    HistoryMessage,
    HistoryNote,
    HistoryResult,
    HistorySummary,
    HistoryTool,
    ResultStatus,
)

__all__ = ["within_budget"]


def within_budget(
    messages: Sequence[HistoryMessage], budget: int
) -> tuple[list[HistoryMessage], int]:
    """Leave out the oldest whole turns until the content fits; return how many.

    Summaries stay, and the newest turn comes whole, whatever they take.

    Args:
        messages: a history.
        budget: bytes of UTF-8.
    """
    sizes: dict[int, int] = {}
    total = 0
    for message in messages:
        size = _size(message)
        total += size
        if not isinstance(message, HistorySummary):
            sizes[message.turn] = sizes.get(message.turn, 0) + size
    omitted: set[int] = set()
    for turn in sorted(sizes)[:-1]:
        if total <= budget:
            break
        omitted.add(turn)
        total -= sizes[turn]
    kept = [
        message
        for message in messages
        if isinstance(message, HistorySummary) or message.turn not in omitted
    ]
    return kept, len(omitted)


def _size(message: HistoryMessage) -> int:
    """Return the bytes of what a message says; of JSON, as it is stored."""
    match message:
        case HistoryTool(results=results):
            return sum(map(_size_of_result, results))
        case HistoryNote(result=result):
            return _size_of_result(result)
        case HistoryAssistant(text=text, calls=calls):
            inputs = (codec.dumps(call.input) for call in calls)
            return len(text.encode()) + sum(len(given.encode()) for given in inputs)
        case _:
            return len(message.text.encode())


def _size_of_result(result: HistoryResult) -> int:
    if result.status is ResultStatus.OUTPUT:
        return len(codec.dumps(result.output).encode())
    return sum(len((text or "").encode()) for text in (result.message, result.reason))
