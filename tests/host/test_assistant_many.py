"""Many turns at once in one process. How long each callback takes is measured in benchmarks/."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from engine_assistant.host import (
    AssistantHost,
    AssistantMessage,
    Ended,
    ModelRequest,
    ModelResult,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolRegistry,
)
from tests.host.assistants import ROBOT, Scene, in_loop, looking, scene

TURNS = 50


class Talker:
    """A model that says some words, looks, and says them again."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ModelResult]:
        words = [f"word {n} " for n in range(20)]
        for word in words:
            await asyncio.sleep(0)
            yield TextDelta(text=word)
        said = Text("".join(words))
        if len(request.messages) == 1:
            asked = AssistantMessage((said, ToolCall("look", {"order": 7})))
            yield ModelResult(message=asked, stop_reason=StopReason.TOOL_CALL)
        else:
            yield ModelResult(message=AssistantMessage((said,)), stop_reason=StopReason.END_TURN)


@pytest.mark.guarantee("G-HOST-65")
@in_loop
async def test_fifty_turns_run_at_once_and_none_loses_its_lease(postgres_url: str) -> None:
    seen: list[object] = []
    async with scene(postgres_url) as one:
        host = AssistantHost(
            assistant=one.assistant,
            caller=ROBOT,
            model=Talker(),
            tools=ToolRegistry([looking(seen)]),
        )
        threads = [await _asked(one) for _ in range(TURNS)]
        reports = await asyncio.gather(*(host.run_turn(thread_id) for thread_id in threads))
        assert [report.ended for report in reports] == [Ended.DONE] * TURNS
        assert len(seen) == TURNS
        for thread_id in threads:
            text = await _text(one, thread_id)
            assert text == "".join(f"word {n} " for n in range(20)) * 2
        await one.healthy()


async def _asked(one: Scene) -> str:
    thread = await one.me.create_thread()
    await one.me.send_message(thread_id=thread.id, text="Look order 7 up")
    return thread.id


async def _text(one: Scene, thread_id: str) -> str:
    page = await one.me.read_events(thread_id=thread_id, limit=1000)
    return "".join(event.text for event in page.events if event.type == "text-delta")
