"""What scenarios are written with: people of two tenants, runs, and one gated call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Final, TypedDict, TypeVar

import pytest

from engine_assistant import (
    AUDIT,
    RUN,
    USE,
    AsyncAssistant,
    Caller,
    Conflict,
    ConflictReason,
    Operations,
    Raced,
)
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.events import Event
from engine_assistant.testing.conformance.setup import Names, Setup, Who
from engine_assistant.testing.polling import poll_until

__all__ = ["INPUT", "Held", "Stage", "finish", "later", "output", "proposal", "words"]

T = TypeVar("T")
Fields = Mapping[str, object]

INPUT: Final[Mapping[str, JsonValue]] = {"order": 1234567890123456789, "amount": 1.5}
"""What a call would do. Its number does not fit into a double."""

SHORT: Final = 0.05
"""Seconds that a lease or a request lasts whose end a scenario waits for."""

PATIENCE: Final = 30.0


class Held(TypedDict):
    """What every write of a run carries."""

    thread_id: str
    run_id: str
    fence: int


def later(held: Held) -> Held:
    """Return what a run would present that guessed the next fence."""
    return Held(thread_id=held["thread_id"], run_id=held["run_id"], fence=held["fence"] + 1)


def words(text: str) -> Fields:
    """Return the event that carries a piece of the answer."""
    return {"type": "text-delta", "text": text}


def proposal(call_id: str = "call-1", *, repeatable: bool = False) -> Fields:
    """Return the event that proposes a call."""
    call = {"call_id": call_id, "tool": "refund", "step": "1", "input": INPUT}
    return {"type": "tool-input", **call, "repeatable": repeatable}


def output(call_id: str = "call-1") -> Fields:
    """Return the event that ends a call well."""
    return {"type": "tool-output", "call_id": call_id, "output": {"ok": True}}


def finish(reason: str = "done") -> Fields:
    """Return the event that rests a turn."""
    return {"type": "turn-finish", "reason": reason}


class Stage:
    """One scenario's people, in a tenant of its own.

    Attributes:
        me: Alice, who owns what is not said to be somebody else's.
        bob: another person of her tenant.
        auditor: one who may read everybody's threads there.
        bot: the assistant's process.
        stranger: somebody called Alice in another tenant, who may read everything there.
    """

    def __init__(self, setup: Setup, names: Names, scenario: str) -> None:
        assistant = setup.assistant
        assert not isinstance(assistant, AsyncAssistant), "play an AsyncAssistant under `prepared`"
        self.setup = setup
        self.assistant = assistant
        self.tenant = names.tenant(scenario)
        self.neighbour = names.neighbour(scenario)
        self.me = self.acting("alice", USE)
        self.bob = self.acting("bob", USE)
        self.auditor = self.acting("auditor", USE, AUDIT)
        self.bot = self.acting("bot", RUN, system=True)
        self.stranger = self.acting("alice", USE, AUDIT, tenant=self.neighbour)

    def caller(
        self, principal: str, *keys: str, system: bool = False, tenant: str | None = None
    ) -> Caller:
        """Return somebody through the host's permission binding."""
        who = Who(tenant or self.tenant, principal, frozenset(keys), system=system)
        made = self.setup.caller(who)
        assert (made.tenant, made.principal, made.system) == (who.tenant, principal, system)
        return made

    def acting(
        self, principal: str, *keys: str, system: bool = False, tenant: str | None = None
    ) -> Operations:
        """Return what somebody can do."""
        caller = self.caller(principal, *keys, system=system, tenant=tenant)
        return self.assistant.acting_as(caller)

    def owner(self, tenant: str | None = None) -> Caller:
        """Return Alice, for the doors that take a caller."""
        return self.caller("alice", USE, tenant=tenant)

    def keeper(self, tenant: str | None = None) -> Caller:
        """Return the process that brings threads in and out."""
        return self.caller("keeper", RUN, system=True, tenant=tenant)

    # ------------------------------------------------------------ steps

    def opened(self, text: str = "Please refund order 7") -> str:
        """Open a thread and its first turn; return its id."""
        thread = self.me.create_thread(title="Refund")
        self.me.send_message(thread_id=thread.id, text=text)
        return thread.id

    def take(self, thread_id: str, run_id: str = "run-a", stale_after: float = 15.0) -> Held:
        """Take the lease."""
        lease = self.bot.acquire_run(thread_id=thread_id, run_id=run_id, stale_after=stale_after)
        return Held(thread_id=thread_id, run_id=run_id, fence=lease.fence)

    def running(self, stale_after: float = 15.0) -> Held:
        """Open a turn that is run."""
        return self.take(self.opened(), stale_after=stale_after)

    def take_over(self, thread_id: str, run_id: str = "run-b") -> Held:
        """Replace a run whose lease was taken for `SHORT`, once that is over."""
        taken: list[Held] = []

        def tried() -> bool:
            try:
                taken.append(self.take(thread_id, run_id))
            except Conflict as error:
                if error.reason is not ConflictReason.RUN_IN_PROGRESS:
                    raise
            return bool(taken)

        self.wait_until(tried, SHORT)
        return taken[0]

    def ask(
        self,
        held: Held,
        *approvers: str,
        required: int = 1,
        expires_in: float = 600,
        repeatable: bool = False,
    ) -> str:
        """Propose the call and ask whether it may run; return the first one's digest."""
        self.bot.append_events(**held, events=[proposal(repeatable=repeatable)])
        asked = self.bot.request_approval(
            **held,
            call_id="call-1",
            operation="refunds/create",
            version="v1",
            expires_in=expires_in,
            approvers=approvers or None,
            required=required,
        )
        return asked.requests[0].digest

    def decide(
        self, held: Held, digest: str, *, approved: bool = True, by: Operations | None = None
    ) -> None:
        """Answer the request."""
        (by or self.me).resolve_approval(
            thread_id=held["thread_id"],
            call_id="call-1",
            approved=approved,
            digest=digest,
            version="v1",
        )

    def approved(self, stale_after: float = 15.0) -> Held:
        """Come to where the call may be claimed."""
        held = self.running(stale_after)
        self.decide(held, self.ask(held))
        return held

    def claim(self, held: Held, attempt: int | None = None) -> None:
        """Take the one right to run the call."""
        self.bot.claim_execution(
            **held,
            call_id="call-1",
            operation="refunds/create",
            version="v1",
            input=dict(INPUT),
            attempt=attempt,
        )

    # ------------------------------------------------------------ looking

    def log(self, thread_id: str) -> tuple[Event, ...]:
        """Return the whole log, whose numbers must be 1, 2, 3 and on."""
        events: list[Event] = []
        while True:
            page = self.auditor.read_events(thread_id=thread_id, after=len(events), limit=50)
            events += page.events
            if page.last_seq == page.head_seq:
                break
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        return tuple(events)

    def types(self, thread_id: str) -> list[str]:
        """Return the types of the whole log."""
        return [event.type for event in self.log(thread_id)]

    def state(self, thread_id: str) -> str:
        """Return the state of the call."""
        return self.me.get_call(thread_id=thread_id, call_id="call-1").state

    @contextmanager
    def refused(self, reason: ConflictReason, thread_id: str) -> Iterator[None]:
        """Expect a refusal with this reason, which leaves the log as it was."""
        before = self.log(thread_id)
        with pytest.raises(Conflict) as refusal:
            yield
        assert refusal.value.reason == reason
        assert self.log(thread_id) == before

    # ------------------------------------------------------------ time

    def wait_until(self, true: Callable[[], bool], seconds: float) -> None:
        """Let so many seconds pass, by the setup's clock or the world's; it must be true then."""
        if self.setup.clock is None:
            poll_until(true, lambda: f"{seconds} s passed in vain", PATIENCE)
        else:
            self.setup.clock.forward(seconds)
            assert true(), f"{seconds} s passed in vain"

    def forward(self, seconds: float) -> None:
        """Let time pass that nobody waits for: only a clock that can be moved shows it."""
        if self.setup.clock is None:
            pytest.skip(f"it takes {seconds:g} s, and this setup has no clock that can be moved")
        self.setup.clock.forward(seconds)

    # ------------------------------------------------------------ at once

    def at_once(self, sides: Sequence[Callable[[], T]]) -> list[T | Conflict]:
        """Run all of these in threads; return what each was answered, or refused with."""
        with ThreadPoolExecutor(len(sides)) as pool:
            return list(pool.map(_told, sides))


def _told(side: Callable[[], T]) -> T | Conflict:
    end = monotonic() + PATIENCE
    while True:
        try:
            return side()
        except Conflict as error:
            return error
        except Raced:
            # A host may have said that nothing is to be tried again.
            if monotonic() > end:
                raise
