"""The lease: who may write the assistant's side, by a clock that the test moves."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from engine_assistant import ConflictReason, Internal, NotFound
from engine_assistant.testing.clock import START
from tests.rig.stage import Play, Stage, delta, dump, refused


@pytest.fixture
def thread_id(stage: Stage) -> str:
    thread = stage.me.create_thread()
    stage.me.send_message(thread_id=thread.id, text="Hello")
    return thread.id


@pytest.mark.guarantee("G-OPS-25")
def test_the_lease_runs_from_the_clock_for_as_long_as_its_holder_says(
    stage: Stage, thread_id: str
) -> None:
    lease = stage.bot.acquire_run(thread_id=thread_id, run_id="r1")
    assert (lease.fence, lease.took_over) == (1, False)
    assert lease.lease_until == START + timedelta(seconds=15)
    for seconds in (0.01, 3600.0, 7):
        lease = stage.bot.acquire_run(thread_id=thread_id, run_id="r1", stale_after=seconds)
        assert lease.lease_until == START + timedelta(seconds=seconds)


@pytest.mark.guarantee("G-OPS-26")
def test_another_run_takes_over_at_the_very_instant_and_not_before(
    stage: Stage, thread_id: str
) -> None:
    run = stage.take(thread_id, "r1")
    stage.clock.forward(14.999)
    before = dump(stage.engine)
    with refused(ConflictReason.RUN_IN_PROGRESS, fence=1):
        stage.take(thread_id, "r2")
    assert dump(stage.engine) == before
    stage.clock.forward(0.001)
    lease = stage.bot.acquire_run(thread_id=thread_id, run_id="r2")
    assert (lease.fence, lease.took_over) == (2, True)
    for attempt in (
        lambda: stage.append(run, delta("x")),
        lambda: stage.append(run, {"type": "turn-finish", "reason": "done"}),
        lambda: stage.bot.beat_run(**run),
        lambda: stage.bot.acquire_run(**run),
        lambda: stage.ask(run, "c"),
        lambda: stage.claim(run, "c"),
    ):
        with refused(ConflictReason.RUN_FENCED, fence=2):
            attempt()
    assert stage.bot.release_run(**run) is False


@pytest.mark.guarantee("G-OPS-26")
def test_a_lease_that_ran_out_still_writes_until_somebody_takes_it(
    stage: Stage, thread_id: str
) -> None:
    run = stage.take(thread_id)
    stage.clock.forward(100)
    stage.append(run, delta("late but alone"))
    with refused(ConflictReason.RUN_IN_PROGRESS):
        stage.take(thread_id, "r2")


@pytest.mark.guarantee("G-OPS-27")
def test_the_fence_rises_on_every_acquisition_also_of_the_same_run(
    stage: Stage, thread_id: str
) -> None:
    first = stage.take(thread_id, "r1")
    second = stage.bot.acquire_run(thread_id=thread_id, run_id="r1")
    assert (second.fence, second.took_over) == (2, False)
    with refused(ConflictReason.RUN_FENCED):
        stage.append(first, delta("the first of two twins"))
    stage.append({**first, "fence": 2}, delta("the second"))


@pytest.mark.guarantee("G-OPS-28")
def test_presenting_the_fence_that_is_held_is_a_renewal(stage: Stage, thread_id: str) -> None:
    run = stage.take(thread_id)
    stage.propose(run, "c")
    stage.clock.forward(20)
    lease = stage.bot.acquire_run(**run, stale_after=60.0)
    assert (lease.fence, lease.took_over) == (1, False)
    assert lease.lease_until == stage.clock.now + timedelta(seconds=60)
    # Nothing was taken over, so nothing that runs has become unknown.
    assert stage.state_of(run, "c") == "running"
    for wrong in ({"fence": 2}, {"run_id": "r2"}):
        with refused(ConflictReason.RUN_FENCED):
            stage.bot.acquire_run(**{**run, **wrong})


@pytest.mark.guarantee("G-OPS-28")
@pytest.mark.parametrize("renewing", ["beat", "append", "append a call", "ask", "claim"])
def test_every_fenced_write_renews_the_lease(play: Play, renewing: str) -> None:
    stage, run = play.stage, play.run
    stage.clock.forward(14)
    {
        "beat": lambda: stage.bot.beat_run(**run),
        "append": lambda: stage.append(run, delta("x")),
        "append a call": lambda: stage.propose(run, "new"),
        "ask": lambda: stage.ask(run, "running"),
        "claim": lambda: stage.claim(run, "approved"),
    }[renewing]()
    stage.clock.forward(14.999)
    with refused(ConflictReason.RUN_IN_PROGRESS):
        stage.take(play.thread_id, "r2")
    stage.clock.forward(0.001)
    assert stage.take(play.thread_id, "r2")["fence"] == 2


@pytest.mark.guarantee("G-OPS-29")
def test_a_released_lease_is_free_and_its_holder_is_out(stage: Stage, thread_id: str) -> None:
    run = stage.take(thread_id, "r1")
    stage.propose(run, "c")
    for wrong in ({"fence": 2}, {"run_id": "r2"}):
        assert stage.bot.release_run(**{**run, **wrong}) is False
    assert stage.bot.release_run(**run) is True
    assert stage.bot.release_run(**run) is False
    assert stage.state_of(run, "c") == "unknown"
    assert stage.me.get_thread(thread_id=thread_id).turn_state == "open"
    with refused(ConflictReason.RUN_FENCED):
        stage.append(run, delta("x"))
    lease = stage.bot.acquire_run(thread_id=thread_id, run_id="r2")
    assert (lease.fence, lease.took_over) == (2, False)


@pytest.mark.guarantee("G-OPS-30")
def test_an_idle_thread_has_no_lease_to_take(stage: Stage, thread_id: str) -> None:
    fresh = stage.me.create_thread().id
    with refused(ConflictReason.NO_TURN_OPEN):
        stage.take(fresh)
    run = stage.take(thread_id)
    stage.rest(run)
    with refused(ConflictReason.NO_TURN_OPEN):
        stage.take(thread_id)
    with refused(ConflictReason.NO_TURN_OPEN):
        stage.bot.acquire_run(**run)
    for attempt in (stage.bot.acquire_run, stage.bot.beat_run, stage.bot.release_run):
        fence = {} if attempt == stage.bot.acquire_run else {"fence": 1}
        with pytest.raises(NotFound):
            attempt(thread_id="no-such-thread", run_id="r1", **fence)


@pytest.mark.guarantee("G-OPS-30")
def test_a_fence_never_outlives_its_turn(stage: Stage, thread_id: str) -> None:
    run = stage.take(thread_id)
    stage.me.interrupt_turn(thread_id=thread_id)
    stage.clock.forward(10)
    assert stage.me.interrupt_turn(thread_id=thread_id).ended
    stage.me.send_message(thread_id=thread_id, text="Next")
    with refused(ConflictReason.RUN_FENCED):
        stage.append(run, delta("from the turn before"))
    fresh = stage.take(thread_id, "r1")
    assert fresh["fence"] > run["fence"]
    with refused(ConflictReason.RUN_FENCED):
        stage.append(run, delta("from the turn before"))


@pytest.mark.guarantee("G-OPS-31")
def test_what_a_run_should_pick_up_is_listed_oldest_first(stage: Stage) -> None:
    opened = []
    for _ in range(2):
        thread = stage.me.create_thread()
        stage.me.send_message(thread_id=thread.id, text="Hello")
        opened.append(thread.id)
        stage.clock.forward(1)
    run = stage.take(opened[0])
    stage.propose(run, "c")
    stage.ask(run, "c", expires_in=60)

    def runnable(**given: object) -> list[tuple[str, str]]:
        return [(one.thread_id, one.why) for one in stage.assistant.list_runnable(**given)]

    assert runnable() == [(opened[1], "no-run")]
    stage.clock.forward(15)
    assert runnable() == [(opened[0], "lease-ran-out"), (opened[1], "no-run")]
    assert runnable(limit=1) == [(opened[0], "lease-ran-out")]
    assert runnable(exclude=[("acme", opened[0])]) == [(opened[1], "no-run")]
    stage.rest(run, "awaiting-approval")
    assert runnable() == [(opened[1], "no-run")]
    stage.clock.forward(60)
    assert (opened[0], "approvals-lapsed") in runnable()
    assert stage.take(opened[0])["fence"] == 2
    assert stage.state_of(run, "c") == "expired"
    assert stage.me.get_thread(thread_id=opened[0]).turn_state == "open"


@pytest.mark.guarantee("G-FAULT-04")
def test_a_fence_that_cannot_rise_is_a_typed_error(stage: Stage, thread_id: str) -> None:
    """SQLite's driver and Postgres itself refuse the number, each in its own way."""
    with stage.engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE assistant_threads SET fence = {2**63 - 1}"))
    with pytest.raises(Internal):
        stage.bot.acquire_run(thread_id=thread_id, run_id="run-1")
