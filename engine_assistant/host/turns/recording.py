"""What the loop tells a turn, as events of the record.

    next_messages          take_inputs, step-start
    track                  what the run does now; what the request used up
    on_event               text-delta; reasoning-delta, if it is to be shown; the host's own
    on_assistant_message   put_context, then tool-input for each call and step-finish, in one batch
    on_tool_results        tool-output or tool-error for each call

The host's own hooks are asked too, when the record has taken what they are told of.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from engine_assistant import Limits
from engine_assistant.host.execution import HostEvent, Step, ToolFailed, ToolReturned, fitting
from engine_assistant.host.hooks import Hooks
from engine_assistant.host.messages import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from engine_assistant.host.model import ModelEvent, ModelResult
from engine_assistant.host.registry import ToolRegistry
from engine_assistant.host.turns.doing import Doing
from engine_assistant.host.turns.gate import Gate
from engine_assistant.host.turns.holding import Holding
from engine_assistant.host.turns.past import Past, said
from engine_assistant.host.turns.private import is_private, pack
from engine_assistant.host.turns.writing import Scribe
from engine_assistant.model.events import (
    Data,
    Known,
    ReasoningDelta,
    StepFinish,
    StepStart,
    TextDelta,
    ToolError,
    ToolInput,
    ToolOutput,
    ToolProgress,
)
from engine_assistant.model.events import UserMessage as Said
from engine_assistant.model.limits import LIMITS

__all__ = ["Recording"]


class Recording(Hooks):
    """Keeps one round of a turn in the record, and asks the host's own hooks.

    Attributes:
        unsettled: results of calls that the record has not taken yet.
    """

    def __init__(
        self,
        holding: Holding,
        scribe: Scribe,
        registry: ToolRegistry,
        *,
        past: Past,
        gate: Gate,
        doing: Doing,
        hooks: Hooks,
        limits: Limits,
        show_reasoning: bool,
    ) -> None:
        self._holding = holding
        self._scribe = scribe
        self._registry = registry
        self._gate = gate
        self._doing = doing
        self._hooks = hooks
        self._context_bytes = limits.context_bytes
        self._show_reasoning = show_reasoning
        self._behind = past.behind
        self._kept = list(past.kept)
        self._head = past.head_seq
        self._finish: StepFinish | None = None
        self.unsettled: tuple[tuple[ToolCall, ToolReturned | ToolFailed], ...] = ()

    def ended(self) -> tuple[StepFinish, ...]:
        """Return the end of the newest step, if it is not written yet."""
        finish, self._finish = self._finish, None
        return () if finish is None else (finish,)

    # ------------------------------------------------------------ before the request

    async def next_messages(self, step: Step) -> Sequence[UserMessage]:
        """Return what the person said meanwhile, and begin the step."""
        behind, self._behind = self._behind, ()
        taken = await self._take_inputs()
        for event in self.ended():
            await self._scribe.say(event)
        await self._scribe.say(StepStart(step=self._doing.name(step)))
        return (*behind, *(said(event.text, event.files) for event in taken))

    async def _take_inputs(self) -> list[Said]:
        tries = 0

        async def take() -> Sequence[object]:
            nonlocal tries
            tries += 1
            taken = await self._holding.ops.take_inputs(**self._holding.key)
            self._holding.heard(interrupt_requested=taken.interrupt_requested)
            return taken.events

        events = await self._holding.write(take)
        if tries > 1:
            # The answer that was lost may have named some: they stand in the log by now.
            events = await self._events_after(self._head)
        taken = [event for event in events if isinstance(event, Said)]
        self._head = max((event.seq for event in taken), default=self._head)
        return taken

    async def _events_after(self, seq: int) -> list[object]:
        found: list[object] = []
        read = partial(self._holding.ops.read_events, thread_id=self._holding.key["thread_id"])
        while True:
            page = await self._holding.read(partial(read, after=seq))
            found += page.events
            if page.last_seq == page.head_seq:
                return found
            seq = page.last_seq

    # ------------------------------------------------------------ the request

    async def track(self, request: Callable[[], Awaitable[ModelResult]], step: Step) -> ModelResult:
        """Note what the request used up, and how its answer ended, whether it counts or not."""
        await self._doing.asks(step)
        result = await self._hooks.track(request, step)
        self._scribe.spend(result.usage)
        usage = None if result.usage is None else result.usage.to_dict()
        self._finish = StepFinish(usage=usage, stop_reason=_label(result.stop_reason))
        return result

    async def on_event(self, event: ModelEvent | HostEvent, step: Step) -> None:
        """Write deltas soon, and at once what a tool or the host tells."""
        match event:
            case TextDelta():
                await self._scribe.say(event)
            case ReasoningDelta() if self._show_reasoning:
                await self._scribe.say(event)
            case ToolProgress() | Data():
                await self._scribe.write(event)
        await self._hooks.on_event(event, step)
        if not isinstance(event, ToolProgress | Data):
            await self._doing.hears(step)

    async def before_response(self, result: ModelResult, step: Step) -> Sequence[Message] | None:
        """Ask the host's own hooks."""
        return await self._hooks.before_response(result, step)

    # ------------------------------------------------------------ the answer

    async def on_assistant_message(self, message: AssistantMessage, step: Step) -> None:
        """Keep the answer's calls, all or none of them. An answer without one ends its turn."""
        if message.calls:
            await self._keep_private(step)
            proposals = [self._proposal(call, step) for call in message.calls]
            await self._scribe.write(*proposals, *self.ended())
        await self._hooks.on_assistant_message(message, step)

    async def _keep_private(self, step: Step) -> None:
        # First: of an answer that the record holds, the private part is never missing.
        if step.result is None:
            return
        self._kept.append(step.result.message)
        if any(map(is_private, self._kept)):
            state = pack(self._kept, self._context_bytes)
            await self._holding.write(
                partial(self._holding.ops.put_context, **self._holding.key, state=state)
            )

    def _proposal(self, call: ToolCall, step: Step) -> Known:
        known = self._registry.get(call.tool)
        # Not checked here: the record does so, and its refusal does not quote what was wrong.
        return ToolInput.model_construct(
            call_id=call.call_id,
            tool=call.tool,
            input=call.input,
            step=self._doing.name(step),
            provider_call_id=call.provider_call_id,
            repeatable=known is not None and known.repeatable,
        )

    async def on_tool_results(self, message: ToolMessage, step: Step) -> None:
        """Keep results, but those that came from the record."""
        ended = [
            (call, outcome)
            for call, outcome in zip(step.calls, step.outcomes, strict=True)
            if call.call_id not in self._gate.recorded
            and isinstance(outcome, ToolReturned | ToolFailed)
        ]
        self.unsettled = tuple(ended)
        await self._scribe.write(*(_result(call, outcome) for call, outcome in ended))
        self.unsettled = ()
        await self._hooks.on_tool_results(message, step)


def _label(reason: str | None) -> str | None:
    """Return why the model stopped, as the record holds it."""
    return fitting(reason, LIMITS.id_bytes) if reason else None


def _result(call: ToolCall, outcome: ToolReturned | ToolFailed) -> Known:
    if isinstance(outcome, ToolReturned):
        return ToolOutput(call_id=call.call_id, output=outcome.output)
    return ToolError(call_id=call.call_id, code=outcome.code, message=outcome.message)
