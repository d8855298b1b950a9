"""From a message to the rest of its turn."""

import pytest

from engine_assistant import ConflictReason, ValidationFailed
from engine_assistant.model.events import UserMessage
from engine_assistant.testing.conformance.scenario import shows
from engine_assistant.testing.conformance.stage import Stage, finish, words


@shows("G-OPS-04", "G-OPS-13", "G-OPS-21", "G-OPS-24")
def a_turn_from_the_message_to_its_rest(stage: Stage) -> None:
    """The person speaks, a run answers, and both stand in the log as they were said."""
    thread = stage.me.create_thread(title="Refund")
    assert (thread.subject_id, thread.status, thread.turn_state) == ("alice", "open", "idle")
    assert (thread.turn, thread.last_seq) == (0, 0)
    sent = stage.me.send_message(thread_id=thread.id, text="Grüße \N{SNOWMAN}")
    assert (sent.turn, sent.first_seq, sent.last_seq) == (1, 1, 2)
    held = stage.take(thread.id)
    said = stage.bot.append_events(**held, events=[words("Hello"), words(" Alice"), finish()])
    assert said.events == stage.log(thread.id)[2:]
    assert stage.types(thread.id) == [
        "user-message",
        "turn-start",
        "text-delta",
        "text-delta",
        "turn-finish",
    ]
    message = stage.log(thread.id)[0]
    assert isinstance(message, UserMessage)
    assert (message.text, message.author) == ("Grüße \N{SNOWMAN}", "alice")
    assert stage.me.get_thread(thread_id=thread.id).turn_state == "idle"


@shows("G-OPS-13", "G-OPS-22", "G-MACH-03")
def a_refusal_leaves_nothing_behind(stage: Stage) -> None:
    """A message into an open turn, and a batch of which one event is wrong, change nothing."""
    held = stage.running()
    thread_id = held["thread_id"]
    with stage.refused(ConflictReason.TURN_IN_PROGRESS, thread_id):
        stage.me.send_message(thread_id=thread_id, text="Are you there?")
    with stage.refused(ConflictReason.NO_APPROVAL_PENDING, thread_id):
        stage.bot.append_events(**held, events=[words("kept?"), finish("awaiting-approval")])
    with pytest.raises(ValidationFailed):
        stage.bot.append_events(**held, events=[words("kept?"), {"type": "no-such-event"}])
    assert stage.types(thread_id) == ["user-message", "turn-start"]


@shows("G-MACH-05")
def a_run_speaks_for_nobody_else(stage: Stage) -> None:
    """A run can write no event that belongs to a person or to the engine."""
    held = stage.running()
    for event in (
        {"type": "turn-start", "v": 1},
        {"type": "user-message", "text": "Yes", "files": None, "author": "alice", "input_id": "i"},
        {"type": "call-closed", "call_id": "call-1", "state": "cancelled", "why": "turn"},
    ):
        with stage.refused(ConflictReason.NOT_A_RUN_EVENT, held["thread_id"]):
            stage.bot.append_events(**held, events=[event])
