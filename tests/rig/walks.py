"""A random walk: each command goes to the engine and to the model, and both must agree."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sqlalchemy import Engine

from engine_assistant import AssistantError, Conflict
from engine_assistant.model.views import Settled
from engine_assistant.store.tables import threads
from tests.rig import drawn
from tests.rig.drawn import HOPEFUL, INPUTS, START, Drawn, Wanted, asks, mostly, seldom
from tests.rig.model import PLAIN, Ask, Event, Model, Refused
from tests.rig.states import NO_DIGEST, OPERATION, VERSION, Stage

T = TypeVar("T")

COMMANDS = (
    "send", "interrupt", "close", "resolve", "acquire", "beat", "release", "append",
    "propose_and_ask", "request", "claim", "settle", "time_passes",
)  # fmt: skip
WHILE: Mapping[str, Mapping[str, int]] = {
    # how often each command is given in which state of the turn
    "idle": {"send": 12, "settle": 2, "resolve": 1, "time_passes": 1, "close": 1},
    "open": {
        "append": 9, "propose_and_ask": 5, "request": 4, "resolve": 6, "claim": 7, "settle": 3,
        "acquire": 2, "beat": 1, "release": 1, "interrupt": 3, "time_passes": 4, "close": 1,
    },
    "awaiting": {
        "resolve": 9, "acquire": 6, "request": 5, "append": 2, "send": 3, "time_passes": 6,
        "interrupt": 1, "settle": 1, "beat": 1, "release": 1, "close": 1,
    },
}  # fmt: skip
WITHOUT_RUN = {
    "acquire": 16, "resolve": 3, "settle": 2, "interrupt": 1, "append": 1, "beat": 1,
    "time_passes": 1, "close": 1,
}  # fmt: skip
AFTER_CLOSE = {"settle": 4, "send": 1, "claim": 1, "resolve": 1, "append": 1}
LONGEST = 3
"""Turns that a walk takes before its thread may be closed."""


class Draw(Protocol):
    """How a command draws its values."""

    def __call__(self, strategy: st.SearchStrategy[T], /) -> T: ...


def moment(milliseconds: int) -> datetime:
    """Answer the time that is so many milliseconds after the start of a walk."""
    return START + timedelta(milliseconds=milliseconds)


class Walk(RuleBasedStateMachine):
    """One thread on a real database, and the model of it."""

    engine: Engine

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage(self.engine)
        self.model = Model()
        self.digests: dict[tuple[str, int], dict[str, str]] = {}
        self.given: list[Event] = []
        self.asked: Ask | None = None
        self.expected: object = None
        self.checked = self.nonces = self.steps = 0

    # ------------------------------------------------------------ both sides at once

    def both(self, engine: Callable[[], T], model: Callable[[], object]) -> T | None:
        """Do it on both sides. Answer the engine's answer, or None when both refused."""
        self.steps += 1
        reason: str | None = None
        try:
            with self.model.trying():
                self.expected = model()
        except Refused as refused:
            reason = refused.reason
        try:
            answer = engine()
        except AssistantError as error:
            found = error.reason.value if isinstance(error, Conflict) else error.code
            assert found == reason, f"the engine refused with {found}, the model: {reason}"
            return None
        assert reason is None, f"the engine admitted what the model refuses with {reason}"
        return answer

    def rarely(self) -> bool:
        """Say whether what cannot succeed is tried all the same."""
        return self.steps % 7 == 0

    def holder(self, draw: Draw) -> str:
        return draw(drawn.runs) or self.model.run or "run-1"

    def fence(self, draw: Draw) -> int:
        return max(1, self.model.fence + draw(drawn.fences))

    def choose(self, what: str, pick: int, *, aim: bool = True) -> str:
        """Answer a call for which this may be admitted, if there is one; else any, or none."""
        states = HOPEFUL[what] if aim else ()
        known = self.model.in_order()
        names = [name for name in known if self.model.calls[name].state in states]
        return names[pick % len(names)] if names else f"c{1 + pick % (len(known) + 1)}"

    def weight(self, kind: str, much: int) -> int:
        """Weigh a command: one for which no call is ripe is tried, but seldom."""
        states = {*HOPEFUL.get(kind, ()), *(HOPEFUL["again"] if kind == "request" else ())}
        ripe = not states or any(call.state in states for call in self.model.calls.values())
        return much if ripe else 1

    # One rule, not one for each command: Hypothesis switches rules off at random, and a walk
    # without one of a dozen would hardly ever come to the end of a call.
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        model = self.model
        if self.rarely():
            likely: Mapping[str, int] = dict.fromkeys(COMMANDS, 1)
        elif model.closed:
            likely = AFTER_CLOSE
        elif model.turn_state == "open" and model.run is None:
            likely = WITHOUT_RUN
        else:
            likely = WHILE[model.turn_state]
        kinds = [kind for kind, much in likely.items() for _ in range(self.weight(kind, much))]
        if model.turn < LONGEST:
            kinds = [kind for kind in kinds if kind != "close"] or kinds
        getattr(self, data.draw(st.sampled_from(kinds)))(data.draw)

    # ------------------------------------------------------------ the person

    def send(self, draw: Draw) -> None:
        words = draw(st.sampled_from(("a", "b")))
        key = draw(st.sampled_from((None, None, None, "k1", "k2")))
        supersede = draw(mostly if self.rarely() else seldom)
        receipt = self.both(
            lambda: self.stage.owner.send_message(
                thread_id=self.stage.thread_id, text=words, key=key, supersede_approvals=supersede
            ),
            lambda: self.model.send(words, key, supersede=supersede),
        )
        if receipt is not None:
            found = (receipt.first_seq, receipt.last_seq, receipt.turn, receipt.duplicate)
            assert found == self.expected

    def interrupt(self, draw: Draw) -> None:
        answer = self.both(
            lambda: self.stage.owner.interrupt_turn(thread_id=self.stage.thread_id),
            self.model.interrupt,
        )
        if answer is not None:
            assert answer.ended == self.expected

    def close(self, draw: Draw) -> None:
        self.both(
            lambda: self.stage.owner.close_thread(thread_id=self.stage.thread_id),
            self.model.close,
        )

    def resolve(self, draw: Draw) -> None:
        call = self.choose("resolve", draw(drawn.picks), aim=draw(mostly))
        who, approved = draw(drawn.people), draw(mostly)
        current, right_version = draw(mostly), draw(mostly)
        known = self.model.calls.get(call)
        right = self.digests.get((call, known.ask_seq if known else 0), {}).get(who, NO_DIGEST)
        older = [said[who] for key, said in self.digests.items() if key[0] == call and who in said]
        digest = right if current else (older or [NO_DIGEST])[0]
        version = VERSION if right_version else "v2"
        decision = self.both(
            lambda: self.stage.person(who).resolve_approval(
                thread_id=self.stage.thread_id,
                call_id=call,
                approved=approved,
                digest=digest,
                version=version if approved else None,
            ),
            lambda: self.model.resolve(
                who,
                call,
                approved=approved,
                right_digest=digest == right,
                right_version=right_version,
            ),
        )
        if decision is not None:
            assert (decision.seq, decision.state.value, decision.missing) == self.expected

    # ------------------------------------------------------------ the lease

    def acquire(self, draw: Draw) -> None:
        name, stale = self.holder(draw), draw(st.sampled_from((5_000, 15_000, 3_600_000)))
        fence = self.fence(draw) if draw(seldom) else None
        lease = self.both(
            lambda: self.stage.bot.acquire_run(
                thread_id=self.stage.thread_id, run_id=name, fence=fence, stale_after=stale / 1000
            ),
            lambda: self.model.acquire(name, fence, stale),
        )
        if lease is not None:
            assert isinstance(self.expected, tuple)
            *wanted, until = self.expected
            assert [lease.fence, lease.took_over] == wanted
            assert lease.lease_until == moment(until)

    def beat(self, draw: Draw) -> None:
        name, fence = self.holder(draw), self.fence(draw)
        beat = self.both(
            lambda: self.stage.bot.beat_run(
                thread_id=self.stage.thread_id, run_id=name, fence=fence
            ),
            lambda: self.model.beat(name, fence),
        )
        if beat is not None:
            assert isinstance(self.expected, tuple)
            stop, until = self.expected
            assert (beat.interrupt_requested, beat.lease_until) == (stop, moment(until))

    def release(self, draw: Draw) -> None:
        name, fence = self.holder(draw), self.fence(draw)
        released = self.both(
            lambda: self.stage.bot.release_run(
                thread_id=self.stage.thread_id, run_id=name, fence=fence
            ),
            lambda: self.model.release(name, fence),
        )
        assert released == self.expected

    # ------------------------------------------------------------ the run's events

    def append(self, draw: Draw) -> None:
        events = [self.event(fields) for fields in draw(drawn.events)]
        self._append(self.holder(draw), self.fence(draw), events, draw(drawn.numbers))

    def propose_and_ask(self, draw: Draw) -> None:
        """What a run does most of all, so that walks come far."""
        call = f"c{len(self.model.calls) + 1}"
        events = [Event("tool-input", call), self.asking(call, 0, draw(asks()))]
        if draw(st.booleans()):
            events.append(Event("turn-finish", reason="awaiting-approval"))
        self._append(self.holder(draw), self.fence(draw), events, draw(drawn.numbers))

    def _append(self, name: str, fence: int, events: list[Event], which: str) -> None:
        last = self.model.batch.number if self.model.batch else 0
        number = {"none": None, "next": last + 1, "gap": last + 2}.get(which, last or None)
        if which == "same":
            events = self.given or events
        appended = self.both(
            lambda: self.stage.bot.append_events(
                thread_id=self.stage.thread_id,
                run_id=name,
                fence=fence,
                events=[drawn.concrete(self.stage, event) for event in events],
                batch=number,
            ),
            lambda: self.model.append(name, fence, events, number),
        )
        if appended is None:
            return
        assert isinstance(self.expected, tuple)
        first, last, stop = self.expected
        assert [event.seq for event in appended.events] == list(range(first, last + 1))
        assert appended.duplicate == (stop is None)
        assert stop is None or appended.interrupt_requested == stop
        if number is not None:
            self.given = events
        for event in appended.events:
            if event.type == "approval-request":
                said = {slot.approver: slot.digest for slot in event.requests}
                self.digests[event.call_id, event.seq] = said

    def event(self, fields: Drawn) -> Event:
        kind, pick, tool_input, reason, ask, reissue, same, aim = fields
        if kind == "approval-request":
            call = self.choose("again" if reissue else kind, pick, aim=aim)
            return self.asking(call, tool_input, ask, reissue=reissue, same=same)
        if kind in (*PLAIN, "turn-start", "turn-error"):
            return Event(kind)
        if kind == "turn-finish":
            return Event(kind, reason=reason)
        if kind == "tool-input" and pick:
            return Event(kind, f"c{len(self.model.calls) + 1}", tool_input)
        call = self.choose(kind, pick, aim=aim)
        return Event(kind, call, tool_input if kind == "tool-input" else 0)

    def asking(
        self, call: str, tool_input: int, ask: Wanted, *, reissue: bool = False, same: bool = False
    ) -> Event:
        """Make a request: a new one, or what was asked last of all."""
        if not same or self.asked is None:
            people, required, wait = ask
            self.nonces += 1
            expires = self.model.now + wait
            self.asked = Ask(people, required, expires, tool_input, f"n{self.nonces}")
        return Event("approval-request", call, ask=self.asked, reissue=reissue)

    # ------------------------------------------------------------ the run's calls

    def request(self, draw: Draw) -> None:
        reissue = draw(mostly if self.model.turn_state == "awaiting" else seldom)
        call = self.choose("again" if reissue else "approval-request", draw(drawn.picks))
        name, fence = self.holder(draw), self.fence(draw)
        people, required, wait = draw(asks())
        self.nonces += 1
        wanted = Ask(people, required, self.model.now + wait, 0, f"m{self.nonces}")
        request = self.both(
            lambda: self.stage.bot.request_approval(
                thread_id=self.stage.thread_id,
                run_id=name,
                fence=fence,
                call_id=call,
                operation=OPERATION,
                version=VERSION,
                expires_in=wait / 1000,
                approvers=people,
                required=required,
                reissue=reissue,
            ),
            lambda: self.model.request(name, fence, call, wanted, reissue=reissue),
        )
        if request is not None:
            assert request.seq == self.expected
            said = {slot.approver: slot.digest for slot in request.requests}
            self.digests[call, request.seq] = said

    def claim(self, draw: Draw) -> None:
        call = self.choose("settle" if draw(seldom) else "claim", draw(drawn.picks))
        value, attempt = draw(drawn.inputs), draw(drawn.attempts)
        name, fence = self.holder(draw), self.fence(draw)
        claim = self.both(
            lambda: self.stage.bot.claim_execution(
                thread_id=self.stage.thread_id,
                run_id=name,
                fence=fence,
                call_id=call,
                operation=OPERATION,
                version=VERSION,
                input=INPUTS[value],
                attempt=attempt,
            ),
            lambda: self.model.claim(name, fence, call, value, attempt),
        )
        if claim is not None:
            assert (claim.claimed_fence, claim.duplicate) == self.expected

    def settle(self, draw: Draw) -> None:
        call = self.choose("settle", draw(drawn.picks), aim=draw(mostly))
        mine, kind = draw(mostly), draw(drawn.late)
        known = self.model.calls.get(call)
        fence = (known.fence if known and mine else None) or self.model.fence + 1

        def settle() -> Settled:
            thread, ops = self.stage.thread_id, self.stage.bot
            if kind == "tool-error":
                return ops.settle_execution(
                    thread_id=thread, call_id=call, claimed_fence=fence, error=drawn.FAILED
                )
            return ops.settle_execution(
                thread_id=thread, call_id=call, claimed_fence=fence, output={"ok": True}
            )

        settled = self.both(settle, lambda: self.model.settle(call, fence, kind))
        if settled is not None:
            assert (settled.state.value, settled.seq, settled.duplicate) == self.expected

    def time_passes(self, draw: Draw) -> None:
        seconds = draw(drawn.seconds)
        self.stage.hands.advance(seconds)
        self.model.now += seconds * 1000

    # ------------------------------------------------------------ what both must look like

    @invariant()
    def the_record_is_the_models(self) -> None:
        look(self.stage, self.model, self.checked)
        self.checked = len(self.model.log)

    def teardown(self) -> None:
        for name, call in self.model.calls.items():
            assert self.stage.call(name).result == call.result, name
        # An ended walk must not be among the threads that another walk finds runnable.
        self.stage.owner.close_thread(thread_id=self.stage.thread_id)


