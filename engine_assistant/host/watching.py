"""How an observer is told of a turn, of a request and of a tool. Nothing here runs without one.

Each is watched in one place, where it truly is: a turn from the lease to the rest, a request from
the question to the end of its stream, a tool while its function runs.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

from engine_assistant import AssistantError, Conflict
from engine_assistant.host.errors import ModelFailed
from engine_assistant.host.execution import Masking, ToolFailed, ToolReturned, result_of
from engine_assistant.host.interrupt import Interrupted
from engine_assistant.host.messages import (
    AssistantMessage,
    JsonValue,
    Message,
    ToolCall,
)
from engine_assistant.host.model import Model, ModelRequest, ModelResult, NamedModel
from engine_assistant.host.observing import (
    HostObserver,
    RequestBegun,
    RequestEnded,
    ToolBegun,
    ToolEnded,
    TurnBegun,
    TurnEnded,
)

__all__ = ["watched_request", "watched_tool", "watched_turn"]

B = TypeVar("B")
E = TypeVar("E")


@dataclass(slots=True)
class _TurnWatch:
    """What is known of a turn's run so far."""

    ended: str | None = None
    turn: int | None = None
    error: BaseException | None = None


@dataclass(slots=True)
class _RequestWatch:
    """What is known of a request so far."""

    began: float = field(default_factory=time.perf_counter)
    first_output: float | None = None
    result: ModelResult | None = None

    def speaks(self) -> None:
        """Note that the model said something."""
        if self.first_output is None:
            self.first_output = time.perf_counter() - self.began


@dataclass(slots=True)
class _ToolWatch:
    """What is known of a tool's run so far."""

    outcome: ToolReturned | ToolFailed | None = None


@contextmanager
def watched_turn(
    observer: HostObserver | None, *, tenant: str, thread_id: str, run_id: str, fence: int
) -> Iterator[_TurnWatch]:
    """Let an observer look at a turn's run. Note in the watch what becomes of it."""
    watch = _TurnWatch()

    def begun() -> TurnBegun:
        return TurnBegun(tenant=tenant, thread_id=thread_id, run_id=run_id, fence=fence)

    def ended(seconds: float, raised: BaseException | None) -> TurnEnded:
        broken = "cancelled" if isinstance(raised, asyncio.CancelledError) else "error"
        error = _kind(raised or watch.error)
        how = broken if raised is not None or watch.ended is None else watch.ended
        return TurnEnded(ended=how, seconds=seconds, turn=watch.turn, error=error)

    with _watched(None if observer is None else observer.turn, begun, ended):
        yield watch


@contextmanager
def watched_request(
    observer: HostObserver | None,
    *,
    model: Model,
    step: int,
    request: ModelRequest,
    masking: Masking | None,
) -> Iterator[_RequestWatch]:
    """Let an observer look at a request. Note in the watch when it speaks, and its answer."""
    watch = _RequestWatch()

    def shown(message: Message) -> Message:
        return _shown(message, masking) if isinstance(message, AssistantMessage) else message

    def begun() -> RequestBegun:
        named = model if isinstance(model, NamedModel) else None
        return RequestBegun(
            provider=None if named is None else named.provider,
            model=None if named is None else named.name,
            step=step,
            request=replace(request, messages=tuple(map(shown, request.messages))),
        )

    def ended(seconds: float, raised: BaseException | None) -> RequestEnded:
        result, error = watch.result, raised
        if result is not None:
            error = raised or result.error
            result = replace(result, message=_shown(result.message, masking))
        return RequestEnded(
            seconds=seconds, first_output=watch.first_output, result=result, error=_kind(error)
        )

    with _watched(None if observer is None else observer.request, begun, ended):
        yield watch


@contextmanager
def watched_tool(
    observer: HostObserver | None,
    *,
    tool: str,
    call_id: str,
    step: int,
    input: Callable[[], JsonValue],
) -> Iterator[_ToolWatch]:
    """Let an observer look at a tool's run. Note in the watch what came of it."""
    watch = _ToolWatch()

    def begun() -> ToolBegun:
        return ToolBegun(tool=tool, call_id=call_id, step=step, input=input())

    def ended(seconds: float, raised: BaseException | None) -> ToolEnded:
        outcome = watch.outcome
        return ToolEnded(
            seconds=seconds,
            result=None if outcome is None else result_of(call_id, outcome),
            error=_kind(raised) or (outcome.code if isinstance(outcome, ToolFailed) else None),
        )

    with _watched(None if observer is None else observer.tool, begun, ended):
        yield watch


@contextmanager
def _watched(
    look: Callable[[B], Callable[[E], None]] | None,
    begun: Callable[[], B],
    ended: Callable[[float, BaseException | None], E],
) -> Iterator[None]:
    if look is None:
        yield
        return
    tell: Callable[[E], None] | None = None
    # What somebody makes of it must not decide what becomes of it.
    with suppress(Exception):
        tell = look(begun())
    raised: BaseException | None = None
    began = time.perf_counter()
    try:
        yield
    except BaseException as error:
        raised = error
        raise
    finally:
        if tell is not None:
            with suppress(Exception):
                tell(ended(time.perf_counter() - began, raised))


def _shown(message: AssistantMessage, masking: Masking | None) -> AssistantMessage:
    """Return a message without what is private, and without what its tools say is sensitive."""
    public = message.public()
    if masking is None:
        return public
    content = [masking.masked(b) if isinstance(b, ToolCall) else b for b in public.content]
    return replace(public, content=tuple(content))


def _kind(error: BaseException | None) -> str | None:
    """Return what kind of thing broke, without a word of what it said."""
    match error:
        case None | Interrupted():
            return None  # to be stopped is no fault
        case asyncio.CancelledError():
            return "cancelled"
        case ModelFailed():
            return str(error.facts.get("status") or error.facts.get("reason"))
        case Conflict():
            return error.reason.value
        case AssistantError():
            return error.code
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
