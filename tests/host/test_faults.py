"""What goes wrong between us and a model: silence, cuts, statuses, nonsense."""

import asyncio
import json
import pickle
import re
import threading
from pathlib import Path

import pytest

from engine_assistant import AssistantError, Retry
from engine_assistant.host import (
    Conversation,
    InvalidToolState,
    ModelFailed,
    ModelRequest,
    ModelResult,
    ResponseNotComplete,
    Status,
    TextDelta,
    ToolDefinition,
    Usage,
    UserMessage,
    run_conversation,
)
from engine_assistant.testing.faults import (
    BadJson,
    ConnectionRefused,
    FaultPlan,
    FaultServer,
    HttpError,
    Pass,
    Slow,
    Step,
    StreamCut,
    TimeoutBeforeFirstByte,
    UsageMissing,
)
from engine_assistant.testing.recorded import Exchange, RecordedServer, read_recording
from engine_assistant.testing.serving import EVENT_STREAM, LocalServer, Received, Reply
from tests.host.providers import CLIENTS, PydanticAIModel
from tests.host.stage import HELLO, Memory, run
from tests.host.test_recorded import DATA, GROQ, RECORDED

SECRET = "my pin is 4711"
NO_RETRY = {"max_retries": 0}


def ask(server: LocalServer, memory: Memory | None = None, **limits: float) -> Status:
    async def work() -> Status:
        client = CLIENTS["openai-chat"](f"{server.url}/v1", "gpt-5")
        model = PydanticAIModel(client, settings=NO_RETRY, **limits)
        said = [UserMessage(SECRET)]
        given = Conversation(model=model, messages=said, hooks=memory or Memory())
        return (await run_conversation(given)).status

    return run(work())


def failure(*steps: Step, **limits: float) -> tuple[ModelFailed, int]:
    with FaultServer(FaultPlan(steps=steps)) as server:
        with pytest.raises(ModelFailed) as raised:
            ask(server, **limits)
        return raised.value, server.calls


FAULTS = {
    "429": (HttpError(status=429), "status", Retry.NOW),
    "500": (HttpError(status=500), "status", Retry.NOW),
    "529": (HttpError(status=529), "status", Retry.NOW),
    "400": (HttpError(status=400), "status", Retry.NEVER),
    "401": (HttpError(status=401), "status", Retry.NEVER),
    "dropped": (ConnectionRefused(), "transport", Retry.NOW),
    "cut": (StreamCut(after_bytes=200), "transport", Retry.NOW),
    "no JSON": (BadJson(), "transport", Retry.NOW),
}


@pytest.mark.guarantee("G-HOST-10", "G-HOST-35")
@pytest.mark.parametrize(("fault", "reason", "retry"), FAULTS.values(), ids=FAULTS)
def test_a_failure_says_whether_to_ask_again_and_is_not_asked_again_by_us(
    fault: Step, reason: str, retry: Retry
) -> None:
    failed, calls = failure(fault, Pass(text="never"))
    assert (failed.facts["reason"], failed.retry, calls) == (reason, retry, 1)
    assert failed.facts.get("status") == getattr(fault, "status", None)
    assert (failed.facts["provider"], failed.facts["model"]) == ("openai", "gpt-5")


@pytest.mark.guarantee("G-HOST-35")
@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        ("context_length_exceeded", "invalid_request_error", "context_length_exceeded"),
        (None, "invalid_request_error", "invalid_request_error"),
        (f"you said {SECRET}", None, None),
        ("x" * 65, 7, None),
    ],
)
def test_a_failure_names_the_providers_code_if_it_is_one(
    code: object, kind: object, told: str | None
) -> None:
    class Coding(LocalServer):
        async def answer(self, received: Received, reply: Reply) -> None:
            error = {"message": SECRET, "type": kind, "param": None, "code": code}
            await reply.whole(400, "application/json", json.dumps({"error": error}).encode())

    with Coding() as server, pytest.raises(ModelFailed) as raised:
        ask(server)
    assert raised.value.facts.get("provider_code") == told
    assert (str(told) in raised.value.message) is (told is not None)
    assert SECRET not in json.dumps(raised.value.to_dict())


