"""The OpenAI message format, checked as a whole and turned into a script.

Roles, tool calls and their answers are held to the format, because a mistake there would record
something that never happened. What the record has no place for (a name, a picture, a field of
some provider) is kept as a `data` event of the kind `message-fields`.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from engine_assistant.cli.replay.script import Broken, Call, Conversation, Entry, Turn
from engine_assistant.model.codec import JsonRefused, JsonValue, loads
from engine_assistant.model.commands import CreateThread
from engine_assistant.model.commands.inputs import SendMessage
from engine_assistant.model.events import (
    Data,
    Known,
    StepFinish,
    StepStart,
    TextDelta,
    ToolInput,
    ToolOutput,
    body_of,
)
from engine_assistant.model.limits import LIMITS

__all__ = ["conversation"]

M = TypeVar("M", bound=BaseModel)
E = TypeVar("E", Data, ToolInput, ToolOutput)
Message = dict[str, JsonValue]

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_KNOWN: Final = {"role", "content", "tool_calls"}
_PIECE: Final = 1_000
_REQUEST_ROOM: Final = 4 * 1024
"""What an approval request may hold beside the input that it repeats."""


def conversation(value: JsonValue, fallback_id: str | None = None) -> Conversation:
    """Return the script of one conversation.

    Args:
        value: `{"id", "messages"}`, or with a fallback a bare list of messages.
        fallback_id: the id when the value has none of its own.

    Raises:
        Broken: with the place in the value, never its content.
    """
    if isinstance(value, list) and fallback_id is not None:
        value = {"id": fallback_id, "messages": value}
    if not isinstance(value, dict):
        raise Broken("not an object with an id and messages")
    name, messages = value.get("id", fallback_id), value.get("messages")
    _checked("id", lambda: CreateThread.model_validate({"key": name, "title": name}))
    if not isinstance(name, str):
        raise Broken("id: must be a string")
    if not isinstance(messages, list) or not messages:
        raise Broken("messages: must be a list that is not empty")
    reader = _Reader()
    for index, message in enumerate(messages):
        reader.read(f"messages[{index}]", index, message)
    return Conversation(name, len(messages), reader.end())


class _Reader:
    """Reads message after message; holds the turn and the calls that still lack an answer."""

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._turn: tuple[str, str] | None = None
        self._entries: list[Entry] = []
        self._waiting: list[tuple[str, int]] = []

    def read(self, where: str, index: int, message: JsonValue) -> None:
        if not isinstance(message, dict):
            raise Broken(f"{where}: must be an object")
        role = message.get("role")
        if role not in ROLES:
            raise Broken(f"{where}.role: must be one of {', '.join(ROLES)}")
        if message.get("function_call") is not None:
            raise Broken(f"{where}.function_call: the old form of tool_calls is not understood")
        if role == "tool":
            self._answer(where, message)
            return
        self._waiting = []
        if role != "assistant" and message.get("tool_calls"):
            raise Broken(f"{where}.tool_calls: only the assistant calls tools")
        if role == "user":
            self._say(where, index, message)
        elif role == "assistant" and self._turn is not None:
            self._entries.append(self._step(where, index, message))
        elif message.get("tool_calls"):
            raise Broken(f"{where}: calls a tool before anybody asked for anything")
        else:
            _text(where, message)
            self._note(where, str(role), dict(message))

    def end(self) -> tuple[Turn, ...]:
        """Return the turns."""
        self._end_turn()
        if not self._turns:
            raise Broken("messages: there is no user message, and only that opens a turn")
        return tuple(self._turns)

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turns.append(Turn(*self._turn, tuple(self._entries)))
            self._entries = []

    def _note(self, where: str, kind: str, payload: JsonValue, *, ignorable: bool = False) -> None:
        note = _event(where, Data, kind=kind, payload=payload, ignorable=ignorable)
        self._entries.append(Entry((note,)))

    def _say(self, where: str, index: int, message: Message) -> None:
        self._end_turn()
        text, key = _text(where, message), f"m{index}"
        said = {"thread_id": "-", "text": text, "key": key}
        _checked(f"{where}.content", lambda: SendMessage.model_validate(said))
        self._turn = (key, text)
        rest = _rest("user", message)
        if rest is not None:
            self._note(where, "message-fields", rest, ignorable=True)

    def _step(self, where: str, index: int, message: Message) -> Entry:
        """Return a step: the answer in pieces, and the calls that the model proposes."""
        text = _text(where, message)
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise Broken(f"{where}.tool_calls: must be a list")
        step = f"m{index}"
        events: list[Known] = [StepStart(step=step)]
        events += [TextDelta(text=text[at : at + _PIECE]) for at in range(0, len(text), _PIECE)]
        made: list[Call] = []
        for number, call in enumerate(calls):
            place = f"{where}.tool_calls[{number}]"
            proposed = _proposal(place, call, call_id=f"c{index}-{number + 1}", step=step)
            events.append(proposed)
            made.append(Call(proposed.call_id, proposed.tool, proposed.input))
            self._waiting.append((proposed.provider_call_id or "", number))
        rest = _rest("assistant", message)
        if rest is not None:
            events.append(_event(where, Data, kind="message-fields", payload=rest, ignorable=True))
        events.append(StepFinish(stop_reason="tool_calls" if calls else "stop"))
        return Entry(tuple(events), tuple(made))

    def _answer(self, where: str, message: Message) -> None:
        """Give the result to the first call of that id which has none yet."""
        given = message.get("tool_call_id")
        if not isinstance(given, str):
            raise Broken(f"{where}.tool_call_id: must be a string")
        found = next((one for one in self._waiting if one[0] == given), None)
        if found is None:
            raise Broken(f"{where}.tool_call_id: answers no open call of the assistant before it")
        output = message.get("content")
        if not isinstance(output, str | list):
            raise Broken(f"{where}.content: must be text")
        self._waiting.remove(found)
        entry, number = self._entries[-1], found[1]
        call = entry.calls[number]
        _event(f"{where}.content", ToolOutput, call_id=call.call_id, output=output)
        answered = Call(call.call_id, call.tool, call.input, answered=True, output=output)
        calls = (*entry.calls[:number], answered, *entry.calls[number + 1 :])
        self._entries[-1] = Entry(entry.events, calls)


def _text(where: str, message: Message) -> str:
    """Return what was said: the content, or the text of its parts."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Broken(f"{where}.content: must be text, or a list of parts")
    texts = []
    for number, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(_kind(part), str):
            raise Broken(f"{where}.content[{number}]: must be a part with a type")
        if _kind(part) == "text":
            text = part.get("text")
            if not isinstance(text, str):
                raise Broken(f"{where}.content[{number}].text: must be a string")
            texts.append(text)
    return "".join(texts)


