"""A conversation as an iterator."""

import asyncio
import gc
from collections.abc import AsyncIterator

import pytest

from engine_assistant.host import (
    Conversation,
    Data,
    Done,
    HostEvent,
    ModelEvent,
    ModelRequest,
    ModelResult,
    Status,
    Step,
    TextDelta,
    ToolCall,
    ToolCallStarted,
    ToolOutcome,
    ToolProgress,
    ToolReturned,
    run_conversation,
    stream_conversation,
)
from engine_assistant.testing.replay import answer
from tests.host.stage import HELLO, Memory, SomeTools, call, run, scripted
from tests.host.test_stopping import Silent, Slow


class Telling(SomeTools):
    """Tools that tell how far they have come."""

    def __init__(self, trace: list[str]) -> None:
        super().__init__()
        self._trace = trace

    async def execute(self, call: ToolCall, step: Step) -> ToolOutcome:
        self._trace.append("tool begins")
        await step.emit(ToolProgress(call_id=call.call_id, payload={"percent": 50}))
        self._trace.append("tool goes on")
        await step.emit(Data(kind="card", payload={"shown": True}))
        self._trace.append("tool ends")
        return ToolReturned(None)


@pytest.mark.guarantee("G-HOST-16")
def test_the_models_and_the_hosts_events_come_in_order_and_done_comes_last() -> None:
    async def work() -> None:
        one = call()
        model, _ = scripted(answer("Look", one), answer("Done"))
        given = Conversation(model=model, messages=[HELLO], tools=Telling([]))
        events = [event async for event in stream_conversation(given)]
        assert events[:-1] == [
            TextDelta(text="Look"),
            ToolCallStarted(one.call_id, "look"),
            ToolProgress(call_id=one.call_id, payload={"percent": 50}),
            Data(kind="card", payload={"shown": True}),
            TextDelta(text="Done"),
        ]
        assert isinstance(events[-1], Done)
        assert events[-1].outcome.status is Status.DONE

    run(work())


@pytest.mark.guarantee("G-HOST-16")
def test_without_an_iterator_the_hosts_events_reach_the_hooks_all_the_same() -> None:
    async def work() -> None:
        memory = Memory()
        model, _ = scripted(answer(call()), answer("Done"))
        tools = Telling([])
        await run_conversation(
            Conversation(model=model, messages=[HELLO], hooks=memory, tools=tools)
        )
        kinds = [type(event) for event in memory.events]
        assert kinds == [ToolCallStarted, ToolProgress, Data, TextDelta]

    run(work())


@pytest.mark.guarantee("G-HOST-09", "G-HOST-16")
def test_nothing_happens_before_the_first_event_and_after_each_it_waits() -> None:
    async def work() -> None:
        trace: list[str] = []

        class Hooks(Memory):
            async def on_event(self, event: ModelEvent | HostEvent, step: Step) -> None:
                trace.append(f"event {len(trace)}")

        model, script = scripted(answer("A", "B", call()), answer("Done"))
        given = Conversation(model=model, messages=[HELLO], hooks=Hooks(), tools=Telling(trace))
        stream = stream_conversation(given)
        await _settled()
        assert (trace, script.count("model")) == ([], 0)

        for seen in (["event 0"], ["event 0", "event 1"]):
            await anext(stream)
            await _settled()
            assert trace == seen
        await anext(stream)
        progress = await anext(stream)
        await _settled()
        assert isinstance(progress, ToolProgress)
        # It has told how far it is, and waits until somebody wants to know more.
        assert trace[3:] == ["tool begins", "event 4"]
        await stream.aclose()

    run(work())


async def _settled() -> None:
    """Let every task that can go on do so."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.guarantee("G-HOST-16")
def test_a_stream_that_breaks_off_raises_and_is_never_done() -> None:
    async def work() -> None:
        model, _ = scripted([TextDelta(text="A"), ConnectionError("cut")])
        stream = stream_conversation(Conversation(model=model, messages=[HELLO]))
        assert await anext(stream) == TextDelta(text="A")
        with pytest.raises(ConnectionError):
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        await stream.aclose()

    run(work())


@pytest.mark.guarantee("G-HOST-16")
def test_closing_cancels_at_once_also_while_an_event_is_awaited() -> None:
    async def work() -> None:
        model = Silent()
        stream = stream_conversation(Conversation(model=model, messages=[HELLO]))
        assert await anext(stream) == TextDelta(text="Well")
        waiting = asyncio.create_task(anext(stream, None))
        await model.silent.wait()
        await stream.aclose()
        assert model.closed
        assert await waiting is None
        await stream.aclose()

    run(work())


@pytest.mark.guarantee("G-HOST-14", "G-HOST-16")
def test_closing_while_a_tool_runs_keeps_nothing_more() -> None:
    async def work() -> None:
        slow, memory = Slow(), Memory()
        model, script = scripted(answer(call(), call()), answer("never"))
        tools = SomeTools(slow)
        given = Conversation(model=model, messages=[HELLO], hooks=memory, tools=tools)
        async with stream_conversation(given) as stream:
            for _ in range(2):
                await anext(stream)
            waiting = asyncio.create_task(anext(stream, None))
            await slow.began.wait()
        assert await waiting is None
        assert [one.role for one in memory.kept] == ["assistant"]
        assert (len(tools.ran), script.count("model")) == (1, 1)

    run(work())


@pytest.mark.guarantee("G-HOST-16")
def test_a_reader_that_is_cancelled_takes_the_conversation_with_it() -> None:
    async def work() -> None:
        model = Silent()

        async def read() -> None:
            async for _ in stream_conversation(Conversation(model=model, messages=[HELLO])):
                pass

        reader = asyncio.create_task(read())
        await model.silent.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        assert model.closed

    run(work())


@pytest.mark.guarantee("G-HOST-16")
def test_a_reader_that_just_leaves_takes_the_conversation_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        model = Silent()
        async for _ in stream_conversation(Conversation(model=model, messages=[HELLO])):
            break
        gc.collect()
        await _settled()
        assert model.closed
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(work())
    # It was cancelled, and not found pending when nobody held it any more.
    assert caplog.records == []


class Stubborn:
    """A model that fails when it is closed."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent | ModelResult]:
        try:
            yield TextDelta(text="Well")
            await asyncio.Event().wait()
        finally:
            raise OSError("could not close")


def test_what_fails_while_it_closes_is_said() -> None:
    async def work() -> None:
        stream = stream_conversation(Conversation(model=Stubborn(), messages=[HELLO]))
        await anext(stream)
        with pytest.raises(OSError, match="could not close"):
            await stream.aclose()

    run(work())


@pytest.mark.guarantee("G-HOST-16")
def test_a_stream_that_nobody_reads_does_nothing() -> None:
    async def work() -> None:
        model, script = scripted(answer("never"))
        async with stream_conversation(Conversation(model=model, messages=[HELLO])):
            pass
        assert script.count("model") == 0

    run(work())
