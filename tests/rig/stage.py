"""A stage for operations: people of two tenants, a clock by hand, and a record in mid-play.

`Stage.set` leaves one thread whose turn is open under a lease, with a call in each state that an
operation needs, so that for every operation there is one input that is right in every field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import sqlalchemy as sa

from engine_assistant import (
    AUDIT,
    RUN,
    USE,
    Assistant,
    AssistantError,
    Caller,
    Conflict,
    ConflictReason,
    Operations,
)
from engine_assistant.store import tables
from engine_assistant.testing.clock import Clock

Values = dict[str, object]
Rows = Mapping[str, list[tuple[object, ...]]]

ALICE = Caller(tenant="acme", principal="usr_alice", permissions={USE}, channel="web")
BOB = Caller(tenant="acme", principal="usr_bob", permissions={USE})
CAROL = Caller(tenant="acme", principal="usr_carol", permissions={USE})
AUDITOR = Caller(tenant="acme", principal="usr_auditor", permissions={USE, AUDIT})
ROBOT = Caller(tenant="acme", principal="sys_robot", permissions={RUN}, system=True)

TWIN = {
    "owner": Caller(tenant="evil", principal="usr_alice", permissions={USE, AUDIT}),
    "run": Caller(tenant="evil", principal="sys_robot", permissions={RUN}, system=True),
}
"""The same principals in another tenant."""

INPUT = {"order": 1234567890123456789, "amount": 1.5}
ASKED: Values = {"operation": "refunds/create", "version": "v1"}

PERSON_OPERATIONS = {
    "assistant/create-thread",
    "assistant/close-thread",
    "assistant/resolve-unknown",
    "assistant/authorize-file-upload",
    "assistant/send-message",
    "assistant/interrupt-turn",
    "assistant/edit-input",
    "assistant/cancel-input",
    "assistant/resolve-approval",
}
READING_OPERATIONS = {
    "assistant/get-thread",
    "assistant/get-run",
    "assistant/list-runs",
    "assistant/list-threads",
    "assistant/read-events",
    "assistant/list-inputs",
    "assistant/list-approvals",
    "assistant/get-call",
    "assistant/list-calls",
    "assistant/history",
    "assistant/list-compactions",
}
RUN_OPERATIONS = {
    "assistant/register-file",
    "assistant/record-operation",
    "assistant/put-context",
    "assistant/get-context",
    "assistant/retry-call",
    "assistant/append-events",
    "assistant/acquire-run",
    "assistant/beat-run",
    "assistant/release-run",
    "assistant/take-inputs",
    "assistant/abandon-turn",
    "assistant/request-approval",
    "assistant/claim-execution",
    "assistant/settle-execution",
    "assistant/compact",
    "assistant/seed-thread",
}


@dataclass
class Stage:
    """One database with everybody on it."""

    engine: sa.Engine
    clock: Clock = field(default_factory=Clock)
    real_time: bool = False
    """Take the database's clock instead. The append of plain events is one statement only so."""

    def __post_init__(self) -> None:
        self.assistant = Assistant(self.engine, clock=None if self.real_time else self.clock)
        self.me = self.assistant.acting_as(ALICE)
        self.bob = self.assistant.acting_as(BOB)
        self.bot = self.assistant.acting_as(ROBOT)

    # ------------------------------------------------------------ steps

    def open_turn(self, run_id: str = "r1", text: str = "Hello") -> Values:
        """Open a thread and its first turn; answer what a run says with every write."""
        thread = self.me.create_thread(title="Refund")
        self.me.send_message(thread_id=thread.id, text=text)
        return self.take(thread.id, run_id)

    def take(self, thread_id: str, run_id: str = "r1", stale_after: float = 15.0) -> Values:
        lease = self.bot.acquire_run(thread_id=thread_id, run_id=run_id, stale_after=stale_after)
        return {"thread_id": thread_id, "run_id": run_id, "fence": lease.fence}

    def propose(self, run: Values, call_id: str, **given: object) -> None:
        self.append(run, propose(call_id, **given))

    def append(self, run: Values, *events: Values, batch: int | None = None) -> list[int]:
        values = {**run, "events": list(events), "batch": batch}
        answer = self.bot.call("assistant/append-events", values)
        written = answer["events"]
        assert isinstance(written, list)
        return [event["seq"] for event in written]

    def ask(self, run: Values, call_id: str, **given: object) -> dict[str, str]:
        """Ask for approval; answer each approver's digest."""
        values = {**run, "call_id": call_id, **ASKED, "expires_in": 600.0, **given}
        answer = self.bot.call("assistant/request-approval", values)
        requests = answer["requests"]
        assert isinstance(requests, list)
        return {one["approver"]: one["digest"] for one in requests}

    def approve(self, run: Values, call_id: str, digest: str, who: Caller = ALICE) -> None:
        self.assistant.acting_as(who).resolve_approval(
            thread_id=str(run["thread_id"]),
            call_id=call_id,
            approved=True,
            digest=digest,
            version="v1",
        )

    def claim(self, run: Values, call_id: str, **given: object) -> None:
        values = {**run, "call_id": call_id, **ASKED, "input": INPUT, **given}
        self.bot.call("assistant/claim-execution", values)

    def lose(self, call_id: str = "lost", **given: object) -> Values:
        """Open a turn in which a claimed call became unknown; answer the lease after that one."""
        run = self.open_turn("r0")
        self.propose(run, call_id, **{"repeatable": True, **given})
        self.approve(run, call_id, self.ask(run, call_id)["usr_alice"])
        self.claim(run, call_id, **{name: given[name] for name in ("input",) if name in given})
        self.bot.release_run(thread_id=str(run["thread_id"]), run_id="r0", fence=1)
        return self.take(str(run["thread_id"]))

    def rest(self, run: Values, reason: str = "done") -> None:
        self.append(run, {"type": "turn-finish", "reason": reason})

    def types(self, run: Values) -> list[str]:
        page = self.me.read_events(thread_id=str(run["thread_id"]))
        return [event.type for event in page.events]

    def state_of(self, run: Values, call_id: str) -> str:
        return self.me.get_call(thread_id=str(run["thread_id"]), call_id=call_id).state

    # ------------------------------------------------------------ the whole play

    def set(self) -> Play:
        """Open a turn with a call in every state; make an idle thread with a file, and a busy one.

        On the busy one a message waits, so that on the others nobody pays for a queue.
        """
        run = self.open_turn()
        for call_id in ("running", "waiting", "approved", "executing"):
            self.propose(run, call_id)
        digests = self.ask(run, "waiting", approvers=["usr_alice", "usr_bob"])
        for call_id in ("approved", "executing"):
            self.approve(run, call_id, self.ask(run, call_id)["usr_alice"])
        self.claim(run, "executing")
        idle = self.me.create_thread(title="Idle").id
        file = self.bot.register_file(
            thread_id=idle,
            filename="a.pdf",
            content_type="application/pdf",
            size=1,
            sha256="0" * 64,
        )
        busy = self.me.create_thread(title="Busy").id
        self.me.send_message(thread_id=busy, text="First")
        waits = self.me.send_message(thread_id=busy, text="Second", when_busy="queue", key="m-2")
        head = self.me.get_thread(thread_id=str(run["thread_id"])).last_seq
        lost = self.lose()
        self.bot.call("assistant/put-context", {**lost, "state": "private"})
        return Play(self, run, digests, idle, file.id, busy, waits.input_id, head, lost)