def _kind(part: JsonValue) -> JsonValue:
    return part.get("type") if isinstance(part, dict) else None


def _rest(role: str, message: Message) -> JsonValue:
    """Return what the record has no place for, or None."""
    rest = {name: message[name] for name in message if name not in _KNOWN and message[name]}
    content = message.get("content")
    if isinstance(content, list) and any(_kind(part) != "text" for part in content):
        rest["content"] = content
    return {"role": role, "fields": rest} if rest else None


def _proposal(where: str, call: JsonValue, *, call_id: str, step: str) -> ToolInput:
    if not isinstance(call, dict) or call.get("type", "function") != "function":
        raise Broken(f"{where}: must be a call of the type function")
    function = call.get("function")
    if not isinstance(function, dict):
        raise Broken(f"{where}.function: must be an object with a name and arguments")
    arguments = function.get("arguments", "")
    if isinstance(arguments, str):
        try:
            # Models write nothing at all for a tool that takes no arguments.
            arguments = loads(arguments) if arguments.strip() else {}
        except JsonRefused as refusal:
            raise Broken(f"{where}.function.arguments: {refusal}") from None
    if not isinstance(arguments, dict):
        raise Broken(f"{where}.function.arguments: must be an object, as JSON text")
    if not isinstance(call.get("id"), str):
        raise Broken(f"{where}.id: must be a string")
    return _event(
        where,
        ToolInput,
        call_id=call_id,
        tool=function.get("name"),
        input=arguments,
        step=step,
        provider_call_id=call["id"],
    )


def _event(where: str, model: type[E], **fields: object) -> E:
    """Build an event, and refuse one that the engine would refuse."""
    event = _checked(where, lambda: model.model_validate(fields))
    if len(body_of(event).encode()) > LIMITS.event_bytes - _REQUEST_ROOM:
        raise Broken(f"{where}: is larger than an event may be")
    return event


def _checked(where: str, build: Callable[[], M]) -> M:
    try:
        return build()
    except ValidationError as refused:
        # Only the first sentence of the validator: it never repeats a value.
        first = refused.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Broken(f"{where}: {field}: {first['msg'].removeprefix('Value error, ')}") from None
