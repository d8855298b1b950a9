"""Running tools: whatever happens, the call has a result, and the model learns no secret."""

import asyncio
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from decimal import Decimal

import pytest

from engine_assistant.host import (
    AssistantMessage,
    AwaitingApproval,
    CallId,
    ModelResult,
    PreparedCall,
    Step,
    Tool,
    ToolCall,
    ToolContext,
    ToolFailed,
    ToolOutcome,
    ToolProgress,
    ToolRefused,
    ToolRegistry,
    ToolReturned,
    tool,
)
from engine_assistant.model.events import ToolError, ToolInput, ToolOutput, body_of
from engine_assistant.model.limits import LIMITS
from engine_assistant.testing.replay import answer
from tests.host.stage import Memory, call, converse, run, scripted
from tests.rig.guest import python

SECRET = "postgres://admin:hunter2@db"


async def _nowhere(event: object) -> None:
    return None


STEP = Step(number=3, text_only=False, messages=(), emit=_nowhere)


def outcome_of(one: Tool, step: Step = STEP, **input: object) -> ToolOutcome:
    return run(ToolRegistry([one]).execute(call(one.name, **input), step))


@pytest.mark.guarantee("G-HOST-20")
def test_exactly_the_bound_input_runs() -> None:
    ran = []

    @tool(effect="write", approval="never")
    async def pay(amount: Decimal, order: int = 7) -> dict[str, str]:
        ran.append((amount, order))
        return {"paid": str(amount)}

    class Tools(ToolRegistry):
        async def execute(self, call: ToolCall, step: Step) -> ToolOutcome:
            bound.append(call.input)
            return await super().execute(call, step)

    bound: list[object] = []
    memory = Memory()
    model, script = scripted(answer(call("pay", amount="1.50")), answer("Done"))
    converse(model, tools=Tools([pay]), hooks=memory)
    (kept,) = memory.kept[0].calls
    assert kept.input == {"amount": "1.50", "order": 7}
    assert (bound, ran) == ([kept.input], [(Decimal("1.50"), 7)])
    assert script.requests("model")[1].messages[1].calls == (kept,)


@pytest.mark.guarantee("G-HOST-20")
def test_what_a_hook_does_to_an_input_that_it_is_shown_changes_nothing_that_runs() -> None:
    ran = []

    @tool(effect="write", approval="never")
    async def pay(amounts: list[int]) -> None:
        ran.append(amounts)

    class Meddling(Memory):
        async def before_response(self, result: ModelResult, step: Step) -> None:
            for one in result.message.calls:
                one.input["amounts"].append(2)

        async def on_assistant_message(self, message: AssistantMessage, step: Step) -> None:
            for one in [*message.calls, *step.result.message.calls]:
                one.input["amounts"].append(3)

    model, _ = scripted(answer(call("pay", amounts=[1])), answer("Done"))
    converse(model, tools=ToolRegistry([pay]), hooks=Meddling())
    # Before it is kept it may be judged, and even mended; from then on it is what it is.
    assert ran == [[1, 2]]


def test_a_sync_tool_runs_beside_the_loop_and_an_async_one_in_it_both_in_its_context() -> None:
    ran, tenant = [], ContextVar[str]("tenant")

    @tool(effect="read", approval="never")
    def sync() -> None:
        ran.append((threading.current_thread() is threading.main_thread(), tenant.get()))

    @tool(effect="read", approval="never")
    async def awaited() -> None:
        ran.append((threading.current_thread() is threading.main_thread(), tenant.get()))

    tenant.set("acme")
    assert outcome_of(sync) == outcome_of(awaited) == ToolReturned(None)
    assert ran == [(False, "acme"), (True, "acme")]


@pytest.mark.guarantee("G-HOST-26")
def test_a_tool_is_given_the_calls_id_and_can_tell_how_far_it_is() -> None:
    told = []

    async def emit(event: object) -> None:
        told.append(event)

    @tool(effect="write", approval="never")
    async def pay(context: ToolContext, key: CallId, other: CallId) -> list[object]:
        await context.report({"percent": 50})
        return [context.call_id, key, other, context.step]

    one = call("pay")
    came = run(ToolRegistry([pay]).execute(one, replace(STEP, emit=emit)))
    assert came == ToolReturned([one.call_id, one.call_id, one.call_id, 3])
    assert told == [ToolProgress(call_id=one.call_id, payload={"percent": 50})]


