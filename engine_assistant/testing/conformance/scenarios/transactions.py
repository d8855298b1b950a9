"""The doors that span several calls, and the record as a whole."""

import pytest

from engine_assistant import USE, Conflict, ConflictReason, NotFound, Operations
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import Stage, finish, output, words


@shows("G-GUEST-40", "G-GUEST-41", "G-GUEST-42")
def a_hosts_transaction_keeps_or_takes_back_everything(stage: Stage) -> None:
    """What the host rolls back is gone; what it commits is whole, a caught refusal in between."""
    alice = stage.caller("alice", USE)
    with stage.assistant.engine.connect() as connection:
        with connection.begin() as transaction:
            gone = stage.assistant.bind(connection, alice).create_thread(title="gone").id
            transaction.rollback()
        with connection.begin():
            ops = stage.assistant.bind(connection, alice)
            kept = ops.create_thread(title="kept").id
            ops.send_message(thread_id=kept, text="Hello")
            with pytest.raises(Conflict) as refusal:
                ops.send_message(thread_id=kept, text="Hello?")
            assert refusal.value.reason is ConflictReason.TURN_IN_PROGRESS
            assert ops.interrupt_turn(thread_id=kept).ended is True
    with pytest.raises(NotFound):
        stage.me.get_thread(thread_id=gone)
    assert stage.types(kept) == ["user-message", "turn-start", "turn-finish"]


@shows("G-GUEST-50")
def a_session_is_one_transaction(stage: Stage) -> None:
    """Committed at its end, and gone when something is raised in it."""
    alice = stage.caller("alice", USE)
    thread_id = stage.me.create_thread().id

    def speak_and_fail(ops: Operations) -> None:
        ops.send_message(thread_id=thread_id, text="Hello")
        raise LookupError("the host fails")

    with pytest.raises(LookupError), stage.assistant.session(alice) as ops:
        speak_and_fail(ops)
    assert stage.log(thread_id) == ()
    sent = stage.assistant.transact(
        alice, lambda ops: ops.send_message(thread_id=thread_id, text="Hello")
    )
    assert (sent.turn, len(stage.log(thread_id))) == (1, 2)


@shows("G-DOCTOR-01")
def the_doctor_finds_nothing(stage: Stage) -> None:
    """A thread in which a bit of everything happened is sound."""
    held = stage.approved()
    thread_id = held["thread_id"]
    stage.claim(held)
    stage.bot.append_events(**held, events=[words("Done."), output(), finish()])
    stage.me.send_message(thread_id=thread_id, text="Thank you")
    stage.me.interrupt_turn(thread_id=thread_id)
    stage.me.close_thread(thread_id=thread_id)
    assert list(stage.assistant.doctor(tenant=stage.tenant)) == []
