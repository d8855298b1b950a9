"""Who holds the lease is judged under the thread's lock."""

from datetime import UTC, datetime, timedelta

import pytest

from engine_assistant import ConflictReason
from engine_assistant.model.machines import CallState, RunState
from engine_assistant.model.rows import RunRow
from tests.rig.duels import Arena, Stop
from tests.rig.sides import (
    Fields,
    acquire,
    append,
    beat,
    claim,
    close,
    decide,
    finish,
    interrupt,
    proposal,
    release,
    send,
    settle,
    words,
)

PLAIN = (words("plain words"),)
FOLDED = (words("a call"), proposal("c2"))


@pytest.mark.guarantee("G-RACE-07")
@pytest.mark.parametrize("events", [PLAIN, FOLDED], ids=["plain", "folded"])
def test_a_replaced_run_that_was_about_to_write_is_refused(
    arena: Arena, stop: Stop, events: tuple[Fields, ...]
) -> None:
    """Run B takes over while run A is about to append: A waits, and is fenced."""
    scene = arena.running("run-a")
    arena.lapse_lease(scene.thread_id)
    ahead, behind = arena.race(acquire(scene.thread_id, "run-b"), append(scene, *events), stop=stop)
    lease = ahead.get()
    assert (lease.took_over, lease.fence) == (True, scene.fence + 1)
    assert behind.refused(ConflictReason.RUN_FENCED).facts["fence"] == lease.fence
    assert arena.log(scene.thread_id) == ["user-message", "turn-start"]


@pytest.mark.guarantee("G-RACE-07")
@pytest.mark.parametrize("events", [PLAIN, FOLDED], ids=["plain", "folded"])
def test_a_takeover_waits_for_the_write_and_finds_its_writer_alive(
    arena: Arena, events: tuple[Fields, ...]
) -> None:
    """Run A appends under a lease that ran out while B would take over: B meets a live run."""
    scene = arena.running("run-a")
    arena.lapse_lease(scene.thread_id)
    ahead, behind = arena.race(
        append(scene, *events), acquire(scene.thread_id, "run-b"), stop=Stop.WRITTEN
    )
    assert ahead.get().events[0].seq == 3
    behind.refused(ConflictReason.RUN_IN_PROGRESS)
    assert len(arena.log(scene.thread_id)) == 2 + len(events)
    assert arena.head(scene.thread_id).run_id == "run-a"


@pytest.mark.guarantee("G-RACE-07")
@pytest.mark.parametrize("events", [PLAIN, FOLDED], ids=["plain", "folded"])
def test_a_write_that_rolled_back_kept_nobody_out(arena: Arena, events: tuple[Fields, ...]) -> None:
    """Run A appends and rolls back while B would take over: the lease had run out, B has it."""
    scene = arena.running("run-a")
    arena.lapse_lease(scene.thread_id)
    _, behind = arena.race(
        append(scene, *events), acquire(scene.thread_id, "run-b"), stop=Stop.WRITTEN, keep=False
    )
    assert behind.get().took_over
    assert arena.log(scene.thread_id) == ["user-message", "turn-start"]


@pytest.mark.guarantee("G-RACE-08")
def test_the_beat_of_a_replaced_run_renews_nothing(arena: Arena, stop: Stop) -> None:
    """Run A beats while B takes over: A is fenced, and the lease is as B took it."""
    scene = arena.running("run-a")
    arena.lapse_lease(scene.thread_id)
    ahead, behind = arena.race(acquire(scene.thread_id, "run-b"), beat(scene), stop=stop)
    lease = ahead.get()
    behind.refused(ConflictReason.RUN_FENCED)
    head = arena.head(scene.thread_id)
    assert (head.run_id, head.fence, head.lease_until) == (
        "run-b",
        lease.fence,
        lease.lease_until,
    )


@pytest.mark.guarantee("G-RACE-08")
def test_the_release_of_a_replaced_run_releases_nothing(arena: Arena, stop: Stop) -> None:
    """Run A releases while B takes over: A is told that it held nothing, and B still holds."""
    scene = arena.running("run-a")
    arena.lapse_lease(scene.thread_id)
    _, behind = arena.race(acquire(scene.thread_id, "run-b"), release(scene), stop=stop)
    assert behind.get() is False
    assert arena.head(scene.thread_id).run_id == "run-b"