@dataclass(frozen=True)
class Play:
    """The record that `Stage.set` made, and a right input for every operation on it."""

    stage: Stage
    run: Values
    digests: dict[str, str]
    idle: str
    file_id: str
    busy: str
    input_id: str
    head: int
    lost: Values
    """What a run says on a thread whose call may or may not have happened."""

    @property
    def thread_id(self) -> str:
        return str(self.run["thread_id"])

    def caller(self, name: str) -> Caller:
        return ALICE if name in PERSON_OPERATIONS | READING_OPERATIONS else ROBOT

    def operations(self, name: str) -> Operations:
        return self.stage.assistant.acting_as(self.caller(name))

    def call(self, name: str, values: Values) -> dict[str, object]:
        return self.operations(name).call(name, values)

    def right(self, name: str) -> Values:
        """Answer an input with every field given, and nothing wrong with it."""
        return dict(_RIGHT[name](self))


def _page(play: Play, **given: object) -> Values:
    return {"thread_id": play.thread_id, "limit": 10, **given}


_RIGHT: dict[str, Callable[[Play], Values]] = {
    "assistant/create-thread": lambda _: {"title": "Title", "key": "k-1"},
    "assistant/get-thread": lambda p: {"thread_id": p.thread_id},
    "assistant/list-threads": lambda _: {"subject": "usr_alice", "status": "open", "limit": 10},
    "assistant/close-thread": lambda p: {"thread_id": p.thread_id},
    "assistant/get-run": lambda p: {"thread_id": p.thread_id, "fence": p.run["fence"]},
    "assistant/list-runs": lambda p: _page(p, state="running"),
    "assistant/record-operation": lambda p: {
        **p.run,
        "operation_id": "o-1",
        "kind": "model",
        "phase": "streaming",
        "step": "s1",
        "first_output": True,
    },
    "assistant/put-context": lambda p: {**p.lost, "state": "opaque"},
    "assistant/get-context": lambda p: dict(p.lost),
    "assistant/retry-call": lambda p: {
        **p.lost,
        "call_id": "lost",
        **ASKED,
        "input": INPUT,
        "attempt": 1,
    },
    "assistant/resolve-unknown": lambda p: {
        "thread_id": p.lost["thread_id"],
        "call_id": "lost",
        "happened": True,
        "output": {"ok": True},
        "reason": "the bank says so",
    },
    "assistant/authorize-file-upload": lambda p: {"thread_id": p.thread_id},
    "assistant/interrupt-turn": lambda p: {"thread_id": p.thread_id},
    "assistant/send-message": lambda p: {
        "thread_id": p.idle,
        "text": "Hello",
        "attachment_ids": [p.file_id],
        "key": "m-1",
        "supersede_approvals": False,
        "when_busy": "queue",
        "priority": "next",
        "coalesce": True,
    },
    "assistant/list-inputs": lambda p: {"thread_id": p.busy, "state": "queued", "limit": 10},
    "assistant/edit-input": lambda p: {
        "thread_id": p.busy,
        "input_id": p.input_id,
        "text": "Better",
        "attachment_ids": [],
    },
    "assistant/cancel-input": lambda p: {"thread_id": p.busy, "input_id": p.input_id},
    "assistant/take-inputs": lambda p: dict(p.run),
    "assistant/abandon-turn": lambda p: {
        "thread_id": p.thread_id,
        "reason": "its process is gone",
        "fence": p.run["fence"],
        "turn": 1,
    },
    "assistant/register-file": lambda p: {
        "thread_id": p.thread_id,
        "filename": "b.png",
        "content_type": "image/png",
        "size": 10,
        "sha256": "a" * 64,
    },
    "assistant/read-events": lambda p: _page(p, after=1),
    "assistant/append-events": lambda p: {
        **p.run,
        "events": [{"type": "text-delta", "text": "x"}],
        "batch": 1,
    },
    "assistant/acquire-run": lambda p: {**p.run, "stale_after": 15.0},
    "assistant/beat-run": lambda p: dict(p.run),
    "assistant/release-run": lambda p: dict(p.run),
    "assistant/request-approval": lambda p: {
        **p.run,
        "call_id": "running",
        **ASKED,
        "expires_in": 60.0,
        "approvers": ["usr_alice"],
        "required": 1,
        "reissue": False,
        "why": "it costs money",
    },
    "assistant/resolve-approval": lambda p: {
        "thread_id": p.thread_id,
        "call_id": "waiting",
        "approved": True,
        "digest": p.digests["usr_alice"],
        "version": "v1",
        "reason": "fine",
    },
    "assistant/list-approvals": lambda p: _page(p, state="pending"),
    "assistant/claim-execution": lambda p: {
        **p.run,
        "call_id": "approved",
        **ASKED,
        "input": INPUT,
        "attempt": 1,
    },
    "assistant/settle-execution": lambda p: {
        "thread_id": p.thread_id,
        "call_id": "executing",
        "claimed_fence": p.run["fence"],
        "output": {"ok": True},
    },
    "assistant/get-call": lambda p: {"thread_id": p.thread_id, "call_id": "waiting"},
    "assistant/list-calls": lambda p: _page(p, state="running"),
    "assistant/history": lambda p: {"thread_id": p.thread_id, "budget": 10_000},
    "assistant/compact": lambda p: {
        "thread_id": p.thread_id,
        "from_seq": 1,
        "to_seq": 2,
        "summary": "Alice greets.",
        "expected_head": p.head,
    },
    "assistant/list-compactions": _page,
    "assistant/seed-thread": lambda _: {
        "subject": "usr_alice",
        "key": "seeded-1",
        "messages": [{"role": "user", "text": "Hello"}, {"role": "assistant", "text": "Hi"}],
        "title": "Before",
    },
}


