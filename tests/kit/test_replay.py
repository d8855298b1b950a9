"""The scripted model, behind the host's own port."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from engine_assistant.host.messages import Text, ToolCall, UserMessage
from engine_assistant.host.model import (
    Model,
    ModelRequest,
    ModelResult,
    StopReason,
    TextDelta,
    ToolCallStarted,
    Usage,
)
from engine_assistant.testing.races import Barrier
from engine_assistant.testing.replay import Replay, ScriptExhausted, answer

REQUEST = ModelRequest(messages=(UserMessage("Hello"),))


def told(model: Model, request: ModelRequest = REQUEST) -> list[object]:
    async def listen() -> list[object]:
        return [one async for one in model.stream(request)]

    return asyncio.run(listen())


@pytest.mark.guarantee("G-KIT-14")
def test_each_model_plays_its_own_script_in_order() -> None:
    replay = Replay({"a": [answer("1"), answer("2")], "b": [answer("3")]})
    a, b = replay.model("a"), replay.model("b")
    assert [told(one)[0] for one in (a, b, replay.model("a"))] == [
        TextDelta(text="1"),
        TextDelta(text="3"),
        TextDelta(text="2"),
    ]
    assert (replay.count("a"), replay.count("b"), replay.count("c")) == (2, 1, 0)
    assert replay.requests("b") == (REQUEST,)


@pytest.mark.guarantee("G-KIT-14")
@pytest.mark.parametrize("name", ["a", "no-such-model"])
def test_what_was_not_scripted_is_refused_and_not_counted(name: str) -> None:
    replay = Replay({"a": []})
    with pytest.raises(ScriptExhausted, match=f"'{name}' has 0 attempts"):
        replay.model(name).stream(REQUEST)
    assert (replay.count(name), replay.requests(name)) == (0, ())
    assert issubclass(ScriptExhausted, TypeError)


@pytest.mark.guarantee("G-KIT-14")
def test_an_answer_is_told_and_then_ends() -> None:
    call = ToolCall("refund", {"order": 7})
    *events, result = told(Replay({"a": [answer("Let me", " look.", call)]}).model("a"))
    assert events == [
        TextDelta(text="Let me"),
        TextDelta(text=" look."),
        ToolCallStarted(call.call_id, "refund"),
    ]
    assert isinstance(result, ModelResult)
    assert result.message.content == (Text("Let me look."), call)
    assert result.stop_reason == StopReason.TOOL_CALL
    assert result.usage == Usage.reported(input=1, output=1)
    (_, plain) = told(Replay({"a": [answer("Hi", usage=Usage.reported(output=9))]}).model("a"))
    assert isinstance(plain, ModelResult)
    assert (plain.stop_reason, plain.usage) == (StopReason.END_TURN, Usage.reported(output=9))


@pytest.mark.guarantee("G-KIT-14")
def test_an_attempt_may_fail_in_the_middle_and_is_counted() -> None:
    replay = Replay({"a": [[TextDelta(text="Le"), ConnectionError("cut")], answer("Hello")]})
    heard: list[object] = []

    async def listen() -> None:
        stream = replay.model("a").stream(REQUEST)
        heard.append(await anext(stream))
        await anext(stream)

    with pytest.raises(ConnectionError, match="cut"):
        asyncio.run(listen())
    assert (heard, replay.count("a")) == ([TextDelta(text="Le")], 1)
    assert told(replay.model("a"))[0] == TextDelta(text="Hello")


@pytest.mark.guarantee("G-KIT-14")
def test_an_attempt_stops_at_a_barrier_and_can_be_given_up_there() -> None:
    barrier = Barrier()
    replay = Replay({"a": [[TextDelta(text="Le"), barrier, TextDelta(text="t")], answer()]})

    async def listen() -> list[str]:
        stream = replay.model("a").stream(REQUEST)
        heard = [_text(await anext(stream))]
        rest = asyncio.ensure_future(anext(stream))
        await barrier.reached
        assert not rest.done()
        barrier.release()
        return [*heard, _text(await rest)]

    assert asyncio.run(listen()) == ["Le", "t"]

    async def give_up() -> None:
        stream = replay.model("a").stream(REQUEST)
        assert isinstance(stream, AsyncIterator)
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(give_up())
    assert replay.count("a") == 2


def _text(event: object) -> str:
    assert isinstance(event, TextDelta)
    return event.text
