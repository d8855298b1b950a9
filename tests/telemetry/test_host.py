"""What the real SDK is told of turns, requests and tools: who stands under whom, and no content."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from engine_assistant.host import (
    MASK,
    AssistantMessage,
    Conversation,
    Ended,
    HostObserver,
    Model,
    ModelFailed,
    ModelRequest,
    ModelResult,
    NamedModel,
    ProviderState,
    Reasoning,
    RequestBegun,
    RequestEnded,
    StopReason,
    Text,
    TextDelta,
    Tool,
    ToolBegun,
    ToolCall,
    ToolEnded,
    ToolRefused,
    ToolRegistry,
    TurnBegun,
    TurnEnded,
    Usage,
    UserMessage,
    run_conversation,
    tool,
)
from engine_assistant.testing.replay import Attempt, Replay, answer
from tests.host.assistants import Scene, in_loop, looking, refunding, scene
from tests.telemetry.sdk import Sdk

SECRET = "4111-1111-1111-1111"


class Named:
    """A model that says who it is, and what its script says."""

    provider, name = "mistral", "m-1"

    def __init__(self, *script: Attempt) -> None:
        self._model = Replay({"model": script}).model("model")

    def stream(self, request: ModelRequest) -> AsyncIterator[object]:
        return self._model.stream(request)


def parents(sdk: Sdk) -> Callable[[ReadableSpan], list[str]]:
    """Return what names the spans that a span stands under, nearest first."""
    by_id = {span.context.span_id: span for span in sdk.spans}

    def above(span: ReadableSpan) -> list[str]:
        names = []
        while span.parent is not None:
            span = by_id[span.parent.span_id]
            names.append(span.name)
        return names

    return above


@pytest.mark.guarantee("G-OTEL-05")
@in_loop
async def test_a_turn_is_a_span_and_what_it_does_stands_under_it(
    database_url: str, sdk: Sdk
) -> None:
    assert isinstance(Named(), NamedModel)
    asked = Usage.reported(input=10, output=3, cache_read=4, cache_write=2, reasoning=1)
    call = ToolCall("look", {"order": 7})
    model = Named(answer("Let me look.", call, usage=asked), answer("It is 7."))
    async with scene(database_url, observer=sdk.observer) as one:
        await one.say()
        host = one.host(model=model, tools=[looking([])], observer=sdk.of_host())
        report = await host.run_turn(one.thread_id)

    (turn,) = sdk.named("invoke_agent")
    assert (turn.kind, turn.parent, turn.status.status_code) == (
        *(SpanKind.INTERNAL, None),
        StatusCode.UNSET,
    )
    assert dict(turn.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.conversation.id": one.thread_id,
        "engine_assistant.tenant": "acme",
        "engine_assistant.thread": one.thread_id,
        "engine_assistant.fence": report.fence,
        "engine_assistant.turn": 1,
        "engine_assistant.outcome": "done",
    }
    first, second = sdk.named("chat m-1")
    assert (first.kind, second.kind) == (SpanKind.CLIENT, SpanKind.CLIENT)
    told = dict(first.attributes)
    assert told.pop("gen_ai.response.time_to_first_chunk") > 0
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mistral_ai",
        "gen_ai.request.model": "m-1",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("tool_call",),
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 1,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 2,
    }
    (looked,) = sdk.named("execute_tool look")
    assert (looked.kind, looked.status.status_code) == (SpanKind.INTERNAL, StatusCode.UNSET)
    assert dict(looked.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call.call_id,
        "engine_assistant.outcome": "ok",
    }
    assert first.end_time <= looked.start_time <= looked.end_time <= second.start_time

    above = parents(sdk)
    assert [above(span) for span in (first, looked, second)] == [["invoke_agent"]] * 3
    written = [above(span) for span in sdk.named("engine_assistant.append_events")]
    assert written
    assert {names[-1] for names in written} == {"invoke_agent"}
    alone = {span.name for span in sdk.spans if span.parent is None}
    assert alone == {
        "invoke_agent",
        *(f"engine_assistant.{name}" for name in ("create_thread", "send_message", "acquire_run")),
    }


@pytest.mark.guarantee("G-OTEL-06")
@in_loop
async def test_tokens_durations_and_ends_are_counted(sqlite_url: str, sdk: Sdk) -> None:
    model = Named(
        answer(ToolCall("look", {"order": 7}), usage=Usage.reported(input=10, output=3)),
        answer("7.", usage=Usage.reported(input=20)),
    )
    async with scene(sqlite_url) as one:
        await one.say()
        host = one.host(model=model, tools=[looking([])], observer=sdk.of_host())
        await host.run_turn(one.thread_id)
    of = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "mistral_ai",
        "gen_ai.request.model": "m-1",
    }
    assert sorted(sdk.points("gen_ai.client.token.usage"), key=str) == [
        ({**of, "gen_ai.token.type": "input"}, 2),
        ({**of, "gen_ai.token.type": "output"}, 1),
    ]
    assert sdk.points("gen_ai.client.operation.duration") == [(of, 2)]
    assert sdk.points("gen_ai.execute_tool.duration") == [({"gen_ai.tool.name": "look"}, 1)]
    assert sdk.points("turns") == [({"engine_assistant.outcome": "done"}, 1)]
    units = {metric.name: metric.unit for metric in sdk.metrics()}
    assert units == {
        "gen_ai.client.token.usage": "{token}",
        "gen_ai.client.operation.duration": "s",
        "gen_ai.execute_tool.duration": "s",
        "engine_assistant.turns": "{turn}",
    }


@tool(effect="read", approval="never")
async def leak(said: str) -> str:
    if said.startswith("refuse"):
        raise ToolRefused("no_such_card", f"There is no card {said}.")
    if said.startswith("break"):
        raise RuntimeError(said)
    return said


async def talkative(one: Scene, observer: HostObserver) -> None:
    """Have turns in which everything holds the secret: what is said, asked, returned and raised."""
    calls = [ToolCall("leak", {"said": f"{what} {SECRET}"}) for what in ("say", "refuse", "break")]
    scripts: Sequence[Sequence[Attempt]] = [
        [answer(f"Card {SECRET}?", *calls), answer(f"It is {SECRET}.")],
        [answer(ToolCall("refund", {"order": 1, "note": SECRET}))],
        [[TextDelta(text=SECRET), RuntimeError(SECRET)]],
        [[ModelFailed(SECRET, reason="status", status=429)]],
    ]
    tools: list[Tool] = [leak, refunding([])]
    for script in scripts:
        await one.say(f"My card is {SECRET}", when_busy="interrupt")
        host = one.host(
            model=Named(*script), tools=tools, observer=observer, system=f"Know {SECRET}."
        )
        await host.run_turn(one.thread_id)


@pytest.mark.guarantee("G-OTEL-07")
@in_loop
async def test_no_content_is_in_spans_or_metrics_and_errors_are_told_by_their_codes(
    database_url: str, sdk: Sdk
) -> None:
    async with scene(database_url, observer=sdk.observer) as one:
        await talkative(one, sdk.of_host())
    told = [span.to_json() for span in sdk.spans] + [one.to_json() for one in sdk.metrics()]
    assert not [one for one in told if SECRET in one]
    assert not [span for span in sdk.spans if span.events or span.status.description]

    tools = [
        (dict(span.attributes).get("error.type"), span.status.status_code)
        for span in sdk.named("execute_tool leak")
    ]
    assert tools == [
        (None, StatusCode.UNSET),
        ("no_such_card", StatusCode.ERROR),
        ("tool_failed", StatusCode.ERROR),
    ]
    assert sdk.named("execute_tool refund") == []  # nobody had approved it
    turns = [
        (dict(span.attributes)["engine_assistant.outcome"], span.attributes.get("error.type"))
        for span in sdk.named("invoke_agent")
    ]
    assert turns == [
        ("done", None),
        ("awaiting-approval", None),
        ("error", "RuntimeError"),
        ("error", "429"),
    ]
    *_, broke, refused = sdk.named("chat m-1")
    assert [broke.attributes["error.type"], refused.attributes["error.type"]] == [
        "RuntimeError",
        "429",
    ]
    assert {broke.status.status_code, refused.status.status_code} == {StatusCode.ERROR}


@pytest.mark.guarantee("G-OTEL-07")
@in_loop
async def test_content_is_in_spans_if_the_host_wants_it(sqlite_url: str, sdk: Sdk) -> None:
    async with scene(sqlite_url) as one:
        await talkative(one, sdk.of_host(content=True))
    first, second, *_ = sdk.named("chat m-1")

    def told(span: ReadableSpan, name: str) -> object:
        return json.loads(span.attributes[f"gen_ai.{name}"])

    said = {"type": "text", "content": f"My card is {SECRET}"}
    assert told(first, "system_instructions") == [{"type": "text", "content": f"Know {SECRET}."}]
    assert told(first, "input.messages") == [{"role": "user", "parts": [said]}]
    (answered,) = told(first, "output.messages")
    assert (answered["role"], answered["finish_reason"]) == ("assistant", "tool_call")
    text, *calls = answered["parts"]
    assert text == {"type": "text", "content": f"Card {SECRET}?"}
    assert [one["arguments"]["said"].split()[0] for one in calls] == ["say", "refuse", "break"]
    _, asked, *results = told(second, "input.messages")
    assert [part["type"] for part in asked["parts"]] == ["text", *["tool_call"] * 3]
    assert [one["role"] for one in results] == ["tool"] * 3
    (returned,) = results[0]["parts"]
    assert returned == {
        "type": "tool_call_response",
        "id": calls[0]["id"],
        "response": f"say {SECRET}",
    }
    ran, *_ = sdk.named("execute_tool leak")
    assert told(ran, "tool.call.arguments") == {"said": f"say {SECRET}"}
    assert told(ran, "tool.call.result") == f"say {SECRET}"
    assert not [metric for metric in sdk.metrics() if SECRET in metric.to_json()]


@pytest.mark.guarantee("G-HOST-25", "G-OTEL-07")
@pytest.mark.parametrize("approved", [True, False])
@in_loop
async def test_sensitive_arguments_are_masked_also_if_the_host_wants_content(
    sqlite_url: str, sdk: Sdk, approved: bool
) -> None:
    @tool(effect="write", approval="always", sensitive={"pin"})
    async def pay(order: int, pin: str) -> int:
        assert pin == SECRET
        return order

    async with scene(sqlite_url) as one:
        await one.say()
        looks = sdk.of_host(content=True)
        # One as it should be, one with arguments that the tool does not take, and one unread.
        calls = [
            ToolCall("pay", {"order": 7, "pin": SECRET}),
            ToolCall("pay", {"order": "seven", "pin": SECRET}),
            ToolCall("pay", f'{{"pin": "{SECRET}"'),
        ]
        await one.host(answer(*calls), tools=[pay], observer=looks).run_turn(one.thread_id)
        await one.decide((await one.cards())[0], approved=approved)
        host = one.host(answer("Done."), tools=[pay], observer=looks)
        assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
    told = "".join(span.to_json() for span in sdk.spans)
    assert (SECRET in told, MASK in told) == (False, True)
    assert len(sdk.named("execute_tool pay")) == approved


class Notes(HostObserver):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def turn(self, begun: TurnBegun, /) -> Callable[[TurnEnded], None]:
        return self._note(begun)

    def request(self, begun: RequestBegun, /) -> Callable[[RequestEnded], None]:
        return self._note(begun)

    def tool(self, begun: ToolBegun, /) -> Callable[[ToolEnded], None]:
        return self._note(begun)

    def _note(self, begun: object) -> Callable[[object], None]:
        self.told.append(begun)
        return self.told.append


def thoughtful(*blocks: Text | ToolCall) -> ModelResult:
    calls = any(isinstance(block, ToolCall) for block in blocks)
    return ModelResult(
        message=AssistantMessage(
            (Reasoning(SECRET), *blocks), ProviderState("test/1", "test", SECRET)
        ),
        stop_reason=StopReason.TOOL_CALL if calls else StopReason.END_TURN,
    )


@pytest.mark.guarantee("G-OTEL-08")
@in_loop
async def test_a_conversation_without_a_database_is_looked_on_too_and_tells_nothing_private() -> (
    None
):
    notes = Notes()
    model: Model = Named([thoughtful(ToolCall("look", {"order": 7}))], [thoughtful()])
    await run_conversation(
        Conversation(
            model=model,
            messages=[UserMessage("Hello")],
            tools=ToolRegistry([looking([])]),
            observer=notes,
        )
    )
    asked, answered, called, ran, again, _ = notes.told
    assert (asked.provider, asked.model, asked.step) == ("mistral", "m-1", 1)
    assert (answered.first_output, answered.result.stop_reason) == (None, "tool_call")
    assert (called.tool, called.step, called.input) == ("look", 1, {"order": 7})
    assert (ran.error, ran.result.output) == (None, {"order": 7})
    assert [message.role for message in again.request.messages] == ["user", "assistant", "tool"]
    for result in (answered.result, *again.request.messages):
        message = getattr(result, "message", result)
        assert getattr(message, "state", None) is None
        assert not [b for b in getattr(message, "content", ()) if isinstance(b, Reasoning)]
    assert SECRET not in repr(notes.told)


@pytest.mark.guarantee("G-OTEL-08")
@in_loop
async def test_a_run_that_is_stopped_says_so(
    sqlite_url: str, sdk: Sdk, caplog: pytest.LogCaptureFixture
) -> None:
    begun = asyncio.Event()

    class Silent:
        async def stream(self, request: ModelRequest) -> AsyncIterator[object]:
            begun.set()
            await asyncio.Event().wait()
            yield

    async with scene(sqlite_url) as one:
        await one.say()
        host = one.host(model=Silent(), observer=sdk.of_host())
        task = asyncio.create_task(host.run_turn(one.thread_id))
        await begun.wait()
        task.cancel()
        await asyncio.wait({task})
        begun.clear()
        task = asyncio.create_task(host.run_turn(one.thread_id))
        await begun.wait()
        await one.me.interrupt_turn(thread_id=one.thread_id)
        assert (await task).ended is Ended.INTERRUPTED

        begun.clear()
        await one.say()
        other = one.host(model=Silent(), observer=sdk.of_host(), stale_after=0.3)
        task = asyncio.create_task(other.run_turn(one.thread_id))
        await begun.wait()
        await one.me.close_thread(thread_id=one.thread_id)
        assert (await task).ended is Ended.LOST
    turns = [dict(span.attributes) for span in sdk.named("invoke_agent")]
    assert [one["engine_assistant.outcome"] for one in turns] == [
        "cancelled",
        "interrupted",
        "lost",
    ]
    assert [one.get("error.type") for one in turns] == ["cancelled", None, "thread_closed"]
    chats = sdk.named("chat")  # it does not say who it is
    assert [span.attributes.get("error.type") for span in chats] == ["cancelled", None, "cancelled"]
    assert {span.status.status_code for span in chats} == {StatusCode.UNSET}
    assert not caplog.records


@pytest.mark.guarantee("G-OTEL-04")
@in_loop
async def test_an_observer_of_a_host_that_fails_changes_nothing(sqlite_url: str) -> None:
    class AtOnce(HostObserver):
        def turn(self, begun: TurnBegun, /) -> Callable[[TurnEnded], None]:
            raise RuntimeError

        request = tool = turn

    class AtLast(Notes):
        def _note(self, begun: object) -> Callable[[object], None]:
            def tell(ended: object) -> None:
                self.told.append(ended)
                raise RuntimeError

            return tell

    at_last = AtLast()
    async with scene(sqlite_url) as one:
        for observer in (AtOnce(), at_last, HostObserver()):
            await one.say()
            script = [answer(ToolCall("look", {"order": 7})), answer("Done.")]
            host = one.host(*script, tools=[looking([])], observer=observer)
            assert (await host.run_turn(one.thread_id)).ended is Ended.DONE
        await one.healthy()
    assert len(at_last.told) == 4
