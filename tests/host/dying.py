"""A host process that is killed in the middle of a turn.

`python -m tests.host.dying URL THREAD EFFECTS POINT` runs one turn. The model looks something up,
then asks for a refund, and speaks. The process kills itself where POINT says; what its tools do to
the world is a line each in the file EFFECTS.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Final

from engine_assistant import AsyncAssistant
from engine_assistant.host import (
    AssistantHost,
    AssistantMessage,
    Batching,
    ModelRequest,
    ModelResult,
    ProviderState,
    Reasoning,
    StopReason,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    ToolRegistry,
    tool,
)
from engine_assistant.testing.databases import awaited
from tests.host.assistants import ROBOT

STATE: Final = ProviderState(format="test/1", provider="test", data='{"signature": "4711"}')
THOUGHT: Final = Reasoning("It must be order 7.")
STALE_AFTER: Final = 2.0


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def tools(effects: str, point: str = "", **given: object) -> list[Tool]:
    """Return what the model may call: looking, and refunding with approval."""

    def effect(line: str) -> None:
        file = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{line}\n".encode())
        os.close(file)
        if point == line:
            die()

    @tool(effect="read", approval="never")
    async def look(order: int) -> str:
        effect("looked")
        return f"order {order} is paid"

    @tool(**{"effect": "write", "approval": "always", **given})
    async def refund(order: int) -> str:
        effect("refunded")
        return f"order {order} is refunded"

    return [look, refund]


class Talker:
    """A model that looks, then refunds, then speaks."""

    def __init__(self, point: str) -> None:
        self._point = point

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResult]:
        answers = sum(message.role == "assistant" for message in request.messages)
        if self._point == f"request {answers + 1}":
            die()
        yield TextDelta(text="Let me ")
        if self._point == f"speaking {answers + 1}":
            die()
        yield TextDelta(text="see.")
        if answers == 2:
            done = AssistantMessage((Text("Let me see."),))
            yield ModelResult(message=done, stop_reason=StopReason.END_TURN)
            return
        call = ToolCall(["look", "refund"][answers], {"order": 7}, "call_0")
        message = AssistantMessage((THOUGHT, Text("Let me see."), call), STATE)
        yield ModelResult(message=message, stop_reason=StopReason.TOOL_CALL)


async def main(url: str, thread_id: str, effects: str, point: str) -> None:
    assistant = AsyncAssistant.from_url(awaited(url))
    host = AssistantHost(
        assistant=assistant,
        caller=ROBOT,
        model=Talker(point),
        tools=ToolRegistry(tools(effects, point)),
        stale_after=STALE_AFTER,
        batching=Batching(bytes=1),
    )
    await host.run_turn(thread_id)
    die()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