def look(stage: Stage, model: Model, checked: int) -> None:
    """Compare every state and number, and the log after `checked`."""
    thread_id = {"thread_id": stage.thread_id}
    with stage.engine.connect() as connection:
        head = connection.execute(_HEAD, thread_id).mappings().one()
        calls = connection.execute(_CALLS, thread_id).all()
        says = connection.execute(_SAYS, thread_id).all()
        runs = connection.execute(_RUNS, thread_id).all()
        log = connection.execute(_LOG, {**thread_id, "after": checked}).all()
        told = connection.execute(_TOLD, thread_id).scalars().all()
    assert dict(head) == {
        "status": "closed" if model.closed else "open",
        "turn_state": model.turn_state,
        "turn": model.turn,
        "run_id": model.run,
        "fence": model.fence,
        "last_seq": len(model.log),
        "last_batch": model.batch.number if model.batch else 0,
        "milestones": len(model.milestones),
        "open_since": moment(model.since) if model.turn_state == "open" else None,
        "next_deadline": moment(model.deadline) if model.turn_state == "awaiting" else None,
        "lease_until": moment(model.until) if model.run else None,
        "interrupt_requested_at": None if model.stop is None else moment(model.stop),
    }
    assert [seq for seq, *_ in log] == list(range(checked + 1, len(model.log) + 1))
    assert [_seen(kind, body) for _, kind, body in log] == model.log[checked:]
    assert told == model.milestones
    assert {int(fence): state for fence, state in runs} == model.runs
    assert {name: tuple(rest) for name, *rest in calls} == {
        name: (call.state, call.fence, call.attempt, call.order)
        for name, call in model.calls.items()
    }
    assert {(name, who): say for name, who, say in says} == {
        (name, who): say for name, call in model.calls.items() for who, say in call.says.items()
    }
    runnable = stage.assistant.list_runnable(limit=1000)
    why = [entry.why for entry in runnable if entry.thread_id == stage.thread_id]
    assert why == ([model.runnable()] if model.runnable() else [])


