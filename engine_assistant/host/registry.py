"""The tools of a host by name. Every way in which a call can fail is a result for the model."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Final, cast, get_args

from engine_assistant.host.execution import (
    AwaitingApproval,
    Step,
    ToolFailed,
    ToolOutcome,
    ToolProgress,
    ToolReturned,
)
from engine_assistant.host.messages import JsonValue, ToolCall
from engine_assistant.host.model import ToolDefinition
from engine_assistant.host.patience import Overdue, bounded
from engine_assistant.host.signature import ArgumentsRefused, Input, ToolContext
from engine_assistant.host.tools import MASK, Approval, Tool
from engine_assistant.host.watching import watched_tool
from engine_assistant.model.codec import JsonRefused, JsonTooLarge, check_json, dumps
from engine_assistant.model.limits import LIMITS, Limits

__all__ = ["Card", "PreparedCall", "ToolRefused", "ToolRegistry"]

RESULT_BYTES: Final = 64 * 1024
_BESIDE: Final = 1024
"""What an event holds beside a result, in bytes at most."""

_MOST_RESULT_BYTES: Final = LIMITS.event_bytes - _BESIDE

_LOG: Final = logging.getLogger("engine_assistant.host")


class ToolRefused(Exception):
    """Raised by a tool to tell the model why it could not do what was asked.

    `code` is for programs, `message` is read by the model. Any other exception is logged, and the
    model is told only that the tool failed.
    """

    def __init__(self, code: str, message: str) -> None:
        """Keep both."""
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a person is shown of a call before deciding. Everything comes from the bound input."""

    tool: str
    effect: str
    input: Input
    preview: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """A call that may run as it stands here, once it is approved if it must be.

    `input` is bound: the digest, the card and the run all take this one value.
    """

    call_id: str
    tool: Tool
    input: dict[str, JsonValue] = field(repr=False)
    needs_approval: bool

    @property
    def card(self) -> Card:
        """What a person is shown, sensitive arguments masked."""
        masked = self.tool.masked(self.input)
        preview = None
        if self.tool.preview is not None:
            try:
                preview = self.tool.preview(masked)
            except Exception:  # noqa: BLE001 - a card without its line is still a card
                _LOG.exception("The preview of the tool %s failed.", self.tool.name)
        return Card(tool=self.tool.name, effect=self.tool.effect, input=masked, preview=preview)


