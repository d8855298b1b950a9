"""The person speaks, and stops the assistant: turns that open, wait and end."""

from datetime import timedelta

import pytest

from engine_assistant import ConflictReason, NotFound
from engine_assistant.testing.clock import START
from tests.rig.stage import AUDITOR, Stage, delta, dump, refused


@pytest.mark.guarantee("G-OPS-13")
def test_a_message_opens_a_turn_with_exactly_two_events(stage: Stage) -> None:
    thread = stage.me.create_thread()
    receipt = stage.me.send_message(thread_id=thread.id, text="Hello")
    assert (receipt.state, receipt.first_seq, receipt.last_seq) == ("opened", 1, 2)
    assert (receipt.turn, receipt.duplicate) == (1, False)
    said, start = stage.me.read_events(thread_id=thread.id).events
    assert (said.type, said.text, said.author) == ("user-message", "Hello", "usr_alice")
    assert (said.input_id, start.type, start.v) == (receipt.input_id, "turn-start", 1)
    assert (said.seq, start.seq, said.turn, start.turn) == (1, 2, 1, 1)
    assert said.at == start.at == START
    opened = stage.me.get_thread(thread_id=thread.id)
    assert (opened.turn_state, opened.turn, opened.last_seq) == ("open", 1, 2)


@pytest.mark.guarantee("G-OPS-13")
def test_there_are_never_two_open_turns(stage: Stage) -> None:
    run = stage.open_turn()
    before = dump(stage.engine)
    for supersede in (False, True):
        with refused(ConflictReason.TURN_IN_PROGRESS, turn=1):
            stage.me.send_message(
                thread_id=run["thread_id"], text="More", supersede_approvals=supersede
            )
    assert dump(stage.engine) == before
    stage.rest(run)
    receipt = stage.me.send_message(thread_id=run["thread_id"], text="More")
    assert (receipt.turn, receipt.first_seq) == (2, 4)


@pytest.mark.guarantee("G-OPS-14")
def test_a_send_with_a_key_happens_once_whatever_came_between(stage: Stage) -> None:
    thread = stage.me.create_thread()
    file = stage.bot.register_file(
        thread_id=thread.id, filename="a", content_type="b", size=0, sha256="0" * 64
    )
    sent = {"thread_id": thread.id, "text": "Hello", "key": "m-1", "attachment_ids": [file.id]}
    first = stage.me.send_message(**sent)
    again = first.model_copy(update={"duplicate": True})

    def is_once() -> None:
        before = dump(stage.engine)
        for given in ({}, {"supersede_approvals": True}, {"when_busy": "interrupt"}):
            receipt = stage.me.send_message(**sent, **given)
            assert receipt.model_copy(update={"answer": None}) == again
        for other in ({"text": "Bye"}, {"attachment_ids": None}, {"attachment_ids": []}):
            with refused(ConflictReason.KEY_REUSED, input_id=first.input_id):
                stage.me.send_message(**{**sent, **other})
        assert dump(stage.engine) == before

    is_once()
    run = stage.take(thread.id)
    stage.append(run, delta("x"))
    is_once()
    stage.propose(run, "c")
    stage.ask(run, "c")
    stage.rest(run, "awaiting-approval")
    is_once()
    stage.me.interrupt_turn(thread_id=thread.id)
    assert stage.me.send_message(thread_id=thread.id, text="Hello", key="m-2").turn == 2
    is_once()
    stage.me.close_thread(thread_id=thread.id)
    is_once()


@pytest.mark.guarantee("G-OPS-14")
def test_a_key_is_its_threads_own(stage: Stage) -> None:
    receipts = []
    for _ in range(2):
        thread = stage.me.create_thread()
        receipts.append(stage.me.send_message(thread_id=thread.id, text="Hello", key="m-1"))
    assert receipts[0].input_id != receipts[1].input_id
    for stranger in (stage.bob, stage.assistant.acting_as(AUDITOR)):
        with pytest.raises(NotFound):
            stranger.send_message(thread_id=thread.id, text="Hello", key="m-1")


@pytest.mark.guarantee("G-OPS-15")
def test_a_waiting_turn_takes_a_message_only_in_place_of_its_approvals(stage: Stage) -> None:
    run = stage.open_turn()
    for call_id in ("a", "b"):
        stage.propose(run, call_id)
        stage.ask(run, call_id)
    stage.rest(run, "awaiting-approval")
    before = dump(stage.engine)
    with refused(ConflictReason.APPROVAL_PENDING, turn=1):
        stage.me.send_message(thread_id=run["thread_id"], text="Never mind")
    assert dump(stage.engine) == before
    receipt = stage.me.send_message(
        thread_id=run["thread_id"], text="Never mind", supersede_approvals=True
    )
    assert receipt.turn == 2
    closed = ["call-closed", "call-closed", "user-message", "turn-start"]
    assert stage.types(run)[-4:] == closed
    events = stage.me.read_events(thread_id=run["thread_id"], last=4).events
    assert [(one.call_id, one.state, one.turn) for one in events[:2]] == [
        ("a", "superseded", 1),
        ("b", "superseded", 1),
    ]
    assert receipt.first_seq == events[2].seq
    with refused(ConflictReason.CALL_CLOSED, state="superseded"):
        stage.approve(run, "a", "0" * 64)


