"""`engine-assistant chat`: a conversation at the terminal, kept like any other.

What is shown is read from the record, so it is shown alike whether it was said just now, before
the process was killed, or by another process that runs the turn.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from engine_assistant import RUN, USE, AsyncAssistant, AsyncOperations, Caller
from engine_assistant.cli.answering import Answering, answering
from engine_assistant.cli.chat.lines import Lines
from engine_assistant.cli.chat.talk import Talk
from engine_assistant.cli.chat.telling import Teller
from engine_assistant.cli.database import opened, prepare, shown
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.screen import Screen, printable
from engine_assistant.host import AssistantHost
from engine_assistant.model.machines import TurnState
from engine_assistant.model.views import Thread

__all__ = ["Order", "chat"]

_TENANT: Final = "chat"
_PERSON: Final = Caller(tenant=_TENANT, principal="usr_chat", permissions={USE}, channel="terminal")
_ROBOT: Final = Caller(tenant=_TENANT, principal="sys_assistant", permissions={RUN}, system=True)
_STALE_AFTER: Final = 5.0
"""Seconds: whoever starts again after a crash does not want to wait for long."""

_AT_REST: Final = "To go on with it: the same command with --thread and this id."
_NOT_OVER: Final = "A turn is not over: the same command goes on with it."
_COMMANDS: Final = "/stop ends what it is doing, /quit or Ctrl-D leaves."


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the command was told."""

    model: str
    tools: str | None
    system: str | None
    thread: str | None
    approve: bool | None


def chat(screen: Screen, url: str, order: Order) -> ExitCode:
    """Talk until the person leaves, or there are no more lines."""
    using = answering(order.model, order.tools)
    with opened(url) as assistant:
        prepare(assistant)
    return asyncio.run(_chat(screen, url, order, using))


async def _chat(screen: Screen, url: str, order: Order, using: Answering) -> ExitCode:
    async with AsyncExitStack() as stack:
        assistant = AsyncAssistant.from_url(url)
        stack.push_async_callback(assistant.engine.dispose)
        me = assistant.acting_as(_PERSON)
        thread, found = await _thread(me, order.thread)
        host = AssistantHost(
            assistant=assistant,
            caller=_ROBOT,
            model=using.model,
            tools=using.tools,
            system=order.system,
            stale_after=_STALE_AFTER,
        )
        _begin(screen, using, thread)
        teller = Teller(screen, using.tools)
        talk = Talk(
            screen=screen,
            teller=teller,
            lines=Lines(),
            me=me,
            host=host,
            thread_id=thread.id,
            approve=order.approve,
        )
        try:
            if found:
                await talk.show_past()
            code = await talk.run()
        finally:  # Also after Ctrl-C.
            teller.pause()
            screen.say(f"Kept in {shown(url)} as thread {thread.id}.", "dim")
            screen.say(_AT_REST if talk.at_rest else _NOT_OVER, "dim")
        if screen.json:
            screen.data({"ok": code is ExitCode.GOOD, "thread_id": thread.id})
    return code


def _begin(screen: Screen, using: Answering, thread: Thread) -> None:
    if screen.json:
        screen.data({"thread": thread.model_dump(mode="json")})
        return
    screen.say(f"This is {printable(using.name)}. {_COMMANDS}", "bold")


async def _thread(me: AsyncOperations, wanted: str | None) -> tuple[Thread, bool]:
    """Return the thread that is meant, and whether it was there before.

    Without an id it is the newest one that did not come to rest, or a new one.
    """
    if wanted is not None:
        return await me.get_thread(thread_id=wanted), True
    for thread in (await me.list_threads(status="open")).items:
        if thread.turn_state is not TurnState.IDLE:
            return thread, True
    return await me.create_thread(), False