class ToolRegistry:
    """The tools of a conversation, as `Tools`.

    Calls that need approval are answered with `AwaitingApproval`. Whoever keeps approvals calls
    `prepare`, asks and claims, and then `run`.

    Args:
        tools: in the order in which the model is told of them.
        result_bytes: the most that a result may take as JSON, in bytes.

    Raises:
        ValueError: two tools share a name, or the limit is not one that an event can hold.
    """

    def __init__(self, tools: Iterable[Tool], *, result_bytes: int = RESULT_BYTES) -> None:
        self._tools: dict[str, Tool] = {}
        for one in tools:
            if one.name in self._tools:
                raise ValueError(f"two tools are called {one.name}")
            self._tools[one.name] = one
        if not 1 <= result_bytes <= _MOST_RESULT_BYTES:
            raise ValueError(f"result_bytes must be between 1 and {_MOST_RESULT_BYTES}")
        self._result_bytes = result_bytes
        self._limits = LIMITS

    def within(self, limits: Limits) -> "ToolRegistry":
        """Return these tools for a record with such limits: no result is more than it takes."""
        if limits == self._limits:
            return self
        narrowed = copy(self)
        narrowed._limits = limits  # noqa: SLF001 - ours
        most = max(1, limits.event_bytes - _BESIDE)
        narrowed._result_bytes = min(self._result_bytes, most)  # noqa: SLF001 - ours
        return narrowed

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """What the model is told of the tools."""
        return tuple(one.definition for one in self._tools.values())

    def get(self, name: str) -> Tool | None:
        """Return the tool of a name, if there is one."""
        return self._tools.get(name)

    def masked(self, call: ToolCall) -> ToolCall:
        """Return the call with its sensitive arguments masked, and unread ones altogether."""
        one = self._tools.get(call.tool)
        if one is None or not one.sensitive:
            return call
        shown = dict(one.masked(call.input)) if isinstance(call.input, dict) else MASK
        return replace(call, input=shown)

    def bind(self, call: ToolCall) -> ToolCall:
        """Return the call with its bound input, or as it is if it cannot run."""
        prepared = self.prepare(call)
        return call if isinstance(prepared, ToolFailed) else replace(call, input=prepared.input)

    def prepare(self, call: ToolCall) -> PreparedCall | ToolFailed:
        """Validate a call and say whether it needs approval, or return why it cannot run."""
        one = self._tools.get(call.tool)
        if one is None:
            return ToolFailed("unknown_tool", "There is no tool of this name.")
        try:
            bound = one.arguments.bind(call.input)
        except ArgumentsRefused as refused:
            return ToolFailed("invalid_arguments", str(refused))
        approval = _approval(one, bound)
        if approval is None:
            return ToolFailed("unclassified", "The host has not said whether this call may run.")
        return PreparedCall(
            call_id=call.call_id, tool=one, input=bound, needs_approval=approval == "always"
        )

    async def execute(self, call: ToolCall, step: Step) -> ToolOutcome:
        """Run a call that needs no approval; a call that does is answered `AwaitingApproval`."""
        prepared = self.prepare(call)
        if isinstance(prepared, ToolFailed):
            return prepared
        if prepared.needs_approval:
            return AwaitingApproval()
        return await self.run(prepared, step)

    async def run(self, prepared: PreparedCall, step: Step) -> ToolReturned | ToolFailed:
        """Run a prepared call now. It is the caller's to know that it may."""
        with watched_tool(
            step.observer,
            tool=prepared.tool.name,
            call_id=prepared.call_id,
            step=step.number,
            input=lambda: dict(prepared.tool.masked(prepared.input)),
        ) as watch:
            watch.outcome = outcome = await self._run(prepared, step)
        return outcome

    async def _run(self, prepared: PreparedCall, step: Step) -> ToolReturned | ToolFailed:
        one = prepared.tool

        async def report(payload: JsonValue) -> None:
            await step.emit(ToolProgress(call_id=prepared.call_id, payload=payload))

        context = ToolContext(
            call_id=prepared.call_id, step=step.number, thread=step.thread, report=report
        )
        try:
            output = await bounded(one.arguments.call(prepared.input, context), one.timeout)
        except ToolRefused as refused:
            return ToolFailed(refused.code, refused.message)
        except Overdue:
            return _failed(one, "timed_out", f"The tool took longer than {one.timeout:g} s.")
        except asyncio.CancelledError:
            if _being_cancelled():
                raise
            return _broken(prepared)
        except Exception:  # noqa: BLE001 - whatever it is, the call has a result
            return _broken(prepared)
        return self._admitted(one, output)

    def _admitted(self, one: Tool, output: object) -> ToolReturned | ToolFailed:
        """Return a result as it will be kept, or why it cannot be."""
        try:
            # No more of it is looked at than may be kept.
            check_json(
                output,
                depth=self._limits.nesting,
                integer_digits=self._limits.integer_digits,
                size=self._result_bytes,
            )
        except JsonTooLarge:
            return self._too_large(one)
        except JsonRefused as refused:
            _LOG.warning("The tool %s returned what cannot be kept: %s", one.name, refused.message)
            return _failed(one, "result_not_json", "The tool ran, but its result cannot be read.")
        result = cast("JsonValue", output)
        if len(dumps(result).encode()) > self._result_bytes:
            return self._too_large(one)
        return ToolReturned(result)

    def _too_large(self, one: Tool) -> ToolFailed:
        return _failed(
            one,
            "result_too_large",
            f"The tool ran, but its result is larger than {self._result_bytes} bytes. "
            "Ask for less: fewer items, fewer fields, or one page.",
        )


def _approval(one: Tool, bound: Input) -> Approval | None:
    """Return what the host says about this call. What it does not clearly say, it does not say."""
    said: object = one.approval
    if callable(one.approval):
        try:
            said = one.approval(bound)
        except Exception:  # noqa: BLE001 - whatever it is, nobody said that the call may run
            _LOG.exception("The policy of the tool %s failed.", one.name)
            return None
    return cast("Approval", said) if said in get_args(Approval) else None


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _broken(prepared: PreparedCall) -> ToolFailed:
    """Return that a tool raised. What it said goes to the log alone: it may hold secrets."""
    one = prepared.tool
    _LOG.exception("The tool %s failed (call %s).", one.name, prepared.call_id)
    return _failed(one, "tool_failed", "The tool failed.")


def _failed(one: Tool, code: str, message: str) -> ToolFailed:
    """Return a failure; if something may have changed, it says so."""
    if one.effect != "read":
        message += " It may have taken effect: find out before you ask for it again."
    return ToolFailed(code, message)