@pytest.mark.guarantee("G-HOST-11")
def test_a_call_that_needs_approval_does_not_run() -> None:
    ran = []

    @tool(effect="destructive", approval="always")
    def drop() -> None:
        ran.append(True)

    assert outcome_of(drop) == AwaitingApproval()
    assert ran == []


@pytest.mark.guarantee("G-HOST-28")
def test_a_tool_that_is_not_there_is_refused_for_the_model_to_read() -> None:
    came = run(ToolRegistry([]).execute(call("drop_table"), STEP))
    assert isinstance(came, ToolFailed)
    assert came.code == "unknown_tool"
    assert ToolRegistry([]).bind(one := call("drop_table")) is one


# ---------------------------------------------------------------- failures


def _raises() -> None:
    raise RuntimeError(SECRET)


def _raises_what_iterators_end_with() -> None:
    raise StopIteration(SECRET)


def _wants_to_end_the_process() -> None:
    sys.exit(SECRET)


async def _raises_async() -> None:
    raise OSError(SECRET)


async def _cancels_itself() -> None:
    raise asyncio.CancelledError(SECRET)


async def _own_timeout() -> None:
    raise TimeoutError(SECRET)


@pytest.mark.guarantee("G-HOST-23")
@pytest.mark.parametrize(
    "function",
    [
        *[_raises, _raises_what_iterators_end_with, _wants_to_end_the_process],
        *[_raises_async, _cancels_itself, _own_timeout],
    ],
)
@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_tool_that_fails_is_a_result_and_what_it_said_is_in_the_log_alone(
    function: Callable[[], object], effect: str, caplog: pytest.LogCaptureFixture
) -> None:
    came = outcome_of(tool(effect=effect, approval="never", name="t")(function))
    assert isinstance(came, ToolFailed)
    assert came.code == "tool_failed"
    assert SECRET not in repr(came)
    assert ("may have taken effect" in came.message) is (effect == "write")
    assert SECRET in caplog.text
    assert {one.name for one in caplog.records} == {"engine_assistant.host"}


@pytest.mark.guarantee("G-HOST-23")
@pytest.mark.parametrize("effect", ["read", "destructive"])
def test_a_tool_that_hangs_is_a_result_after_its_time(effect: str) -> None:
    stopped = []

    @tool(effect=effect, approval="never", timeout=0.01)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    came = outcome_of(hang)
    assert isinstance(came, ToolFailed)
    assert (came.code, stopped) == ("timed_out", [True])
    assert ("may have taken effect" in came.message) is (effect != "read")


class Stubborn:
    """Work that does not stop when it is told to."""

    def __init__(self) -> None:
        self.began, self.let = asyncio.Event(), asyncio.Event()
        self.told = 0

    async def __call__(self) -> None:
        self.began.set()
        while not self.let.is_set():
            try:
                await self.let.wait()
            except asyncio.CancelledError:
                self.told += 1


@pytest.mark.guarantee("G-HOST-14", "G-HOST-23")
@pytest.mark.parametrize("cancelled", [False, True])
def test_a_tool_that_does_not_stop_when_it_is_told_to_keeps_nobody_waiting(
    cancelled: bool,
) -> None:
    async def work() -> None:
        stubborn = Stubborn()

        @tool(effect="write", approval="never", timeout=None if cancelled else 0.01)
        async def hang() -> None:
            await stubborn()

        running = asyncio.create_task(ToolRegistry([hang]).execute(call("hang"), STEP))
        await stubborn.began.wait()
        if cancelled:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            came = await running
            assert isinstance(came, ToolFailed)
            assert came.code == "timed_out"
        assert stubborn.told == 1
        stubborn.let.set()

    run(work())


@pytest.mark.guarantee("G-HOST-23")
def test_a_sync_tool_that_hangs_is_a_result_though_nothing_can_stop_it() -> None:
    go = threading.Event()

    @tool(effect="read", approval="never", timeout=0.01)
    def hang() -> None:
        go.wait(10)

    async def work() -> ToolOutcome:
        try:
            return await ToolRegistry([hang]).execute(call("hang"), STEP)
        finally:
            go.set()

    came = run(work())
    assert isinstance(came, ToolFailed)
    assert came.code == "timed_out"


HANGING = """
import asyncio, threading
from concurrent.futures import ThreadPoolExecutor
from engine_assistant.host import ToolCall, ToolRegistry, tool
from tests.host.test_registry import STEP

@tool(effect="read", approval="never", timeout=0.01)
def hang() -> None:
    threading.Event().wait()

@tool(effect="read", approval="never")
def look() -> str:
    return "seen"

async def work() -> None:
    tools, loop = ToolRegistry([hang, look]), asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    for name in ("hang", "hang", "look"):
        print(await tools.execute(ToolCall(name, {}), STEP))
    print(len(await loop.getaddrinfo("127.0.0.1", 80)) > 0)

asyncio.run(work())
"""


