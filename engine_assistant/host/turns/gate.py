"""The gate: whether a call runs, waits, or is refused, by what the record says of it.

A call that the model has just proposed is asked about or run. One that an earlier run left behind
is taken up where it stands:

    awaiting     still waits; asked about anew if its tool has changed since
    approved     claimed and run, once; asked about anew if what would run is not what was approved
    unknown      run again if its tool says that it may run twice, and otherwise never; through the
                 gate as if it was proposed now, unless people were asked about it before

Before a call moves, everything that it needs is found: its tool, its input under the tool's present
contract, and whatever `ready` looks for. If that is not there now, the call stays approved, and the
run leaves.
"""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypedDict

from engine_assistant import Conflict, ConflictReason, arguments_digest
from engine_assistant.host.execution import (
    AwaitingApproval,
    Step,
    ToolFailed,
    ToolOutcome,
    ToolReturned,
)
from engine_assistant.host.messages import JsonValue, ToolCall
from engine_assistant.host.model import ToolDefinition
from engine_assistant.host.registry import PreparedCall, ToolRegistry
from engine_assistant.host.turns.doing import Doing
from engine_assistant.host.turns.holding import Holding
from engine_assistant.host.turns.past import Left, Past, asked
from engine_assistant.model.machines import CallState
from engine_assistant.model.views import CallView, Thread

__all__ = ["Approvals", "Ask", "Gate", "NotReady", "Ready", "owner_within_a_day"]

_DENIED_BEFORE: Final = "A person has denied this very call. Do not ask for it again."
_CHANGED: Final = "The tool takes other arguments by now. Ask for it again."
_LAPSED: Final = "The time to run this call is over. It did not run."
_WHY: Final = "The tool has changed since it was asked for."
_NOT_NOW: Final = frozenset({"unknown_tool", "unclassified"})
"""Why this host cannot run a call that another one could: it lacks the tool, or its policy."""
_FIRST_ATTEMPT: Final = 1
"""A run claims a call once; only its lost answer is asked for again."""


class NotReady(Exception):
    """What an approved call needs is not there now. It stays approved, for whoever comes next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Whom to ask, and for how long.

    Attributes:
        approvers: principals; None is the thread's owner.
        required: how many of them must approve.
        expires_in: seconds that they may take, and until when the call may run.
    """

    approvers: Sequence[str] | None = None
    required: int = 1
    expires_in: float = 86400.0


Approvals: TypeAlias = Callable[[PreparedCall, Thread], Ask | Awaitable[Ask]]
"""Says whom to ask about a call."""

Ready: TypeAlias = Callable[[PreparedCall], Awaitable[None]]
"""Raises if a call cannot run now: a secret is missing, a system is down."""


def owner_within_a_day(call: PreparedCall, thread: Thread) -> Ask:
    """Ask the thread's owner, who has a day."""
    del call, thread
    return Ask()


class _Served(TypedDict):
    """What is about to run, as the record is told."""

    call_id: str
    operation: str
    version: str
    input: JsonValue
    attempt: int


