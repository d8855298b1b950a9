"""Runs as a record, calls that nobody can tell of, private context, at once."""

from collections.abc import Callable, Mapping

import pytest
import sqlalchemy as sa

from engine_assistant import ConflictReason
from engine_assistant.model.machines import CallState, RunState, TurnState
from engine_assistant.model.rows import RunRow
from engine_assistant.model.times import from_text
from engine_assistant.store import tables
from tests.rig.duels import Arena, Stop
from tests.rig.sides import (
    Scene,
    Side,
    abandon,
    acquire,
    append,
    close,
    finish,
    interrupt,
    keep,
    look,
    note,
    proposal,
    recall,
    register,
    release,
    resolve,
    retry,
    settle,
    words,
)


def _run(arena: Arena, scene: Scene) -> RunRow:
    (found,) = [row for row in arena.rows(RunRow, scene.thread_id) if row.fence == scene.fence]
    return found


def _used(arena: Arena, scene: Scene) -> int | None:
    usage = arena.does(look(scene)).usage
    return None if usage is None or usage.input is None else usage.input.value


def _kept(arena: Arena, scene: Scene) -> list[str]:
    context = tables.contexts.c
    with arena.engine.connect() as connection:
        found = sa.select(context.state).where(context.thread_id == scene.thread_id)
        return list(connection.scalars(found))


# ---------------------------------------------------------------- one call, two who know better

LearnsNext = Mapping[str, Callable[[Scene], Side[object]]]
LEARN: LearnsNext = {
    "retry": retry,
    "it happened": resolve,
    "it did not": lambda scene: resolve(scene, happened=False),
    "late result": lambda scene: settle(Scene(scene.thread_id, fence=scene.fence - 1)),
}
BECOMES = {
    "retry": CallState.EXECUTING,
    "it happened": CallState.DONE,
    "it did not": CallState.CANCELLED,
    "late result": CallState.DONE,
}
TELLS = {
    "retry": "execution-claimed",
    "it happened": "unknown-resolved",
    "it did not": "unknown-resolved",
    "late result": "tool-output",
}


@pytest.mark.guarantee("G-RETRY-11")
@pytest.mark.parametrize("second", LEARN)
@pytest.mark.parametrize("first", LEARN)
def test_what_became_of_a_call_is_said_once(
    arena: Arena, first: str, second: str, stop: Stop
) -> None:
    """Two of them at once, whichever comes first: the other is told, and one event stands."""
    scene = arena.lost()
    before = arena.log(scene.thread_id)
    ahead, behind = arena.race(LEARN[first](scene), LEARN[second](scene), stop=stop)
    assert ahead.error is None
    if first == second != "retry":
        # The same said twice is one answer.
        assert behind.get().duplicate
    elif (first, second) == ("retry", "late result"):
        behind.refused(ConflictReason.RUN_FENCED)
    else:
        behind.refused(ConflictReason.CALL_STATE)
    assert arena.log(scene.thread_id) == [*before, TELLS[first]]
    assert arena.call(scene).state is BECOMES[first]


@pytest.mark.guarantee("G-RETRY-06", "G-RETRY-11")
def test_the_right_to_run_again_is_given_once(arena: Arena, stop: Stop) -> None:
    """One attempt delivered twice is one right; another attempt is refused."""
    scene = arena.lost()
    ahead, behind = arena.race(retry(scene, 1), retry(scene, 1), stop=stop)
    assert (ahead.get().duplicate, behind.get().duplicate) == (False, True)
    arena.attempt(retry(scene, 2)).refused(ConflictReason.CALL_STATE)
    assert arena.log(scene.thread_id).count("execution-claimed") == 2
    assert arena.call(scene).claimed_fence == scene.fence


@pytest.mark.guarantee("G-RETRY-03")
def test_an_approval_that_runs_out_meanwhile_is_good_for_nothing(arena: Arena) -> None:
    """The time to run it ends while the retry waits for the lock."""
    for seconds in (1.0, 3.0, 9.0):
        scene = arena.lost(expires_in=seconds)
        deadline = from_text(str(arena.call(scene).expires_at))
        in_time: list[bool] = []

        def pass_the_deadline(deadline=deadline, in_time=in_time) -> None:
            in_time.append(arena.now() < deadline)
            arena.wait_past(deadline)

        outcome = arena.wait_behind(register(scene.thread_id), retry(scene), pass_the_deadline)
        if in_time == [True]:
            break
    assert in_time == [True]
    outcome.refused(ConflictReason.APPROVAL_EXPIRED)
    assert arena.call(scene).state is CallState.UNKNOWN


