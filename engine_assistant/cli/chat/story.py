"""`--model demo`: a fixed story of a refund. It is no model, it reads nothing that it is told.

It is here so that approvals can be tried without a key. Every message begins it again.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Final

from engine_assistant.host import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelResult,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolMessage,
    ToolRegistry,
    ToolResult,
    tool,
)

__all__ = ["Story", "story_tools"]

_PACE: Final = 0.03
"""Seconds between words, so that one can see them come."""

_LOOKS: Final = "(This is a fixed story, not a model.) Let me look at order 7."
_ASKS: Final = "49.90 EUR were paid for it. I may give them back when you approve."
_DONE: Final = "It is done: 49.90 EUR are on their way."
_NOT_DONE: Final = "Then I leave it: nothing was refunded."
_SILENT: Final = "There is nothing more to tell."


class Story:
    """Looks an order up, asks for a refund, and says what became of it."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResult]:
        """Tell the next piece."""
        text, call = _SILENT, None
        if not request.text_only:
            text, call = _next(request.messages)
        for piece in re.findall(r"\S+\s*", text):
            yield TextDelta(text=piece)
            await asyncio.sleep(_PACE)
        yield ModelResult(
            message=AssistantMessage((Text(text),) if call is None else (Text(text), call)),
            stop_reason=StopReason.END_TURN if call is None else StopReason.TOOL_CALL,
        )


def _next(messages: Sequence[Message]) -> tuple[str, ToolCall | None]:
    last = messages[-1]
    if not isinstance(last, ToolMessage):
        return _LOOKS, ToolCall("find_order", {"order": 7})
    result: ToolResult = last.results[-1]
    if isinstance(result.output, dict) and "paid" in result.output:
        return _ASKS, ToolCall("refund", {"order": 7, "amount": "49.90", "currency": "EUR"})
    return (_NOT_DONE if result.is_error else _DONE), None


def story_tools() -> ToolRegistry:
    """Return what the story calls. Nothing is paid, and nothing is refunded."""

    @tool(effect="read", approval="never")
    def find_order(order: int) -> dict[str, str]:
        """Find what was paid for an order."""
        del order
        return {"paid": "49.90", "currency": "EUR"}

    @tool(
        effect="write",
        approval="always",
        preview=lambda said: f"gives {said['amount']} {said['currency']} back",
    )
    def refund(order: int, amount: str, currency: str) -> dict[str, str]:
        """Give money back."""
        return {"order": str(order), "refunded": amount, "currency": currency}

    return ToolRegistry([find_order, refund])
