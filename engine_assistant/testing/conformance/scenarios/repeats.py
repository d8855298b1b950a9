"""An answer that was lost can be asked for again, and nothing happens twice."""

from engine_assistant import ConflictReason
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import INPUT, Stage, finish, words


@shows("G-OPS-05")
def a_key_opens_one_thread(stage: Stage) -> None:
    """The same key answers the same thread; with another title it is refused."""
    thread = stage.me.create_thread(title="Refund", key="case-7")
    assert stage.me.create_thread(title="Refund", key="case-7").id == thread.id
    with stage.refused(ConflictReason.KEY_REUSED, thread.id):
        stage.me.create_thread(title="Another", key="case-7")
    assert len(stage.me.list_threads().items) == 1


@shows("G-OPS-14", "G-RACE-28")
def a_message_with_a_key_is_sent_once(stage: Stage) -> None:
    """Sent again it answers the first receipt, in the middle of its turn and after it."""
    thread_id = stage.me.create_thread().id
    sent = stage.me.send_message(thread_id=thread_id, text="Hello", key="msg-1")
    assert sent.duplicate is False

    def again() -> None:
        told = stage.me.send_message(thread_id=thread_id, text="Hello", key="msg-1")
        assert told.duplicate is True
        assert (told.input_id, told.turn) == (sent.input_id, sent.turn)
        assert (told.first_seq, told.last_seq) == (sent.first_seq, sent.last_seq)

    again()
    with stage.refused(ConflictReason.KEY_REUSED, thread_id):
        stage.me.send_message(thread_id=thread_id, text="Good-bye", key="msg-1")
    stage.bot.append_events(**stage.take(thread_id), events=[finish()])
    again()
    stage.me.close_thread(thread_id=thread_id)
    again()
    assert stage.types(thread_id) == ["user-message", "turn-start", "turn-finish"]


@shows("G-OPS-23", "G-RACE-28")
def a_numbered_batch_is_written_once(stage: Stage) -> None:
    """Given again it answers the same events; one that was left out is missed."""
    held = stage.running()
    first = stage.bot.append_events(**held, events=[words("a"), words("b")], batch=1)
    again = stage.bot.append_events(**held, events=[words("a"), words("b")], batch=1)
    assert (again.events, again.duplicate) == (first.events, True)
    with stage.refused(ConflictReason.KEY_REUSED, held["thread_id"]):
        stage.bot.append_events(**held, events=[words("c")], batch=1)
    with stage.refused(ConflictReason.BATCH_GAP, held["thread_id"]):
        stage.bot.append_events(**held, events=[words("c")], batch=3)
    stage.bot.append_events(**held, events=[words("c")], batch=2)
    assert stage.types(held["thread_id"])[2:] == ["text-delta"] * 3


@shows("G-OPS-36", "G-RACE-28")
def a_claim_is_given_again_to_the_same_attempt_alone(stage: Stage) -> None:
    """The attempt that holds the right hears so; any other hears who has it."""
    held = stage.approved()
    stage.claim(held, attempt=1)
    again = stage.bot.claim_execution(
        **held,
        call_id="call-1",
        operation="refunds/create",
        version="v1",
        input=dict(INPUT),
        attempt=1,
    )
    assert (again.duplicate, again.claimed_fence) == (True, held["fence"])
    for attempt in (None, 2):
        with stage.refused(ConflictReason.ALREADY_EXECUTED, held["thread_id"]):
            stage.claim(held, attempt)
    assert stage.types(held["thread_id"]).count("execution-claimed") == 1