def _seen(kind: str, body: str) -> tuple[str, str | None, str | None]:
    fields = json.loads(body)
    states = kind in ("call-closed", "approval-resolved")
    return kind, fields.get("call_id"), fields["state"] if states else None


_T = threads.c
_HEAD = sa.select(
    _T.status, _T.turn_state, _T.turn, _T.run_id, _T.fence, _T.last_seq, _T.last_batch,
    _T.milestones, _T.open_since, _T.next_deadline, _T.lease_until, _T.interrupt_requested_at,
).where(_T.id == sa.bindparam("thread_id"))  # fmt: skip
_CALLS = sa.text(
    "SELECT call_id, state, claimed_fence, claimed_attempt, input_seq"
    " FROM assistant_tool_calls WHERE thread_id = :thread_id"
)
_SAYS = sa.text(
    "SELECT a.call_id, a.approver_id, a.state FROM assistant_approvals a"
    " JOIN assistant_tool_calls c ON c.thread_id = a.thread_id AND c.call_id = a.call_id"
    " AND c.request_seq = a.request_seq WHERE a.thread_id = :thread_id"
)
_RUNS = sa.text("SELECT fence, state FROM assistant_runs WHERE thread_id = :thread_id")
_LOG = sa.text(
    "SELECT seq, type, body FROM assistant_events"
    " WHERE thread_id = :thread_id AND seq > :after ORDER BY seq"
)
_TOLD = sa.text("SELECT type FROM assistant_outbox WHERE thread_id = :thread_id ORDER BY n")