@pytest.mark.guarantee("G-RACE-09")
@pytest.mark.parametrize("held", [True, False], ids=["run-out", "free"])
def test_two_runs_want_one_lease_and_one_gets_it(arena: Arena, stop: Stop, held: bool) -> None:
    """Two runs acquire a free lease, or one that ran out, at once: the second meets a live run."""
    scene = arena.running("run-0") if held else arena.opened()
    if held:
        arena.lapse_lease(scene.thread_id)
    ahead, behind = arena.race(
        acquire(scene.thread_id, "run-a"), acquire(scene.thread_id, "run-b"), stop=stop
    )
    assert ahead.get().took_over is held
    assert behind.refused(ConflictReason.RUN_IN_PROGRESS).facts["fence"] == ahead.get().fence
    arena.log(scene.thread_id)
    runs = [(row.run_id, row.state) for row in arena.rows(RunRow, scene.thread_id)]
    lost = [("run-0", RunState.LOST)] if held else []
    assert runs == [*lost, ("run-a", RunState.RUNNING)]


@pytest.mark.guarantee("G-RACE-10")
def test_no_run_holds_a_closed_thread(arena: Arena, stop: Stop) -> None:
    """The owner closes while a run would acquire: refused, and no lease is left behind."""
    scene = arena.opened()
    ahead, behind = arena.race(close(scene.thread_id), acquire(scene.thread_id, "run-a"), stop=stop)
    assert ahead.get().closed_at is not None
    behind.refused(ConflictReason.THREAD_CLOSED)
    assert arena.head(scene.thread_id).run_id is None
    assert arena.rows(RunRow, scene.thread_id) == []


@pytest.mark.guarantee("G-RACE-10")
def test_a_close_that_waited_for_a_run_takes_its_lease(arena: Arena, stop: Stop) -> None:
    """A run acquires while the owner closes: the close waits, and ends that run too."""
    scene = arena.opened()
    ahead, behind = arena.race(acquire(scene.thread_id, "run-a"), close(scene.thread_id), stop=stop)
    lease = ahead.get()
    assert behind.error is None
    head = arena.head(scene.thread_id)
    assert (head.run_id, head.lease_until) == (None, None)
    assert head.fence > lease.fence
    (run,) = arena.rows(RunRow, scene.thread_id)
    assert run.state is RunState.CLOSED
    assert arena.log(scene.thread_id)[-1] == "turn-finish"


@pytest.mark.guarantee("G-RACE-11")
@pytest.mark.parametrize("events", [PLAIN, FOLDED], ids=["plain", "folded"])
def test_the_same_run_id_later_is_another_holder(
    arena: Arena, stop: Stop, events: tuple[Fields, ...]
) -> None:
    """A released, B came and went, A acquires again while old A writes: old A is fenced."""
    old = arena.running("run-a")
    arena.does(release(old))
    between = old.under(arena.does(acquire(old.thread_id, "run-b")))
    arena.does(release(between))
    ahead, behind = arena.race(acquire(old.thread_id, "run-a"), append(old, *events), stop=stop)
    assert ahead.get().fence == between.fence + 1
    assert not ahead.get().took_over
    behind.refused(ConflictReason.RUN_FENCED)
    assert arena.log(old.thread_id) == ["user-message", "turn-start"]


@pytest.mark.guarantee("G-RACE-11")
def test_one_job_delivered_twice_has_one_writer(arena: Arena, stop: Stop) -> None:
    """Two processes acquire with one run id at once: the second holds, the first is fenced."""
    scene = arena.opened()
    ahead, behind = arena.race(
        acquire(scene.thread_id, "run-a"), acquire(scene.thread_id, "run-a"), stop=stop
    )
    first, second = scene.under(ahead.get()), scene.under(behind.get())
    assert second.fence == first.fence + 1
    arena.attempt(append(first, words("x"))).refused(ConflictReason.RUN_FENCED)
    arena.does(append(second, words("y")))
    again = arena.does(acquire(scene.thread_id, "run-a", second.fence))
    assert again.fence == second.fence
    assert len(arena.log(scene.thread_id)) == 3


@pytest.mark.guarantee("G-RACE-12")
def test_an_answer_given_just_before_the_rest_is_not_slept_through(
    arena: Arena, stop: Stop
) -> None:
    """The person answers while the run would rest and wait: the run is told that nobody waits."""
    scene = arena.asked()
    ahead, behind = arena.race(decide(scene), append(scene, finish("awaiting-approval")), stop=stop)
    assert ahead.get().state is CallState.APPROVED
    behind.refused(ConflictReason.NO_APPROVAL_PENDING)
    assert arena.log(scene.thread_id)[-1] == "approval-resolved"
    assert arena.head(scene.thread_id).run_id == scene.run_id
    arena.does(claim(scene))


