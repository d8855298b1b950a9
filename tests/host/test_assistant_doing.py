"""What a run does now, as whoever looks at it is told."""

from collections.abc import AsyncIterator

import pytest

from engine_assistant.host import (
    AssistantMessage,
    Ended,
    ModelRequest,
    ModelResult,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolCallStarted,
    tool,
)
from engine_assistant.model.views.runs import RunOperation
from engine_assistant.testing.replay import answer
from tests.host.assistants import in_loop, scene


@pytest.mark.guarantee("G-HOST-66")
@in_loop
async def test_whoever_looks_is_told_what_the_run_does_and_since_when(database_url: str) -> None:
    async with scene(database_url) as one:
        seen: list[tuple[str, RunOperation]] = []

        async def look(when: str) -> None:
            (run,) = (await one.me.list_runs(thread_id=one.thread_id, state="running")).items
            assert run.operation is not None
            seen.append((when, run.operation))

        @tool(effect="read", approval="never")
        async def weigh(order: int) -> int:
            await look("tool")
            return order

        class Model:
            """Calls a tool without a word, then answers in two."""

            async def stream(self, request: ModelRequest) -> AsyncIterator[object]:
                await look("asked")
                if request.messages[-1].role == "tool":
                    yield TextDelta(text="It is ")
                    await look("answering")
                    yield TextDelta(text="7.")
                    await look("answering")
                    blocks, reason = (Text("It is 7."),), StopReason.END_TURN
                else:
                    blocks, reason = (ToolCall("weigh", {"order": 7}),), StopReason.TOOL_CALL
                    yield ToolCallStarted(blocks[0].call_id, "weigh")
                    await look("answering")
                yield ModelResult(message=AssistantMessage(blocks), stop_reason=reason)

        await one.say()
        report = await one.host(model=Model(), tools=[weigh]).run_turn(one.thread_id)
        assert report.ended is Ended.DONE
        first, second = [event.step for event in await one.of("step-start")]
        (call,) = await one.of("tool-input")
        assert [(one.operation_id, one.kind, one.phase, one.step) for _, one in seen] == [
            (first, "model", "asked", first),
            (first, "model", "answering", first),
            (call.call_id, "tool", "running", first),
            (second, "model", "asked", second),
            (second, "model", "answering", second),
            (second, "model", "answering", second),
        ]
        assert [one.first_output_at is not None for _, one in seen] == [
            when == "answering" for when, _ in seen
        ]
        assert seen[3][1].started_at == seen[4][1].started_at
        assert seen[4] == seen[5]
        run = await one.me.get_run(thread_id=one.thread_id, fence=report.fence)
        assert run.operation == seen[5][1]
        await one.healthy()


@pytest.mark.guarantee("G-HOST-66")
@in_loop
async def test_an_approved_call_runs_in_the_step_that_asked_for_it(database_url: str) -> None:
    seen: list[RunOperation | None] = []
    async with scene(database_url) as one:

        @tool(effect="write", approval="always")
        async def refund(order: int) -> int:
            runs = await one.me.list_runs(thread_id=one.thread_id, state="running")
            seen.append(runs.items[0].operation)
            return order

        await one.say()
        asked = one.host(answer(ToolCall("refund", {"order": 7})), tools=[refund])
        assert (await asked.run_turn(one.thread_id)).ended is Ended.AWAITING_APPROVAL
        assert seen == []
        (card,) = await one.cards()
        await one.decide(card, approved=True)
        report = await one.host(answer("Done."), tools=[refund]).run_turn(one.thread_id)
        assert report.ended is Ended.DONE
        (call,) = await one.of("tool-input")
        ((operation_id, step),) = [(one.operation_id, one.step) for one in seen if one]
        assert (operation_id, step) == (call.call_id, call.step)
