"""A host process that can die anywhere: `python -m tests.torture.host URL EFFECTS NUMBER`.

It picks up any runnable thread and carries its turn on from what the record says. A turn is three
calls: `look` (no approval, repeatable), `write` (no approval, once) and `refund` (approved, once).
What a tool does is one line in EFFECTS, written before the result is recorded.
"""

from __future__ import annotations

import os
import sys
import time
from random import Random
from typing import TypedDict

from engine_assistant import RUN, Assistant, AssistantError, Caller, Operations, make_engine
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.views import CallView, Lease

CALLS = ("look", "write", "refund")
STALE_AFTER = 1.0


def call_id(turn: int, tool: str) -> str:
    """Return the id of a turn's call: the same, whichever host makes it."""
    return f"t{turn}-{tool}"


class Held(TypedDict):
    """A lease, as every write of a run carries it."""

    thread_id: str
    run_id: str
    fence: int


class Host:
    """One host over one database."""

    def __init__(self, url: str, effects: str, number: int) -> None:
        self._assistant = Assistant(make_engine(url))
        self._effects = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._name = f"host-{number}-{os.getpid()}"
        self._random = Random(number)

    def serve(self) -> None:
        """Pick threads up until somebody kills this process."""
        while True:
            try:
                found = self._assistant.list_runnable(limit=20)
            except AssistantError:  # the database is away
                found = []
            if not found:
                time.sleep(0.02)
                continue
            one = self._random.choice(found)
            try:
                self._take_turn(one.tenant, one.thread_id)
            except AssistantError:
                # Replaced, raced, or the database went away: the record decides what is next.
                time.sleep(0.005)

    def _take_turn(self, tenant: str, thread_id: str) -> None:
        ops = self._assistant.acting_as(
            Caller(tenant=tenant, principal="sys_host", permissions={RUN}, system=True)
        )
        lease = ops.acquire_run(thread_id=thread_id, run_id=self._name, stale_after=STALE_AFTER)
        turn = ops.get_thread(thread_id=thread_id).turn
        for tool in CALLS:
            known = {
                call.call_id: call for call in ops.list_calls(thread_id=thread_id, limit=1000).items
            }
            call = known.get(call_id(turn, tool))
            if self._advance(ops, lease, turn, tool, call):
                return
        _append(ops, lease, {"type": "turn-finish", "reason": "done"})

    def _advance(
        self, ops: Operations, lease: Lease, turn: int, tool: str, call: CallView | None
    ) -> bool:
        """Bring one call further; return whether the turn rests now."""
        ref = Held(thread_id=lease.thread_id, run_id=lease.run_id, fence=lease.fence)
        name = call_id(turn, tool)
        known: dict[str, JsonValue] = {"turn": turn}
        state = None if call is None else call.state.value
        if state is None:
            propose: dict[str, object] = {"type": "tool-input", "call_id": name, "tool": tool}
            propose |= {"step": f"s{turn}", "input": known, "repeatable": tool == "look"}
            _append(ops, lease, {"type": "text-delta", "text": f"{tool}? "}, propose)
            state = "running"
            if tool == "refund":
                ops.request_approval(
                    **ref, call_id=name, operation=tool, version="v1", expires_in=600
                )
                state = "awaiting-approval"
        if state == "awaiting-approval":
            _append(ops, lease, {"type": "turn-finish", "reason": "awaiting-approval"})
            return True
        if state == "unknown" and tool == "look":
            ops.retry_call(**ref, call_id=name)
            state = "running"
        if state == "approved":
            ops.claim_execution(**ref, call_id=name, operation=tool, version="v1", input=known)
            state = "executing"
        if state in ("running", "executing"):
            os.write(self._effects, f"{lease.thread_id} {name}\n".encode())
            _append(ops, lease, {"type": "tool-output", "call_id": name, "output": "ok"})
        return False


def _append(ops: Operations, lease: Lease, *events: dict[str, object]) -> None:
    ops.append_events(
        thread_id=lease.thread_id, run_id=lease.run_id, fence=lease.fence, events=events
    )


if __name__ == "__main__":
    Host(sys.argv[1], sys.argv[2], int(sys.argv[3])).serve()
