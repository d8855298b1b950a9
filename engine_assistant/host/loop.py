"""The conversation loop: ask the model, run what it asks for, ask again, and come to an end.

It knows no database. A host that keeps a record does so in its `Hooks`, and gates calls in its
`Tools`. The order within one step never changes:

    ask      the stream is read to its end; its events are told one by one
    judge    did it end, does it make sense; then the host's own judgement
    keep     the answer, without its private parts, before anything runs
    run      the calls, strictly in order; each result is kept before the model sees it

So nothing is kept or run of an answer that broke off, and nothing runs that was not kept.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from typing import TypeAlias

from engine_assistant.host.conversation import Conversation, Outcome, Status
from engine_assistant.host.errors import InvalidResponse
from engine_assistant.host.execution import (
    AwaitingApproval,
    BatchTools,
    HostEvent,
    Masking,
    Step,
    ToolFailed,
    ToolOutcome,
    ToolReturned,
    result_of,
)
from engine_assistant.host.interrupt import Interrupted, Interruptible
from engine_assistant.host.judging import judge
from engine_assistant.host.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    open_calls,
)
from engine_assistant.host.model import (
    ModelEvent,
    ModelRequest,
    ModelResult,
    StopReason,
    TextDelta,
)
from engine_assistant.host.watching import watched_request

__all__ = ["Teller", "converse", "run_conversation"]

Teller: TypeAlias = Callable[[ModelEvent | HostEvent, Step], Awaitable[None]]


async def run_conversation(conversation: Conversation) -> Outcome:
    """Carry a conversation on until the model is done, somebody must approve, or a limit is met.

    The last request that `max_steps` admits forbids tools, and so does one after an outcome with
    `force_text`, or one without tools.

    To stop, cancel the task: nothing more starts, and the request to the model is ended. Or set
    `Conversation.interrupt`, which lets a running tool finish.

    Raises:
        ResponseNotComplete, InvalidToolState, InvalidResponse: the answer cannot be used.
        Exception: whatever the model, the hooks or the tools raised. What was kept before remains.
    """
    return await converse(conversation, conversation.hooks.on_event)


async def converse(given: Conversation, tell: Teller) -> Outcome:
    """Run a conversation, and tell its events to `tell`."""
    return await _Loop(given, tell).run()


class _Loop:
    """One conversation on its way."""

    def __init__(self, given: Conversation, tell: Teller) -> None:
        self._given = given
        self._hooks = given.hooks
        self._tell = tell
        self._stop = Interruptible(given.interrupt)
        self._definitions = tuple(given.tools.definitions) if given.tools is not None else ()
        self._messages = list(given.messages)
        self._awaiting: list[ToolCall] = []
        self._force_text = False
        self._result: ModelResult | None = None
        self._step = self._new_step(0, text_only=False)

    async def run(self) -> Outcome:
        try:
            async with self._stop:
                status = await self._take_steps()
        except Interrupted:
            status = Status.INTERRUPTED
        return Outcome(
            status=status,
            steps=self._step.number,
            result=self._result,
            messages=tuple(self._messages),
            awaiting=tuple(self._awaiting),
        )

    async def _take_steps(self) -> Status:
        await self._run_calls(open_calls(self._messages))
        most = self._given.max_steps
        for number in range(1, most + 1):
            if self._awaiting:
                return Status.AWAITING_APPROVAL
            self._stop.check()
            text_only = number == most or self._force_text or not self._definitions
            status = await self._take_step(number, text_only=text_only)
            if status is not None:
                return status
        return Status.LIMIT

    async def _take_step(self, number: int, *, text_only: bool) -> Status | None:
        """Ask, judge, keep, run. Return how the conversation ended, or None if it goes on."""
        known = {call.call_id for call in _calls(self._messages)}
        self._step = self._new_step(number, text_only=text_only)
        self._messages += await self._hooks.next_messages(self._step)
        self._step = self._new_step(number, text_only=text_only)
        self._result = result = await self._ask()
        status = judge(result, text_only=text_only, known=known)
        if status is not None:
            return status
        self._step = replace(self._step, result=result)
        correction = await self._hooks.before_response(result, self._step)
        if correction is None:
            return await self._accept(result)
        if not correction:
            raise ValueError("a correction needs at least one message")
        self._messages += [result.message, *correction]
        return None

    def _new_step(self, number: int, *, text_only: bool) -> Step:
        return Step(
            number=number,
            text_only=text_only,
            messages=tuple(self._messages),
            emit=self._emit,
            observer=self._given.observer,
            thread=self._given.thread,
        )

    async def _emit(self, event: ModelEvent | HostEvent) -> None:
        await self._tell(event, self._step)

    async def _ask(self) -> ModelResult:
        system = self._given.system
        request = ModelRequest(
            messages=self._step.messages,
            system=await system(self._step) if callable(system) else system,
            tools=self._definitions,
            text_only=self._step.text_only,
            settings=self._given.settings,
        )
        result = await self._hooks.track(lambda: self._consume(request), self._step)
        if not isinstance(result, ModelResult):
            raise TypeError("track must return the result of the request")
        self._stop.check()
        return result

    async def _consume(self, request: ModelRequest) -> ModelResult:
        given = self._given
        tools: object = given.tools
        with watched_request(
            given.observer,
            model=given.model,
            step=self._step.number,
            request=request,
            masking=tools if isinstance(tools, Masking) else None,
        ) as watch:
            watch.result = result = await self._listen(request, watch.speaks)
        return result

    async def _listen(self, request: ModelRequest, speaks: Callable[[], None]) -> ModelResult:
        """Read one stream to its end, and tell its events."""
        result: ModelResult | None = None
        said: list[str] = []
        async with _closing(self._given.model.stream(request)) as stream:
            while (event := await self._stop.wait(lambda: anext(stream, None))) is not None:
                if result is not None:
                    raise InvalidResponse("The model's stream went on after its result.")
                if isinstance(event, ModelResult):
                    result = event
                    continue
                speaks()
                if isinstance(event, TextDelta):
                    said.append(event.text)
                await self._emit(event)
        if result is None:
            raise InvalidResponse("The model's stream ended without a result.")
        if "".join(said) != result.message.text:
            raise InvalidResponse("The model's result says something else than its stream.")
        return result

    async def _accept(self, result: ModelResult) -> Status | None:
        """Keep the answer, then run what it asks for."""
        message = self._bound(result.message)
        # What a hook does to the inputs that it is shown changes nothing about what runs.
        calls = deepcopy(message.calls)
        self._step = replace(self._step, result=replace(result, message=message))
        await self._hooks.on_assistant_message(message.public(), self._step)
        self._messages.append(message)
        if not calls:
            refused = result.stop_reason == StopReason.REFUSAL
            return Status.REFUSED if refused else Status.DONE
        await self._run_calls(calls)
        return None

    def _bound(self, message: AssistantMessage) -> AssistantMessage:
        tools = self._given.tools
        if tools is None:
            return message
        content = [
            tools.bind(block) if isinstance(block, ToolCall) else block for block in message.content
        ]
        return replace(message, content=tuple(content))

    async def _run_calls(self, calls: Sequence[ToolCall]) -> None:
        """Run calls one after the other, or together if the host's tools do so."""
        tools = self._given.tools
        if not calls or tools is None:
            return
        if isinstance(tools, BatchTools):
            self._stop.check()
            await self._keep(calls, await tools.execute_all(calls, self._step))
            return
        for call in calls:
            self._stop.check()
            await self._keep([call], [await tools.execute(call, self._step)])

    async def _keep(self, calls: Sequence[ToolCall], outcomes: Sequence[ToolOutcome]) -> None:
        """Hand results over, then show them to the model."""
        if len(calls) != len(outcomes):
            raise TypeError("tools must return one outcome for each call")
        ended: list[tuple[ToolCall, ToolReturned | ToolFailed]] = []
        for call, outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, AwaitingApproval):
                self._awaiting.append(call)
            elif isinstance(outcome, ToolReturned | ToolFailed):
                ended.append((call, outcome))
                self._force_text |= outcome.force_text
            else:
                raise TypeError("tools must return an outcome")
        if not ended:
            return
        of_what, came = zip(*ended, strict=True)
        step = replace(self._step, calls=of_what, outcomes=came)
        message = ToolMessage(tuple(result_of(call.call_id, outcome) for call, outcome in ended))
        await self._hooks.on_tool_results(message, step)
        self._messages.append(message)


def _calls(messages: Sequence[Message]) -> list[ToolCall]:
    return [call for one in messages if isinstance(one, AssistantMessage) for call in one.calls]


@asynccontextmanager
async def _closing(
    stream: AsyncIterator[ModelEvent | ModelResult],
) -> AsyncIterator[AsyncIterator[ModelEvent | ModelResult]]:
    """End the request when its stream is left, if the client can."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
