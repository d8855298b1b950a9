"""What a right, a card and a rest are worth afterwards: nothing that was lost can be had again."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from engine_assistant import (
    RUN,
    USE,
    ApprovalBinding,
    Assistant,
    Caller,
    Conflict,
    Internal,
    NotFound,
    Operations,
    ValidationFailed,
    approval_digest,
)
from engine_assistant.context import Clock
from engine_assistant.store.runnable import runnable

ALICE = Caller(tenant="acme", principal="usr_alice", permissions={USE})
ROBOT = Caller(tenant="acme", principal="sys_robot", permissions={RUN}, system=True)
FINISH = {"type": "turn-finish", "reason": "done"}
REST = {"type": "turn-finish", "reason": "awaiting-approval"}
PROPOSAL = {"type": "tool-input", "call_id": "c1", "tool": "refund", "input": {"n": 1}, "step": "s"}


class Play:
    """One thread with a call, and both sides of it."""

    def __init__(self, engine: sa.Engine, clock: Clock | None = None) -> None:
        self.assistant = Assistant(engine, clock=clock)
        self.me: Operations = self.assistant.acting_as(ALICE)
        self.robot: Operations = self.assistant.acting_as(ROBOT)
        self.thread = self.me.create_thread().id
        self.me.send_message(thread_id=self.thread, text="refund")
        self.run = self.lease("run_1")
        self.robot.append_events(**self.run, events=[PROPOSAL])

    def lease(self, run_id: str, stale_after: float = 15.0) -> dict[str, Any]:
        lease = self.robot.acquire_run(
            thread_id=self.thread, run_id=run_id, stale_after=stale_after
        )
        return {"thread_id": self.thread, "run_id": run_id, "fence": lease.fence}

    def request(self, nonce: str, expires_at: str, **more: object) -> dict[str, object]:
        """Make a ready request of Alice, checked and digested as a host would."""
        binding = ApprovalBinding(
            version="v1",
            approver="usr_alice",
            tenant="acme",
            thread=self.thread,
            step="s",
            call="c1",
            operation="refund",
            expires_at=expires_at,
            nonce=nonce,
            input={"n": 1},
        )
        slot = {"approver": "usr_alice", "nonce": nonce, "digest": approval_digest(binding)}
        return {
            "type": "approval-request",
            "call_id": "c1",
            "tool": "refund",
            "input": {"n": 1},
            "step": "s",
            "operation": "refund",
            "version": "v1",
            "expires_at": expires_at,
            "required": 1,
            "requests": [slot],
            **more,
        }

    def claimed(self) -> Callable[[], object]:
        """Ask, approve and claim; return the same claim to be given again."""
        asked = self.robot.request_approval(
            **self.run, call_id="c1", operation="refund", version="v1", expires_in=600
        )
        self.me.resolve_approval(
            thread_id=self.thread,
            call_id="c1",
            approved=True,
            digest=asked.requests[0].digest,
            version="v1",
        )
        claim = {"call_id": "c1", "operation": "refund", "version": "v1", "input": {"n": 1}}
        self.robot.claim_execution(**self.run, **claim, attempt=1)
        return lambda: self.robot.claim_execution(**self.run, **claim, attempt=1)


@pytest.fixture
def play(engine: sa.Engine) -> Play:
    """A thread whose turn is open, with one call proposed."""
    return Play(engine)


def _interrupted(play: Play) -> None:
    play.robot.release_run(**play.run)
    play.me.interrupt_turn(thread_id=play.thread)


LOST: dict[str, tuple[Callable[[Play], object], str]] = {
    "released": (lambda play: play.robot.release_run(**play.run), "run_fenced"),
    "taken-over": (lambda play: play.lease("run_1"), "run_fenced"),
    "interrupted": (_interrupted, "run_fenced"),
    "closed": (lambda play: play.me.close_thread(thread_id=play.thread), "thread_closed"),
    "finished": (lambda play: play.robot.append_events(**play.run, events=[FINISH]), "run_fenced"),
    "done": (
        lambda play: play.robot.append_events(
            **play.run, events=[{"type": "tool-output", "call_id": "c1", "output": 1}]
        ),
        "already_executed",
    ),
}


@pytest.mark.guarantee("G-MACH-90")
@pytest.mark.parametrize("how", LOST)
def test_a_claim_given_again_is_answered_only_while_the_right_is_held(play: Play, how: str) -> None:
    again = play.claimed()
    assert again().duplicate
    lose, reason = LOST[how]
    lose(play)
    with pytest.raises(Conflict) as refused:
        again()
    assert refused.value.reason == reason


@pytest.mark.guarantee("G-MACH-91")
def test_an_old_card_cannot_answer_a_request_asked_again(play: Play) -> None:
    until = "2027-06-01T00:00:00.000Z"
    play.robot.append_events(**play.run, events=[play.request("n1", until)])
    with pytest.raises(ValidationFailed, match="new nonces"):
        play.robot.append_events(**play.run, events=[play.request("n1", until, reissue=True)])
    play.robot.append_events(**play.run, events=[play.request("n2", until, reissue=True)])


@pytest.mark.guarantee("G-MACH-92")
def test_nothing_is_written_after_the_batch_itself_rested_the_turn(play: Play) -> None:
    until = "2027-06-01T00:00:00.000Z"
    batch = [play.request("n1", until), REST, play.request("n2", until, reissue=True)]
    with pytest.raises(Conflict) as refused:
        play.robot.append_events(**play.run, events=batch)
    assert refused.value.reason == "no_turn_open"
    assert play.me.get_thread(thread_id=play.thread).last_seq == 3


@pytest.mark.guarantee("G-MACH-93")
def test_a_request_waits_a_year_at_most(play: Play) -> None:
    with pytest.raises(ValidationFailed, match="366 days"):
        play.robot.append_events(
            **play.run, events=[play.request("n1", "9999-12-31T23:59:59.999Z"), REST]
        )
    assert play.me.get_thread(thread_id=play.thread).last_seq == 3


@pytest.mark.guarantee("G-MACH-94")
def test_a_held_thread_is_not_runnable_even_when_its_approvals_lapsed(engine: sa.Engine) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    play = Play(engine, clock=lambda: now)
    play.robot.request_approval(
        **play.run, call_id="c1", operation="refund", version="v1", expires_in=60
    )
    play.robot.append_events(**play.run, events=[REST])
    held = play.lease("run_2", stale_after=3600)
    now += timedelta(seconds=61)
    assert play.assistant.list_runnable() == []
    play.robot.release_run(**held)
    assert [row.why for row in play.assistant.list_runnable()] == ["approvals-lapsed"]


@pytest.mark.guarantee("G-MACH-95")
def test_an_emit_that_refuses_breaks_the_transaction(engine: sa.Engine) -> None:
    def emit(*_: object) -> None:
        raise NotFound("no such topic")

    assistant = Assistant(engine, emit=emit)
    with pytest.raises(Internal), assistant.session(ALICE) as ops, suppress(Internal):
        ops.create_thread()
    assert Assistant(engine).acting_as(ALICE).list_threads().items == ()


@pytest.mark.guarantee("G-MACH-94")
def test_looking_for_runnable_threads_scans_no_idle_one(sqlite_url: str) -> None:
    engine = Assistant.from_url(sqlite_url).engine
    seen: list[tuple[str, object]] = []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def note(_c: object, _cur: object, statement: str, values: object, *_: object) -> None:
        seen.append((statement, values))

    with engine.connect() as connection:
        runnable(connection, schema=None, clock=None, limit=5, exclude=[])
        statement, values = seen[-1]
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
    engine.dispose()
    steps = [str(row[3]) for row in plan]
    assert [step for step in steps if "assistant_threads" in step] == [
        "SCAN assistant_threads USING INDEX ix_assistant_threads_open",
        "SEARCH assistant_threads USING INDEX ix_assistant_threads_deadline (next_deadline<?)",
    ]
