"""A conversation to look at: models that say what they are told to, and hooks that remember."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Final, TypeVar

from engine_assistant.host import (
    AssistantMessage,
    Conversation,
    Hooks,
    HostEvent,
    Message,
    Model,
    ModelEvent,
    ModelResult,
    Outcome,
    Step,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    ToolOutcome,
    ToolReturned,
    UserMessage,
    run_conversation,
)
from engine_assistant.testing.replay import Attempt, Replay

T = TypeVar("T")

LONGEST: Final = 30.0
HELLO: Final = UserMessage("Hello")
LOOK: Final = ToolDefinition(name="look", description="Looks.", schema={"type": "object"})


def run(work: Coroutine[object, object, T]) -> T:
    """Run to the end, or say that it hangs."""

    async def bounded() -> T:
        async with asyncio.timeout(LONGEST):
            return await work

    return asyncio.run(bounded())


def scripted(*attempts: Attempt) -> tuple[Model, Replay]:
    """Return a model that plays the attempts, and the script with what was asked."""
    replay = Replay({"model": attempts})
    return replay.model("model"), replay


def call(tool: str = "look", **input: object) -> ToolCall:
    return ToolCall(tool=tool, input=dict(input), provider_call_id="call_0")


Do = Callable[[ToolCall], Awaitable[ToolOutcome]]


class SomeTools:
    """Tools that do what the test says, and remember in which order."""

    def __init__(self, do: Do | None = None, definitions: Sequence[ToolDefinition] = (LOOK,)):
        self.definitions = definitions
        self.ran: list[ToolCall] = []
        self._do = do or _echo

    def bind(self, call: ToolCall) -> ToolCall:
        return call

    async def execute(self, call: ToolCall, step: Step) -> ToolOutcome:
        self.ran.append(call)
        return await self._do(call)


async def _echo(call: ToolCall) -> ToolOutcome:
    return ToolReturned({"saw": call.input})


class Memory(Hooks):
    """Remembers everything that it was told, as one trace of words, and in full."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.events: list[ModelEvent | HostEvent] = []
        self.kept: list[AssistantMessage | ToolMessage] = []
        self.steps: list[Step] = []
        self.answered: list[Step] = []

    async def on_event(self, event: ModelEvent | HostEvent, step: Step) -> None:
        self.trace.append("event")
        self.events.append(event)

    async def before_response(self, result: ModelResult, step: Step) -> Sequence[Message] | None:
        self.trace.append("judge")
        self.steps.append(step)
        return None

    async def on_assistant_message(self, message: AssistantMessage, step: Step) -> None:
        self.trace.append("answer")
        self.answered.append(step)
        self.kept.append(message)

    async def on_tool_results(self, message: ToolMessage, step: Step) -> None:
        self.trace.append("results")
        self.kept.append(message)
        self.steps.append(step)


def converse(model: Model, **given: object) -> Outcome:
    """Run one conversation that begins with a greeting, unless it is given another beginning."""
    return run(run_conversation(Conversation(**{"model": model, "messages": [HELLO], **given})))  # type: ignore[arg-type]
