"""The clock is read after the lock: what runs out meanwhile, what is renewed.

Each waiter stands behind a transaction that rolls back. Then the row it waited for is the row it
saw, nothing is judged a second time, and a clock read before the wait would go unnoticed.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import pytest
import sqlalchemy as sa

from engine_assistant import ConflictReason, make_engine
from engine_assistant.model.machines import CallState
from engine_assistant.model.times import from_text, truncated
from tests.rig.duels import Arena, Outcome, Stop
from tests.rig.sides import (
    ROBOT,
    Scene,
    Side,
    acquire,
    append,
    beat,
    claim,
    decide,
    proposal,
    register,
    send,
    words,
)

T = TypeVar("T")

# The shortest in which a waiter is seen before the time is over, on this machine today.
TIMES = (0.4, 1.5, 6.0)


def wait_through(
    arena: Arena, scene: Scene, deadline: datetime, side: Side[T]
) -> Outcome[T] | None:
    """Let a side wait until the deadline is over; None if it was over before it waited."""
    in_time: list[bool] = []

    def pass_the_deadline() -> None:
        in_time.append(arena.now() < deadline)
        arena.wait_past(deadline)

    outcome = arena.wait_behind(register(scene.thread_id), side, pass_the_deadline)
    return outcome if in_time == [True] else None


@pytest.mark.guarantee("G-RACE-25")
def test_nothing_is_approved_by_the_clock_of_before_the_wait(arena: Arena) -> None:
    """The card runs out while the answer waits for the lock: expired."""
    for seconds in TIMES:
        scene = arena.waiting(expires_in=seconds)
        outcome = wait_through(arena, scene, from_text(scene.expires_at), decide(scene))
        if outcome is not None:
            break
    assert outcome is not None
    outcome.refused(ConflictReason.APPROVAL_EXPIRED)
    assert arena.call(scene).state is CallState.AWAITING
    assert "approval-resolved" not in arena.log(scene.thread_id)


@pytest.mark.guarantee("G-RACE-25")
def test_nothing_is_claimed_by_the_clock_of_before_the_wait(arena: Arena) -> None:
    """The approval runs out while the claim waits for the lock: expired, and nothing runs."""
    for seconds in TIMES:
        scene = arena.approved(expires_in=seconds)
        outcome = wait_through(arena, scene, from_text(scene.expires_at), claim(scene))
        if outcome is not None:
            break
    assert outcome is not None
    outcome.refused(ConflictReason.APPROVAL_EXPIRED)
    assert arena.call(scene).state is CallState.APPROVED
    assert "execution-claimed" not in arena.log(scene.thread_id)


@pytest.mark.guarantee("G-RACE-25")
def test_what_was_claimed_in_time_is_not_closed_when_the_time_is_over(arena: Arena) -> None:
    """The approval runs out while somebody who would expire it waits for the claim: it executes."""
    for seconds in TIMES:
        scene = arena.approved(expires_in=seconds)
        deadline = from_text(scene.expires_at)
        ahead, behind = arena.race(
            claim(scene),
            acquire(scene.thread_id, scene.run_id, scene.fence),
            stop=Stop.WRITTEN,
            meanwhile=partial(arena.wait_past, deadline),
        )
        if ahead.error is None:
            break
    assert (ahead.error, behind.error) == (None, None)
    assert arena.call(scene).state is CallState.EXECUTING
    assert arena.log(scene.thread_id)[-1] == "execution-claimed"


@pytest.mark.guarantee("G-RACE-25")
def test_a_message_that_waited_finds_that_the_approval_has_lapsed(arena: Arena) -> None:
    """The last approval lapses while a message waits for the lock: it is not held back."""
    for seconds in TIMES:
        scene = arena.waiting(expires_in=seconds)
        side = send(scene.thread_id, "never mind")
        outcome = wait_through(arena, scene, from_text(scene.expires_at), side)
        if outcome is not None:
            break
    assert outcome is not None
    assert outcome.get().turn == 2
    assert arena.call(scene).state is CallState.EXPIRED


@pytest.mark.guarantee("G-RACE-26")
def test_a_lease_that_runs_out_during_the_wait_is_taken(arena: Arena) -> None:
    """The lease runs out while another run waits to acquire: it takes over."""
    for seconds in TIMES:
        scene = arena.opened()
        lease = arena.does(_acquire_for(scene, seconds))
        side = acquire(scene.thread_id, "run-b")
        outcome = wait_through(arena, scene, lease.lease_until, side)
        if outcome is not None:
            break
    assert outcome is not None
    assert outcome.get().took_over


def _acquire_for(scene: Scene, seconds: float):
    return Side(
        ROBOT,
        lambda ops: ops.acquire_run(thread_id=scene.thread_id, run_id="run-a", stale_after=seconds),
    )


RENEWALS = ["plain", "folded", "beat", "claim", "renew"]


@pytest.mark.guarantee("G-RACE-26")
@pytest.mark.parametrize("how", RENEWALS)
@pytest.mark.parametrize("make", [make_engine, sa.create_engine], ids=["ours", "a-hosts"])
def test_a_lease_is_renewed_from_the_clock_after_the_wait(
    arena: Arena, how: str, make: Callable[[sa.URL], sa.Engine]
) -> None:
    """A run's write waits behind one that rolls back: its lease runs in full from then on.

    On a host's unprepared SQLite engine the wait is elsewhere: at the BEGIN that we give.
    """
    scene = arena.approved()
    side: Side[object] = {
        "plain": append(scene, words("plain words")),
        "folded": append(scene, proposal("c2")),
        "beat": beat(scene),
        "claim": claim(scene),
        "renew": acquire(scene.thread_id, scene.run_id, scene.fence),
    }[how]
    let_go: list[datetime] = []

    def take_a_while() -> None:
        arena.wait_past(arena.now() + timedelta(milliseconds=50))
        let_go.append(truncated(arena.now()))

    before = len(arena.log(scene.thread_id))
    arena.wait_behind(append(scene, words("taken back")), side, take_a_while, make=make).get()
    until = arena.head(scene.thread_id).lease_until
    assert until is not None
    assert until >= let_go[0] + timedelta(seconds=15)
    added = arena.me.read_events(thread_id=scene.thread_id, after=before).events
    assert [event.at for event in added if event.at is None or event.at < let_go[0]] == []
    assert len(added) == (0 if how in ("beat", "renew") else 1)
