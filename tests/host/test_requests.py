"""What a provider is sent: each call with one result, and nobody else's reasoning."""

from dataclasses import replace

import pytest
from pydantic_ai.messages import ModelRequest as Sent
from pydantic_ai.messages import (
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from engine_assistant.host import (
    AssistantMessage,
    Message,
    ModelFailed,
    ModelRequest,
    NamedModel,
    ProviderState,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from engine_assistant.host.pydantic_ai import PydanticAIModel
from engine_assistant.host.pydantic_ai.requests import sent_messages, state_of
from engine_assistant.testing.faults import FaultPlan, FaultServer, Pass
from tests.host.providers import CLIENTS
from tests.host.stage import HELLO, LOOK, run

OURS, OTHERS = "anthropic https://a", "openai https://o"


def answered(*provider_ids: str, provider: str = OURS) -> AssistantMessage:
    """Return an answer with reasoning and calls, as its provider wrote it."""
    response = ModelResponse(
        parts=[
            ThinkingPart("hm", signature="s1g", provider_name="anthropic"),
            TextPart("I look."),
            *(ToolCallPart("look", '{"n":1}', tool_call_id=one) for one in provider_ids),
        ]
    )
    calls = [ToolCall("look", {"n": 1, "deep": False}, one) for one in provider_ids]
    content = (Reasoning("hm"), Text("I look."), *calls)
    return AssistantMessage(content, state_of(response, provider))


def results(message: AssistantMessage, *outputs: object) -> ToolMessage:
    return ToolMessage(
        tuple(
            ToolResult(one.call_id, out) for one, out in zip(message.calls, outputs, strict=False)
        )
    )


def kinds(messages: list) -> list[list[str]]:
    return [[part.part_kind for part in message.parts] for message in messages]


@pytest.mark.guarantee("G-HOST-31")
def test_a_message_goes_back_to_its_provider_as_it_was_written() -> None:
    message = answered("call_0")
    _, response, request = sent_messages([HELLO, message, results(message, "seen")], OURS)
    thought, _, called = response.parts
    assert (thought.signature, called.args) == ("s1g", '{"n":1}')
    (returned,) = request.parts
    assert (returned.tool_call_id, returned.content) == ("call_0", "seen")


@pytest.mark.guarantee("G-HOST-31")
@pytest.mark.parametrize(
    "foreign",
    [
        answered("call_0", provider=OTHERS),
        replace(answered("call_0"), state=None),
        replace(answered("call_0"), state=ProviderState("pydantic-ai/1", OURS, "[]")),
        replace(answered("call_0"), state=replace(answered().state, data="not JSON")),
        replace(answered("call_0"), state=replace(answered().state, data="[]")),
        replace(answered("call_0"), state=answered("a", "b").state),
    ],
    ids=["other provider", "none", "older form", "broken", "empty", "of another message"],
)
def test_to_anybody_else_it_is_built_from_what_was_said_without_reasoning(
    foreign: AssistantMessage,
) -> None:
    _, response, request = sent_messages([HELLO, foreign, results(foreign, "seen")], OURS)
    text, called = response.parts
    assert isinstance(text, TextPart)
    assert (text.content, called.tool_name) == ("I look.", "look")
    # The bound input, and our id: theirs means nothing here.
    assert called.args == {"n": 1, "deep": False}
    assert called.tool_call_id == request.parts[0].tool_call_id == foreign.calls[0].call_id
    assert "s1g" not in repr([response, request])


@pytest.mark.guarantee("G-HOST-32")
def test_each_call_has_one_result_in_the_order_of_the_calls() -> None:
    message = answered("a", "b", "c")
    _, second, third = message.calls
    late = [
        ToolMessage((ToolResult(third.call_id, "third"),)),
        UserMessage("Go on."),
        ToolMessage((ToolResult(second.call_id, "second"), ToolResult("stray", "of no call"))),
    ]
    *_, request = sent_messages([HELLO, message, *late], OURS)
    first, *others, said = request.parts
    assert [(one.tool_call_id, one.content) for one in others] == [("b", "second"), ("c", "third")]
    assert (first.tool_call_id, first.outcome) == ("a", "interrupted")
    assert isinstance(said, UserPromptPart)


@pytest.mark.guarantee("G-HOST-32")
def test_a_rejected_answer_and_one_that_was_left_open_get_results_too() -> None:
    sent = sent_messages([HELLO, answered("a"), UserMessage("No."), answered("b")], OURS)
    assert kinds(sent) == [
        ["user-prompt"],
        ["thinking", "text", "tool-call"],
        ["tool-return", "user-prompt"],
        ["thinking", "text", "tool-call"],
        ["tool-return"],
    ]


@pytest.mark.guarantee("G-HOST-13", "G-HOST-32")
def test_a_providers_id_that_comes_again_is_sent_once() -> None:
    first, second = answered("call_0", "call_1"), answered("call_0")
    history: list[Message] = [HELLO, first, results(first, 1, 2), second, results(second, 3)]
    sent = sent_messages(history, OURS)
    parts = [part for message in sent for part in message.parts]
    calls = [one.tool_call_id for one in parts if isinstance(one, ToolCallPart)]
    returned = [one.tool_call_id for one in parts if isinstance(one, ToolReturnPart)]
    assert calls == returned == ["call_0", "call_1", second.calls[0].call_id]
    assert [one.content for one in parts if isinstance(one, ToolReturnPart)] == [1, 2, 3]


@pytest.mark.guarantee("G-HOST-47")
def test_an_error_is_told_as_one_with_its_reason_and_what_says_nothing_is_left_out() -> None:
    message = answered("a", "b")
    denied = {"code": "denied", "message": "No."}
    failed = [
        ToolResult(one.call_id, told, is_error=True)
        for one, told in zip(
            message.calls, [denied, {**denied, "reason": "Too much."}], strict=True
        )
    ]
    history = [HELLO, AssistantMessage(()), UserMessage("Hm?"), message, ToolMessage((*failed,))]
    sent = sent_messages(history, OURS)
    assert kinds(sent)[0] == ["user-prompt", "user-prompt"]
    assert [(one.outcome, one.content) for one in sent[-1].parts] == [
        ("failed", "denied: No."),
        ("failed", "denied: No. Reason: Too much."),
    ]


def test_arguments_that_were_no_json_go_back_as_the_text_they_were() -> None:
    message = AssistantMessage((ToolCall("look", '{"n": '), ToolCall("look", [1])))
    _, response, _ = sent_messages([HELLO, message], OURS)
    assert [part.args for part in response.parts] == ['{"n": ', "[1]"]


def test_nothing_at_all_is_nothing() -> None:
    assert sent_messages([], OURS) == []
    assert kinds(sent_messages([results(answered("a"), 1)], OURS)) == []
    assert isinstance(sent_messages([HELLO], OURS)[0], Sent)


# ---------------------------------------------------------------- settings


def asked(of_model: dict[str, object], **request: object) -> dict[str, object]:
    with FaultServer(FaultPlan(steps=(Pass(),))) as server:

        async def work() -> None:
            client = CLIENTS["openai-chat"](f"{server.url}/v1", "gpt-4o")
            model = PydanticAIModel(client, settings=of_model)
            async for _ in model.stream(ModelRequest(messages=(HELLO,), **request)):
                pass

        run(work())
        return server.requests[0].json()


@pytest.mark.guarantee("G-HOST-05")
def test_tools_are_always_named_one_is_called_at_a_time_and_text_only_forbids_all() -> None:
    sent = asked({}, tools=(LOOK,), system="Be brief.")
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("auto", False)
    assert [one["function"]["name"] for one in sent["tools"]] == ["look"]
    assert sent["messages"][0]["content"] == "Be brief."

    sent = asked({}, tools=(LOOK,), text_only=True)
    assert sent["tool_choice"] == "none"
    assert [one["function"]["name"] for one in sent["tools"]] == ["look"]

    sent = asked({"parallel_tool_calls": True}, tools=(LOOK,))
    assert sent["parallel_tool_calls"] is True


@pytest.mark.guarantee("G-HOST-05")
def test_settings_of_a_conversation_stand_above_the_models_and_below_the_loops() -> None:
    model_settings = {"seed": 1, "presence_penalty": 0.5}
    given = {"seed": 2, "tool_choice": "required", "parallel_tool_calls": True}
    sent = asked(model_settings, tools=(LOOK,), settings=given)
    assert (sent["seed"], sent["presence_penalty"]) == (2, 0.5)
    assert (sent["tool_choice"], sent["parallel_tool_calls"]) == ("auto", False)

    sent = asked({}, settings=given, text_only=True)
    assert not {"tool_choice", "parallel_tool_calls", "tools"} & set(sent)


@pytest.mark.guarantee("G-HOST-05")
def test_a_model_that_cannot_be_told_to_call_one_at_a_time_is_not_told() -> None:
    """Its client warns where it is told, and a warning is an error here."""
    with FaultServer(FaultPlan(steps=(Pass(),))) as server:

        async def work() -> None:
            model = PydanticAIModel(CLIENTS["google"](server.url, "gemini-3-pro-preview"))
            settings = {"parallel_tool_calls": False}
            async for _ in model.stream(
                ModelRequest(messages=(HELLO,), tools=(LOOK,), settings=settings)
            ):
                pass

        with pytest.raises(ModelFailed) as raised:
            run(work())
    # It came as far as the server, which serves nothing of the kind.
    assert raised.value.facts["status"] == 404


def test_a_provider_is_told_apart_by_its_address() -> None:
    one, other = (
        PydanticAIModel(CLIENTS["openai-chat"](url, "m")) for url in ("http://a", "http://b")
    )
    assert one.endpoint != other.endpoint
    assert one.endpoint.startswith("openai ")
    assert isinstance(one, NamedModel)
    assert (one.provider, one.name) == (other.provider, other.name) == ("openai", "m")
