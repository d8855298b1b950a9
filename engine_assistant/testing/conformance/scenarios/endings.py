"""How turns and threads end when it is not their run that ends them."""

from engine_assistant import ConflictReason
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import Stage, finish, output, proposal, words


@shows("G-OPS-16")
def a_stop_ends_a_turn_that_nobody_runs(stage: Stage) -> None:
    """On an idle thread nothing happens; without a live run the turn is over at once."""
    thread_id = stage.me.create_thread().id
    assert stage.me.interrupt_turn(thread_id=thread_id).ended is False
    stage.me.send_message(thread_id=thread_id, text="Hello")
    assert stage.me.interrupt_turn(thread_id=thread_id).ended is True
    assert stage.types(thread_id) == ["user-message", "turn-start", "turn-finish"]
    stage.me.send_message(thread_id=thread_id, text="Hello again")


@shows("G-OPS-16", "G-MACH-12")
def a_stop_reaches_a_live_run(stage: Stage) -> None:
    """It hears of it with its next append and beat; asked again 10 s later, its turn is over."""
    held = stage.running()
    thread_id = held["thread_id"]
    stage.bot.append_events(**held, events=[proposal()])
    asked = stage.me.interrupt_turn(thread_id=thread_id)
    assert asked.ended is False
    assert asked.requested_at is not None
    assert stage.bot.append_events(**held, events=[words("a")]).interrupt_requested is True
    assert stage.bot.beat_run(**held).interrupt_requested is True
    stage.forward(10)
    assert stage.me.interrupt_turn(thread_id=thread_id).ended is True
    assert stage.state(thread_id) == "unknown"
    with stage.refused(ConflictReason.RUN_FENCED, thread_id):
        stage.bot.append_events(**held, events=[output()])


@shows("G-MACH-07", "G-MACH-08")
def a_stop_while_a_call_waits_closes_it(stage: Stage) -> None:
    """The old card approves nothing any more."""
    held = stage.running()
    thread_id = held["thread_id"]
    digest = stage.ask(held)
    stage.bot.append_events(**held, events=[finish("awaiting-approval")])
    assert stage.me.interrupt_turn(thread_id=thread_id).ended is True
    assert stage.types(thread_id)[-2:] == ["call-closed", "turn-finish"]
    assert stage.state(thread_id) == "cancelled"
    with stage.refused(ConflictReason.CALL_CLOSED, thread_id):
        stage.decide(held, digest)


@shows("G-OPS-15", "G-MACH-07")
def a_message_in_place_of_an_approval(stage: Stage) -> None:
    """A waiting turn takes no message, unless it is said that the call is given up for it."""
    held = stage.running()
    thread_id = held["thread_id"]
    digest = stage.ask(held)
    stage.bot.append_events(**held, events=[finish("awaiting-approval")])
    with stage.refused(ConflictReason.APPROVAL_PENDING, thread_id):
        stage.me.send_message(thread_id=thread_id, text="Something else")
    sent = stage.me.send_message(
        thread_id=thread_id, text="Something else", supersede_approvals=True
    )
    assert sent.turn == 2
    assert stage.types(thread_id)[-3:] == ["call-closed", "user-message", "turn-start"]
    assert stage.state(thread_id) == "superseded"
    with stage.refused(ConflictReason.CALL_CLOSED, thread_id):
        stage.decide(held, digest)


@shows("G-OPS-09", "G-RACE-16")
def a_closed_thread_takes_nothing(stage: Stage) -> None:
    """Closing ends the open call, the turn and the lease; closing again changes nothing."""
    held = stage.approved()
    thread_id = held["thread_id"]
    closed = stage.me.close_thread(thread_id=thread_id)
    assert (closed.status, closed.turn_state) == ("closed", "idle")
    assert stage.types(thread_id)[-2:] == ["call-closed", "turn-finish"]
    for attempt in (
        lambda: stage.me.send_message(thread_id=thread_id, text="Hello?"),
        lambda: stage.me.interrupt_turn(thread_id=thread_id),
        lambda: stage.me.authorize_file_upload(thread_id=thread_id),
        lambda: stage.bot.append_events(**held, events=[words("late")]),
        lambda: stage.claim(held),
        lambda: stage.take(thread_id, "run-b"),
    ):
        with stage.refused(ConflictReason.THREAD_CLOSED, thread_id):
            attempt()
    assert stage.me.close_thread(thread_id=thread_id) == closed
    idle = stage.me.create_thread().id
    stage.me.close_thread(thread_id=idle)
    assert stage.log(idle) == ()