@pytest.mark.guarantee("G-RETRY-05", "G-RETRY-11")
@pytest.mark.parametrize("how", ["taken over", "released", "closed", "finished"])
def test_a_run_that_loses_its_lease_meanwhile_retries_nothing(
    arena: Arena, how: str, stop: Stop
) -> None:
    scene = arena.lost()
    arena.lapse_lease(scene.thread_id)
    loses: Side[object] = {
        "taken over": acquire(scene.thread_id, "run-b"),
        "released": release(scene),
        "closed": close(scene.thread_id),
        "finished": append(scene, finish()),
    }[how]
    ahead, behind = arena.race(loses, retry(scene), stop=stop)
    assert ahead.error is None
    closed = how == "closed"
    behind.refused(ConflictReason.THREAD_CLOSED if closed else ConflictReason.RUN_FENCED)
    assert arena.call(scene).state is CallState.UNKNOWN
    assert arena.log(scene.thread_id).count("execution-claimed") == 1


@pytest.mark.guarantee("G-RETRY-11")
def test_what_runs_again_is_lost_again_with_the_lease(arena: Arena, stop: Stop) -> None:
    """The takeover waits for the retry: it meets a live run, and later closes what that one ran."""
    scene = arena.lost()
    arena.lapse_lease(scene.thread_id)
    ahead, behind = arena.race(retry(scene), acquire(scene.thread_id, "run-b"), stop=stop)
    assert ahead.error is None
    behind.refused(ConflictReason.RUN_IN_PROGRESS)
    taken = scene.under(arena.take_over(scene))
    assert arena.call(scene).state is CallState.UNKNOWN
    arena.attempt(settle(Scene(scene.thread_id, fence=scene.fence - 1))).refused(
        ConflictReason.RUN_FENCED
    )
    assert arena.does(retry(taken)).claimed_fence == taken.fence


# ---------------------------------------------------------------- a run and its end

CHECKPOINTS: Mapping[str, Callable[[Scene], Side[object]]] = {
    "usage": lambda scene: append(scene, words("and"), used=9),
    "operation": note,
    "context": keep,
}
OTHERS_END: Mapping[str, tuple[Callable[[Scene], Side[object]], str]] = {
    "taken over": (lambda scene: acquire(scene.thread_id, "run-b"), "replaced"),
    "abandoned": (lambda scene: abandon(scene.thread_id), "abandoned"),
    "interrupted": (lambda scene: interrupt(scene.thread_id), "interrupted"),
}


def _checkpointed(arena: Arena) -> Scene:
    """Make a run that has kept something of everything, and whose lease has run out."""
    scene = arena.running()
    arena.does(append(scene, words("so far"), used=1))
    arena.does(note(scene, "before"))
    arena.does(keep(scene, "before"))
    arena.lapse_lease(scene.thread_id)
    return scene


@pytest.mark.guarantee("G-RUN-09", "G-CTX-06")
@pytest.mark.parametrize("how", OTHERS_END)
@pytest.mark.parametrize("what", CHECKPOINTS)
def test_a_run_that_was_ended_meanwhile_keeps_nothing_more(
    arena: Arena, what: str, how: str
) -> None:
    """Somebody judges the run dead while it records: it is fenced, and what it kept stays."""
    scene = _checkpointed(arena)
    ends, reason = OTHERS_END[how]
    ahead, behind = arena.race(ends(scene), CHECKPOINTS[what](scene), stop=Stop.WRITTEN)
    assert ahead.error is None
    behind.refused(ConflictReason.RUN_FENCED)
    run = _run(arena, scene)
    assert (run.state, run.reason) == (RunState.LOST, reason)
    assert _used(arena, scene) == 1
    operation = arena.does(look(scene)).operation
    assert operation is not None
    assert operation.operation_id == "before"
    # A takeover leaves the turn and its context; whatever ends the turn takes it.
    assert _kept(arena, scene) == (["before"] if how == "taken over" else [])


@pytest.mark.guarantee("G-RUN-09", "G-CTX-06")
@pytest.mark.parametrize("how", OTHERS_END)
@pytest.mark.parametrize("what", CHECKPOINTS)
def test_whoever_judges_a_run_dead_finds_it_alive_when_it_has_just_recorded(
    arena: Arena, what: str, how: str
) -> None:
    """The record renews the lease, so recovery, which waited for it, leaves the run alone."""
    scene = _checkpointed(arena)
    ahead, behind = arena.race(CHECKPOINTS[what](scene), OTHERS_END[how][0](scene))
    assert ahead.error is None
    if how == "interrupted":
        assert not behind.get().ended
    else:
        behind.refused(ConflictReason.RUN_IN_PROGRESS)
    assert _run(arena, scene).state is RunState.RUNNING
    assert arena.head(scene.thread_id).turn_state is TurnState.OPEN
    arena.does(append(scene, words("still here"), finish(), used=2))
    assert _used(arena, scene) == 2


