"""What each family of providers sends and takes: an answer with three calls, and a strict reader.

The answers are in the form of the recorded ones, and hold what only their provider can use again.
The readers refuse what the provider would: a call without its one result behind it, a result of no
call, an id twice, or state of its own that is missing or has changed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine_assistant.testing.recorded import Exchange
from engine_assistant.testing.serving import EVENT_STREAM

__all__ = ["WIRES", "Wire"]

Json = dict[str, Any]
Results = list[str]
"""The results of the calls as the provider reads them, in the order of the calls."""

ORDERS: Final = (1, 2, 3)
THOUGHT: Final = "It must be these three."
SIGNED: Final = "c2lnbmVkIGJ5IHRoZSBwcm92aWRlcg=="
"""What a provider wrote for itself."""


@dataclass(frozen=True)
class Wire:
    """One family.

    Attributes:
        client: by which client.
        base: of its address.
        model: its name there.
        path: what is asked.
        calls: the events of an answer with three calls of `refund`.
        says: those of an answer that says something.
        read: checks a request by the rules, and in an open turn what is private, too.
    """

    client: str
    base: str
    model: str
    path: str
    calls: Sequence[Json]
    says: Callable[[str], Sequence[Json]]
    read: Callable[[Json, bool], Results]

    def exchange(self, events: Sequence[Json]) -> Exchange:
        lines = [_sent(one) for one in events]
        if self.path.endswith("/chat/completions"):
            lines.append("data: [DONE]\n\n")
        return Exchange(
            path=self.path, request={}, status=200, content_type=EVENT_STREAM, body="".join(lines)
        )


def _sent(event: Json) -> str:
    named = f"event: {event['type']}\n" if "type" in event else ""
    return f"{named}data: {json.dumps(event)}\n\n"


def _args(order: int) -> str:
    return json.dumps({"order": order})


def _once(ids: Sequence[str]) -> None:
    assert len(set(ids)) == len(ids), f"an id comes twice: {ids}"


# ---------------------------------------------------------------- chat completions


def _chat_chunk(delta: Json, reason: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    return {**head, "choices": [choice]}


def _chat_calls(ids: Sequence[str], **thought: str) -> list[Json]:
    calls = [
        {
            "index": at,
            "id": one,
            "type": "function",
            "function": {"name": "refund", "arguments": _args(order)},
        }
        for at, (one, order) in enumerate(zip(ids, ORDERS, strict=True))
    ]
    return [
        _chat_chunk({"role": "assistant", "content": None, **thought}),
        *(_chat_chunk({"tool_calls": [one]}) for one in calls),
        _chat_chunk({}, "tool_calls"),
    ]


def _chat_says(text: str) -> list[Json]:
    return [_chat_chunk({"role": "assistant", "content": text}), _chat_chunk({}, "stop")]


def _read_chat(request: Json, is_open: bool) -> Results:
    del is_open
    messages, results = list(request["messages"]), []
    seen: list[str] = []
    while messages:
        message = messages.pop(0)
        assert message["role"] != "tool", "a result of no call"
        for call in message.get("tool_calls") or ():
            json.loads(call["function"]["arguments"])
            came = messages.pop(0)
            assert (came["role"], came["tool_call_id"]) == ("tool", call["id"])
            seen.append(call["id"])
            results.append(came["content"])
    _once(seen)
    return results


# ---------------------------------------------------------------- responses


_EMPTY: Final[Mapping[str, Json]] = {
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
    "message": {"content": []},
}


def _responses(items: Sequence[Json], text: str = "") -> list[Json]:
    response = {"id": "resp_1", "object": "response", "created_at": 0, "model": "m"}
    response |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
    begun = {**response, "status": "in_progress", "output": []}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for at, item in enumerate(items):
        begins = {**item, **_EMPTY[item["type"]]}
        events.append({"type": "response.output_item.added", "item": begins, "output_index": at})
        place = {"item_id": item["id"], "output_index": at}
        if item["type"] == "reasoning" and "content" in item:
            delta = {"type": "response.reasoning_text.delta", "delta": THOUGHT}
            events.append(delta | place | {"content_index": 0})
        elif item["type"] == "reasoning":
            part = {"type": "summary_text", "text": ""}
            begun_part = {"type": "response.reasoning_summary_part.added", "part": part}
            delta = {"type": "response.reasoning_summary_text.delta", "delta": THOUGHT}
            events += [one | place | {"summary_index": 0} for one in (begun_part, delta)]
        if item["type"] == "function_call":
            delta = {"type": "response.function_call_arguments.delta", "delta": item["arguments"]}
            events.append(delta | place)
        if item["type"] == "message":
            delta = {"type": "response.output_text.delta", "delta": text, "logprobs": []}
            events.append(delta | place | {"content_index": 0})
        events.append({"type": "response.output_item.done", "item": item, "output_index": at})
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    usage |= {"input_tokens_details": {"cached_tokens": 0}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    ended = {**response, "status": "completed", "output": list(items), "usage": usage}
    events.append({"type": "response.completed", "response": ended})
    return [{**event, "sequence_number": at} for at, event in enumerate(events)]


REASONED: Final[Json] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": THOUGHT}],
    "encrypted_content": SIGNED,
}


def _responses_calls(ids: Sequence[str], reasoned: Json) -> list[Json]:
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{order}",
            "call_id": one,
            "name": "refund",
            "arguments": _args(order),
            "status": "completed",
        }
        for one, order in zip(ids, ORDERS, strict=True)
    ]
    return _responses([reasoned, *calls])


def _responses_says(text: str) -> list[Json]:
    said = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
    return _responses([{**message, "content": [said]}], text)


def _read_responses(reasoned: Json) -> Callable[[Json, bool], Results]:
    def read(request: Json, is_open: bool) -> Results:
        items = request["input"]
        calls = [one for one in items if one.get("type") == "function_call"]
        outputs = [one for one in items if one.get("type") == "function_call_output"]
        _once([one["call_id"] for one in calls])
        assert [one["call_id"] for one in outputs] == [one["call_id"] for one in calls]
        for call, output in zip(calls, outputs, strict=True):
            assert items.index(output) > items.index(call)
            json.loads(call["arguments"])
        thoughts = [one for one in items if one.get("type") == "reasoning"]
        if is_open:
            # The same item, whole, and what was reasoned about right behind it.
            (thought,) = thoughts
            assert {key: thought.get(key) for key in reasoned} == reasoned
            assert items[items.index(thought) + 1] == calls[0]
        else:
            # A call that names its item is refused without the reasoning that led to it.
            assert thoughts == []
            assert not any(one.get("id") for one in calls)
        return [one["output"] for one in outputs]

    return read


# ---------------------------------------------------------------- messages


def _block(at: int, begins: Json, *deltas: Json) -> list[Json]:
    return [
        {"type": "content_block_start", "index": at, "content_block": begins},
        *({"type": "content_block_delta", "index": at, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": at},
    ]


def _anthropic(blocks: Sequence[Sequence[Json]], reason: str) -> list[Json]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m"}
    message |= {"stop_reason": None, "stop_sequence": None}
    message["usage"] = {"input_tokens": 3, "output_tokens": 1}
    ended = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        *(event for block in blocks for event in block),
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]


def _anthropic_calls() -> list[Json]:
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    thought = {"type": "thinking_delta", "thinking": THOUGHT}
    signed = {"type": "signature_delta", "signature": SIGNED}
    calls = [
        _block(
            order,
            {"type": "tool_use", "id": f"toolu_{order}", "name": "refund", "input": {}},
            {"type": "input_json_delta", "partial_json": _args(order)},
        )
        for order in ORDERS
    ]
    return _anthropic([_block(0, thinking, thought, signed), *calls], "tool_use")


def _anthropic_says(text: str) -> list[Json]:
    said = _block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})
    return _anthropic([said], "end_turn")


def _read_anthropic(request: Json, is_open: bool) -> Results:
    messages, results, seen = request["messages"], [], []
    roles = [one["role"] for one in messages]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    assert roles[-1] == "user"
    asked: list[str] = []
    for message in messages:
        blocks = message["content"]
        if message["role"] == "assistant":
            asked = [one["id"] for one in blocks if one["type"] == "tool_use"]
            thoughts = [one for one in blocks if one["type"] == "thinking"]
            signed = {"type": "thinking", "thinking": THOUGHT, "signature": SIGNED}
            if asked:
                assert thoughts == ([signed] if is_open else [])
                # What was thought stands before what was done.
                assert not is_open or blocks[0] == thoughts[0]
            continue
        # All of them at once, and before anything that the person says.
        came = [one for one in blocks if one["type"] == "tool_result"]
        assert [one["tool_use_id"] for one in came] == asked
        assert blocks[: len(came)] == came
        seen += asked
        results += [_text_of(one["content"]) for one in came]
        asked = []
    _once(seen)
    return results


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    assert isinstance(content, list)
    return "".join(one["text"] for one in content)


# ---------------------------------------------------------------- generateContent


def _google(parts: Sequence[Json]) -> list[Json]:
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    content = {"role": "model", "parts": list(parts)}
    said: Json = {"candidates": [{"content": content, "index": 0}], "usageMetadata": usage}
    ended = {"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP"}
    return [said, {"candidates": [{**ended, "index": 0}], "usageMetadata": usage}]


def _google_calls() -> list[Json]:
    calls: list[Json] = [
        {"functionCall": {"name": "refund", "args": {"order": order}}} for order in ORDERS
    ]
    # Of calls at once the first is signed for all of them.
    calls[0]["thoughtSignature"] = SIGNED
    return _google(calls)


def _google_says(text: str) -> list[Json]:
    return _google([{"text": text}])


def _read_google(request: Json, is_open: bool) -> Results:
    contents, results, seen = request["contents"], [], []
    roles = [one["role"] for one in contents]
    assert roles == (["user", "model"] * len(roles))[: len(roles)]
    asked: list[Json] = []
    for content in contents:
        if content["role"] == "model":
            calls = [one for one in content["parts"] if "functionCall" in one]
            asked = [one["functionCall"] for one in calls]
            if calls and is_open:
                assert [one.get("thoughtSignature") for one in calls] == [SIGNED, None, None]
            elif calls:
                assert SIGNED not in json.dumps(content)
            continue
        came = [one["functionResponse"] for one in content["parts"] if "functionResponse" in one]
        assert [(one["name"], one["id"]) for one in came] == [
            (one["name"], one["id"]) for one in asked
        ]
        seen += [one["id"] for one in came]
        results += [json.dumps(one["response"]) for one in came]
        asked = []
    _once(seen)
    return results


IDS: Final = ("call_a", "call_b", "call_c")
SHOWN: Final[Json] = {
    "type": "reasoning",
    "id": "0b1e",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": THOUGHT}],
}
GEMINI: Final = "gemini-3-pro-preview"

WIRES: Final[Mapping[str, Wire]] = {
    "openai chat": Wire(
        *("openai-chat", "/v1", "gpt-4o", "/v1/chat/completions"),
        *(_chat_calls(IDS), _chat_says, _read_chat),
    ),
    "a chat that gives each call one id": Wire(
        *("openai-chat", "/v1", "gpt-4o", "/v1/chat/completions"),
        *(_chat_calls(["call_0"] * 3), _chat_says, _read_chat),
    ),
    "groq": Wire(
        *("groq", "", "openai/gpt-oss-120b", "/openai/v1/chat/completions"),
        *(_chat_calls(IDS, reasoning=THOUGHT), _chat_says, _read_chat),
    ),
    "openai responses": Wire(
        *("openai-responses", "/v1", "gpt-5.5", "/v1/responses"),
        *(_responses_calls(IDS, REASONED), _responses_says, _read_responses(REASONED)),
    ),
    "deepseek": Wire(
        *("openai-responses", "", "deepseek-v4-flash", "/responses"),
        *(_responses_calls(IDS, SHOWN), _responses_says, _read_responses(SHOWN)),
    ),
    "anthropic": Wire(
        *("anthropic", "", "claude-sonnet-4-5", "/v1/messages"),
        *(_anthropic_calls(), _anthropic_says, _read_anthropic),
    ),
    "google": Wire(
        *("google", "", GEMINI, f"/v1beta/models/{GEMINI}:streamGenerateContent"),
        *(_google_calls(), _google_says, _read_google),
    ),
}
