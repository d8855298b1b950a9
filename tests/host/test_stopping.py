"""Stopping: at once by cancelling, at the next boundary by interrupting."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from engine_assistant.host import (
    Conversation,
    HostEvent,
    ModelEvent,
    ModelRequest,
    ModelResult,
    Status,
    Step,
    TextDelta,
    ToolCall,
    ToolOutcome,
    ToolReturned,
    run_conversation,
)
from engine_assistant.testing.replay import answer
from tests.host.stage import HELLO, Memory, SomeTools, call, run, scripted


class Silent:
    """A model that says one word and then nothing, and knows when it is no longer listened to."""

    def __init__(self) -> None:
        self.silent = asyncio.Event()
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent | ModelResult]:
        try:
            yield TextDelta(text="Well")
            self.silent.set()
            await asyncio.Event().wait()
        finally:
            self.closed = True


class Slow:
    """A tool that has begun, and goes on when it is told to."""

    def __init__(self) -> None:
        self.began, self.go, self.finished = asyncio.Event(), asyncio.Event(), False

    async def __call__(self, call: ToolCall) -> ToolOutcome:
        self.began.set()
        await self.go.wait()
        self.finished = True
        return ToolReturned("it happened")


@pytest.mark.guarantee("G-HOST-14")
def test_a_cancelled_conversation_ends_its_request_and_starts_nothing() -> None:
    async def work() -> None:
        model, memory = Silent(), Memory()
        given = Conversation(model=model, messages=[HELLO], hooks=memory)
        task = asyncio.create_task(run_conversation(given))
        await model.silent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert model.closed
        assert memory.trace == ["event"]

    run(work())


@pytest.mark.guarantee("G-HOST-14")
def test_cancelling_while_a_tool_runs_keeps_nothing_more_and_asks_nothing_more() -> None:
    async def work() -> None:
        slow, memory = Slow(), Memory()
        model, script = scripted(answer(call(), call()), answer("never"))
        tools = SomeTools(slow)
        given = Conversation(model=model, messages=[HELLO], hooks=memory, tools=tools)
        task = asyncio.create_task(run_conversation(given))
        await slow.began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not slow.finished
        assert (len(tools.ran), script.count("model")) == (1, 1)
        assert [one.role for one in memory.kept] == ["assistant"]

    run(work())


@pytest.mark.guarantee("G-HOST-15")
def test_an_interrupt_ends_the_request_though_the_model_is_silent() -> None:
    async def work() -> None:
        model, memory, interrupt = Silent(), Memory(), asyncio.Event()
        given = Conversation(model=model, messages=[HELLO], hooks=memory, interrupt=interrupt)
        task = asyncio.create_task(run_conversation(given))
        await model.silent.wait()
        interrupt.set()
        outcome = await task
        assert (outcome.status, outcome.steps, outcome.result) == (Status.INTERRUPTED, 1, None)
        assert model.closed
        assert memory.trace == ["event"]

    run(work())


@pytest.mark.guarantee("G-HOST-15")
def test_an_interrupt_lets_a_running_tool_finish_and_its_result_is_kept() -> None:
    async def work() -> None:
        slow, memory, interrupt = Slow(), Memory(), asyncio.Event()
        model, script = scripted(answer(call(n=1), call(n=2)), answer("never"))
        tools = SomeTools(slow)
        given = Conversation(
            model=model, messages=[HELLO], hooks=memory, tools=tools, interrupt=interrupt
        )
        task = asyncio.create_task(run_conversation(given))
        await slow.began.wait()
        interrupt.set()
        slow.go.set()
        outcome = await task
        assert (outcome.status, script.count("model")) == (Status.INTERRUPTED, 1)
        assert slow.finished
        assert [one.input["n"] for one in tools.ran] == [1]
        assert [one.role for one in memory.kept] == ["assistant", "tool"]
        assert outcome.messages[-1] == memory.kept[-1]

    run(work())


def _when_tracked(interrupt: asyncio.Event) -> Memory:
    class Hooks(Memory):
        async def track(
            self, request: Callable[[], Awaitable[ModelResult]], step: Step
        ) -> ModelResult:
            result = await request()
            interrupt.set()
            return result

    return Hooks()


Set = Callable[[asyncio.Event], Memory]


def _before(interrupt: asyncio.Event) -> Memory:
    interrupt.set()
    return Memory()


def _while_told(interrupt: asyncio.Event) -> Memory:
    class Hooks(Memory):
        async def on_event(self, event: ModelEvent | HostEvent, step: Step) -> None:
            await super().on_event(event, step)
            interrupt.set()

    return Hooks()


@pytest.mark.guarantee("G-HOST-15")
@pytest.mark.parametrize(
    ("when", "trace"),
    [(_before, []), (_while_told, ["event"]), (_when_tracked, ["event", "event"])],
)
def test_after_an_interrupt_nothing_of_the_answer_is_judged_or_kept(
    when: Set, trace: list[str]
) -> None:
    async def work() -> None:
        interrupt = asyncio.Event()
        memory = when(interrupt)
        model, script = scripted(answer("One", "two"))
        outcome = await run_conversation(
            Conversation(model=model, messages=[HELLO], hooks=memory, interrupt=interrupt)
        )
        assert outcome.status is Status.INTERRUPTED
        assert (memory.trace, script.count("model")) == (trace, len(trace) and 1)

    run(work())


@pytest.mark.guarantee("G-HOST-15")
def test_an_interrupt_that_nobody_sets_changes_nothing() -> None:
    async def work() -> None:
        model, _ = scripted(answer("A"))
        given = Conversation(model=model, messages=[HELLO], interrupt=asyncio.Event())
        assert (await run_conversation(given)).status is Status.DONE
        # What waited for it is gone, too.
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(work())


@pytest.mark.guarantee("G-HOST-10")
def test_a_model_that_runs_out_of_time_is_not_taken_for_an_interrupt() -> None:
    async def work() -> None:
        model, _ = scripted([TimeoutError("the client's own")])
        given = Conversation(model=model, messages=[HELLO], interrupt=asyncio.Event())
        with pytest.raises(TimeoutError, match="the client's own"):
            await run_conversation(given)

    run(work())
