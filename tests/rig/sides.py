"""What a side of a race does: one operation, or a few, as one caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypedDict, TypeVar

from engine_assistant import AUDIT, RUN, USE, Caller, Operations
from engine_assistant.model.codec import JsonValue
from engine_assistant.model.views import (
    Appended,
    Beat,
    Claim,
    Decision,
    Interrupt,
    Lease,
    MessageReceipt,
    Request,
    Settled,
    Thread,
)
from engine_assistant.model.views.inputs import Abandoned, InputView, Taken
from engine_assistant.model.views.runs import ContextSize, ContextView, RunOperation, RunView

T_co = TypeVar("T_co", covariant=True)
Fields = Mapping[str, object]

ALICE = Caller(tenant="acme", principal="usr_alice", permissions={USE, AUDIT})
ROBOT = Caller(tenant="acme", principal="sys_robot", permissions={RUN}, system=True)
INPUT: dict[str, JsonValue] = {"order": 1234567890123456789, "amount": 1.5}
TOOL, OPERATION, VERSION = "refund", "refund", "v1"


@dataclass(frozen=True)
class Side(Generic[T_co]):
    """Who, and what in one transaction."""

    caller: Caller
    does: Callable[[Operations], T_co]


class Held(TypedDict):
    """What every write of a run carries."""

    thread_id: str
    run_id: str
    fence: int


@dataclass(frozen=True)
class Scene:
    """A thread whose turn is run, and the call that waits, if one does."""

    thread_id: str
    run_id: str = ""
    fence: int = 0
    call_id: str = "c1"
    digest: str = ""
    expires_at: str = ""

    @property
    def held(self) -> Held:
        return Held(thread_id=self.thread_id, run_id=self.run_id, fence=self.fence)

    def under(self, lease: Lease) -> Scene:
        return replace(self, run_id=lease.run_id, fence=lease.fence)


# ---------------------------------------------------------------- events


def words(text: str) -> Fields:
    return {"type": "text-delta", "text": text}


def proposal(call_id: str = "c1", tool_input: object = None, *, repeatable: bool = False) -> Fields:
    return {
        "repeatable": repeatable,
        "type": "tool-input",
        "call_id": call_id,
        "tool": TOOL,
        "step": "s1",
        "input": INPUT if tool_input is None else tool_input,
    }


def output(call_id: str = "c1") -> Fields:
    return {"type": "tool-output", "call_id": call_id, "output": "ok"}


def failure(call_id: str = "c1") -> Fields:
    return {"type": "tool-error", "call_id": call_id, "code": "broken", "message": "it broke"}


def finish(reason: str = "done") -> Fields:
    return {"type": "turn-finish", "reason": reason}


# ---------------------------------------------------------------- the person


def create(key: str, title: str = "Refund") -> Side[Thread]:
    return Side(ALICE, lambda ops: ops.create_thread(key=key, title=title))


def send(
    thread_id: str,
    text: str = "hello",
    *,
    key: str | None = None,
    supersede: bool = False,
    when_busy: str = "refuse",
    priority: str = "normal",
    coalesce: bool = False,
) -> Side[MessageReceipt]:
    return Side(
        ALICE,
        lambda ops: ops.send_message(
            thread_id=thread_id,
            text=text,
            key=key,
            supersede_approvals=supersede,
            when_busy=when_busy,
            priority=priority,
            coalesce=coalesce,
        ),
    )


def edit(thread_id: str, input_id: str, text: str = "edited") -> Side[InputView]:
    return Side(
        ALICE, lambda ops: ops.edit_input(thread_id=thread_id, input_id=input_id, text=text)
    )


def cancel(thread_id: str, input_id: str) -> Side[InputView]:
    return Side(ALICE, lambda ops: ops.cancel_input(thread_id=thread_id, input_id=input_id))


def interrupt(thread_id: str) -> Side[Interrupt]:
    return Side(ALICE, lambda ops: ops.interrupt_turn(thread_id=thread_id))


def close(thread_id: str) -> Side[Thread]:
    return Side(ALICE, lambda ops: ops.close_thread(thread_id=thread_id))


def decide(scene: Scene, *, approved: bool = True, caller: Caller = ALICE) -> Side[Decision]:
    return Side(
        caller,
        lambda ops: ops.resolve_approval(
            thread_id=scene.thread_id,
            call_id=scene.call_id,
            approved=approved,
            digest=scene.digest,
            version=VERSION,
        ),
    )


# ---------------------------------------------------------------- the run


def acquire(thread_id: str, run_id: str, fence: int | None = None) -> Side[Lease]:
    return Side(ROBOT, lambda ops: ops.acquire_run(thread_id=thread_id, run_id=run_id, fence=fence))


def beat(scene: Scene) -> Side[Beat]:
    return Side(ROBOT, lambda ops: ops.beat_run(**scene.held))


def release(scene: Scene) -> Side[bool]:
    return Side(ROBOT, lambda ops: ops.release_run(**scene.held))


def take(scene: Scene) -> Side[Taken]:
    return Side(ROBOT, lambda ops: ops.take_inputs(**scene.held))


def abandon(
    thread_id: str, *, fence: int | None = None, turn: int | None = None
) -> Side[Abandoned]:
    return Side(
        ROBOT,
        lambda ops: ops.abandon_turn(thread_id=thread_id, reason="gone", fence=fence, turn=turn),
    )


def append(
    scene: Scene, *events: Fields, batch: int | None = None, used: int | None = None
) -> Side[Appended]:
    usage = None if used is None else {"input": {"value": used, "provenance": "reported"}}
    return Side(
        ROBOT,
        lambda ops: ops.append_events(**scene.held, events=events, batch=batch, usage=usage),
    )


def ask(scene: Scene, *, reissue: bool = False, expires_in: float = 60) -> Side[Request]:
    return Side(
        ROBOT,
        lambda ops: ops.request_approval(
            **scene.held,
            call_id=scene.call_id,
            operation=OPERATION,
            version=VERSION,
            expires_in=expires_in,
            reissue=reissue,
        ),
    )


def claim(scene: Scene, attempt: int | None = None) -> Side[Claim]:
    return Side(
        ROBOT,
        lambda ops: ops.claim_execution(
            **scene.held,
            call_id=scene.call_id,
            operation=OPERATION,
            version=VERSION,
            input=INPUT,
            attempt=attempt,
        ),
    )


def settle(scene: Scene) -> Side[Settled]:
    return Side(
        ROBOT,
        lambda ops: ops.settle_execution(
            thread_id=scene.thread_id,
            call_id=scene.call_id,
            claimed_fence=scene.fence,
            output="ok",
        ),
    )


def retry(scene: Scene, attempt: int | None = None) -> Side[Claim]:
    """Run a lost call again, that people approved."""
    return Side(
        ROBOT,
        lambda ops: ops.retry_call(
            **scene.held,
            call_id=scene.call_id,
            operation=OPERATION,
            version=VERSION,
            input=INPUT,
            attempt=attempt,
        ),
    )


def resolve(scene: Scene, *, happened: bool = True) -> Side[Settled]:
    """Say what became of a lost call."""
    return Side(
        ALICE,
        lambda ops: ops.resolve_unknown(
            thread_id=scene.thread_id, call_id=scene.call_id, happened=happened
        ),
    )


def keep(scene: Scene, state: str = "opaque") -> Side[ContextSize]:
    return Side(ROBOT, lambda ops: ops.put_context(**scene.held, state=state))


def recall(scene: Scene) -> Side[ContextView]:
    return Side(ROBOT, lambda ops: ops.get_context(**scene.held))


def note(scene: Scene, operation_id: str = "o1") -> Side[RunOperation]:
    return Side(
        ROBOT,
        lambda ops: ops.record_operation(
            **scene.held, operation_id=operation_id, kind="model", phase="asked"
        ),
    )


def look(scene: Scene) -> Side[RunView]:
    return Side(ALICE, lambda ops: ops.get_run(thread_id=scene.thread_id, fence=scene.fence))


def register(thread_id: str) -> Side[object]:
    """Something small that takes the thread's lock and changes nothing of its turn."""
    return Side(
        ROBOT,
        lambda ops: ops.register_file(
            thread_id=thread_id,
            filename="a.txt",
            content_type="text/plain",
            size=1,
            sha256="0" * 64,
        ),
    )