@pytest.mark.guarantee("G-RACE-12")
def test_an_answer_given_just_after_the_rest_wakes_the_thread(arena: Arena, stop: Stop) -> None:
    """The run rests while the person answers: the turn is open again, and a run is asked for."""
    scene = arena.asked()
    ahead, behind = arena.race(append(scene, finish("awaiting-approval")), decide(scene), stop=stop)
    assert ahead.error is None
    assert behind.get().state is CallState.APPROVED
    assert arena.log(scene.thread_id)[-2:] == ["turn-finish", "approval-resolved"]
    (wanted,) = arena.assistant.list_runnable()
    assert (wanted.thread_id, wanted.why) == (scene.thread_id, "no-run")
    arena.does(acquire(scene.thread_id, "run-b"))


@pytest.mark.guarantee("G-RACE-13")
def test_a_replaced_run_cannot_claim(arena: Arena, stop: Stop) -> None:
    """Run B takes over while A claims: A is fenced, and B can claim the call."""
    scene = arena.approved()
    arena.lapse_lease(scene.thread_id)
    ahead, behind = arena.race(acquire(scene.thread_id, "run-b"), claim(scene), stop=stop)
    behind.refused(ConflictReason.RUN_FENCED)
    assert arena.call(scene).state is CallState.APPROVED
    taken = scene.under(ahead.get())
    assert arena.does(claim(taken)).claimed_fence == taken.fence
    assert arena.log(scene.thread_id).count("execution-claimed") == 1


@pytest.mark.guarantee("G-RACE-13")
def test_a_takeover_after_the_claim_knows_whose_it_was(arena: Arena, stop: Stop) -> None:
    """A claims while B takes over: B meets a live run, and once it has taken over, A settles."""
    scene = arena.approved()
    arena.lapse_lease(scene.thread_id)
    ahead, behind = arena.race(claim(scene), acquire(scene.thread_id, "run-b"), stop=stop)
    assert ahead.get().claimed_fence == scene.fence
    behind.refused(ConflictReason.RUN_IN_PROGRESS)
    taken = scene.under(arena.take_over(scene))
    call = arena.call(scene)
    assert (call.state, call.claimed_fence) == (CallState.UNKNOWN, scene.fence)
    error = arena.attempt(claim(taken)).refused(ConflictReason.ALREADY_EXECUTED)
    assert error.facts["claimed_run_id"] == scene.run_id
    assert error.facts["claimed_fence"] == scene.fence
    assert arena.does(settle(scene)).state is CallState.DONE


# ---------------------------------------------------------------- the sleeping run

SLEEPERS = ["plain", "folded", "claim", "beat", "release", "renew"]


@pytest.mark.guarantee("G-RACE-14")
@pytest.mark.parametrize("wakes", SLEEPERS)
def test_a_run_that_slept_through_the_end_of_its_turn_writes_nothing(
    arena: Arena, stop: Stop, wakes: str
) -> None:
    """The owner interrupts and says something else while the old run wakes and writes: refused."""
    old = arena.approved()
    arena.lapse_lease(old.thread_id)
    assert arena.does(interrupt(old.thread_id)).ended
    before = len(arena.log(old.thread_id))
    side = {
        "plain": append(old, *PLAIN),
        "folded": append(old, *FOLDED),
        "claim": claim(old),
        "beat": beat(old),
        "release": release(old),
        "renew": acquire(old.thread_id, old.run_id, old.fence),
    }[wakes]
    ahead, behind = arena.race(send(old.thread_id, "something else"), side, stop=stop)
    assert ahead.get().turn == 2
    if wakes == "release":
        assert behind.get() is False
    else:
        behind.refused(ConflictReason.RUN_FENCED)
    assert arena.log(old.thread_id)[before:] == ["user-message", "turn-start"]
    assert arena.head(old.thread_id).run_id is None
    assert arena.call(old).state is CallState.CANCELLED
    # It is refused again in a new run's turn, also when that run bears its id.
    arena.does(acquire(old.thread_id, old.run_id))
    again = arena.attempt(side)
    assert again.answer is False or again.refused(ConflictReason.RUN_FENCED)


@pytest.mark.guarantee("G-RACE-14")
def test_a_run_that_does_not_stop_loses_its_lease_while_it_writes(arena: Arena, stop: Stop) -> None:
    """The owner asks a live run twice, ten seconds apart, while it appends: the turn is over."""
    old = arena.running()
    assert not arena.does(interrupt(old.thread_id)).ended
    long_ago = datetime.now(UTC) - timedelta(seconds=11)
    arena.change_head(old.thread_id, interrupt_requested_at=long_ago)
    ahead, behind = arena.race(interrupt(old.thread_id), append(old, *PLAIN), stop=stop)
    assert ahead.get().ended
    behind.refused(ConflictReason.RUN_FENCED)
    assert arena.log(old.thread_id) == ["user-message", "turn-start", "turn-finish"]
