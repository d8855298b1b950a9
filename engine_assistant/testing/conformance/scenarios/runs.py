"""The lease and its fence: one writer, also when a replaced one wakes up."""

from engine_assistant import ConflictReason
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import SHORT, Held, Stage, finish, words


@shows("G-OPS-26", "G-OPS-27", "G-RACE-07", "G-RACE-08")
def a_replaced_run_writes_nothing(stage: Stage) -> None:
    """Another run takes over when the lease has run out; what the old one wants is refused."""
    old = stage.running(stale_after=SHORT)
    thread_id = old["thread_id"]
    new = stage.take_over(thread_id)
    assert new["fence"] > old["fence"]
    stolen = Held(thread_id=thread_id, run_id=old["run_id"], fence=new["fence"])
    mixed = Held(thread_id=thread_id, run_id=new["run_id"], fence=old["fence"])
    for attempt in (
        lambda: stage.bot.append_events(**old, events=[words("late")]),
        lambda: stage.bot.beat_run(**old),
        lambda: stage.bot.append_events(**stolen, events=[words("late")]),
        lambda: stage.bot.append_events(**mixed, events=[words("late")]),
    ):
        with stage.refused(ConflictReason.RUN_FENCED, thread_id):
            attempt()
    assert stage.bot.release_run(**old) is False
    stage.bot.append_events(**new, events=[words("here")])


@shows("G-OPS-26", "G-OPS-27", "G-OPS-28")
def a_live_run_is_not_replaced(stage: Stage) -> None:
    """While the lease lasts nobody else gets it; presenting its own fence is a renewal."""
    held = stage.running()
    with stage.refused(ConflictReason.RUN_IN_PROGRESS, held["thread_id"]):
        stage.take(held["thread_id"], "run-b")
    lease = stage.bot.acquire_run(**held)
    assert (lease.fence, lease.took_over) == (held["fence"], False)
    assert stage.take(held["thread_id"], held["run_id"])["fence"] > held["fence"]


@shows("G-OPS-29", "G-OPS-30")
def a_lease_that_was_given_up_is_free(stage: Stage) -> None:
    """Released, it can be taken; when the turn has come to rest, there is none to take."""
    held = stage.running()
    assert stage.bot.release_run(**held) is True
    with stage.refused(ConflictReason.RUN_FENCED, held["thread_id"]):
        stage.bot.append_events(**held, events=[words("late")])
    next_held = stage.take(held["thread_id"], "run-b")
    stage.bot.append_events(**next_held, events=[finish()])
    with stage.refused(ConflictReason.NO_TURN_OPEN, held["thread_id"]):
        stage.take(held["thread_id"], "run-c")


@shows("G-MACH-11", "G-RACE-14")
def a_run_that_slept_cannot_write_into_the_next_turn(stage: Stage) -> None:
    """The turn was ended without it and another message came: its fence is worth nothing."""
    held = stage.running(stale_after=SHORT)
    thread_id = held["thread_id"]
    stage.bot.append_events(**stage.take_over(thread_id), events=[finish()])
    stage.me.send_message(thread_id=thread_id, text="And order 8?")
    with stage.refused(ConflictReason.RUN_FENCED, thread_id):
        stage.bot.append_events(**held, events=[words("late")])
    assert stage.take(thread_id)["fence"] > held["fence"]
    with stage.refused(ConflictReason.RUN_FENCED, thread_id):
        stage.bot.append_events(**held, events=[words("late")])
