"""A history in the forms of two providers, and what each of them refuses.

The rules are those that the providers enforce: broken ones are answered with status 400, and the
conversation is stuck.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from engine_assistant.model.codec import JsonValue
from engine_assistant.model.views.history import (
    HistoryAssistant,
    HistoryMessage,
    HistoryNote,
    HistoryResult,
    HistorySummary,
    HistoryTool,
    HistoryUser,
    ResultStatus,
)

Block = dict[str, Any]
Chat = list[Block]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
BLANK = "(blank)"
BEGIN = "(The conversation begins.)"

# ---------------------------------------------------------------- the two forms


def _said(text: str) -> str:
    """Return a text that a provider takes: none takes one that is blank."""
    return text if text.strip() else BLANK


def _told(result: HistoryResult) -> str:
    if result.status is ResultStatus.OUTPUT:
        return json.dumps(result.output)
    told = {"code": result.code, "message": result.message, "reason": result.reason}
    return json.dumps({name: value for name, value in told.items() if value is not None})


def _spoken(message: HistoryUser | HistorySummary | HistoryNote) -> str:
    """Return what stands in a user's message."""
    match message:
        case HistoryUser(text=text):
            return _said(text)
        case HistorySummary(text=text):
            return f"(What was said before: {text})"
        case HistoryNote(result=result):
            return f"(Late, of call {result.call_id} of {result.tool}: {_told(result)})"


def _input(value: JsonValue) -> dict[str, JsonValue]:
    return value if isinstance(value, dict) else {"value": value}


def to_anthropic(messages: Iterable[HistoryMessage]) -> Chat:
    """Return the messages of a request to Anthropic: user and assistant in turns."""
    chat: Chat = []

    def add(role: str, *blocks: Block) -> None:
        if not chat and role == "assistant":
            add("user", {"type": "text", "text": BEGIN})
        if not chat or chat[-1]["role"] != role:
            chat.append({"role": role, "content": []})
        chat[-1]["content"].extend(blocks)

    for message in messages:
        match message:
            case HistoryAssistant(text=text, calls=calls):
                words: list[Block] = [{"type": "text", "text": text}] if text.strip() else []
                uses: list[Block] = [
                    {
                        "type": "tool_use",
                        "id": call.call_id,
                        "name": call.tool,
                        "input": _input(call.input),
                    }
                    for call in calls
                ]
                if words or uses:
                    add("assistant", *words, *uses)
            case HistoryTool(results=results):
                for result in results:
                    block: Block = {
                        "type": "tool_result",
                        "tool_use_id": result.call_id,
                        "content": _told(result),
                        "is_error": result.status is not ResultStatus.OUTPUT,
                    }
                    add("user", block)
            case _:
                add("user", {"type": "text", "text": _spoken(message)})
    return chat


def to_openai(messages: Iterable[HistoryMessage]) -> Chat:
    """Return the messages of a request to OpenAI's chat endpoint."""
    return [block for message in messages for block in _openai(message)]


def _openai(message: HistoryMessage) -> Iterator[Block]:
    match message:
        case HistoryAssistant(text=text, calls=calls):
            answer: Block = {"role": "assistant", "content": text if text.strip() else None}
            if calls:
                answer["tool_calls"] = [
                    {
                        "id": call.call_id,
                        "type": "function",
                        "function": {"name": call.tool, "arguments": json.dumps(call.input)},
                    }
                    for call in calls
                ]
            if calls or text.strip():
                yield answer
        case HistoryTool(results=results):
            for result in results:
                yield {"role": "tool", "tool_call_id": result.call_id, "content": _told(result)}
        case _:
            yield {"role": "user", "content": _spoken(message)}


# ---------------------------------------------------------------- what is refused


def refused_by_anthropic(chat: Sequence[Block]) -> str | None:
    """Return why a request would be refused, or None."""
    used: set[str] = set()
    before: list[str] = []
    for at, message in enumerate(chat):
        if message["role"] != ("user", "assistant")[at % 2]:
            return f"{at}: the roles do not take turns, from the user on"
        content: list[Block] = message["content"]
        uses = [block["id"] for block in content if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        if sorted(results) != sorted(before):
            return f"{at}: not one result for each use of the message before"
        if uses and message["role"] == "user":
            return f"{at}: a user uses a tool"
        if not used.isdisjoint(uses) or len(set(uses)) < len(uses):
            return f"{at}: an id that is not new"
        wrong = _wrong_content(content)
        if wrong is not None:
            return f"{at}: {wrong}"
        used.update(uses)
        before = uses
    return None


def _wrong_content(content: Sequence[Block]) -> str | None:
    kinds = [block["type"] for block in content]
    if not content:
        return "no content"
    if kinds != sorted(kinds, key=lambda kind: kind != "tool_result"):
        return "something stands before the results"
    if any(block["type"] == "text" and not block["text"].strip() for block in content):
        return "a blank text"
    if any(block["type"] == "tool_result" and not block["content"] for block in content):
        return "an empty result"
    uses = [block for block in content if block["type"] == "tool_use"]
    if not all(NAME.fullmatch(use["id"]) and NAME.fullmatch(use["name"]) for use in uses):
        return "an id or a name that is odd"
    return None if all(isinstance(use["input"], dict) for use in uses) else "an odd input"


def refused_by_openai(chat: Sequence[Block]) -> str | None:
    """Return why a request would be refused, or None."""
    waiting: list[str] = []
    for at, message in enumerate(chat):
        calls = message.get("tool_calls", [])
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return f"{at}: a result of no call of the message before"
            waiting.remove(message["tool_call_id"])
        elif waiting:
            return f"{at}: calls have no results"
        elif message["role"] == "assistant":
            waiting = [call["id"] for call in calls]
        elif message["role"] != "user":
            return f"{at}: a role that there is not"
        if not message["content"] and not calls:
            return f"{at}: neither content nor calls"
        if len(set(waiting)) < len(waiting):
            return f"{at}: two calls share an id"
    return f"{len(chat)}: calls have no results" if waiting else None


def refused(messages: Sequence[HistoryMessage]) -> str | None:
    """Return why either provider would refuse a history, or None."""
    first = refused_by_anthropic(to_anthropic(messages))
    return first or refused_by_openai(to_openai(messages))
