"""A turn that nobody will finish is given up, and the thread goes on."""

import pytest

from engine_assistant import ConflictReason, NotFound
from tests.operations.test_queue import say, wait_for_approval
from tests.rig.stage import TWIN, Stage, Values, delta, dump, refused

WHY = "the process is gone"


def _give_up(stage: Stage, run: Values, **given: object) -> tuple[int, int]:
    values: Values = {"thread_id": run["thread_id"], "reason": WHY, **given}
    told = stage.bot.abandon_turn(**values)
    return told.turn, told.seq


@pytest.mark.guarantee("G-QUEUE-17")
def test_an_abandoned_turn_ends_as_failed_with_its_calls_closed(stage: Stage) -> None:
    run = stage.open_turn()
    for call_id in ("running", "waiting", "approved", "executing"):
        stage.propose(run, call_id)
    stage.ask(run, "waiting")
    for call_id in ("approved", "executing"):
        stage.approve(run, call_id, stage.ask(run, call_id)["usr_alice"])
    stage.claim(run, "executing")
    stage.append(run, delta("Let me "))
    stage.clock.forward(15)
    turn, seq = _give_up(stage, run)
    events = stage.me.read_events(thread_id=run["thread_id"], last=5).events
    assert [(one.type, one.call_id, one.state, one.why) for one in events[:4]] == [
        ("call-closed", "running", "unknown", "abandoned"),
        ("call-closed", "waiting", "cancelled", "abandoned"),
        ("call-closed", "approved", "cancelled", "abandoned"),
        ("call-closed", "executing", "unknown", "abandoned"),
    ]
    error = events[4]
    assert (error.type, error.code, error.message) == ("turn-error", "abandoned", WHY)
    assert (turn, seq) == (1, error.seq)
    thread = stage.me.get_thread(thread_id=run["thread_id"])
    assert (thread.turn_state, thread.turn) == ("idle", 1)
    for act in (
        lambda: stage.append(run, delta("late")),
        lambda: stage.bot.beat_run(**run),
        lambda: stage.claim(run, "approved"),
    ):
        with refused(ConflictReason.RUN_FENCED):
            act()
    told: list[object] = []
    stage.assistant.drain_outbox(lambda one: told.append((one.type, one.payload.get("code"))))
    assert told[-1] == ("turn-failed", "abandoned")
    assert stage.assistant.list_runnable() == []
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-17")
@pytest.mark.parametrize("place", ["no run yet", "released", "waiting", "waiting in vain"])
def test_any_turn_that_is_not_over_can_be_given_up(stage: Stage, place: str) -> None:
    if place == "no run yet":
        run: Values = {"thread_id": stage.me.create_thread().id}
        stage.me.send_message(thread_id=run["thread_id"], text="Hello")
    else:
        run = stage.open_turn()
        if place == "released":
            stage.bot.release_run(**run)
        else:
            wait_for_approval(stage, run, expires_in=10.0)
    say(stage, run, "Next")
    if place == "waiting in vain":
        stage.clock.forward(10)
    assert _give_up(stage, run)[0] == 1
    assert stage.types(run)[-3:] == ["turn-error", "user-message", "turn-start"]
    assert stage.me.get_thread(thread_id=run["thread_id"]).turn == 2
    assert list(stage.assistant.doctor()) == []


@pytest.mark.guarantee("G-QUEUE-18")
def test_a_live_run_is_ended_only_by_who_knows_its_fence(stage: Stage) -> None:
    run = stage.open_turn()
    before = dump(stage.engine)
    with refused(ConflictReason.RUN_IN_PROGRESS, fence=1):
        _give_up(stage, run)
    with refused(ConflictReason.RUN_FENCED, fence=1):
        _give_up(stage, run, fence=2)
    assert dump(stage.engine) == before
    assert _give_up(stage, run, fence=1) == (1, 3)


@pytest.mark.guarantee("G-QUEUE-18")
def test_asking_again_never_ends_another_turn(stage: Stage) -> None:
    run = stage.open_turn()
    say(stage, run, "Next")
    _give_up(stage, run, fence=run["fence"], turn=1)
    before = dump(stage.engine)
    with refused(ConflictReason.NO_TURN_OPEN):
        _give_up(stage, run, fence=run["fence"], turn=1)
    with refused(ConflictReason.NO_TURN_OPEN):
        _give_up(stage, run, turn=1)
    with refused(ConflictReason.RUN_FENCED):
        _give_up(stage, run, fence=run["fence"])
    assert dump(stage.engine) == before
    _give_up(stage, run, turn=2)
    with refused(ConflictReason.NO_TURN_OPEN):
        _give_up(stage, run)
    stage.me.close_thread(thread_id=run["thread_id"])
    with refused(ConflictReason.THREAD_CLOSED):
        _give_up(stage, run)
    with pytest.raises(NotFound):
        stage.assistant.acting_as(TWIN["run"]).abandon_turn(thread_id=run["thread_id"], reason=WHY)
