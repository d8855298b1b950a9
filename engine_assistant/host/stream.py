"""A conversation as something to iterate over: its events, and at last one `Done`."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

from engine_assistant.host.conversation import Conversation, Outcome
from engine_assistant.host.execution import HostEvent, Step
from engine_assistant.host.loop import converse
from engine_assistant.host.model import ModelEvent

__all__ = ["ConversationEvent", "ConversationStream", "Done", "stream_conversation"]


@dataclass(frozen=True, slots=True)
class Done:
    """The conversation ended. It comes once, and last."""

    outcome: Outcome


ConversationEvent: TypeAlias = ModelEvent | HostEvent | Done

# None: nothing more will come.
_Queue: TypeAlias = "asyncio.Queue[ModelEvent | HostEvent | None]"


def stream_conversation(conversation: Conversation) -> "ConversationStream":
    """Run a conversation as an iterator over its events.

    Nothing happens before the first event is asked for, and after each event the conversation waits
    until the next one is. What `run_conversation` would raise is raised here; then no `Done` comes.

    Leave it by `async with`, or call `aclose`: the conversation is cancelled at once.
    """
    return ConversationStream(conversation)


class ConversationStream(AsyncIterator[ConversationEvent]):
    """The events of one conversation. `stream_conversation` makes it, one reader reads it."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._queue: _Queue = asyncio.Queue()
        self._task: asyncio.Task[Outcome] | None = None
        self._taken = False
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConversationEvent:
        if self._over:
            raise StopAsyncIteration
        if self._task is None:
            # The task must not know this object: who drops it cancels the conversation.
            self._task = asyncio.create_task(_run(self._conversation, self._queue))
        if self._taken:
            self._queue.task_done()
        try:
            event = await self._queue.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        self._taken = True
        if event is not None:
            return event
        if self._over:
            raise StopAsyncIteration
        self._over = True
        return Done(await self._task)

    async def aclose(self) -> None:
        """Cancel the conversation and wait until it has ended, also while an event is awaited."""
        self._over = True
        if self._task is None or self._task.done():
            return
        self._task.cancel()
        await asyncio.wait({self._task})
        if not self._task.cancelled():
            self._task.result()  # It failed while it was cleaning up: say so.

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        if self._task is not None and not self._task.done():
            loop = self._task.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._task.cancel)


async def _run(conversation: Conversation, queue: _Queue) -> Outcome:
    async def tell(event: ModelEvent | HostEvent, step: Step) -> None:
        await conversation.hooks.on_event(event, step)
        queue.put_nowait(event)
        await queue.join()

    try:
        return await converse(conversation, tell)
    finally:
        queue.put_nowait(None)