@pytest.mark.guarantee("G-RUN-09")
def test_of_two_endings_one_counts_with_all_that_it_brings(arena: Arena, stop: Stop) -> None:
    """Two deliveries of one run end its turn at once, each with usage of its own."""
    scene = arena.running()
    ahead, behind = arena.race(
        append(scene, finish("max-tokens"), used=1),
        append(scene, finish("done"), used=2),
        stop=stop,
    )
    assert ahead.error is None
    behind.refused(ConflictReason.RUN_FENCED)
    view = arena.does(look(scene))
    assert (view.state, view.reason, _used(arena, scene)) == ("finished", "max-tokens", 1)
    assert arena.log(scene.thread_id).count("turn-finish") == 1


@pytest.mark.guarantee("G-RUN-09")
@pytest.mark.parametrize("how", ["abandoned", "interrupted", "closed"])
def test_a_run_that_has_just_finished_stays_finished(arena: Arena, how: str, stop: Stop) -> None:
    """Somebody else would end its turn at that moment: too late, and its reason stays."""
    scene = arena.running()
    ends: Side[object] = {
        "abandoned": abandon(scene.thread_id, fence=scene.fence),
        "interrupted": interrupt(scene.thread_id),
        "closed": close(scene.thread_id),
    }[how]
    ahead, behind = arena.race(append(scene, finish(), used=3), ends, stop=stop)
    assert ahead.error is None
    if how == "abandoned":
        behind.refused(ConflictReason.NO_TURN_OPEN)
    else:
        assert behind.error is None
    run = _run(arena, scene)
    assert (run.state, run.reason) == (RunState.FINISHED, "done")
    assert _used(arena, scene) == 3
    assert arena.log(scene.thread_id).count("turn-finish") == 1


@pytest.mark.guarantee("G-RUN-07")
def test_a_run_and_the_head_are_of_one_moment(arena: Arena) -> None:
    """While an end is written, a reader sees all of it or nothing of it."""
    scene = arena.running()
    arena.does(append(scene, words("so far"), used=1))
    with arena.holding(append(scene, words("more"), finish(), used=2), keep=True) as (
        ahead,
        gate,
    ):
        before = arena.does(look(scene))
        assert (before.head_seq, before.reason) == (3, None)
        assert before.usage is not None
        assert before.usage.input is not None
        assert before.usage.input.value == 1
        gate.release()
        ahead.join().get()
    after = arena.does(look(scene))
    assert (after.head_seq, after.reason, _used(arena, scene)) == (5, "done", 2)


# ---------------------------------------------------------------- private context


@pytest.mark.guarantee("G-CTX-06")
def test_what_is_kept_just_before_the_end_goes_with_it(arena: Arena, stop: Stop) -> None:
    scene = arena.running()
    ahead, behind = arena.race(keep(scene), append(scene, finish()), stop=stop)
    assert (ahead.error, behind.error) == (None, None)
    assert _kept(arena, scene) == []
    assert arena.head(scene.thread_id).context_bytes == 0


@pytest.mark.guarantee("G-CTX-06")
@pytest.mark.parametrize("how", ["finished", "closed"])
def test_nothing_is_kept_for_a_turn_that_has_just_ended(arena: Arena, how: str, stop: Stop) -> None:
    scene = arena.running()
    ends: Side[object] = append(scene, finish()) if how == "finished" else close(scene.thread_id)
    _, behind = arena.race(ends, keep(scene), stop=stop)
    closed = how == "closed"
    behind.refused(ConflictReason.THREAD_CLOSED if closed else ConflictReason.RUN_FENCED)
    assert _kept(arena, scene) == []


@pytest.mark.guarantee("G-CTX-06")
def test_two_that_keep_something_at_once_keep_the_later_one(arena: Arena, stop: Stop) -> None:
    scene = arena.running()
    ahead, behind = arena.race(keep(scene, "one"), keep(scene, "two!"), stop=stop)
    assert (ahead.get().bytes, behind.get().bytes) == (3, 4)
    assert _kept(arena, scene) == ["two!"]
    assert arena.head(scene.thread_id).context_bytes == 4


@pytest.mark.guarantee("G-CTX-03")
def test_a_reader_waits_for_nobody_and_sees_what_is_committed(arena: Arena) -> None:
    """Somebody takes over: until it is committed the old run still holds, and then no more."""
    scene = _checkpointed(arena)
    with arena.holding(acquire(scene.thread_id, "run-b"), keep=True) as (ahead, gate):
        assert arena.does(recall(scene)).state == "before"
        gate.release()
        lease = ahead.join().get()
    arena.attempt(recall(scene)).refused(ConflictReason.RUN_FENCED)
    assert arena.does(recall(scene.under(lease))).state == "before"


@pytest.mark.guarantee("G-RETRY-11")
def test_a_proposal_and_a_retry_at_once_are_two_steps(arena: Arena, stop: Stop) -> None:
    """A run's own batch and its retry do not disturb each other."""
    scene = arena.lost()
    ahead, behind = arena.race(append(scene, proposal("c2")), retry(scene), stop=stop)
    assert (ahead.error, behind.error) == (None, None)
    log = arena.log(scene.thread_id)
    assert log[-2:] == ["tool-input", "execution-claimed"]
