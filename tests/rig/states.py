"""Stages: a real thread brought, through the public API alone, into any state of the machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypedDict

import sqlalchemy as sa
from sqlalchemy import Engine

from engine_assistant import (
    RUN,
    USE,
    ApprovalBinding,
    Assistant,
    Caller,
    Limits,
    Operations,
    approval_digest,
)
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.views import CallView, Request

Fields = Mapping[str, object]
Rows = Mapping[str, list[dict[str, object]]]

TENANT, OWNER = "acme", "usr_alice"
TOOL, OPERATION, VERSION, STEP = "refund", "refunds/create", "v1", "s1"
INPUT: dict[str, JsonValue] = {"order": 1234567890123456789, "amount": 1.5}
NO_DIGEST = "0" * 64
SHORT, LONG, LEASE = 5.0, 7200.0, 3600.0
"""Seconds: an expiry that lapses, one that outlives every lease, and a lease."""
BEATS = 15.0
"""Seconds: the lease that a run has when it does not say how long."""

TABLES = {
    "threads": "id",
    "events": "thread_id",
    "inputs": "thread_id",
    "runs": "thread_id",
    "tool_calls": "thread_id",
    "approvals": "thread_id",
    "files": "thread_id",
    "outbox": "thread_id",
}


class Held(TypedDict):
    """What every write of a run carries."""

    thread_id: str
    run_id: str
    fence: int


@dataclass
class Hands:
    """An injected clock that moves only when a test moves it."""

    now: datetime = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Stage:
    """One thread, its owner, the run that holds its lease, and the clock of all of them."""

    engine: Engine
    hands: Hands = field(default_factory=Hands)
    limits: Limits = field(default_factory=Limits)
    run_id: str = "run-1"
    fence: int = 0
    asked: dict[str, Request] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.assistant = Assistant(self.engine, clock=self.hands, limits=self.limits)
        robot = Caller(tenant=TENANT, principal="sys_robot", permissions={RUN}, system=True)
        self.bot = self.assistant.acting_as(robot)
        self.owner = self.person(OWNER)
        self.thread_id = self.owner.create_thread().id

    def person(self, name: str) -> Operations:
        return self.assistant.acting_as(Caller(tenant=TENANT, principal=name, permissions={USE}))

    @property
    def held(self) -> Held:
        return Held(thread_id=self.thread_id, run_id=self.run_id, fence=self.fence)

    # ------------------------------------------------------------ moving

    def begin(self) -> Stage:
        """Open a turn, and take its lease."""
        self.owner.send_message(thread_id=self.thread_id, text="hello")
        return self.acquire()

    def acquire(self, run_id: str | None = None, stale_after: float = LEASE) -> Stage:
        self.run_id = run_id or self.run_id
        lease = self.bot.acquire_run(
            thread_id=self.thread_id, run_id=self.run_id, stale_after=stale_after
        )
        self.fence = lease.fence
        return self

    def renew(self) -> Stage:
        """Acquire with the fence that is held: nobody is replaced, and what lapsed expires."""
        self.bot.acquire_run(**self.held, stale_after=LEASE)
        return self

    def append(self, *events: Fields) -> Stage:
        self.bot.append_events(**self.held, events=events)
        return self

    def propose(self, call: str, *, repeatable: bool = False) -> Stage:
        return self.append(proposal(call, repeatable=repeatable))

    def ask(
        self,
        call: str,
        expires_in: float = LONG,
        *,
        approvers: tuple[str, ...] | None = None,
        required: int = 1,
        reissue: bool = False,
    ) -> Stage:
        self.asked[call] = self.bot.request_approval(
            **self.held,
            call_id=call,
            operation=OPERATION,
            version=VERSION,
            expires_in=expires_in,
            approvers=approvers,
            required=required,
            reissue=reissue,
        )
        return self

    def answer(self, call: str, *, approved: bool = True, by: str = OWNER) -> Stage:
        self.person(by).resolve_approval(
            thread_id=self.thread_id,
            call_id=call,
            approved=approved,
            digest=self.digest(call, by),
            version=VERSION if approved else None,
        )
        return self

    def claim(self, call: str) -> Stage:
        self.bot.claim_execution(
            **self.held, call_id=call, operation=OPERATION, version=VERSION, input=INPUT
        )
        return self

    def retry(self, call: str) -> Stage:
        """Run a lost call again, as what people approved if they had to."""
        gated = self.call(call).operation is not None
        served = {"operation": OPERATION, "version": VERSION, "input": INPUT} if gated else {}
        command = {**self.held, "call_id": call, **served}
        self.bot.call("assistant/retry-call", command)
        return self

    def resolve(self, call: str, *, happened: bool, **more: object) -> Stage:
        """Say, as the owner, what became of a lost call."""
        command = {"thread_id": self.thread_id, "call_id": call, "happened": happened, **more}
        self.owner.call("assistant/resolve-unknown", command)
        return self

    def lapse(self) -> Stage:
        """Let the short expiries pass; the lease and the long ones do not."""
        self.hands.advance(SHORT)
        return self

    # ------------------------------------------------------------ looking

    def digest(self, call: str, by: str = OWNER) -> str:
        request = self.asked.get(call)
        found = () if request is None else request.requests
        return next((slot.digest for slot in found if slot.approver == by), NO_DIGEST)

    def call(self, call: str) -> CallView:
        return self.bot.get_call(thread_id=self.thread_id, call_id=call)

    def state(self, call: str) -> str:
        return self.call(call).state.value

    def says(self, call: str) -> dict[str, str]:
        """Answer the approvals of the call's current request, by person."""
        return {say.approver: say.state.value for say in self.call(call).approvals}

    def turn(self) -> str:
        return self.bot.get_thread(thread_id=self.thread_id).turn_state.value

    def head(self) -> dict[str, object]:
        return self.rows()["threads"][0]

    def rows(self) -> Rows:
        """Answer every stored row of the thread, as the database has it."""
        found: dict[str, list[dict[str, object]]] = {}
        with self.engine.connect() as connection:
            for table, key in TABLES.items():
                query = sa.text(f"SELECT * FROM assistant_{table} WHERE {key} = :thread_id")
                rows = connection.execute(query, {"thread_id": self.thread_id}).mappings()
                found[table] = sorted((dict(row) for row in rows), key=repr)
        return found

    def runs(self) -> dict[int, str]:
        """Answer how each holding of the lease stands, by fence."""
        return {int(str(row["fence"])): str(row["state"]) for row in self.rows()["runs"]}

    def log(self, after: int = 0) -> list[Fields]:
        """Answer the events after a number as plain dicts."""
        page = self.bot.read_events(thread_id=self.thread_id, after=after)
        return [event.model_dump(mode="json") for event in page.events]

    def last_seq(self) -> int:
        return self.bot.get_thread(thread_id=self.thread_id).last_seq


