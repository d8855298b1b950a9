"""Factories for the conformance suite: good ones, and some whose host got something wrong.

Each takes its database from CONFORMANCE_URL.
"""

import os
from dataclasses import replace

from engine_assistant import AUDIT, USE, Assistant, AsyncAssistant, Caller
from engine_assistant.testing.clock import Clock
from engine_assistant.testing.conformance import Names, Setup, Who


def plain(names: Names) -> Setup:
    """Answer the engine on a migrated database, as a host begins."""
    assistant = Assistant.from_url(os.environ["CONFORMANCE_URL"])
    return Setup(assistant, cleanup=assistant.engine.dispose)


async def awaited(names: Names) -> Setup:
    """Answer the same engine, awaited; its pool belongs to the loop of the suite."""
    assistant = AsyncAssistant.from_url(os.environ["CONFORMANCE_URL"])
    await assistant.migrate()
    return Setup(assistant, cleanup=assistant.engine.dispose)


def clocked(names: Names) -> Setup:
    """Answer the same under a clock that can be moved, with a host's own permission binding."""
    clock = Clock()
    assistant = Assistant.from_url(os.environ["CONFORMANCE_URL"], clock=clock)
    return Setup(assistant, _session, clock, assistant.engine.dispose)


def _session(who: Who) -> Caller:
    return Caller(
        tenant=who.tenant,
        principal=who.principal,
        permissions=lambda key: key in who.keys,
        system=who.system,
        channel="web",
    )


def _auditing(who: Who) -> Caller:
    more = {AUDIT} if USE in who.keys else set()
    return Caller(who.tenant, who.principal, who.keys | more, system=who.system)


def everybody_audits(names: Names) -> Setup:
    """Answer a host that gives whoever may use the assistant the right to read everything."""
    return replace(plain(names), caller=_auditing)


async def awaited_and_wrong(names: Names) -> Setup:
    """Answer that host over an engine that is awaited, with a cleanup that fails."""
    made = await awaited(names)
    assert isinstance(made.assistant, AsyncAssistant)
    engine = made.assistant.engine

    async def cleanup() -> None:
        await engine.dispose()
        raise RuntimeError("the pool could not be closed")

    return replace(made, caller=_auditing, cleanup=cleanup)


def cannot_clean_up(names: Names) -> Setup:
    """Answer a setup whose cleanup fails."""
    return replace(plain(names), cleanup=_fail)


def everything_wrong(names: Names) -> Setup:
    """Answer a setup in which the permissions are wrong and the cleanup fails."""
    return replace(everybody_audits(names), cleanup=_fail)


def _fail() -> None:
    raise RuntimeError("the bucket could not be removed")
