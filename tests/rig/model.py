"""A thread in memory: the design told a second time, in the plainest way there is.

It shares no rule and no table with the engine. Time is a number of milliseconds; a command either
returns its answer or raises `Refused`, and then `trying` puts everything back.
"""

from __future__ import annotations

from dataclasses import replace

from tests.machines.tables import ENDINGS, REFUSED
from tests.rig.talk import (
    APPROVED,
    AWAITING,
    Ask,
    Batch,
    Call,
    Event,
    Refused,
    Run,
    Said,
    Talk,
    refuse,
)

__all__ = ["FINISHES", "PLAIN", "Ask", "Event", "Model", "Refused", "Said"]

FINISHES = ("done", "interrupted", "max-tokens", "limit", "refused", "awaiting-approval")
PLAIN = ("text-delta", "step-finish")


class Model(Talk):
    """One thread, with those who decide and those who run."""

    def resolve(
        self, who: str, name: str, *, approved: bool, right_digest: bool, right_version: bool
    ) -> tuple[int, str, int]:
        call = self.calls.get(name)
        if call is None or who not in call.says:
            refuse("not_found")
        if self.closed:
            refuse("thread_closed")
        if REFUSED[call.state]["resolve"] != "-":
            refuse(REFUSED[call.state]["resolve"])
        if call.says[who] != "pending":
            refuse("already_resolved")
        if approved and self.lapsed(call):
            refuse("approval_expired")
        if not right_digest or (approved and not right_version):
            refuse("digest_mismatch")
        self.expire(besides=name)
        call.says[who] = "approved" if approved else "denied"
        given = [say for say in call.says.values() if say == "approved"]
        missing = call.ask.required - len(given) if approved and call.ask else 0
        if not missing:
            call.state = call.says[who]
            self.drop_pending(call, "superseded")
            self.reopen()
        self.milestones.append("approval-resolved")
        return self.record("approval-resolved", name, call.state), call.state, missing

    # ------------------------------------------------------------ the run

    def acquire(self, run: str, fence: int | None, stale: int) -> tuple[int, bool, int]:
        if self.closed:
            refuse("thread_closed")
        if self.turn_state == "idle":
            refuse("no_turn_open")
        took_over = False
        if fence is not None:
            if not self.held_by(run, fence):
                refuse("run_fenced")
            self.expire()
        else:
            if self.run not in (None, run) and self.live():
                refuse("run_in_progress")
            took_over = self.run not in (None, run)
            self.end_calls("the fence rises")
            self.take_lease("replaced")
            self.run, self.runs[self.fence] = run, Run()
        if not self.waiting():
            self.reopen()
        self.stale, self.until = stale, self.now + stale
        return self.fence, took_over, self.until

    def fenced(self, run: str, fence: int) -> None:
        if self.closed:
            refuse("thread_closed")
        if not self.held_by(run, fence):
            refuse("run_fenced")

    def beat(self, run: str, fence: int) -> tuple[bool, int]:
        self.fenced(run, fence)
        self.until = self.now + self.stale
        return self.stop is not None, self.until

    def release(self, run: str, fence: int) -> bool:
        if not self.held_by(run, fence):
            return False
        self.end_calls("the fence rises", lapse=False)
        self.end_run("released", "released")
        return True

    def take(self, run: str, fence: int) -> tuple[int, int, bool]:
        """Answer the numbers before and after, and whether to stop."""
        self.fenced(run, fence)
        if self.turn_state != "open":
            refuse("no_turn_open")
        before = len(self.log)
        for said in self.line():
            if said.when_busy == "steer":
                said.state, said.turn = "absorbed", self.turn
                said.first = said.last = self.record("user-message", said.text)
        self.until = self.now + self.stale
        return before, len(self.log), self.stop is not None

    def abandon(self, fence: int | None, turn: int | None) -> tuple[int, int]:
        if self.closed:
            refuse("thread_closed")
        if self.turn_state == "idle" or turn not in (None, self.turn):
            refuse("no_turn_open")
        if fence not in (None, self.fence):
            refuse("run_fenced")
        if fence is None and self.live():
            refuse("run_in_progress")
        told = self.turn, self.end_turn("turn-error", "error", "abandoned")
        self.take_lease("abandoned")
        self.move_up()
        return told

    def append(
        self, run: str, fence: int, events: list[Event], number: int | None, usage: int | None
    ) -> tuple[int, int, bool | None]:
        """Answer the first and last number, and whether to stop (None: given before)."""
        done = self.batch
        if done is not None and (fence, number) == (self.fence, done.number):
            if done.events != events or self.run not in (None, run):
                refuse("key_reused")
            return done.first, done.last, None
        self.fenced(run, fence)
        if number is not None and number != (done.number if done else 0) + 1:
            refuse("batch_gap")
        first, stop = len(self.log) + 1, self.stop is not None
        if usage is not None:
            self.runs[self.fence].usage = usage
        for event in events:
            self._append(event)
        if number is not None:
            self.batch = Batch(number, events, first, len(self.log))
        self.until = self.now + self.stale
        return first, len(self.log), stop

    def _append(self, event: Event) -> None:
        if event.type == "turn-start":
            refuse("not_a_run_event")
        if self.run is None:  # an event before this one rested the turn
            refuse("no_turn_open")
        call = self.calls.get(event.call)
        again = event.reissue and call is not None and call.state == AWAITING
        if self.turn_state != "open" and not (self.turn_state == "awaiting" and again):
            refuse("no_turn_open")
        if event.type in PLAIN:
            self.record(event.type)
            if event.type == "text-delta":
                self.texts[self.turn] = self.texts.get(self.turn, "") + "hm"
        elif event.type in ("turn-finish", "turn-error"):
            self._finish(event)
        elif event.type == "tool-input":
            self._propose(event, call)
        elif call is None:
            refuse("call_state")
        elif event.ask is not None:
            self.ask(event.call, event.ask, reissue=event.reissue)
        else:
            self._end(event, call)

    def _finish(self, event: Event) -> None:
        rests = event.reason == "awaiting-approval"
        if rests and not self.waits():
            refuse("no_approval_pending")
        self.end_calls(event.reason if event.reason in ENDINGS else "another reason")
        self.record(event.type)
        self.rest("awaiting" if rests else "idle")
        failed = event.type == "turn-error"
        self.end_run("finished", "error" if failed else event.reason)
        self.milestones.append("turn-failed" if failed else "turn-finished")
        if not rests:
            self.ends[self.turn] = ("error", "model") if failed else (event.reason, None)
            self.move_up()

    def _propose(self, event: Event, call: Call | None) -> None:
        if call is not None and call.state != "running":
            refuse("call_state")
        order = self.record("tool-input", event.call)
        attempt = None if call is None else call.attempt
        self.calls[event.call] = Call(
            event.input, order, event.repeatable, fence=self.fence, attempt=attempt
        )

    def _end(self, event: Event, call: Call) -> None:
        cell = REFUSED[call.state][event.type]
        if cell != "-":
            refuse(cell)
        if call.state == APPROVED and self.lapsed(call):
            self.close_call(event.call, "expired")
            return
        self.record(event.type, event.call)
        call.state = "done" if event.type == "tool-output" else "failed"
        call.result = result_of(event.type)

    def ask(self, name: str, ask: Ask, *, reissue: bool) -> int:
        call = self.calls[name]
        if ask.input != call.input:
            refuse("digest_mismatch")
        if not reissue and call.state == AWAITING and call.ask == ask:
            return self.record("approval-request", name)
        cell = REFUSED[call.state]["reissue" if reissue else "request"]
        if cell != "-":
            refuse(cell)
        if self.now >= ask.expires:
            refuse("approval_expired")
        if call.ask is not None and call.ask.nonce == ask.nonce:
            refuse("validation_failed")
        seq = self.record("approval-request", name)
        self.calls[name] = replace(
            call,
            state=AWAITING,
            ask=ask,
            ask_seq=seq,
            says=dict.fromkeys(ask.people, "pending"),
            fence=None,
        )
        if self.turn_state == "awaiting":
            self.rest_deadline()
        self.milestones.append("approval-requested")
        return seq

    def rest_deadline(self) -> None:
        self.deadline = max(call.ask.expires for call in self.waiting() if call.ask)

    def request(self, run: str, fence: int, name: str, ask: Ask, *, reissue: bool) -> int:
        self.fenced(run, fence)
        call = self.calls.get(name)
        if call is None:
            refuse("call_state")
        again = reissue and call.state == AWAITING
        if self.turn_state != "open" and not (self.turn_state == "awaiting" and again):
            refuse("no_turn_open")
        # The engine copies the input itself.
        seq = self.ask(name, replace(ask, input=call.input), reissue=reissue)
        self.until = self.now + self.stale
        return seq

    def claim(
        self, run: str, fence: int, name: str, tool_input: int, attempt: int | None
    ) -> tuple[int, bool]:
        call = self.calls.get(name)
        tried = None if call is None else (call.state, call.fence, call.attempt)
        # Given again while the right is held; later it is a new claim like any other.
        again = tried == ("executing", fence, attempt) and self.held_by(run, fence)
        if call is not None and attempt is not None and again:
            return (fence, True) if call.input == tool_input else refuse("key_reused")
        self.fenced(run, fence)
        if call is None:
            refuse("not_found")
        if call.ask is None:
            refuse("call_state")
        if REFUSED[call.state]["claim"] != "-":
            refuse(REFUSED[call.state]["claim"])
        if self.lapsed(call):
            refuse("approval_expired")
        if call.input != tool_input:
            refuse("digest_mismatch")
        self.record("execution-claimed", name)
        call.state, call.fence, call.attempt = "executing", fence, attempt
        self.until = self.now + self.stale
        return fence, False

    def settle(self, name: str, fence: int, kind: str) -> tuple[str, int | None, bool]:
        call = self.calls.get(name)
        if call is None:
            refuse("not_found")
        if call.fence != fence:
            refuse("run_fenced")
        if call.result == result_of(kind):
            return call.state, None, True
        if call.result is not None or call.state not in ("executing", "unknown"):
            refuse("call_state")
        call.result = result_of(kind)
        if self.closed:
            return call.state, None, False
        call.state = "done" if kind == "tool-output" else "failed"
        return call.state, self.record(kind, name), False

    # ------------------------------------------------------------ what was lost

    def retry(
        self, run: str, fence: int, name: str, tool_input: int | None, attempt: int | None
    ) -> tuple[int, bool]:
        """Let a lost call run again. `tool_input` is None when it is not said what would run."""
        call = self.calls.get(name)
        state = "running" if tool_input is None else "executing"
        tried = None if call is None else (call.state, call.fence, call.attempt)
        again = tried == (state, fence, attempt) and self.held_by(run, fence)
        if call is not None and attempt is not None and again:
            same = tool_input is None or call.input == tool_input
            return (fence, True) if same else refuse("key_reused")
        self.fenced(run, fence)
        if call is None:
            refuse("not_found")
        if self.turn_state != "open":
            refuse("no_turn_open")
        if REFUSED[call.state]["decided anew"] != "-":
            refuse(REFUSED[call.state]["decided anew"])
        if not call.repeatable:
            refuse("not_repeatable")
        if (call.ask is None) != (tool_input is None):
            refuse("validation_failed")
        if call.ask is not None and self.now >= call.ask.expires:
            refuse("approval_expired")
        if tool_input not in (None, call.input):
            refuse("digest_mismatch")
        self.record("call-retried" if call.ask is None else "execution-claimed", name)
        call.state, call.fence, call.attempt = state, fence, attempt
        self.until = self.now + self.stale
        return fence, False

    def say(self, name: str, *, happened: bool) -> tuple[str, int | None, bool]:
        """Let the owner say what became of a lost call."""
        call = self.calls.get(name)
        if call is None:
            refuse("not_found")
        error = {"code": "cancelled", "message": "It did not happen."}
        result = result_of("tool-output") if happened else {"error": error}
        if call.result == result:
            return call.state, None, True
        if call.result is not None or REFUSED[call.state]["decided anew"] != "-":
            refuse("call_state")
        call.result = result
        if self.closed:
            return call.state, None, False
        call.state = "done" if happened else "cancelled"
        return call.state, self.record("unknown-resolved", name), False

    def put(self, run: str, fence: int, context: str) -> int:
        """Keep a private context."""
        self.fenced(run, fence)
        self.context, self.until = context, self.now + self.stale
        return len(context)

    def get(self, run: str, fence: int) -> str | None:
        """Have it back."""
        self.fenced(run, fence)
        return self.context


def result_of(kind: str) -> object:
    if kind == "tool-output":
        return {"output": {"ok": True}}
    return {"error": {"code": "broken", "message": "it broke"}}
