"""A model that says what it is told to, behind the host's own port.

replay = Replay({"small": [answer("Hello"), [ConnectionError()], answer("Hello", "again")]})
model = replay.model("small")          # give it to whatever takes a `Model`
assert replay.count("small") == 0
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from threading import Lock
from typing import TypeAlias

from engine_assistant.host.messages import AssistantMessage, Block, Text, ToolCall
from engine_assistant.host.model import (
    Model,
    ModelEvent,
    ModelRequest,
    ModelResult,
    StopReason,
    TextDelta,
    ToolCallStarted,
    Usage,
)
from engine_assistant.testing.races import Barrier

__all__ = ["Attempt", "Played", "Replay", "ScriptExhausted", "answer"]

Played: TypeAlias = ModelEvent | ModelResult | Barrier | Exception
"""One step of an attempt: told to whoever asked, waited at, or raised."""

Attempt: TypeAlias = Sequence[Played]
"""What one request meets, in order. A whole one ends with a `ModelResult`."""


class ScriptExhausted(TypeError):
    """A model was asked more often than its script goes, or has no script."""


def answer(
    *content: str | ToolCall, stop_reason: str | None = None, usage: Usage | None = None
) -> Attempt:
    """Return the attempt of a model that answers this and comes to its end.

    Args:
        content: pieces of text, each told as it is, and calls.
        stop_reason: default is `tool_call` where there are calls, otherwise `end_turn`.
        usage: default is 1 token in and 1 out.
    """
    told: list[ModelEvent] = []
    blocks: list[Block] = []
    for one in content:
        if isinstance(one, ToolCall):
            told.append(ToolCallStarted(one.call_id, one.tool))
            blocks.append(one)
            continue
        told.append(TextDelta(text=one))
        if blocks and isinstance(blocks[-1], Text):
            blocks[-1] = Text(blocks[-1].text + one)
        else:
            blocks.append(Text(one))
    calls = any(isinstance(block, ToolCall) for block in blocks)
    result = ModelResult(
        message=AssistantMessage(tuple(blocks)),
        stop_reason=stop_reason or (StopReason.TOOL_CALL if calls else StopReason.END_TURN),
        usage=usage or Usage.reported(input=1, output=1),
    )
    return [*told, result]


class Replay:
    """Models by name, each with a script of its own: attempts, in order, once each."""

    def __init__(self, scripts: Mapping[str, Sequence[Attempt]]) -> None:
        """Keep a copy of the scripts."""
        self._scripts = {name: tuple(map(tuple, script)) for name, script in scripts.items()}
        self._requests: dict[str, list[ModelRequest]] = {name: [] for name in scripts}
        self._lock = Lock()

    def model(self, name: str) -> Model:
        """Return the model of this name. All of one name share one script."""
        return _Scripted(self, name)

    def count(self, name: str) -> int:
        """Return how many attempts of this model were played."""
        return len(self.requests(name))

    def requests(self, name: str) -> tuple[ModelRequest, ...]:
        """Return what this model was asked, in order: one request for each attempt."""
        return tuple(self._requests.get(name, ()))

    def take(self, name: str, request: ModelRequest) -> Attempt:
        """Return the next attempt of a model, and count it.

        Raises:
            ScriptExhausted: there is none. It is not counted.
        """
        with self._lock:
            requests, script = self._requests.get(name), self._scripts.get(name, ())
            if requests is None or len(requests) == len(script):
                raise ScriptExhausted(f"{name!r} has {len(script)} attempts and is asked for more")
            requests.append(request)
            return script[len(requests) - 1]


class _Scripted:
    """One model of a replay."""

    def __init__(self, replay: Replay, name: str) -> None:
        self._replay = replay
        self._name = name

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent | ModelResult]:
        # Taken now and not when somebody listens: it was asked now.
        return _played(self._replay.take(self._name, request))


async def _played(attempt: Attempt) -> AsyncIterator[ModelEvent | ModelResult]:
    for one in attempt:
        if isinstance(one, Exception):
            raise one
        if isinstance(one, Barrier):
            await one
        else:
            yield one