def propose(call_id: str, **given: object) -> Values:
    """Answer the event that proposes a call."""
    event: Values = {"type": "tool-input", "call_id": call_id, "tool": "refund", "input": INPUT}
    return {**event, "step": "s1", **given}


def delta(text: str) -> Values:
    """Answer the event that carries a piece of the answer."""
    return {"type": "text-delta", "text": text}


def dump(engine: sa.Engine) -> Rows:
    """Answer every row of every table, so that two dumps are equal if nothing was written."""
    # Readers of SQLite take no lock, so this looks past a writer.
    with engine.execution_options(assistant_begin="DEFERRED").connect() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(_in_order(table))]
            for table in tables.METADATA.sorted_tables
        }


def _in_order(table: sa.Table) -> sa.Select[tuple[object, ...]]:
    return sa.select(table).order_by(*table.primary_key.columns)


@contextmanager
def refused(
    kind: type[AssistantError] | ConflictReason, **facts: object
) -> Iterator[pytest.ExceptionInfo[AssistantError]]:
    """Expect a refusal of this kind, or a conflict of this reason, that carries these facts."""
    wanted = Conflict if isinstance(kind, ConflictReason) else kind
    with pytest.raises(wanted) as refusal:
        yield refusal
    if isinstance(kind, ConflictReason):
        assert refusal.value.to_dict()["reason"] == kind.value
    assert facts.items() <= dict(refusal.value.facts).items(), dict(refusal.value.facts)


def everything_said(error: AssistantError) -> str:
    """Answer all that a log could take from an error and from what it is chained to."""
    said: list[str] = [repr(error.to_dict())]
    seen: list[BaseException] = [error]
    for one in seen:
        said += [repr(one), str(one), repr(one.args)]
        seen += [
            other
            for other in (one.__cause__, one.__context__)
            if other is not None and other not in seen
        ]
    return "\n".join(said)
