"""Whatever fails, the turn comes to rest, the record leaks nothing, and the next message works."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

import pytest

from engine_assistant import Caller, Limits
from engine_assistant.host import (
    Ask,
    AssistantMessage,
    Batching,
    Cost,
    Ended,
    Figure,
    Hooks,
    ModelRequest,
    ModelResult,
    Provenance,
    Step,
    StopReason,
    Text,
    TextDelta,
    Tool,
    ToolCall,
    ToolRefused,
    Usage,
    tool,
)
from engine_assistant.host.turns.spent import total
from engine_assistant.testing.replay import Attempt, answer
from tests.host.assistants import Scene, in_loop, looking, refunding, scene, until

SECRET = "my pin is 4711"


async def rests_and_works(one: Scene, code: str | None = None) -> None:
    """The turn has rested, the log can be read, and a next message is answered."""
    *_, last = await one.events()
    assert await one.turn_state() == "idle"
    if code is not None:
        assert (last.type, last.code) == ("turn-error", code)
        assert "4711" not in last.message
    await one.say("Are you there?")
    host = one.host(answer("Yes."))
    assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
    (request,) = one.replays[-1].requests("model")
    calls = [call for m in request.messages if m.role == "assistant" for call in m.calls]
    results = [r for m in request.messages if m.role == "tool" for r in m.results]
    assert [call.call_id for call in calls] == [result.call_id for result in results]
    await one.healthy()


# ---------------------------------------------------------------- the model


FINAL = ModelResult(message=AssistantMessage((Text("Hm"),)), stop_reason=StopReason.END_TURN)
TWICE = ToolCall("look", {"order": 1})
MODELS: dict[str, tuple[Sequence[Attempt], str]] = {
    "stops without a reason": (
        [[TextDelta(text="Hm"), ModelResult(message=FINAL.message, stop_reason=None)]],
        "response_not_complete",
    ),
    "says two ends": ([[TextDelta(text="Hm"), FINAL, FINAL]], "invalid_response"),
    "says no end": ([[TextDelta(text="Hm")]], "invalid_response"),
    "says something else at its end": ([[TextDelta(text="Ha"), FINAL]], "invalid_response"),
    "repeats the id of a call": ([answer(TWICE), answer(TWICE)], "invalid_tool_state"),
    "calls and says that it does not": (
        [answer(TWICE, stop_reason=StopReason.END_TURN)],
        "invalid_tool_state",
    ),
    "breaks": ([[TextDelta(text="Hm"), RuntimeError(SECRET)]], "host_failed"),
    "calls a tool of a name that cannot be kept": (
        [answer(ToolCall("x" * 200, {}))],
        "validation_failed",
    ),
}


@pytest.mark.guarantee("G-HOST-61")
@pytest.mark.parametrize("what", MODELS)
@in_loop
async def test_a_model_that_misbehaves_ends_the_turn(database_url: str, what: str) -> None:
    script, code = MODELS[what]
    async with scene(database_url) as one:
        await one.say(SECRET)
        report = await one.host(*script, tools=[looking([])]).run_turn(one.thread_id)
        assert (report.ended, report.error is not None) == (Ended.ERROR, True)
        await rests_and_works(one, code)


@pytest.mark.guarantee("G-HOST-42")
@in_loop
async def test_what_was_said_is_kept_when_the_calls_behind_it_are_refused(
    database_url: str,
) -> None:
    async with scene(database_url) as one:
        await one.say()
        script = answer("Let me ", "look.", ToolCall("x" * 200, {}))
        host = one.host(script, tools=[looking([])], batching=Batching(seconds=600))
        assert (await host.run_turn(one.thread_id)).ended is Ended.ERROR
        assert [event.text for event in await one.of("text-delta")] == ["Let me look."]
        assert (await one.types())[-2:] == ["text-delta", "turn-error"]
        await rests_and_works(one, "validation_failed")


@pytest.mark.guarantee("G-HOST-05")
@in_loop
async def test_a_call_where_the_model_had_to_speak_does_not_run(database_url: str) -> None:
    seen: list[object] = []
    async with scene(database_url) as one:
        await one.say()
        host = one.host(answer("I look", TWICE), tools=[looking(seen)], max_steps=1)
        assert (await host.run_turn(one.thread_id)).ended is Ended.LIMIT
        assert ("tool-input" in await one.types(), seen) == (False, [])
        await rests_and_works(one)


@pytest.mark.guarantee("G-HOST-03")
@in_loop
async def test_an_answer_that_was_cut_or_refused_ends_the_turn_by_its_name(
    database_url: str,
) -> None:
    seen: list[object] = []
    for stop, ended, calls in (
        (StopReason.MAX_TOKENS, "max-tokens", [TWICE]),
        (StopReason.REFUSAL, "refused", []),
    ):
        async with scene(database_url) as one:
            await one.say()
            host = one.host(answer("No", *calls, stop_reason=stop), tools=[looking(seen)])
            assert (await host.run_turn(one.thread_id)).ended == ended
            assert ("tool-input" in await one.types(), seen) == (False, [])
            assert [event.reason for event in await one.of("turn-finish")] == [ended]
            assert [event.stop_reason for event in await one.of("step-finish")] == [stop]
            await rests_and_works(one)


# ---------------------------------------------------------------- the tools


@tool(effect="read", approval="never")
async def raises(order: int) -> None:
    raise RuntimeError(SECRET)


@tool(effect="read", approval="never")
async def refuses(order: int) -> None:
    raise ToolRefused("sold_out", "There is none left.")


@tool(effect="read", approval="never", timeout=0.05)
async def hangs(order: int) -> None:
    await asyncio.Event().wait()


@tool(effect="read", approval="never")
async def no_json(order: int) -> object:
    return {"when": object()}


@tool(effect="read", approval="never")
async def too_much(order: int) -> str:
    return "x" * 10_000_000


@tool(effect="read")
async def unclassified(order: int) -> None:
    raise AssertionError("nobody said that it may run")


@tool(effect="read", approval="never")
async def cancels(order: int) -> None:
    raise asyncio.CancelledError


TOOLS: dict[str, tuple[Tool, dict[str, object], str]] = {
    "raises": (raises, {"order": 1}, "tool_failed"),
    "refuses": (refuses, {"order": 1}, "sold_out"),
    "hangs": (hangs, {"order": 1}, "timed_out"),
    "returns what is no JSON": (no_json, {"order": 1}, "result_not_json"),
    "returns ten megabytes": (too_much, {"order": 1}, "result_too_large"),
    "is not classified": (unclassified, {"order": 1}, "unclassified"),
    "is cancelled": (cancels, {"order": 1}, "tool_failed"),
    "is given what it does not take": (refuses, {"order": "many"}, "invalid_arguments"),
    "is not there": (refuses, {"order": 1}, "unknown_tool"),
}


@pytest.mark.guarantee("G-HOST-62")
@pytest.mark.parametrize("what", TOOLS)
@in_loop
async def test_a_tool_that_misbehaves_is_a_result_and_the_turn_goes_on(
    database_url: str, what: str
) -> None:
    one_tool, given, code = TOOLS[what]
    name = "nothing" if code == "unknown_tool" else one_tool.name
    async with scene(database_url) as one:
        await one.say()
        host = one.host(answer(ToolCall(name, given)), answer("I see."), tools=[one_tool])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        (proposed,), (failed,) = await one.of("tool-input"), await one.of("tool-error")
        assert (failed.call_id, failed.code) == (proposed.call_id, code)
        assert "4711" not in failed.message
        (told,) = one.replays[-1].requests("model")[1].messages[-1].results
        assert (told.is_error, told.output["code"]) == (True, code)
        await rests_and_works(one)


DEEP: list[object] = []
for _ in range(10):
    DEEP = [DEEP]


@pytest.mark.guarantee("G-HOST-24", "G-HOST-62")
@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("x" * 5000, "result_too_large"),
        (DEEP, "result_not_json"),
        (10**30, "result_not_json"),
        ("x" * 3000, None),
    ],
    ids=["long", "deep", "a number of many digits", "fits"],
)
@in_loop
async def test_a_result_that_this_record_would_not_take_is_refused_before_it_is_asked_to(
    database_url: str, output: object, code: str | None
) -> None:
    """A record with narrow limits: what was done is told, and the turn goes on."""

    @tool(effect="write", approval="never")
    async def give(order: int) -> object:
        return output

    narrow = Limits(event_bytes=4096, nesting=8, integer_digits=20)
    async with scene(database_url, limits=narrow) as one:
        await one.say()
        host = one.host(answer(ToolCall("give", {"order": 1})), answer("I see."), tools=[give])
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        assert [event.code for event in await one.of("tool-error")] == ([code] if code else [])
        (told,) = one.replays[-1].requests("model")[1].messages[-1].results
        assert told.is_error is (code is not None)
        await rests_and_works(one)


# ---------------------------------------------------------------- the host itself


class Broken(Hooks):
    async def before_response(self, result: ModelResult, step: Step) -> None:
        raise KeyError(SECRET)


@pytest.mark.guarantee("G-HOST-61")
@in_loop
async def test_what_breaks_in_the_host_goes_to_its_log_and_not_into_the_record(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def system(step: Step) -> str:
        raise KeyError(SECRET)

    for given in ({"hooks": Broken()}, {"system": system}):
        caplog.clear()
        async with scene(database_url) as one:
            await one.say()
            report = await one.host(answer("Hm"), **given).run_turn(one.thread_id)
            assert isinstance(report.error, KeyError)
            assert SECRET not in repr(report)
            assert [(r.name, r.levelno) for r in caplog.records] == [
                ("engine_assistant.host", logging.ERROR)
            ]
            log = await one.me.read_events_json(thread_id=one.thread_id)
            assert SECRET.encode() not in log
            await rests_and_works(one, "host_failed")


@in_loop
async def test_a_wrong_choice_of_approvers_ends_the_turn_and_nothing_runs(sqlite_url: str) -> None:
    done: list[object] = []
    async with scene(sqlite_url) as one:
        await one.say()
        host = one.host(
            answer(ToolCall("refund", {"order": 7})),
            tools=[refunding(done)],
            approvals=lambda call, thread: Ask(approvers=["usr_bob"], required=2),
        )
        assert (await host.run_turn(one.thread_id)).ended is Ended.ERROR
        assert done == []
        await rests_and_works(one, "validation_failed")


@pytest.mark.guarantee("G-HOST-61")
@pytest.mark.parametrize("breaks", [False, True], ids=["alone", "and then the model"])
@in_loop
async def test_a_batch_that_fails_in_the_background_breaks_the_turn_and_not_the_record(
    sqlite_url: str, breaks: bool
) -> None:
    """For a moment the host may not write: the words are lost, so the turn is not done."""
    allowed, refused = [True], []

    def may(key: str) -> bool:
        if not allowed[0]:
            refused.append(key)
        return allowed[0]

    async def was_refused() -> bool:
        return bool(refused)

    class Talker:
        async def stream(self, request: ModelRequest) -> AsyncIterator[object]:
            yield TextDelta(text="H")
            allowed[0] = False
            yield TextDelta(text="m")
            await until(was_refused)
            allowed[0] = True
            if breaks:
                raise RuntimeError(SECRET)
            yield FINAL

    robot = Caller(tenant="acme", principal="sys_assistant", permissions=may, system=True)
    async with scene(sqlite_url) as one:
        await one.say()
        assert (await one.host(model=Talker(), caller=robot).run_turn(one.thread_id)).ended is (
            Ended.ERROR
        )
        await rests_and_works(one, "host_failed" if breaks else "permission_denied")


# ---------------------------------------------------------------- what it cost


@pytest.mark.guarantee("G-HOST-63")
@in_loop
async def test_a_run_knows_what_it_used_up_and_each_step_too(database_url: str) -> None:
    def counted(value: int) -> Figure:
        return Figure(value=value, provenance=Provenance.COMPUTED)

    def paid(value: str, currency: str = "USD") -> Cost:
        return Cost(value=value, currency=currency, provenance=Provenance.REPORTED)

    asked = Usage.reported(input=10, output=3, cache_read=4).model_copy(
        update={"cost": paid("0.10")}
    )
    cut = Usage(input=counted(20), output=counted(5), cost=paid("0.0125"))
    async with scene(database_url) as one:
        await one.say()
        host = one.host(
            answer(ToolCall("look", {"order": 1}), usage=asked),
            answer("Half", usage=cut, stop_reason="max_tokens"),
            tools=[looking([])],
        )
        report = await host.run_turn(one.thread_id)
        run = await one.bot.get_run(thread_id=one.thread_id, fence=report.fence)
        assert run.usage is not None
        assert run.usage.model_dump(mode="json", exclude_none=True) == {
            "input": {"value": 30, "provenance": "computed"},
            "output": {"value": 8, "provenance": "computed"},
            "cache_read": {"value": 4, "provenance": "reported"},
            "cost": {"value": "0.1125", "currency": "USD", "provenance": "reported"},
        }
        assert (run.reason, run.state) == ("max-tokens", "finished")
        first, second = await one.of("step-finish")
        assert (first.usage, second.usage) == (asked.to_dict(), cut.to_dict())
    euro = Usage(cost=paid("1", "EUR"))
    assert total([asked, euro, asked]) == Usage.reported(input=20, output=6, cache_read=8)
    assert total([euro, Usage(cost=paid("1"))]) is None


@in_loop
async def test_usage_that_nobody_told_is_not_made_up(sqlite_url: str) -> None:
    class Silent:
        async def stream(self, request: ModelRequest) -> AsyncIterator[object]:
            yield TextDelta(text="Hm")
            yield FINAL

    async with scene(sqlite_url) as one:
        await one.say()
        report = await one.host(model=Silent()).run_turn(one.thread_id)
        run = await one.bot.get_run(thread_id=one.thread_id, fence=report.fence)
        assert (report.ended, run.usage) == (Ended.DONE, None)
        assert [event.usage for event in await one.of("step-finish")] == [None]