class Gate:
    """The tools of one round of a turn, as `Tools`.

    Attributes:
        recorded: calls whose outcome came from the record, which has it.
    """

    def __init__(
        self,
        holding: Holding,
        registry: ToolRegistry,
        *,
        thread: Thread,
        past: Past,
        doing: Doing,
        approvals: Approvals,
        ready: Ready | None,
    ) -> None:
        self._holding = holding
        self._registry = registry
        self._thread = thread
        self._past = past
        self._doing = doing
        self._approvals = approvals
        self._ready = ready
        self.recorded: set[str] = set()

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """What the model is told of the tools."""
        return self._registry.definitions

    def bind(self, call: ToolCall) -> ToolCall:
        """Return the call with the arguments that would run."""
        return self._registry.bind(call)

    def masked(self, call: ToolCall) -> ToolCall:
        """Return the call as people may see it."""
        return self._registry.masked(call)

    async def execute(self, call: ToolCall, step: Step) -> ToolOutcome:
        """Run a call if it may run now, or say why it does not.

        Raises:
            NotReady: an approved call cannot run here and now.
            LeaseLost: the lease is gone.
        """
        prepared = self._registry.prepare(call)
        left = self._past.calls.get(call.call_id)
        if left is None or left.view.state is CallState.RUNNING:
            return await self._propose(prepared, step)
        match left.view.state:
            case CallState.AWAITING:
                return await self._wait(prepared, left)
            case CallState.APPROVED:
                return await self._claim(prepared, left, step)
            case CallState.UNKNOWN:
                return await self._retry(prepared, left, step)
        return await self._as_recorded(left)

    async def _propose(self, prepared: PreparedCall | ToolFailed, step: Step) -> ToolOutcome:
        if isinstance(prepared, ToolFailed):
            return prepared
        if not prepared.needs_approval:
            return await self._run(prepared, step)
        if asked(prepared.tool.name, prepared.input) in self._past.denied:
            return ToolFailed("denied", _DENIED_BEFORE)
        return await self._ask(prepared)

    async def _wait(self, prepared: PreparedCall | ToolFailed, left: Left) -> ToolOutcome:
        """Let it wait. What it waits for must be what would run."""
        if (
            isinstance(prepared, PreparedCall)
            and _takes(prepared, left.view)
            and prepared.tool.version != left.view.version
        ):
            return await self._ask(prepared, why=_WHY)
        return AwaitingApproval()

    async def _claim(
        self, prepared: PreparedCall | ToolFailed, left: Left, step: Step
    ) -> ToolOutcome:
        """Run an approved call, once. The record judges whether it is what was approved."""
        if isinstance(prepared, ToolFailed):
            if prepared.code in _NOT_NOW:
                raise NotReady("The tool of an approved call is not to be had here and now.")
            return prepared
        if not _takes(prepared, left.view):
            return ToolFailed("contract_changed", _CHANGED)
        await self._find_ready(prepared)
        try:
            await self._holding.write(
                lambda: self._holding.ops.claim_execution(**self._holding.key, **_served(prepared))
            )
        except Conflict as refused:
            if refused.reason is ConflictReason.APPROVAL_EXPIRED:
                return ToolFailed("expired", _LAPSED)
            if refused.facts.get("differs") in ("operation", "version", "input"):
                return await self._ask(prepared, why=_WHY)
            raise
        return await self._run(prepared, step)

    async def _retry(
        self, prepared: PreparedCall | ToolFailed, left: Left, step: Step
    ) -> ToolOutcome:
        """Run a call again that may have run, if its tool may run twice."""
        if (
            isinstance(prepared, ToolFailed)
            or not prepared.tool.repeatable
            or not _takes(prepared, left.view)
        ):
            return await self._as_recorded(left)
        what = partial(self._holding.ops.retry_call, **self._holding.key)
        was_asked = left.view.request_seq is not None
        if was_asked:
            again = partial(what, **_served(prepared))
        else:
            again = partial(what, call_id=prepared.call_id, attempt=_FIRST_ATTEMPT)
        try:
            await self._holding.write(again)
        except Conflict:
            return await self._as_recorded(left)
        # Its run may have died before it asked anybody, and that it may run twice is no approval.
        return await (self._run if was_asked else self._propose)(prepared, step)

    async def _as_recorded(self, left: Left) -> ToolOutcome:
        """Return what the record holds of a call that does not move any more."""
        self.recorded.add(left.view.call_id)
        view = await self._holding.read(
            lambda: self._holding.ops.get_call(thread_id=self._thread.id, call_id=left.view.call_id)
        )
        match view.result:
            case {"output": output}:
                return ToolReturned(output)
            case {"error": {"code": str(code), "message": str(message)}}:
                return ToolFailed(code, message)
        return ToolFailed(left.told.code or "unknown", left.told.message or "")

    async def _find_ready(self, prepared: PreparedCall) -> None:
        if self._ready is None:
            return
        try:
            await self._ready(prepared)
        except Exception as error:
            raise NotReady("An approved call cannot run now.") from error

    async def _ask(self, prepared: PreparedCall, *, why: str | None = None) -> AwaitingApproval:
        """Ask people; with a reason, anew: what they said before counts no more."""
        ask = self._approvals(prepared, self._thread)
        if inspect.isawaitable(ask):
            ask = await ask
        try:
            await self._holding.write(
                lambda: self._holding.ops.request_approval(
                    **self._holding.key,
                    call_id=prepared.call_id,
                    operation=prepared.tool.name,
                    version=prepared.tool.version,
                    expires_in=ask.expires_in,
                    approvers=ask.approvers,
                    required=ask.required,
                    reissue=why is not None,
                    why=why,
                )
            )
        except Conflict as refused:
            # Asked twice, because the first answer was lost: it was asked.
            if refused.reason is not ConflictReason.CALL_STATE:
                raise
        return AwaitingApproval()

    async def _run(self, prepared: PreparedCall, step: Step) -> ToolReturned | ToolFailed:
        left = self._past.calls.get(prepared.call_id)
        name = self._doing.name(step) if left is None else left.view.step
        await self._doing.runs(prepared.call_id, step=name)
        self._holding.check()
        return await self._registry.run(prepared, step)


def _served(prepared: PreparedCall) -> _Served:
    return _Served(
        call_id=prepared.call_id,
        operation=prepared.tool.name,
        version=prepared.tool.version,
        input=prepared.input,
        attempt=_FIRST_ATTEMPT,
    )


def _takes(prepared: PreparedCall, view: CallView) -> bool:
    """Whether the tool would be given exactly what the record holds."""
    return arguments_digest(prepared.input) == arguments_digest(view.input)
