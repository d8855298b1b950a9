"""What a host adds to the loop."""

from collections.abc import Awaitable, Callable, Sequence

from engine_assistant.host.execution import HostEvent, Step
from engine_assistant.host.messages import AssistantMessage, Message, ToolMessage, UserMessage
from engine_assistant.host.model import ModelEvent, ModelResult

__all__ = ["Hooks"]


class Hooks:
    """Override what you need. Each method is awaited before the loop goes on.

    What a method raises ends the conversation and reaches the caller as it is; nothing is retried.
    """

    async def next_messages(self, step: Step) -> Sequence[UserMessage]:
        """Return what the person said meanwhile: it is asked for before each request."""
        del step
        return ()

    async def track(self, request: Callable[[], Awaitable[ModelResult]], step: Step) -> ModelResult:
        """Wrap one request to the model, to measure it or to hold something beside it.

        Call `request` once and return its result. Called again, it asks the model again.
        """
        del step
        return await request()

    async def on_event(self, event: ModelEvent | HostEvent, step: Step) -> None:
        """Take one event, in its order: the model's while it speaks, and the host's own."""

    async def before_response(self, result: ModelResult, step: Step) -> Sequence[Message] | None:
        """Judge an answer that ended well, before anything of it is kept.

        Return None to accept it. Return messages to have it answered again: the rejected answer and
        these stay in memory only, nothing is run, and one step is used up.
        """
        del result, step
        return None

    async def on_assistant_message(self, message: AssistantMessage, step: Step) -> None:
        """Keep the answer. None of its calls has been run; their inputs are those that would.

        It holds no private part. `step.result.message.state` is what the provider needs to get back
        while the turn is open: keep it where nobody reads it, or not at all.
        """

    async def on_tool_results(self, message: ToolMessage, step: Step) -> None:
        """Keep results, before the model sees them. `step.calls` and `step.outcomes` say of what.

        A call that awaits approval has no result and is not among them.
        """
