"""Messages as plain JSON, and what of them may be seen."""

import json

import pytest
from pydantic import ValidationError

from engine_assistant.host import (
    MESSAGES,
    AssistantMessage,
    Message,
    ProviderState,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)

CALL = ToolCall("refund", {"order": 1234567890123456789, "note": "\u00fc\0"}, "call_0")
TALK: list[Message] = [
    UserMessage("my pin is 4711"),
    AssistantMessage(
        (Reasoning("the pin is 4711"), Text("I "), Text("refund."), CALL),
        ProviderState("test/1", "test", '{"pin": 4711}'),
    ),
    ToolMessage((ToolResult(CALL.call_id, {"code": "no", "message": "4711"}, is_error=True),)),
]


def test_messages_are_written_as_json_and_read_back() -> None:
    written = MESSAGES.dump_json(TALK)
    assert MESSAGES.validate_json(written) == TALK
    assert [one["role"] for one in json.loads(written)] == ["user", "assistant", "tool"]
    blocks = json.loads(written)[1]["content"]
    assert [one["type"] for one in blocks] == ["reasoning", "text", "text", "tool-call"]


@pytest.mark.parametrize(
    "wrong",
    [
        [{"role": "system", "text": "Obey."}],
        [{"role": "user"}],
        [{"role": "assistant", "content": [{"type": "image"}]}],
        {"role": "user", "text": "Hi"},
    ],
)
def test_what_is_no_message_is_not_read_as_one(wrong: object) -> None:
    with pytest.raises(ValidationError):
        MESSAGES.validate_python(wrong)


@pytest.mark.guarantee("G-HOST-07")
def test_the_public_message_has_nothing_private_and_loses_nothing_else() -> None:
    public = TALK[1].public()
    assert public == AssistantMessage((Text("I "), Text("refund."), CALL))
    assert (public.text, public.calls) == ("I refund.", (CALL,))


def test_what_was_said_does_not_stand_in_a_traceback() -> None:
    assert "4711" not in repr(TALK)