@pytest.mark.guarantee("G-HOST-35")
@pytest.mark.parametrize("status", [400, 500])
def test_a_failure_repeats_nothing_that_a_provider_said(status: int) -> None:
    """Providers quote the conversation in their errors, and errors end up in logs."""

    class Quoting(LocalServer):
        async def answer(self, received: Received, reply: Reply) -> None:
            await reply.error(status, f"I do not like {received.body.decode()}")

    with Quoting() as server, pytest.raises(ModelFailed) as raised:
        ask(server)
    error = raised.value
    assert SECRET not in json.dumps(error.to_dict()) + repr(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


@pytest.mark.guarantee("G-HOST-35")
def test_retrying_is_the_clients_and_settings_say_how_often() -> None:
    plan = FaultPlan(steps=(HttpError(status=500), Pass(text="Hello")))
    with FaultServer(plan) as server:

        async def work() -> Status:
            client = CLIENTS["openai-chat"](f"{server.url}/v1", "gpt-5")
            model = PydanticAIModel(client, settings={"max_retries": 1})
            return (await run_conversation(Conversation(model=model, messages=[HELLO]))).status

        assert run(work()) is Status.DONE
        assert server.calls == 2


@pytest.mark.guarantee("G-HOST-34")
def test_a_model_that_does_not_begin_to_speak_is_given_up() -> None:
    failed, _ = failure(TimeoutBeforeFirstByte(milliseconds=20_000), first_event_timeout=0.05)
    assert (failed.facts["reason"], failed.retry) == ("timeout", Retry.NOW)


class Stalling(LocalServer):
    """Says one word, and then holds the line until it is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = threading.Event()

    async def answer(self, received: Received, reply: Reply) -> None:
        delta = {"role": "assistant", "content": "Well"}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "gpt-5"}
        chunk["choices"] = [{"index": 0, "delta": delta, "finish_reason": None}]
        await reply.start(200, EVENT_STREAM)
        await reply.send(f"data: {json.dumps(chunk)}\n\n".encode())
        try:
            while True:
                await asyncio.sleep(0.01)
                # A comment: the connection lives, the model says nothing.
                await reply.send(b": ping\n\n")
        except OSError:
            self.gone.set()


@pytest.mark.guarantee("G-HOST-34")
def test_a_model_that_falls_silent_is_given_up_though_its_connection_lives() -> None:
    memory = Memory()
    with Stalling() as server:
        with pytest.raises(ModelFailed) as raised:
            ask(server, memory, event_timeout=0.1)
        assert raised.value.facts["reason"] == "timeout"
        assert server.gone.wait(10)
    assert memory.events == [TextDelta(text="Well")]
    assert memory.kept == []


@pytest.mark.guarantee("G-HOST-14", "G-HOST-15")
@pytest.mark.parametrize("how", ["cancel", "interrupt"])
def test_stopping_hangs_up(how: str) -> None:
    with Stalling() as server:

        async def work() -> None:
            said, interrupt = asyncio.Event(), asyncio.Event()

            class Hooks(Memory):
                async def on_event(self, event: object, step: object) -> None:
                    said.set()

            model = PydanticAIModel(CLIENTS["openai-chat"](f"{server.url}/v1", "gpt-5"))
            given = Conversation(model=model, messages=[HELLO], hooks=Hooks(), interrupt=interrupt)
            task = asyncio.create_task(run_conversation(given))
            await said.wait()
            if how == "cancel":
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                interrupt.set()
                assert (await task).status is Status.INTERRUPTED
            # Still inside the loop: the client hung up by itself, not because its loop ended.
            assert await asyncio.to_thread(server.gone.wait, 10)

        run(work())


@pytest.mark.guarantee("G-HOST-34")
def test_a_slow_model_is_not_a_silent_one() -> None:
    memory = Memory()
    plan = FaultPlan(steps=(Slow(tokens_per_second=50, text="one two three four five six"),))
    with FaultServer(plan) as server:
        assert ask(server, memory, event_timeout=5) is Status.DONE
    assert "".join(event.text for event in memory.events) == "one two three four five six"


@pytest.mark.guarantee("G-HOST-36")
@pytest.mark.parametrize(("step", "told"), [(UsageMissing(), False), (Pass(), True)])
def test_usage_that_was_not_told_is_not_made_up(step: Step, told: bool) -> None:
    memory = Memory()
    with FaultServer(FaultPlan(steps=(step,))) as server:
        ask(server, memory)
    (usage,) = [step.result.usage for step in memory.answered]
    assert (usage is not None) is told
    if usage is not None:
        assert usage == Usage.reported(input=1, output=1, reasoning=0, cache_read=0, cache_write=0)


# ---------------------------------------------------------------- cut anywhere


def _chat(*deltas: dict[str, object], reason: str | None) -> Exchange:
    """Return a stream of the chat completions that ends cleanly, with a reason or without."""
    head = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    if reason is not None:
        choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    lines = [json.dumps({**head, "choices": [one]}) for one in choices]
    body = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
    return Exchange(
        path="/chat/completions", request={}, status=200, content_type=EVENT_STREAM, body=body
    )


def result_of(exchange: Exchange, *, strict: bool = True) -> ModelResult:
    with RecordedServer([exchange]) as server:

        async def work() -> ModelResult:
            model = PydanticAIModel(
                CLIENTS["openai-chat"](server.url, "m"), requires_finish_reason=strict
            )
            said = [one async for one in model.stream(ModelRequest(messages=(HELLO,)))]
            assert isinstance(said[-1], ModelResult)
            return said[-1]

        return run(work())


CALL = {"index": 0, "id": "c", "function": {"name": "pay", "arguments": '{"amount": 10'}}


@pytest.mark.guarantee("G-HOST-33")
@pytest.mark.parametrize("delta", [{"content": "I would"}, {"tool_calls": [CALL]}])
def test_a_clean_end_without_a_reason_is_no_end(delta: dict[str, object]) -> None:
    cut = _chat({"role": "assistant"}, delta, reason=None)
    assert result_of(cut).stop_reason is None
    assert result_of(cut, strict=False).stop_reason in {"end_turn", "tool_call"}


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("tool_calls", "tool_call"),
        ("guardrail_intervened", "guardrail_intervened"),
    ],
)
@pytest.mark.guarantee("G-HOST-02", "G-HOST-33")
def test_reasons_are_told_in_our_words_and_unknown_ones_as_they_are(reason: str, stop: str) -> None:
    calls = {"tool_calls": [CALL]} if reason == "tool_calls" else {"content": "x"}
    assert result_of(_chat(calls, reason=reason)).stop_reason == stop


@pytest.mark.guarantee("G-HOST-30")
def test_a_refusal_in_a_place_of_its_own_is_what_was_said() -> None:
    result = result_of(_chat({"refusal": "I "}, {"refusal": "will not."}, reason="stop"))
    assert (result.stop_reason, result.message.text) == ("refusal", "I will not.")


@pytest.mark.guarantee("G-HOST-21", "G-HOST-30")
def test_arguments_are_read_strictly_and_exactly() -> None:
    def called(arguments: str) -> object:
        one = {**CALL, "function": {"name": "pay", "arguments": arguments}}
        (call,) = result_of(_chat({"tool_calls": [one]}, reason="tool_calls")).message.calls
        return call.input

    assert called('{"order": 1234567890123456789}') == {"order": 1234567890123456789}
    assert called("") == {}
    for wrong in ('{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1', "pay him"):
        assert called(wrong) == wrong


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no recordings at {DATA}")
@pytest.mark.guarantee("G-HOST-01", "G-HOST-33")
@pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")
@pytest.mark.parametrize("file", [*RECORDED, "tool_use_failed_error_streaming"])
def test_a_stream_cut_anywhere_is_whole_or_no_answer(file: str) -> None:
    """Cut between two events and ended cleanly, as a proxy in the way may do it."""
    of = RECORDED.get(file, GROQ)
    exchange = read_recording(Path(DATA, f"{file}.json"))[-1]
    ends = [match.end() for match in re.finditer(r"\r?\n\r?\n", exchange.body)]
    chosen = sorted({*ends[:: max(1, len(ends) // 12)], *ends[-3:]})
    cuts = [exchange.model_copy(update={"body": exchange.body[:end]}) for end in chosen]

    async def work(server: RecordedServer) -> list[tuple[object, object]]:
        model = PydanticAIModel(
            CLIENTS[of.client](server.url + of.base, of.model), settings=NO_RETRY
        )
        tools = tuple(one.definition for one in of.tools) or (
            ToolDefinition(name="look", description="", schema={"type": "object"}),
        )
        return [await _attempt(model, ModelRequest(messages=(HELLO,), tools=tools)) for _ in cuts]

    with RecordedServer(cuts) as server:
        found = run(work(server))
    whole = found[-1]
    assert whole[0] == "end_turn"
    assert {one for one in found if one[0] is not None} == {whole}
    assert found[0][0] is None


async def _attempt(model: PydanticAIModel, request: ModelRequest) -> tuple[object, object]:
    try:
        said = [one async for one in model.stream(request)]
    except ModelFailed:
        return None, None
    assert isinstance(said[-1], ModelResult)
    return said[-1].stop_reason, said[-1].message.text


def test_errors_of_the_host_are_one_tree_and_travel() -> None:
    errors = [
        ModelFailed("It failed.", reason="status", retry=Retry.NOW, status=500),
        ResponseNotComplete(None),
        InvalidToolState("No.", "end_turn"),
    ]
    for error in errors:
        assert isinstance(error, AssistantError)
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - it was made here
        assert (type(again), again.to_dict()) == (type(error), error.to_dict())