# ---------------------------------------------------------------- events


def proposal(
    call: str, tool: str = TOOL, tool_input: JsonValue = INPUT, *, repeatable: bool = False
) -> Fields:
    event = {"type": "tool-input", "call_id": call, "tool": tool, "step": STEP}
    return {**event, "input": tool_input, "repeatable": repeatable}


def output(call: str) -> Fields:
    return {"type": "tool-output", "call_id": call, "output": {"ok": True}}


def failure(call: str) -> Fields:
    return {"type": "tool-error", "call_id": call, "code": "broken", "message": "it broke"}


def finish(reason: str) -> Fields:
    return {"type": "turn-finish", "reason": reason}


def turn_error() -> Fields:
    return {"type": "turn-error", "code": "model", "message": "the model is gone"}


def ready_request(
    stage: Stage,
    call: str,
    *,
    approvers: tuple[str, ...] = (OWNER,),
    expires_in: float = LONG,
    nonce: str = "n1",
    tool_input: JsonValue = INPUT,
    **changes: object,
) -> dict[str, object]:
    """Make a request as a host would that mints for itself; `changes` come after the digest."""
    expires = stage.hands.now + timedelta(seconds=expires_in)
    expires_at = expires.strftime("%Y-%m-%dT%H:%M:%S.") + f"{expires.microsecond // 1000:03d}Z"
    slots = []
    for approver in approvers:
        digest = approval_digest(
            ApprovalBinding(
                version=VERSION,
                approver=approver,
                tenant=TENANT,
                thread=stage.thread_id,
                step=STEP,
                call=call,
                operation=OPERATION,
                expires_at=expires_at,
                nonce=nonce,
                input=tool_input,
            )
        )
        slots.append({"approver": approver, "nonce": nonce, "digest": digest})
    return {
        "type": "approval-request",
        "call_id": call,
        "tool": TOOL,
        "input": tool_input,
        "step": STEP,
        "operation": OPERATION,
        "version": VERSION,
        "expires_at": expires_at,
        "required": 1,
        "requests": slots,
        **changes,
    }