@pytest.mark.guarantee("G-HOST-69")
def test_sync_tools_that_hang_keep_nobody_waiting_not_even_the_end_of_the_process() -> None:
    done = python(HANGING)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition("(")[0] for line in done.stdout.splitlines()] == [
        *["ToolFailed"] * 2,
        *["ToolReturned", "True"],
    ]


@pytest.mark.guarantee("G-HOST-23")
def test_a_tool_may_tell_the_model_why_not() -> None:
    @tool(effect="read", approval="never")
    def look() -> None:
        raise ToolRefused("not_found", "There is no order 7.")

    assert outcome_of(look) == ToolFailed("not_found", "There is no order 7.")


@pytest.mark.guarantee("G-HOST-14")
def test_a_cancelled_tool_is_no_failure_of_the_tool() -> None:
    began = asyncio.Event()

    @tool(effect="read", approval="never")
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    async def work() -> None:
        task = asyncio.create_task(ToolRegistry([hang]).execute(call("hang"), STEP))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work())


# ---------------------------------------------------------------- results


@pytest.mark.guarantee("G-HOST-24")
@pytest.mark.parametrize(
    "output", [object(), b"bytes", (1, 2), {1: 2}, {"x": float("nan")}, "\ud800", {"a": {1, 2}}]
)
def test_a_result_that_is_not_json_is_an_error(output: object) -> None:
    @tool(effect="read", approval="never")
    def look() -> object:
        return output

    came = outcome_of(look)
    assert isinstance(came, ToolFailed)
    assert came.code == "result_not_json"


@pytest.mark.guarantee("G-HOST-24")
def test_a_result_over_the_limit_is_refused_with_advice() -> None:
    @tool(effect="read", approval="never")
    def look(size: int) -> str:
        return "é" * size

    tools = ToolRegistry([look], result_bytes=100)
    fits, over = (run(tools.execute(call("look", size=n), STEP)) for n in (49, 50))
    assert fits == ToolReturned("é" * 49)
    assert isinstance(over, ToolFailed)
    assert over.code == "result_too_large"
    assert "100 bytes" in over.message
    assert "Ask for less" in over.message


@pytest.mark.guarantee("G-HOST-24")
def test_whatever_comes_of_a_call_fits_into_the_record() -> None:
    largest = LIMITS.event_bytes - 1024

    @tool(effect="read", approval="never")
    def look(text: str) -> str:
        return text

    @tool(effect="read", approval="never")
    def refuse() -> None:
        raise ToolRefused("\0" + "ü" * 500, "\0\ud800" + "ü" * 5000)

    tools = ToolRegistry([look, refuse], result_bytes=largest)
    whole = run(tools.execute(call("look", text="x" * (largest - 2)), STEP))
    assert isinstance(whole, ToolReturned)
    body = body_of(ToolOutput(call_id="c" * 128, output=whole.output))
    assert len(body.encode()) <= LIMITS.event_bytes

    failed = [run(tools.execute(call("refuse"), STEP)), ToolFailed("", "")]
    failed.append(ToolRegistry([look]).prepare(call("look", **{"é" * 3000: 1})))
    for one in failed:
        assert isinstance(one, ToolFailed)
        ToolError(call_id="c", code=one.code, message=one.message)

    with pytest.raises(ValueError, match="result_bytes"):
        ToolRegistry([], result_bytes=largest + 1)


@pytest.mark.guarantee("G-HOST-20")
def test_what_is_prepared_is_what_an_approval_is_asked_for() -> None:
    """The host that keeps approvals: the same input in the record, in the digest and in the run."""
    ran = []

    @tool(effect="write", approval="always")
    async def refund(order: int, amount: float = 1.5) -> None:
        ran.append((order, amount))

    tools = ToolRegistry([refund])
    bound = tools.bind(call("refund", order="1234567890123456789"))
    recorded = ToolInput(call_id=bound.call_id, tool="refund", input=bound.input, step="s1")
    later = tools.prepare(replace(bound, input=recorded.input))
    assert isinstance(later, PreparedCall)
    assert (later.input, later.needs_approval) == (recorded.input, True)
    assert run(tools.run(later, STEP)) == ToolReturned(None)
    assert ran == [(1234567890123456789, 1.5)]
