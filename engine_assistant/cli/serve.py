"""`engine-assistant host`: a process that runs the turns of every tenant."""

import asyncio
import gc
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from signal import SIGINT, SIGTERM
from typing import NamedTuple

from engine_assistant import (
    RUN,
    AssistantError,
    AsyncAssistant,
    Caller,
    Observer,
    Runnable,
    ValidationFailed,
    migrate,
)
from engine_assistant.cli.answering import Answering, answering
from engine_assistant.cli.database import shown
from engine_assistant.cli.exits import ExitCode
from engine_assistant.cli.look import looked_at
from engine_assistant.cli.options import Endpoint
from engine_assistant.cli.screen import Screen, printable
from engine_assistant.host import AssistantHost, HostObserver, Service, TurnReport, serve_health

__all__ = ["Order", "serve"]


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the command was told. Times are seconds."""

    model: str
    tools: str | None
    system: str | None
    concurrency: int
    every: float
    stale_after: float
    grace: float
    health: Endpoint | None


def serve(screen: Screen, url: str, order: Order) -> ExitCode:
    """Run turns until it is told to stop and those that run have come to rest."""
    using = answering(order.model, order.tools)
    with looked_at(url) as assistant, assistant.engine.connect() as connection:
        migrate.check(connection)
    return asyncio.run(_serve(screen, url, order, using))


async def _serve(screen: Screen, url: str, order: Order, using: Answering) -> ExitCode:
    async with AsyncExitStack() as stack:
        seen = _seen()
        assistant = AsyncAssistant.from_url(url, observer=seen.operations)
        stack.push_async_callback(assistant.engine.dispose)
        host = AssistantHost(
            assistant=assistant,
            # The service takes the tenant of each thread.
            caller=Caller(
                tenant="every", principal="sys_assistant", permissions={RUN}, system=True
            ),
            model=using.model,
            tools=using.tools,
            system=order.system,
            stale_after=order.stale_after,
            observer=seen.turns,
        )
        service = Service(
            host,
            concurrency=order.concurrency,
            every=order.every,
            longest_pause=max(60.0, order.every),
            grace=order.grace,
            on_report=lambda one, report: _tell(screen, one, report),
        )
        at = await _tell_health(stack, service, order.health)
        _begin(screen, url, order, using, at)
        # What was loaded so far is never garbage: the collector need not look at it in a turn.
        gc.collect()
        gc.freeze()
        await service.run(stop_on=(SIGTERM, SIGINT))
        health = service.health
    if screen.json:
        screen.data({"ok": True, "picked_up": health.picked_up, "failed": health.failed})
    else:
        screen.say(f"Stopped. Turns run: {health.picked_up}, of which failed: {health.failed}.")
    return ExitCode.GOOD


class _Seen(NamedTuple):
    """Who looks on."""

    operations: Observer | None = None
    turns: HostObserver | None = None


def _seen() -> _Seen:
    """Return what tells OpenTelemetry, if that is installed: its environment says where it goes."""
    try:
        from engine_assistant.telemetry import observe, observe_host
    except ModuleNotFoundError:
        return _Seen()
    return _Seen(observe(), observe_host())


async def _tell_health(
    stack: AsyncExitStack, service: Service, asked: Endpoint | None
) -> Endpoint | None:
    """Answer for the service's health where that is asked for, and return where that is."""
    if asked is None:
        return None
    try:
        port = await stack.enter_async_context(
            serve_health(service, asked.port, address=asked.address)
        )
    except OSError:
        raise ValidationFailed(f"Nobody can listen on {asked}.", path="health") from None
    return asked._replace(port=port)


def _begin(screen: Screen, url: str, order: Order, using: Answering, at: Endpoint | None) -> None:
    if screen.json:
        screen.data({"serving": shown(url), "model": using.name, "health_port": at and at.port})
    else:
        most = order.concurrency
        screen.say(f"Serving {shown(url)} with {printable(using.name)}, {most} at a time.")
        if at is not None:
            screen.say(f"Health: http://{at}/health")
        screen.say("Ctrl-C lets what runs come to rest; a second one does not wait.", "dim")
    sys.stdout.flush()


def _tell(screen: Screen, one: Runnable, report: TurnReport) -> None:
    code, message = _of(report.error)
    if screen.json:
        screen.data(
            {
                "tenant": one.tenant,
                "thread_id": one.thread_id,
                "turn": one.turn,
                "fence": report.fence,
                "ended": report.ended.value,
                "error": code,
                "message": message,
            }
        )
    else:
        why = f" ({': '.join(filter(None, (code, message)))})" if code else ""
        screen.say(
            f"{printable(one.tenant)} {one.thread_id}  turn {one.turn}  {report.ended.value}{why}"
        )
    sys.stdout.flush()


def _of(error: Exception | None) -> tuple[str | None, str | None]:
    """Return what may be told of an error: all of ours, and of any other its kind."""
    if isinstance(error, AssistantError):
        return error.code, error.message
    return (None if error is None else type(error).__name__), None