# ---------------------------------------------------------------- situations of a call


@dataclass(frozen=True)
class Situation:
    """A state of a call, and one of the ways into it.

    `prepare` starts from and ends in an open turn whose lease the stage holds. What `lapses`
    is ripe only after `Stage.lapse`.
    """

    state: str
    prepare: Callable[[Stage, str], object]
    lapses: bool = False

    def reach(self, stage: Stage, call: str) -> Stage:
        """Bring a new stage here."""
        self.prepare(stage.begin(), call)
        return stage.lapse() if self.lapses else stage


def _ask(stage: Stage, call: str, expires_in: float = LONG, *, repeatable: bool = False) -> Stage:
    return stage.propose(call, repeatable=repeatable).ask(call, expires_in)


def _approve(
    stage: Stage, call: str, expires_in: float = LONG, *, repeatable: bool = False
) -> Stage:
    return _ask(stage, call, expires_in, repeatable=repeatable).answer(call)


def _claim(stage: Stage, call: str) -> Stage:
    return _approve(stage, call).claim(call)


def _lose(stage: Stage, call: str, expires_in: float = LONG, *, gated: bool) -> Stage:
    """Lose a call that may be tried again."""
    if gated:
        _approve(stage, call, expires_in, repeatable=True).claim(call)
    else:
        stage.propose(call, repeatable=True)
    return stage.acquire()


def _cancel(stage: Stage) -> Stage:
    return stage.append(finish("interrupted")).begin()


def _supersede(stage: Stage, call: str) -> Stage:
    _ask(stage, call).append(finish("awaiting-approval"))
    stage.owner.send_message(thread_id=stage.thread_id, text="never mind", supersede_approvals=True)
    return stage.acquire()


SITUATIONS: Mapping[str, Situation] = {
    "running": Situation("running", Stage.propose),
    "awaiting": Situation("awaiting-approval", _ask),
    "awaiting, lapsed": Situation("awaiting-approval", lambda s, c: _ask(s, c, SHORT), lapses=True),
    "approved": Situation("approved", _approve),
    "approved, lapsed": Situation("approved", lambda s, c: _approve(s, c, SHORT), lapses=True),
    "denied": Situation("denied", lambda s, c: _ask(s, c).answer(c, approved=False)),
    "executing": Situation("executing", _claim),
    "done, ungated": Situation("done", lambda s, c: s.propose(c).append(output(c))),
    "done, gated": Situation("done", lambda s, c: _claim(s, c).append(output(c))),
    "failed, ungated": Situation("failed", lambda s, c: s.propose(c).append(failure(c))),
    "failed, gated": Situation("failed", lambda s, c: _claim(s, c).append(failure(c))),
    "failed, unclaimed": Situation("failed", lambda s, c: _approve(s, c).append(failure(c))),
    "expired, unanswered": Situation("expired", lambda s, c: _ask(s, c, SHORT).lapse().renew()),
    "expired, unclaimed": Situation("expired", lambda s, c: _approve(s, c, SHORT).lapse().renew()),
    "superseded": Situation("superseded", _supersede),
    "cancelled, ungated": Situation("cancelled", lambda s, c: _cancel(s.propose(c))),
    "cancelled, awaiting": Situation("cancelled", lambda s, c: _cancel(_ask(s, c))),
    "cancelled, approved": Situation("cancelled", lambda s, c: _cancel(_approve(s, c))),
    "unknown, ungated": Situation("unknown", lambda s, c: s.propose(c).acquire()),
    "unknown, gated": Situation("unknown", lambda s, c: _claim(s, c).acquire()),
    "unknown, ungated, repeatable": Situation("unknown", lambda s, c: _lose(s, c, gated=False)),
    "unknown, gated, repeatable": Situation("unknown", lambda s, c: _lose(s, c, gated=True)),
    "unknown, lapsed": Situation(
        "unknown", lambda s, c: _lose(s, c, SHORT, gated=True), lapses=True
    ),
    "running, again": Situation("running", lambda s, c: _lose(s, c, gated=False).retry(c)),
    "executing, again": Situation("executing", lambda s, c: _lose(s, c, gated=True).retry(c)),
    "done, resolved": Situation(
        "done", lambda s, c: _lose(s, c, gated=True).resolve(c, happened=True, output="so")
    ),
    "cancelled, resolved": Situation(
        "cancelled", lambda s, c: _lose(s, c, gated=False).resolve(c, happened=False)
    ),
}
"""Every state, by every way that leaves another trace on the row."""