@pytest.mark.guarantee("G-OPS-15")
def test_only_approvals_that_have_all_lapsed_do_not_hold_a_message_back(stage: Stage) -> None:
    run = stage.open_turn()
    for call_id, seconds in (("short", 10.0), ("long", 20.0)):
        stage.propose(run, call_id)
        stage.ask(run, call_id, expires_in=seconds)
    stage.rest(run, "awaiting-approval")
    stage.clock.forward(10)
    with refused(ConflictReason.APPROVAL_PENDING):
        stage.me.send_message(thread_id=run["thread_id"], text="Still?")
    assert stage.state_of(run, "short") == "awaiting-approval"
    stage.clock.forward(10)
    stage.me.send_message(thread_id=run["thread_id"], text="Still?")
    assert {stage.state_of(run, one) for one in ("short", "long")} == {"expired"}


@pytest.mark.guarantee("G-OPS-16")
def test_the_stop_button_asks_a_live_run_and_ends_the_turn_when_asked_again_late(
    stage: Stage,
) -> None:
    run = stage.open_turn()
    thread_id = str(run["thread_id"])
    asked = stage.me.interrupt_turn(thread_id=thread_id)
    assert (asked.ended, asked.requested_at) == (False, START)
    assert stage.bot.beat_run(**run).interrupt_requested
    assert stage.bot.append_events(**run, events=[delta("x")]).interrupt_requested
    stage.clock.forward(9.999)
    stage.bot.beat_run(**run)
    again = stage.me.interrupt_turn(thread_id=thread_id)
    assert (again.ended, again.requested_at) == (False, START)
    stage.clock.forward(0.001)
    late = stage.me.interrupt_turn(thread_id=thread_id)
    assert (late.ended, late.requested_at) == (True, START)
    last = stage.me.read_events(thread_id=thread_id, last=1).events[0]
    assert (last.type, last.reason, last.at) == (
        "turn-finish",
        "interrupted",
        START + timedelta(seconds=10),
    )
    with refused(ConflictReason.RUN_FENCED):
        stage.append(run, delta("late"))
    assert stage.me.interrupt_turn(thread_id=thread_id).ended is False
    assert stage.me.send_message(thread_id=thread_id, text="Again").turn == 2
    fresh = stage.take(thread_id)
    assert not stage.bot.beat_run(**fresh).interrupt_requested


@pytest.mark.guarantee("G-OPS-16")
def test_a_clock_that_was_set_back_keeps_nobody_from_stopping(stage: Stage) -> None:
    thread_id = str(stage.open_turn()["thread_id"])
    stage.me.interrupt_turn(thread_id=thread_id)
    earlier = START - timedelta(hours=1)
    stage.clock.set(earlier)
    again = stage.me.interrupt_turn(thread_id=thread_id)
    assert (again.ended, again.requested_at) == (False, earlier)
    stage.clock.forward(10)
    assert stage.me.interrupt_turn(thread_id=thread_id).ended is True


@pytest.mark.guarantee("G-OPS-16")
def test_a_turn_that_nobody_runs_ends_at_once(stage: Stage) -> None:
    thread = stage.me.create_thread()
    before = dump(stage.engine)
    assert stage.me.interrupt_turn(thread_id=thread.id).ended is False
    assert dump(stage.engine) == before
    stage.me.send_message(thread_id=thread.id, text="Hello")
    assert stage.me.interrupt_turn(thread_id=thread.id).ended is True
    stage.me.send_message(thread_id=thread.id, text="Hello")
    run = stage.take(thread.id)
    stage.clock.forward(15)
    assert stage.me.interrupt_turn(thread_id=thread.id).ended is True
    stage.me.send_message(thread_id=thread.id, text="Hello")
    run = stage.take(thread.id)
    stage.propose(run, "c")
    stage.ask(run, "c")
    stage.rest(run, "awaiting-approval")
    assert stage.me.interrupt_turn(thread_id=thread.id).ended is True
    assert stage.state_of(run, "c") == "cancelled"
    for stranger in (stage.bob, stage.assistant.acting_as(AUDITOR)):
        with pytest.raises(NotFound):
            stranger.interrupt_turn(thread_id=thread.id)
