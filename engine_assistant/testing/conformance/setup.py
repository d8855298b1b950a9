"""What the suite is run against, and what it tells the host of itself beforehand."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import TypeAlias, cast

from engine_assistant import Assistant, AsyncAssistant, Caller
from engine_assistant.testing.clock import Clock
from engine_assistant.testing.conformance.driving import running_loop

__all__ = ["Factory", "Names", "Setup", "Who", "plain_caller", "prepared"]


@dataclass(frozen=True, slots=True)
class Names:
    """The ids of one run of the suite. No other run has the same, so a database may be used again.

    Attributes:
        prefix: every tenant of the run begins with it.
    """

    prefix: str = field(default_factory=lambda: f"conformance-{token_hex(6)}")

    def tenant(self, scenario: str) -> str:
        """Return the tenant in which a scenario plays."""
        return f"{self.prefix}-{scenario}"

    def neighbour(self, scenario: str) -> str:
        """Return another tenant, whose people have the same names."""
        return f"{self.prefix}-{scenario}-neighbour"


@dataclass(frozen=True, slots=True)
class Who:
    """Somebody who takes part.

    Attributes:
        tenant: one of the run's.
        principal: unique within the tenant; the same name stands for somebody else in another.
        keys: the permissions that they hold, and no others.
        system: whether it is a process of the platform.
    """

    tenant: str
    principal: str
    keys: frozenset[str]
    system: bool = False


def plain_caller(who: Who) -> Caller:
    """Return the caller of somebody whose permissions are a set of keys."""
    return Caller(who.tenant, who.principal, who.keys, system=who.system)


@dataclass(frozen=True, slots=True)
class Setup:
    """A configuration of the engine, with migrated tables.

    Attributes:
        assistant: the engine as the host makes it, of either face: its database, schema, pooler,
            limits.
        caller: the host's permission binding: how somebody becomes a `Caller`.
        clock: the clock of `assistant`, where it has one that only tests move. Without one the
            scenarios wait for what takes less than a second, and leave out what takes more.
        cleanup: called once after all of it, whatever came of it; awaited if it must be.
    """

    assistant: Assistant | AsyncAssistant
    caller: Callable[[Who], Caller] = plain_caller
    clock: Clock | None = None
    cleanup: Callable[[], object] | None = None


Factory: TypeAlias = Callable[[Names], Setup | Awaitable[Setup]]
"""Makes the setup of one run. It may be awaited."""


@contextmanager
def prepared(factory: Factory, names: Names | None = None) -> Iterator[Setup]:
    """Make a setup as scenarios play it, and clean it up at the end, whatever came before.

    Scenarios know the synchronous shape. An `AsyncAssistant` is given it, over one event loop in
    which the factory and the cleanup are awaited, too.

    Raises:
        AssertionError: the factory returned something else.
    """
    with running_loop() as loop:
        made = loop.driven(factory(names or Names()))
        assert isinstance(made, Setup), f"the factory returned {type(made).__name__} and no Setup"
        try:
            yield replace(made, assistant=cast("Assistant", loop.driven(made.assistant)))
        finally:
            if made.cleanup is not None:
                try:
                    loop.driven(made.cleanup())
                except Exception as error:
                    error.add_note(
                        "This is the cleanup of the setup; the scenarios stand on their own."
                    )
                    raise
