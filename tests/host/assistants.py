"""A thread on a real database, people who speak and decide in it, and hosts that answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Final, ParamSpec

from engine_assistant import RUN, USE, AsyncAssistant, AsyncOperations, Caller, Limits
from engine_assistant.host import Tool, ToolRegistry, tool
from engine_assistant.host.turns import AssistantHost
from engine_assistant.model.events import Known, Unknown
from engine_assistant.model.views import ApprovalView
from engine_assistant.testing.databases import awaited
from engine_assistant.testing.replay import Attempt, Replay

P = ParamSpec("P")

ALICE: Final = Caller(tenant="acme", principal="usr_alice", permissions={USE}, channel="web")
BOB: Final = Caller(tenant="acme", principal="usr_bob", permissions={USE})
ROBOT: Final = Caller(tenant="acme", principal="sys_assistant", permissions={RUN}, system=True)

LONGEST: Final = 120.0


def in_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an asynchronous test to its end, or say that it hangs."""

    @wraps(test)
    def run(*args: P.args, **given: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **given), LONGEST))

    return run


@dataclass
class Scene:
    """One thread."""

    assistant: AsyncAssistant
    thread_id: str
    me: AsyncOperations
    bot: AsyncOperations
    replays: list[Replay] = field(default_factory=list)

    def host(self, *script: Attempt, tools: Sequence[Tool] = (), **given: object) -> AssistantHost:
        """Return a host whose model says what the script says."""
        replay = Replay({"model": script})
        self.replays.append(replay)
        return AssistantHost(
            **{
                "assistant": self.assistant,
                "caller": ROBOT,
                "model": replay.model("model"),
                "tools": ToolRegistry(tools),
                **given,
            }
        )

    async def say(self, text: str = "Please refund order 7", **given: object) -> None:
        await self.me.send_message(thread_id=self.thread_id, text=text, **given)

    async def events(self) -> list[Known | Unknown]:
        page = await self.me.read_events(thread_id=self.thread_id, limit=1000)
        assert [event.seq for event in page.events] == list(range(1, page.head_seq + 1))
        return list(page.events)

    async def types(self) -> list[str]:
        return [event.type for event in await self.events()]

    async def of(self, kind: str) -> list[Known | Unknown]:
        return [event for event in await self.events() if event.type == kind]

    async def turn_state(self) -> str:
        return (await self.me.get_thread(thread_id=self.thread_id)).turn_state

    async def cards(self) -> list[ApprovalView]:
        page = await self.me.list_approvals(thread_id=self.thread_id)
        return sorted(page.items, key=lambda card: card.request_seq)

    async def decide(self, card: ApprovalView, *, approved: bool, **given: object) -> None:
        await self.me.resolve_approval(
            thread_id=self.thread_id,
            call_id=card.call_id,
            approved=approved,
            digest=card.digest,
            **{"version": card.version, **given},
        )

    async def healthy(self) -> None:
        """Let the doctor look."""
        assert [finding async for finding in self.assistant.doctor()] == []


@dataclass
class Meddled:
    """The engine, with something done to the operations that a host is given."""

    assistant: AsyncAssistant
    meddle: Callable[[AsyncOperations], None]

    @property
    def limits(self) -> Limits:
        return self.assistant.limits

    def acting_as(self, caller: Caller) -> AsyncOperations:
        ops = self.assistant.acting_as(caller)
        self.meddle(ops)
        return ops


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is so. The test's own limit says when that takes too long."""
    while not await true():  # noqa: ASYNC110 - others do it, in other tasks and processes
        await asyncio.sleep(0.01)


@asynccontextmanager
async def scene(url: str, **settings: object) -> AsyncIterator[Scene]:
    """Open a thread on a database."""
    assistant = AsyncAssistant.from_url(awaited(url), **settings)
    try:
        me, bot = assistant.acting_as(ALICE), assistant.acting_as(ROBOT)
        thread = await me.create_thread(title="Refund")
        yield Scene(assistant, thread.id, me, bot)
    finally:
        await assistant.engine.dispose()


def refunding(effects: list[object], **given: object) -> Tool:
    """Return a gated tool that remembers what it did."""

    @tool(**{"effect": "write", "approval": "always", **given})
    async def refund(order: int, note: str = "") -> dict[str, int]:
        effects.append({"order": order, "note": note})
        return {"refunded": order}

    return refund


def looking(effects: list[object], **given: object) -> Tool:
    """Return an ungated tool that remembers what it saw."""

    @tool(**{"effect": "read", "approval": "never", **given})
    async def look(order: int) -> dict[str, int]:
        effects.append({"look": order})
        return {"order": order}

    return look
