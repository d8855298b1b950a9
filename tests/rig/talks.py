"""Random talks through the real engine, in which everything that can happen to a call does.

What is not admitted at the moment is refused by the engine, and the talk goes on: this is about
the logs that come of it, not about who may do what.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from sqlalchemy import Engine

from engine_assistant import AssistantError, Conflict, ConflictReason
from engine_assistant.model.events import Known, Unknown
from engine_assistant.model.machines import CallState, TurnState
from engine_assistant.model.views import CallView
from tests.rig.states import (
    INPUT,
    LEASE,
    LONG,
    OPERATION,
    OWNER,
    SHORT,
    VERSION,
    Fields,
    Stage,
    failure,
    finish,
    output,
    proposal,
    turn_error,
)

REASONS = ("done", "awaiting-approval", "awaiting-approval", "interrupted", "limit")
WORDS = ("a", "b", " ", "", "é")
OPEN, AWAITING, IDLE = TurnState.OPEN, TurnState.AWAITING, TurnState.IDLE
RUNS = (CallState.RUNNING, CallState.EXECUTING)


class Talk:
    """One thread, its owner, and runs that come and go."""

    def __init__(self, engine: Engine, dice: Random) -> None:
        self.stage = Stage(engine, fence=1)
        self.dice = dice
        self.calls = 0
        self.runs = 0

    def move(self) -> None:
        """Do one thing that may well be possible; if it was not, another one."""
        for _ in range(4):
            thread = self.stage.bot.get_thread(thread_id=self.stage.thread_id)
            try:
                self.dice.choice(MOVES[thread.turn_state])(self)
            except Conflict as refusal:
                if refusal.reason is ConflictReason.RUN_FENCED and thread.turn_state is OPEN:
                    self.acquire()
            except (AssistantError, LookupError):
                continue
            else:
                return

    def log(self) -> list[Known | Unknown]:
        found: list[Known | Unknown] = []
        while True:
            page = self.stage.bot.read_events(
                thread_id=self.stage.thread_id, after=len(found), limit=1000
            )
            found += page.events
            if page.last_seq == page.head_seq:
                return found

    def one_in(self, *states: CallState) -> CallView:
        """Choose a call in one of these states, or any."""
        calls = self.stage.bot.list_calls(thread_id=self.stage.thread_id, limit=1000).items
        fitting = [call for call in calls if call.state in states]
        return self.dice.choice(fitting or calls)

    # ------------------------------------------------------------ the person

    def send(self) -> None:
        self.stage.owner.send_message(
            thread_id=self.stage.thread_id,
            text="hello",
            supersede_approvals=self.dice.randrange(2) == 0,
            when_busy=self.dice.choice(("refuse", "queue", "steer", "interrupt")),
        )

    def steer(self) -> None:
        self.stage.owner.send_message(
            thread_id=self.stage.thread_id, text="faster", when_busy="steer"
        )
        self.stage.bot.take_inputs(**self.stage.held)

    def decide(self) -> None:
        call = self.one_in(CallState.AWAITING)
        approved = self.dice.randrange(3) > 0
        self.stage.owner.resolve_approval(
            thread_id=self.stage.thread_id,
            call_id=call.call_id,
            approved=approved,
            digest=call.approvals[0].digest if call.approvals else "0" * 64,
            version=VERSION if approved else None,
            reason=None if approved else "no",
        )

    def interrupt(self) -> None:
        self.stage.owner.interrupt_turn(thread_id=self.stage.thread_id)
        if self.dice.randrange(2):
            self.stage.hands.advance(11)
            self.stage.owner.interrupt_turn(thread_id=self.stage.thread_id)

    def know(self) -> None:
        happened: Fields = {"happened": True, "output": "it is done"}
        at = {
            "thread_id": self.stage.thread_id,
            "call_id": self.one_in(CallState.UNKNOWN).call_id,
            **(happened if self.dice.randrange(2) else {"happened": False}),
        }
        self.stage.owner.call("assistant/resolve-unknown", at)

    # ------------------------------------------------------------ the run

    def acquire(self) -> None:
        """Take the lease, from a run that died if one holds it."""
        self.stage.hands.advance(LEASE)
        self.runs += 1
        self.stage.acquire(f"run-{self.runs}")

    def release(self) -> None:
        self.stage.bot.release_run(**self.stage.held)
        self.acquire()

    def abandon(self) -> None:
        self.stage.hands.advance(LEASE)
        self.stage.bot.abandon_turn(thread_id=self.stage.thread_id, reason="gone")

    def step(self) -> None:
        self.stage.append({"type": "step-start"}, {"type": "text-delta", "text": "so"})

    def speak(self) -> None:
        """Say a few words, with what a model is not told in between."""
        others: tuple[Fields, ...] = (
            {"type": "reasoning-delta", "text": "hm"},
            {"type": "data", "kind": "k", "payload": 1},
            {"type": "step-start"},
            {"type": "step-finish"},
        )
        events = [
            {"type": "text-delta", "text": self.dice.choice(WORDS)}
            if self.dice.randrange(3)
            else others[self.dice.randrange(len(others))]
            for _ in range(1 + self.dice.randrange(3))
        ]
        self.stage.append(*events)

    def propose(self) -> None:
        events: list[Fields] = [{"type": "step-start"}] if self.dice.randrange(2) else []
        for _ in range(1 + self.dice.randrange(3)):
            self.calls += 1
            repeatable = self.dice.randrange(2) == 0
            events.append({**proposal(f"c{self.calls}"), "repeatable": repeatable})
        self.stage.append(*events)

    def propose_anew(self) -> None:
        call = self.one_in(CallState.RUNNING)
        self.stage.append({**proposal(call.call_id), "provider_call_id": "again"})

    def answer(self) -> None:
        call = self.one_in(*RUNS)
        self.stage.append((output if self.dice.randrange(3) else failure)(call.call_id))

    def ask(self) -> None:
        call = self.one_in(CallState.RUNNING)
        again = call.state is not CallState.RUNNING
        wait = SHORT if self.dice.randrange(3) == 0 else LONG * 10
        self.stage.ask(call.call_id, wait, approvers=(OWNER,), reissue=again)

    def gate(self) -> None:
        """Propose calls, ask about them, and wait: what a run does most of all."""
        self.propose()
        for number in range(self.calls - self.dice.randrange(2), self.calls + 1):
            wait = SHORT if self.dice.randrange(3) == 0 else LONG * 10
            self.stage.ask(f"c{number}", wait, approvers=(OWNER,))
        if self.dice.randrange(4):
            self.stage.append(finish("awaiting-approval"))

    def claim(self) -> None:
        self.stage.claim(self.one_in(CallState.APPROVED).call_id)

    def rest(self) -> None:
        if self.dice.randrange(6) == 0:
            self.stage.append(turn_error())
        else:
            self.stage.append(finish(self.dice.choice(REASONS)))

    def lapse(self) -> None:
        self.stage.lapse().renew()

    def settle(self) -> None:
        call = self.one_in(CallState.UNKNOWN, CallState.EXECUTING)
        late: Fields = {"output": "late"}
        if self.dice.randrange(2):
            late = {"error": {"code": "late", "message": "it broke"}}
        at = {"thread_id": self.stage.thread_id, "call_id": call.call_id}
        values = {**at, "claimed_fence": call.claimed_fence or 1, **late}
        self.stage.bot.call("assistant/settle-execution", values)

    def retry(self) -> None:
        call = self.one_in(CallState.UNKNOWN)
        gated = {"operation": OPERATION, "version": VERSION, "input": INPUT}
        self.stage.bot.call(
            "assistant/retry-call",
            {**self.stage.held, "call_id": call.call_id, **(gated if call.operation else {})},
        )

    def summarise(self) -> None:
        """Summarise some messages; where they cannot be cut, the widest range within."""
        told = self.stage.bot.history(thread_id=self.stage.thread_id)
        if not told.messages:
            return
        ends = [message.to_seq for message in told.messages]
        first, last = sorted(ends[self.dice.randrange(len(ends))] for _ in range(2))
        first = 1 if self.dice.randrange(2) else first
        try:
            self._compact(first, last, told.head_seq)
        except Conflict as refusal:
            within = (refusal.facts.get("from_seq"), refusal.facts.get("to_seq"))
            if None not in within:
                self._compact(*within, told.head_seq)

    def _compact(self, first: object, last: object, head: int) -> None:
        at = {"thread_id": self.stage.thread_id, "from_seq": first, "to_seq": last}
        values = {**at, "summary": "s", "expected_head": head}
        self.stage.bot.call("assistant/compact", values)

    def close(self) -> None:
        if self.dice.randrange(4) == 0:
            self.stage.owner.close_thread(thread_id=self.stage.thread_id)


_ANY = (Talk.settle, Talk.know, Talk.summarise)

MOVES: dict[TurnState, tuple[Callable[[Talk], None], ...]] = {
    IDLE: (*[Talk.send] * 8, *_ANY, Talk.close),
    AWAITING: (
        *(Talk.decide, Talk.decide, Talk.decide, Talk.decide, Talk.send, Talk.send, Talk.lapse),
        *(Talk.acquire, Talk.ask, Talk.interrupt, *_ANY),
    ),
    OPEN: (
        *(Talk.step, Talk.speak, Talk.speak, Talk.propose, Talk.propose, Talk.gate, Talk.gate),
        *(Talk.answer, Talk.answer, Talk.answer, Talk.propose_anew, Talk.ask, Talk.decide),
        *(Talk.claim, Talk.claim, Talk.claim, Talk.rest, Talk.steer, Talk.send, Talk.retry),
        *(Talk.retry, *_ANY, Talk.lapse, Talk.acquire, Talk.release, Talk.abandon),
        Talk.interrupt,
    ),
}
"""What may be done, by who may speak. What is likely stands there more than once."""
